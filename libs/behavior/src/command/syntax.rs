//! The part of the shell's language that says plainly what is done: simple commands in a sequence, quotes, variables, redirections.
//!
//! The rest of a script from the first thing beyond it (pipes, substitutions, patterns, compound commands, here-documents) is
//! [`Step::Unclear`].

use std::iter::Peekable;
use std::str::Chars;

/// A step of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Command(SimpleCommand),
    /// A loop that never ends.
    Endless,
    /// The rest of the script, of which nothing is known.
    Unclear,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimpleCommand {
    pub assignments: Vec<(String, Word)>,
    pub words: Vec<Word>,
    /// Whether what it writes goes elsewhere than to the log.
    pub is_redirected: bool,
    pub then: Then,
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
    /// What ends a command; None ends the line without a command.
    Then(Then),
    /// `>` and its like, with the number before it: the next word is a file or a number.
    Redirect {
        is_output: bool,
        is_duplicate: bool,
    },
    Unclear,
}

/// Reads a script.
pub fn parse(script: &str) -> Vec<Step> {
    let mut tokens = Tokens { rest: script.chars().peekable() };
    let (mut steps, mut command) = (Vec::new(), SimpleCommand::default());
    loop {
        let is_empty = command.words.is_empty() && command.assignments.is_empty();
        match tokens.next() {
            None => {
                if !is_empty {
                    steps.push(Step::Command(command));
                }
                return steps;
            }
            Some(Token::Then(then)) if is_empty => {
                if then != Then::Always {
                    steps.push(Step::Unclear);
                    return steps;
                }
            }
            Some(Token::Then(then)) => {
                steps.push(Step::Command(SimpleCommand { then, ..std::mem::take(&mut command) }));
            }
            // A line that goes on.
            Some(Token::Word(word)) if word.is_empty() => {}
            Some(Token::Word(word)) => {
                if command.words.is_empty() {
                    match plain(&word) {
                        Some("while" | "until") => {
                            steps.push(if is_endless(&mut tokens, &word) {
                                Step::Endless
                            } else {
                                Step::Unclear
                            });
                            return steps;
                        }
                        Some(
                            "if" | "for" | "case" | "select" | "function" | "{" | "}" | "!" | "then" | "do"
                            | "done" | "fi" | "[[" | "time",
                        ) => {
                            steps.push(Step::Unclear);
                            return steps;
                        }
                        _ => {}
                    }
                    if let Some(assignment) = assignment(&word) {
                        command.assignments.push(assignment);
                        continue;
                    }
                }
                command.words.push(word);
            }
            Some(Token::Redirect { is_output, is_duplicate }) => {
                let Some(Token::Word(target)) = tokens.next() else {
                    steps.push(Step::Unclear);
                    return steps;
                };
                let is_log = is_duplicate
                    || matches!(
                        plain(&target),
                        Some(
                            "/dev/stdout"
                                | "/dev/stderr"
                                | "/proc/1/fd/1"
                                | "/proc/1/fd/2"
                                | "/proc/self/fd/1"
                        )
                    );
                command.is_redirected |= is_output && !is_log;
            }
            Some(Token::Unclear) => {
                steps.push(Step::Unclear);
                return steps;
            }
        }
    }
}

/// Whether the condition of a loop never ends it: `while true`, `while :`, `until false`, `while sleep 1`.
fn is_endless(tokens: &mut Tokens<'_>, keyword: &Word) -> bool {
    let Some(Token::Word(condition)) = tokens.next() else { return false };
    match (plain(keyword), plain(&condition)) {
        (Some("while"), Some("true" | ":")) | (Some("until"), Some("false")) => {
            matches!(tokens.next(), Some(Token::Then(Then::Always)))
        }
        (Some("while"), Some("sleep")) => {
            matches!(tokens.next(), Some(Token::Word(_)))
                && matches!(tokens.next(), Some(Token::Then(Then::Always)))
        }
        _ => false,
    }
}

/// The text of a word without quotes and variables.
fn plain(word: &Word) -> Option<&str> {
    match word.as_slice() {
        [Piece::Text { text, is_quoted: false }] => Some(text),
        _ => None,
    }
}

