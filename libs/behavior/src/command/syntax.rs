//! The part of the shell's language that says plainly what is done: simple commands in a sequence,
//! loops of these, quotes, variables, redirections.
//!
//! From the first thing beyond it (pipes, substitutions, patterns, other compound commands,
//! here-documents) the rest of a script is [`Step::Unclear`].

use std::str::Chars;

/// A step of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    Command(SimpleCommand<'a>, Then),
    Loop(Loop<'a>, Then),
    /// The rest of the script, of which nothing is known, by its first line.
    Unclear(&'a str),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimpleCommand<'a> {
    /// The text it is read from.
    pub source: &'a str,
    pub assignments: Vec<(String, Word)>,
    pub words: Vec<Word>,
    pub output: Sink,
    pub errors: Sink,
}

/// A destination of what a command writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sink {
    /// The stream that it is written to.
    #[default]
    Own,
    /// The standard output of the script.
    Output,
    /// Its standard error.
    Errors,
    /// `/dev/null`.
    Nothing,
    /// A file, which is emptied first unless it is appended to.
    File { path: String, is_appended: bool },
}

impl SimpleCommand<'_> {
    /// Returns `true` if a stream leads elsewhere than to the log.
    pub fn is_redirected(&self) -> bool {
        let is_elsewhere = |sink: &Sink| matches!(sink, Sink::Nothing | Sink::File { .. });
        is_elsewhere(&self.output) || is_elsewhere(&self.errors)
    }
}

/// `for`, `while` or `until`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop<'a> {
    /// The first line of the text it is read from.
    pub source: &'a str,
    pub head: LoopHead<'a>,
    /// Commands only.
    pub body: Vec<Step<'a>>,
}

/// The part of a loop that says how often it repeats its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoopHead<'a> {
    /// One command as the condition.
    Condition {
        command: SimpleCommand<'a>,
        /// Whether the loop continues while the condition succeeds (`while`), rather than while it
        /// fails (`until`).
        is_while: bool,
    },
    /// The values of a variable (`for`).
    Values { variable: String, words: Vec<Word> },
}

impl<'a> Step<'a> {
    /// Returns the text that the command was parsed from; that of a loop is its condition, or its
    /// first line.
    pub fn source(&self) -> &'a str {
        match self {
            Step::Command(command, _) => command.source,
            Step::Loop(Loop { head: LoopHead::Condition { command, .. }, .. }, _) => command.source,
            Step::Loop(looped, _) => looped.source,
            Step::Unclear(source) => source,
        }
    }
}

/// The condition of the step that follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    #[default]
    Always,
    IfSucceeded,
    IfFailed,
    /// At once: this one runs in the background.
    Meanwhile,
}

/// Pieces that follow each other without a blank.
pub type Word = Vec<Piece>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text { text: String, is_quoted: bool },
    Variable { name: String, is_quoted: bool },
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(Word),
    /// The end of a command, or of a line without one.
    Then(Then),
    /// `>` and its like, with the number before it: the next word is a file or a number.
    Redirect {
        stream: Stream,
        is_duplicate: bool,
        is_appended: bool,
    },
    Unclear,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Input,
    Output,
    Errors,
}

/// A command, and the token that ends it.
enum Parsed<'a> {
    Command(SimpleCommand<'a>, Then),
    /// A line without a command.
    Nothing,
    /// A reserved word where a command could begin.
    Reserved(String),
    End,
    Unclear,
}

