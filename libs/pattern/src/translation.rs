//! The translation of patterns, element by element.

use std::cmp::Ordering;

use crate::PatternError;

/// The length of a pattern, in bytes: while it is parsed, some of its characters take a thousand
/// times as much.
const MAX_LENGTH: usize = 10_000;
/// The number of times that a pattern may repeat something, as Go limits it.
const MAX_REPEAT: u32 = 1000;

/// A pattern on its way from one syntax to the other.
struct Translation<'t> {
    text: &'t str,
    rest: &'t str,
    out: String,
    /// The groups that are open: the largest number of times that each repeats something so far.
    open: Vec<u32>,
    /// As for an open group, of the whole pattern or of the group that is parsed.
    repeats: u32,
    /// What a repetition may repeat.
    before: Before<'t>,
}

/// What stands before a repetition operator.
#[derive(Clone, Copy)]
enum Before<'t> {
    /// Nothing that can be repeated.
    Nothing,
    /// A character, a class or a group, which repeats something so many times.
    Element(u32),
    /// Another repetition, which begins here.
    Repetition(&'t str),
}

/// Translates a pattern from Go's syntax to that of the `regex` crate.
///
/// # Errors
/// The error that Go finds.
pub(crate) fn translate(text: &str) -> Result<String, PatternError> {
    if text.len() > MAX_LENGTH {
        return Err(PatternError::TooLarge);
    }
    let mut translation = Translation {
        text,
        rest: text,
        out: String::with_capacity(text.len()),
        open: Vec::new(),
        repeats: 1,
        before: Before::Nothing,
    };
    loop {
        let start = translation.rest;
        let Some(c) = translation.next() else { break };
        translation.element(c, start)?;
    }
    if !translation.open.is_empty() {
        return Err(PatternError::MissingParenthesis(text.to_owned()));
    }
    Ok(translation.out)
}