/// The variable and the value of a word such as `A=b`.
fn assignment(word: &Word) -> Option<(String, Word)> {
    let (Piece::Text { text, is_quoted: false }, rest) = word.split_first()? else { return None };
    let (name, value) = text.split_once('=')?;
    if !is_name(name) {
        return None;
    }
    let value = Piece::Text { text: value.to_owned(), is_quoted: true };
    Some((name.to_owned(), std::iter::once(value).chain(rest.iter().cloned()).collect()))
}

/// Whether a text is the name of a variable.
pub fn is_name(text: &str) -> bool {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(is_start) && text.chars().all(|c| is_start(c) || c.is_ascii_digit())
}

struct Tokens<'a> {
    rest: Peekable<Chars<'a>>,
}

impl Tokens<'_> {
    fn next(&mut self) -> Option<Token> {
        loop {
            match *self.rest.peek()? {
                ' ' | '\t' | '\r' => drop(self.rest.next()),
                '#' => while self.rest.next_if(|c| *c != '\n').is_some() {},
                _ => break,
            }
        }
        let token = match *self.rest.peek()? {
            '\n' => self.one(Token::Then(Then::Always)),
            ';' => match self.twice(';') {
                true => Token::Unclear,
                false => Token::Then(Then::Always),
            },
            '&' => match self.twice('&') {
                true => Token::Then(Then::IfSucceeded),
                false if self.rest.peek() == Some(&'>') => self.redirect(),
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
                            // The programs that are known here write no errors.
                            ('2', Token::Redirect { is_duplicate, .. }) => {
                                Token::Redirect { is_output: false, is_duplicate }
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

    fn one(&mut self, token: Token) -> Token {
        self.rest.next();
        token
    }

    /// Passes a character, and another one if it is the same.
    fn twice(&mut self, c: char) -> bool {
        self.rest.next();
        self.rest.next_if_eq(&c).is_some()
    }

    fn redirect(&mut self) -> Token {
        let is_output = self.rest.next() == Some('>');
        if !is_output && self.rest.peek() == Some(&'<') {
            return Token::Unclear;
        }
        let _ = self.rest.next_if(|c| is_output && matches!(c, '>' | '|'));
        let is_duplicate = self.rest.next_if_eq(&'&').is_some();
        Token::Redirect { is_output, is_duplicate }
    }

    fn word(&mut self) -> Token {
        let (mut word, mut text) = (Word::new(), String::new());
        let mut has_quotes = false;
        let end = |word: &mut Word, text: &mut String, is_quoted: bool| {
            if !text.is_empty() {
                word.push(Piece::Text { text: std::mem::take(text), is_quoted });
            }
        };
        while let Some(&c) = self.rest.peek() {
            match c {
                ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => break,
                '*' | '?' | '[' | '`' | '~' => return Token::Unclear,
                '{' | '}' if !text.is_empty() || !word.is_empty() => return Token::Unclear,
                '\'' => {
                    self.rest.next();
                    end(&mut word, &mut text, false);
                    has_quotes = true;
                    loop {
                        match self.rest.next() {
                            Some('\'') => break,
                            Some(c) => text.push(c),
                            None => return Token::Unclear,
                        }
                    }
                    end(&mut word, &mut text, true);
                }
                '"' => {
                    self.rest.next();
                    end(&mut word, &mut text, false);
                    has_quotes = true;
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
                    end(&mut word, &mut text, true);
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
        if word.is_empty() && has_quotes {
            word.push(Piece::Text { text: String::new(), is_quoted: true });
        }
        Token::Word(word)
    }

    /// What follows a dollar sign; None for a substitution or a parameter that is not plain.
    fn variable(&mut self, is_quoted: bool) -> Option<Piece> {
        let mut name = String::new();
        match *self.rest.peek().unwrap_or(&' ') {
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
                while let Some(c) = self.rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    name.push(c);
                }
                Some(Piece::Variable { name, is_quoted })
            }
            '(' | '$' | '@' | '*' | '#' | '!' | '-' | '\'' | '"' => None,
            _ => Some(Piece::Text { text: "$".to_owned(), is_quoted: true }),
        }
    }
}