/// Reads a script.
pub fn parse(script: &str) -> Vec<Step<'_>> {
    let mut parser = Parser { rest: Cursor(script.chars()) };
    let mut steps = Vec::new();
    loop {
        let start = parser.rest.text();
        match parser.command() {
            Parsed::Command(command, then) => steps.push(Step::Command(command, then)),
            // Nothing follows `&&` where something has to.
            Parsed::Nothing | Parsed::End if is_list_open(&steps) => {
                steps.push(Step::Unclear(steps.last().map_or(start, Step::source)));
                return steps;
            }
            Parsed::Nothing => {}
            Parsed::End => return without_background_lists(steps),
            Parsed::Reserved(word) if matches!(word.as_str(), "for" | "while" | "until") => {
                match parser.loop_after(&word, first_line(start)) {
                    Some((looped, then)) => steps.push(Step::Loop(looped, then)),
                    None => {
                        steps.push(Step::Unclear(first_line(start)));
                        return without_background_lists(steps);
                    }
                }
            }
            Parsed::Reserved(_) | Parsed::Unclear => {
                steps.push(Step::Unclear(first_line(start)));
                return without_background_lists(steps);
            }
        }
    }
}

fn then(step: &Step) -> Option<Then> {
    match step {
        Step::Command(_, then) | Step::Loop(_, then) => Some(*then),
        Step::Unclear(_) => None,
    }
}

fn first_line(text: &str) -> &str {
    text.trim_start().lines().next().unwrap_or_default()
}

/// Returns `true` if the last command is followed by `&&` or `||`. A line may end there.
fn is_list_open(steps: &[Step]) -> bool {
    matches!(steps.last().and_then(then), Some(Then::IfSucceeded | Then::IfFailed))
}

/// Replaces a list of several commands that runs in the background, and everything after it.
fn without_background_lists(mut steps: Vec<Step<'_>>) -> Vec<Step<'_>> {
    let is_open = |step: &Step| matches!(then(step), Some(Then::IfSucceeded | Then::IfFailed));
    let Some(end) =
        steps.windows(2).position(|pair| is_open(&pair[0]) && then(&pair[1]) == Some(Then::Meanwhile))
    else {
        return steps;
    };
    let start = steps[..=end].iter().rposition(|step| !is_open(step)).map_or(0, |before| before + 1);
    let source = steps[start].source();
    steps.truncate(start);
    steps.push(Step::Unclear(source));
    steps
}

fn is_reserved(word: &str) -> bool {
    const WORDS: [&str; 19] = [
        "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "select",
        "function", "{", "}", "!", "[[", "time",
    ];
    WORDS.contains(&word)
}

/// Returns the text of a word without quotes and variables.
fn plain(word: &Word) -> Option<&str> {
    match word.as_slice() {
        [Piece::Text { text, is_quoted: false }] => Some(text),
        _ => None,
    }
}

/// Returns the variable and the value of a word such as `A=b`.
fn assignment(word: &Word) -> Option<(String, Word)> {
    let (Piece::Text { text, is_quoted: false }, rest) = word.split_first()? else { return None };
    let (name, value) = text.split_once('=')?;
    if !is_name(name) {
        return None;
    }
    let value = Piece::Text { text: value.to_owned(), is_quoted: true };
    Some((name.to_owned(), std::iter::once(value).chain(rest.iter().cloned()).collect()))
}

/// Returns `true` if a text is the name of a variable.
pub fn is_name(text: &str) -> bool {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(is_start) && text.chars().all(|c| is_start(c) || c.is_ascii_digit())
}

/// The characters that are left of a script.
#[derive(Clone)]
struct Cursor<'a>(Chars<'a>);

impl<'a> Cursor<'a> {
    fn text(&self) -> &'a str {
        self.0.as_str()
    }

    fn peek(&self) -> Option<char> {
        self.0.clone().next()
    }

    fn next(&mut self) -> Option<char> {
        self.0.next()
    }

    fn next_if(&mut self, is_wanted: impl FnOnce(char) -> bool) -> Option<char> {
        self.peek().filter(|c| is_wanted(*c))?;
        self.next()
    }
}

