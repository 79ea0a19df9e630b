//! The translation of escapes and of classes.

use std::cmp::Ordering;

use crate::PatternError;
use crate::translation::Translation;

impl<'t> Translation<'t> {
    /// Parses an escape outside of a class.
    ///
    /// - `start`: the text that begins with it
    pub(crate) fn escape(&mut self, start: &'t str) -> Result<(), PatternError> {
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
            None => return Err(PatternError::ClassRange(start.to_owned())),
        };
        if let Some(rest) = name.strip_prefix('^') {
            (is_negated, name) = (!is_negated, rest);
        }
        // The other crate also knows other properties, and names with a prefix.
        let canonical: String = name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).collect();
        let is_word = canonical.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_plain = is_word && !canonical.to_ascii_lowercase().starts_with("is");
        if ["cs", "surrogate"].contains(&canonical.to_ascii_lowercase().as_str()) {
            // No text has one.
            self.out.push_str(if is_negated { r"[\s\S]" } else { r"[^\s\S]" });
            return Ok(());
        }
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
    pub(crate) fn class(&mut self, start: &'t str) -> Result<(), PatternError> {
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
}