impl<'t> Translation<'t> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    /// Parses an element of a pattern.
    ///
    /// - `start`: the text that begins with it
    fn element(&mut self, c: char, start: &'t str) -> Result<(), PatternError> {
        match c {
            '\\' => {
                self.escape(start)?;
                self.before = Before::Element(1);
            }
            '[' => {
                self.class(start)?;
                self.before = Before::Element(1);
            }
            '(' => {
                self.group()?;
                self.before = Before::Nothing;
            }
            ')' => {
                let outside = self.open.pop();
                let outside = outside.ok_or(PatternError::UnexpectedParenthesis(self.text.to_owned()))?;
                self.before = Before::Element(self.repeats);
                self.repeats = self.repeats.max(outside);
                self.out.push(c);
            }
            '|' => {
                self.out.push(c);
                self.before = Before::Nothing;
            }
            '*' | '+' | '?' => self.repeat(start, c.encode_utf8(&mut [0; 4]), 1)?,
            '{' => self.counted(start)?,
            // The end of no class is a character.
            '}' | ']' => {
                self.out.push('\\');
                self.out.push(c);
                self.before = Before::Element(1);
            }
            c => {
                self.out.push(c);
                self.before = Before::Element(1);
            }
        }
        Ok(())
    }

    /// Parses the rest of a repetition operator, which repeats at most so many times.
    ///
    /// - `start`: the text that begins with it
    fn repeat(&mut self, start: &'t str, operator: &str, most: u32) -> Result<(), PatternError> {
        let is_lazy = self.rest.starts_with('?');
        self.rest = self.rest.strip_prefix('?').unwrap_or(self.rest);
        let inner = match self.before {
            Before::Nothing => return Err(PatternError::MissingArgument(self.upto_here(start))),
            Before::Repetition(first) => return Err(PatternError::NestedRepetition(self.upto_here(first))),
            Before::Element(repeats) => repeats,
        };
        let repeats = inner.saturating_mul(most.max(1));
        if most > 1 && repeats > MAX_REPEAT {
            return Err(PatternError::RepeatCount(self.upto_here(start)));
        }
        self.repeats = self.repeats.max(repeats);
        self.out.push_str(operator);
        self.out.push_str(if is_lazy { "?" } else { "" });
        self.before = Before::Repetition(start);
        Ok(())
    }

    /// Parses `{n}`, `{n,}` or `{n,m}`; anything else is text.
    fn counted(&mut self, start: &'t str) -> Result<(), PatternError> {
        let counts = self.rest.split_once('}').and_then(|(inside, after)| {
            let (least, most) = inside.split_once(',').unwrap_or((inside, inside));
            let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
            (!least.is_empty() && number(least) && number(most)).then_some((inside, least, most, after))
        });
        let Some((inside, least, most, after)) = counts else {
            self.out.push_str("\\{");
            self.before = Before::Element(1);
            return Ok(());
        };
        let count = |text: &str| text.parse::<u32>().ok().filter(|count| *count <= MAX_REPEAT);
        let largest = match (count(least), most) {
            (least, "") => least,
            (Some(least), most) => count(most).filter(|most| least <= *most),
            (None, _) => None,
        };
        let operator = format!("{{{inside}}}");
        let Some(largest) = largest else { return Err(PatternError::RepeatCount(operator)) };
        self.rest = after;
        self.repeat(start, &operator, largest)
    }

    fn group(&mut self) -> Result<(), PatternError> {
        let start = self.rest;
        let Some(rest) = start.strip_prefix('?') else {
            self.open_group("(");
            return Ok(());
        };
        if let Some(named) = rest.strip_prefix("P<").or_else(|| rest.strip_prefix('<')) {
            let wrong = |text: &str| PatternError::NamedCapture(format!("({text}"));
            let (name, after) = named.split_once('>').ok_or_else(|| wrong(start))?;
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(is_word) {
                return Err(wrong(&start[..start.len() - after.len()]));
            }
            self.rest = after;
            // Names may be there twice, and nobody asks for them.
            self.open_group("(");
            return Ok(());
        }
        self.rest = rest;
        self.flags(start)
    }

    fn open_group(&mut self, text: &str) {
        self.out.push_str(text);
        self.open.push(std::mem::replace(&mut self.repeats, 1));
    }

    /// Parses the flags of a group, or those from here on. Each may be set and reset many times.
    ///
    /// - `start`: the text after the parenthesis
    fn flags(&mut self, start: &'t str) -> Result<(), PatternError> {
        let (mut on, mut off) = (String::new(), String::new());
        let (mut resets, mut has_flag) = (false, false);
        loop {
            let c = self.next();
            match c {
                Some(flag @ ('i' | 'm' | 's' | 'U')) => {
                    has_flag = true;
                    on.retain(|other| other != flag);
                    off.retain(|other| other != flag);
                    if resets { off.push(flag) } else { on.push(flag) }
                }
                Some('-') if !resets => (resets, has_flag) = (true, false),
                Some(':' | ')') if has_flag || !resets => {
                    let minus = if off.is_empty() { "" } else { "-" };
                    match c {
                        Some(':') => self.open_group(&format!("(?{on}{minus}{off}:")),
                        _ if on.is_empty() && off.is_empty() => {}
                        _ => self.out.push_str(&format!("(?{on}{minus}{off})")),
                    }
                    return Ok(());
                }
                None => return Err(PatternError::MissingParenthesis(self.text.to_owned())),
                _ => return Err(PatternError::Perl(format!("({}", &start[..start.len() - self.rest.len()]))),
            }
        }
    }

    /// Parses an escape outside of a class.
    ///
    /// - `start`: the text that begins with it
    fn escape(&mut self, start: &'t str) -> Result<(), PatternError> {
        let anchors = [("A", r"\A"), ("z", r"\z"), ("b", r"(?-u:\b)"), ("B", r"(?-u:\B)")];
        if let Some((rest, anchor)) =
            anchors.iter().find_map(|(name, anchor)| Some((self.rest.strip_prefix(name)?, anchor)))
        {
            self.rest = rest;
            self.out.push_str(anchor);
        } else if let Some(rest) = self.rest.strip_prefix('Q') {
            let (literal, after) = rest.split_once("\\E").unwrap_or((rest, ""));
            self.out.push_str(&regex::escape(literal));
            self.rest = after;
        } else if !self.escaped_class(start)? {
            let c = self.escaped_character(start)?;
            self.range(c, c);
        }
        Ok(())
    }

    /// Parses a class after a backslash; false if there is none.
    fn escaped_class(&mut self, start: &'t str) -> Result<bool, PatternError> {
        let ascii = match self.rest.chars().next() {
            Some('d') => "[0-9]",
            Some('s') => "[\\t\\n\\x0C\\r ]",
            Some('w') => "[0-9A-Za-z_]",
            Some('D') => "[^0-9]",
            Some('S') => "[^\\t\\n\\x0C\\r ]",
            Some('W') => "[^0-9A-Za-z_]",
            Some('p' | 'P') => return self.unicode_class(start).map(|()| true),
            _ => return Ok(false),
        };
        self.rest = &self.rest[1..];
        self.out.push_str(ascii);
        Ok(true)
    }

    /// Parses a general category or a script: `\pL`, `\p{Greek}`, `\P{^Lu}`.
    fn unicode_class(&mut self, start: &'t str) -> Result<(), PatternError> {
        let mut is_negated = self.next() == Some('P');
        let mut name = match self.next() {
            Some('{') => {
                let wrong = || PatternError::ClassRange(start.to_owned());
                let (name, after) = self.rest.split_once('}').ok_or_else(wrong)?;
                self.rest = after;
                name
            }
            Some(c) => &start[2..2 + c.len_utf8()],
            None => return Err(PatternError::Escape(start.to_owned())),
        };
        if let Some(rest) = name.strip_prefix('^') {
            (is_negated, name) = (!is_negated, rest);
        }
        // The other crate also knows other properties, and names with a prefix.
        let is_plain = !name.contains(['=', ':', '{']) && !name.to_ascii_lowercase().starts_with("is");
        let canonical: String = name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).collect();
        let is_special = ["any", "assigned", "ascii"].contains(&canonical.to_ascii_lowercase().as_str());
        let kinds: &[&str] = if is_special { &[""] } else { &["gc=", "sc="] };
        let classes = kinds.iter().map(|kind| format!(r"{{{kind}{canonical}}}"));
        let mut known =
            classes.filter(|class| is_plain && regex_syntax::parse(&format!(r"\p{class}")).is_ok());
        let Some(class) = known.next() else {
            return Err(PatternError::ClassRange(self.upto_here(start)));
        };
        self.out.push_str(if is_negated { r"\P" } else { r"\p" });
        self.out.push_str(&class);
        Ok(())
    }

    /// Parses the character after a backslash.
    fn escaped_character(&mut self, start: &'t str) -> Result<u32, PatternError> {
        let c = self.next().ok_or(PatternError::TrailingBackslash)?;
        let is_octal = |rest: &str| rest.starts_with(|c| matches!(c, '0'..='7'));
        Ok(match c {
            '0' => self.octal(0),
            '1'..='7' if is_octal(self.rest) => self.octal(c.to_digit(8).unwrap_or_default()),
            'x' => return self.hexadecimal(start),
            'a' => 7,
            'f' => 0xc,
            'n' => 0xa,
            'r' => 0xd,
            't' => 9,
            'v' => 0xb,
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => c as u32,
            _ => return Err(PatternError::Escape(self.upto_here(start))),
        })
    }

    /// Parses up to two more octal digits.
    fn octal(&mut self, first: u32) -> u32 {
        let mut code = first;
        for _ in 0..2 {
            let Some(digit) = self.rest.chars().next().and_then(|c| c.to_digit(8)) else { break };
            code = code * 8 + digit;
            self.rest = &self.rest[1..];
        }
        code
    }

    /// Parses two hexadecimal digits, or any number of them in braces.
    fn hexadecimal(&mut self, start: &'t str) -> Result<u32, PatternError> {
        let code = match self.rest.strip_prefix('{') {
            Some(rest) => {
                self.rest = rest;
                self.braced_code()
            }
            None => self
                .next()
                .zip(self.next())
                .and_then(|(high, low)| Some(high.to_digit(16)? * 16 + low.to_digit(16)?)),
        };
        code.ok_or_else(|| PatternError::Escape(self.upto_here(start)))
    }

    /// Parses hexadecimal digits up to a closing brace; None if they are not a character.
    fn braced_code(&mut self) -> Option<u32> {
        let mut code = None;
        loop {
            let c = self.next()?;
            if c == '}' {
                return code;
            }
            let next = code.unwrap_or(0) * 16 + c.to_digit(16)?;
            code = Some(next).filter(|code| *code <= char::MAX as u32);
            code?;
        }
    }

    /// Parses a class.
    ///
    /// - `start`: the text that begins with it
    fn class(&mut self, start: &'t str) -> Result<(), PatternError> {
        let missing = || PatternError::MissingBracket(start.to_owned());
        self.out.push('[');
        if let Some(rest) = self.rest.strip_prefix('^') {
            self.rest = rest;
            self.out.push('^');
        }
        let mut is_first = true;
        loop {
            let element = self.rest;
            if element.starts_with(']') && !is_first {
                self.rest = &element[1..];
                self.out.push(']');
                return Ok(());
            }
            is_first = false;
            if self.named_class(element)? {
                continue;
            }
            if let Some(rest) = element.strip_prefix('\\') {
                self.rest = rest;
                if self.escaped_class(element)? {
                    continue;
                }
                self.rest = element;
            }
            let first = self.class_character(missing)?;
            let mut last = first;
            if let Some(rest) =
                self.rest.strip_prefix('-').filter(|rest| !rest.is_empty() && !rest.starts_with(']'))
            {
                self.rest = rest;
                last = self.class_character(missing)?;
                if last < first {
                    return Err(PatternError::ClassRange(self.upto_here(element)));
                }
            }
            self.range(first, last);
        }
    }

    /// Parses a class such as `[:alpha:]`; false if there is none.
    fn named_class(&mut self, start: &'t str) -> Result<bool, PatternError> {
        const NAMES: [&str; 14] = [
            "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
            "space", "upper", "word", "xdigit",
        ];
        let Some((name, after)) = start.strip_prefix("[:").and_then(|rest| rest.split_once(":]")) else {
            return Ok(false);
        };
        self.rest = after;
        if !NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(PatternError::ClassRange(self.upto_here(start)));
        }
        self.out.push_str(&format!("[:{name}:]"));
        Ok(true)
    }

    fn class_character(&mut self, missing: impl Fn() -> PatternError) -> Result<u32, PatternError> {
        let start = self.rest;
        match self.next().ok_or_else(missing)? {
            '\\' => self.escaped_character(start),
            c => Ok(c as u32),
        }
    }

    /// Writes a character or a range of them, within a class or outside. No text has a surrogate.
    fn range(&mut self, first: u32, last: u32) {
        const SURROGATES: std::ops::RangeInclusive<u32> = 0xd800..=0xdfff;
        let first = if SURROGATES.contains(&first) { SURROGATES.end() + 1 } else { first };
        let last = if SURROGATES.contains(&last) { SURROGATES.start() - 1 } else { last };
        self.out.push_str(&match first.cmp(&last) {
            Ordering::Less => format!(r"\x{{{first:x}}}-\x{{{last:x}}}"),
            Ordering::Equal => format!(r"\x{{{first:x}}}"),
            Ordering::Greater => r"[^\s\S]".to_owned(),
        });
    }

    /// Returns the text between this beginning and the place that is parsed next.
    fn upto_here(&self, start: &str) -> String {
        start[..start.len() - self.rest.len()].to_owned()
    }
}