impl SimpleCommand<'_> {
    /// Redirects a stream to a file, or to where another stream leads. Returns `false` if that is
    /// not plain.
    fn redirect(&mut self, stream: Stream, is_duplicate: bool, is_appended: bool, target: &str) -> bool {
        let is_file = |sink: &Sink| matches!(sink, Sink::File { .. });
        let or = |sink: &Sink, own: Sink| if *sink == Sink::Own { own } else { sink.clone() };
        let sink = match (is_duplicate, target) {
            (true, "1") => or(&self.output, Sink::Output),
            (true, "2") => or(&self.errors, Sink::Errors),
            (true, _) => return false,
            (false, "/dev/null") => Sink::Nothing,
            (false, file) if ERRORS.contains(&file) => Sink::Errors,
            (false, file) if OUTPUTS.contains(&file) => Sink::Output,
            (false, file) => Sink::File { path: file.to_owned(), is_appended },
        };
        let replaced = match stream {
            // Nothing is read from a file that may not exist.
            Stream::Input => return !is_file(&sink),
            Stream::Output => std::mem::replace(&mut self.output, sink),
            Stream::Errors => std::mem::replace(&mut self.errors, sink),
        };
        // The shell creates the file that it does not write.
        let has_two = self.output != self.errors && is_file(&self.output) && is_file(&self.errors);
        !is_file(&replaced) && !has_two
    }
}

struct Parser<'a> {
    rest: Cursor<'a>,
}

impl<'a> Parser<'a> {
    fn command(&mut self) -> Parsed<'a> {
        let start = self.rest.text();
        let mut parsed = self.command_without_source();
        if let Parsed::Command(command, _) = &mut parsed {
            let source = &start[..start.len() - self.rest.text().len()];
            command.source = source.trim_end_matches([' ', '\t', '\n', ';', '&', '|']).trim_start();
        }
        parsed
    }

    fn command_without_source(&mut self) -> Parsed<'a> {
        let mut command = SimpleCommand::default();
        loop {
            let has_words = !command.words.is_empty() || !command.assignments.is_empty();
            let is_empty = !has_words && !command.is_redirected();
            match self.token() {
                None if is_empty => return Parsed::End,
                None => return Parsed::Command(command, Then::Always),
                Some(Token::Then(Then::Always)) if is_empty => return Parsed::Nothing,
                Some(Token::Then(_)) if is_empty => return Parsed::Unclear,
                Some(Token::Then(then)) => return Parsed::Command(command, then),
                // A line that goes on.
                Some(Token::Word(word)) if word.is_empty() => {}
                Some(Token::Word(word)) if command.words.is_empty() => {
                    if let Some(reserved) = plain(&word).filter(|word| is_reserved(word)) {
                        return if is_empty {
                            Parsed::Reserved(reserved.to_owned())
                        } else {
                            Parsed::Unclear
                        };
                    }
                    match assignment(&word) {
                        Some(assignment) => command.assignments.push(assignment),
                        None => command.words.push(word),
                    }
                }
                Some(Token::Word(word)) => command.words.push(word),
                Some(Token::Redirect { stream, is_duplicate, is_appended }) => {
                    let Some(Token::Word(target)) = self.token() else { return Parsed::Unclear };
                    let Some(target) = file(&target) else { return Parsed::Unclear };
                    if !command.redirect(stream, is_duplicate, is_appended, target) {
                        return Parsed::Unclear;
                    }
                }
                Some(Token::Unclear) => return Parsed::Unclear,
            }
        }
    }

    /// Parses the loop after its first word; None if it is not plain: an empty body is an error.
    fn loop_after(&mut self, keyword: &str, source: &'a str) -> Option<(Loop<'a>, Then)> {
        let head = match keyword {
            "for" => self.values()?,
            _ => {
                let Parsed::Command(command, Then::Always) = self.command() else { return None };
                LoopHead::Condition { command, is_while: keyword == "while" }
            }
        };
        let mut body = Vec::new();
        self.reserved("do")?;
        loop {
            match self.command() {
                Parsed::Command(command, then) => body.push(Step::Command(command, then)),
                Parsed::Nothing => {}
                Parsed::Reserved(word) if word == "done" && !body.is_empty() && !is_list_open(&body) => break,
                _ => return None,
            }
        }
        let body = without_background_lists(body);
        let then = match self.token() {
            None => Then::Always,
            Some(Token::Then(then)) => then,
            _ => return None,
        };
        Some((Loop { source, head, body }, then))
    }

    /// Parses `NAME in WORD ...` up to its end. Without words the loop is over the parameters of
    /// the script, which is not plain.
    fn values(&mut self) -> Option<LoopHead<'a>> {
        let Token::Word(name) = self.token()? else { return None };
        let variable = plain(&name).filter(|name| is_name(name))?.to_owned();
        let Token::Word(word) = self.token()? else { return None };
        plain(&word).filter(|word| *word == "in")?;
        let mut words = Vec::new();
        loop {
            match self.token()? {
                Token::Word(word) => words.push(word),
                Token::Then(Then::Always) => return Some(LoopHead::Values { variable, words }),
                _ => return None,
            }
        }
    }

    fn reserved(&mut self, wanted: &str) -> Option<()> {
        loop {
            match self.token()? {
                Token::Then(Then::Always) => {}
                Token::Word(word) => return (plain(&word) == Some(wanted)).then_some(()),
                _ => return None,
            }
        }
    }

    fn token(&mut self) -> Option<Token> {
        loop {
            match self.rest.peek()? {
                ' ' | '\t' => drop(self.rest.next()),
                '#' => while self.rest.next_if(|c| c != '\n').is_some() {},
                _ => break,
            }
        }
        let token = match self.rest.peek()? {
            '\n' => {
                self.rest.next();
                Token::Then(Then::Always)
            }
            ';' => match self.twice(';') {
                true => Token::Unclear,
                false => Token::Then(Then::Always),
            },
            '&' => match self.twice('&') {
                true => Token::Then(Then::IfSucceeded),
                // Shells differ about `&>`.
                false if self.rest.peek() == Some('>') => Token::Unclear,
                false => Token::Then(Then::Meanwhile),
            },
            '|' => match self.twice('|') {
                true => Token::Then(Then::IfFailed),
                false => Token::Unclear,
            },
            '(' | ')' => Token::Unclear,
            '<' | '>' => self.redirect(),
            first @ '0'..='9' => {
                // A digit is the number of a file only immediately before a redirection.
                let mut ahead = self.rest.clone();
                ahead.next();
                match ahead.peek() {
                    Some('<' | '>') => {
                        self.rest.next();
                        match (first, self.redirect()) {
                            ('2', Token::Redirect { stream: Stream::Output, is_duplicate, is_appended }) => {
                                Token::Redirect { stream: Stream::Errors, is_duplicate, is_appended }
                            }
                            ('0' | '1', redirect) => redirect,
                            _ => Token::Unclear,
                        }
                    }
                    _ => self.word(),
                }
            }
            _ => self.word(),
        };
        Some(token)
    }

    /// Passes a character, and another one if it is the same.
    fn twice(&mut self, c: char) -> bool {
        self.rest.next();
        self.rest.next_if(|next| next == c).is_some()
    }

    fn redirect(&mut self) -> Token {
        let stream = if self.rest.next() == Some('>') { Stream::Output } else { Stream::Input };
        if stream == Stream::Input && self.rest.peek() == Some('<') {
            return Token::Unclear;
        }
        let sign = self.rest.next_if(|c| stream == Stream::Output && matches!(c, '>' | '|'));
        let is_duplicate = self.rest.next_if(|c| c == '&').is_some();
        Token::Redirect { stream, is_duplicate, is_appended: sign == Some('>') }
    }

    fn word(&mut self) -> Token {
        let (mut word, mut text) = (Word::new(), String::new());
        let end = |word: &mut Word, text: &mut String, is_quoted: bool| {
            if !text.is_empty() {
                word.push(Piece::Text { text: std::mem::take(text), is_quoted });
            }
        };
        // Quotes make a field, even an empty one.
        let end_quote = |word: &mut Word, text: &mut String| {
            word.push(Piece::Text { text: std::mem::take(text), is_quoted: true });
        };
        while let Some(c) = self.rest.peek() {
            match c {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => break,
                // The command of this name, rather than a pattern.
                '[' if word.is_empty()
                    && text.is_empty()
                    && self.rest.text()[1..].starts_with([' ', '\t']) =>
                {
                    self.rest.next();
                    text.push(c);
                }
                '*' | '?' | '[' | '`' | '~' | '\r' => return Token::Unclear,
                '{' | '}' if !text.is_empty() || !word.is_empty() => return Token::Unclear,
                '\'' => {
                    self.rest.next();
                    end(&mut word, &mut text, false);
                    loop {
                        match self.rest.next() {
                            Some('\'') => break,
                            Some(c) => text.push(c),
                            None => return Token::Unclear,
                        }
                    }
                    end_quote(&mut word, &mut text);
                }
                '"' => {
                    self.rest.next();
                    end(&mut word, &mut text, false);
                    loop {
                        match self.rest.next() {
                            Some('"') => break,
                            Some('\\') => match self.rest.next() {
                                Some('\n') => {}
                                Some(c @ ('"' | '\\' | '$' | '`')) => text.push(c),
                                Some(c) => text.extend(['\\', c]),
                                None => return Token::Unclear,
                            },
                            Some('`') | None => return Token::Unclear,
                            Some('$') => {
                                end(&mut word, &mut text, true);
                                match self.variable(true) {
                                    Some(piece) => word.push(piece),
                                    None => return Token::Unclear,
                                }
                            }
                            Some(c) => text.push(c),
                        }
                    }
                    end_quote(&mut word, &mut text);
                }
                '\\' => {
                    self.rest.next();
                    match self.rest.next() {
                        Some('\n') => {}
                        Some(c) => {
                            end(&mut word, &mut text, false);
                            word.push(Piece::Text { text: c.to_string(), is_quoted: true });
                        }
                        None => return Token::Unclear,
                    }
                }
                '$' => {
                    self.rest.next();
                    end(&mut word, &mut text, false);
                    match self.variable(false) {
                        Some(piece) => word.push(piece),
                        None => return Token::Unclear,
                    }
                }
                c => {
                    self.rest.next();
                    text.push(c);
                }
            }
        }
        end(&mut word, &mut text, false);
        Token::Word(word)
    }

    /// Parses the piece after a dollar sign; None for a substitution or a parameter that is not
    /// plain.
    fn variable(&mut self, is_quoted: bool) -> Option<Piece> {
        let mut name = String::new();
        match self.rest.peek().unwrap_or(' ') {
            '{' => {
                self.rest.next();
                loop {
                    match self.rest.next()? {
                        '}' => break,
                        c => name.push(c),
                    }
                }
                let is_plain = is_name(&name) || name == "?" || name.parse::<u8>().is_ok();
                is_plain.then_some(Piece::Variable { name, is_quoted })
            }
            '?' | '0'..='9' => {
                name.extend(self.rest.next());
                Some(Piece::Variable { name, is_quoted })
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                while let Some(c) = self.rest.next_if(|c| c.is_ascii_alphanumeric() || c == '_') {
                    name.push(c);
                }
                Some(Piece::Variable { name, is_quoted })
            }
            '(' | '$' | '@' | '*' | '#' | '!' | '-' | '\'' | '"' => None,
            _ => Some(Piece::Text { text: "$".to_owned(), is_quoted: true }),
        }
    }
}

/// Returns the name of a file without variables.
fn file(word: &Word) -> Option<&str> {
    match word.as_slice() {
        [Piece::Text { text, .. }] => Some(text),
        _ => None,
    }
}

/// The files of the log to which errors go.
const ERRORS: [&str; 3] = ["/dev/stderr", "/proc/1/fd/2", "/proc/self/fd/2"];

/// The files to which output goes.
const OUTPUTS: [&str; 3] = ["/dev/stdout", "/proc/1/fd/1", "/proc/self/fd/1"];
