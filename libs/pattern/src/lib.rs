//! Regular expressions in Go's syntax (RE2), which are matched in linear time.
//!
//! The `regex` crate reads almost the same syntax. What differs is translated: in a class a bracket
//! is a character and there are no set operations, and `\d`, `\s`, `\w` and `\b` mean ASCII.
//!
//! Source: the documentation of Go's `regexp/syntax`, and that of the `regex` crate.

#![warn(missing_docs)]

pub mod glob;

use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};

/// The size of a compiled pattern, in bytes. Classes such as `\p{L}` take some thousand for each
/// repetition.
const MAX_BYTES: usize = 16 << 20;
/// The length of a pattern, in bytes: while it is parsed, some of its characters take a thousand
/// times as much.
const MAX_LENGTH: usize = 10_000;
/// The number of times that a pattern may repeat something, as Go limits it.
const MAX_REPEAT: u32 = 1000;

/// A regular expression, compiled at its first use.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The pattern as it is written.
    pub text: String,
    compiled: OnceLock<Option<Regex>>,
}

/// The error for an invalid pattern, with Go's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Perl's syntax that has no meaning here, as look-ahead.
    #[error("error parsing regexp: invalid or unsupported Perl syntax: `{0}`")]
    Perl(String),
    /// An escape that there is not, as a back reference.
    #[error("error parsing regexp: invalid escape sequence: `{0}`")]
    Escape(String),
    /// A parenthesis that is not closed.
    #[error("error parsing regexp: missing closing ): `{0}`")]
    MissingParenthesis(String),
    /// A parenthesis that is not opened.
    #[error("error parsing regexp: unexpected ): `{0}`")]
    UnexpectedParenthesis(String),
    /// A class that is not closed.
    #[error("error parsing regexp: missing closing ]: `{0}`")]
    MissingBracket(String),
    /// A repetition of nothing.
    #[error("error parsing regexp: missing argument to repetition operator: `{0}`")]
    MissingArgument(String),
    /// A repetition that is too large.
    #[error("error parsing regexp: invalid repeat count: `{0}`")]
    RepeatCount(String),
    /// A range from a later character to an earlier one.
    #[error("error parsing regexp: invalid character class range: `{0}`")]
    ClassRange(String),
    /// The backslash is the last character.
    #[error("error parsing regexp: trailing backslash at end of expression: ``")]
    TrailingBackslash,
    /// The compiled expression has no place.
    #[error("error parsing regexp: expression too large")]
    TooLarge,
    /// Any other error.
    #[error("error parsing regexp: invalid expression: `{0}`")]
    Other(String),
}

impl Pattern {
    /// Creates a pattern that is compiled at its first use. An invalid pattern matches everything.
    pub fn new(text: &str) -> Pattern {
        Pattern { text: text.to_owned(), compiled: OnceLock::new() }
    }

    /// Returns `true` if the pattern matches any part of a text.
    pub fn matches(&self, text: &str) -> bool {
        let compiled = self.compiled.get_or_init(|| compile(&self.text).ok());
        compiled.as_ref().is_none_or(|compiled| compiled.is_match(text))
    }

    /// Checks that a text is a valid pattern.
    ///
    /// # Errors
    /// [`PatternError`] with Go's message.
    pub fn check(text: &str) -> Result<(), PatternError> {
        compile(text).map(|_| ())
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

fn compile(text: &str) -> Result<Regex, PatternError> {
    compile_within(text, MAX_BYTES)
}

/// Compiles a pattern to a program of at most so many bytes.
///
/// # Errors
/// [`PatternError::TooLarge`] beyond that, and any other one.
pub fn compile_within(text: &str, max_bytes: usize) -> Result<Regex, PatternError> {
    let translated = Translation::of(text)?;
    let built = RegexBuilder::new(&translated).size_limit(max_bytes).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => PatternError::TooLarge,
        _ => PatternError::Other(text.to_owned()),
    })
}

/// Parses a pattern without compiling it, which takes long.
///
/// # Errors
/// [`PatternError`], but not for all that are too large.
pub fn parse(text: &str) -> Result<(), PatternError> {
    let translated = Translation::of(text)?;
    regex_syntax::parse(&translated).map(drop).map_err(|_| PatternError::Other(text.to_owned()))
}

/// A pattern on its way from one syntax to the other.
struct Translation<'t> {
    text: &'t str,
    rest: &'t str,
    out: String,
    /// The parentheses that are open.
    open: usize,
    /// Whether there is something that a repetition may repeat.
    repeatable: bool,
}

impl<'t> Translation<'t> {
    fn of(text: &'t str) -> Result<String, PatternError> {
        if text.len() > MAX_LENGTH {
            return Err(PatternError::TooLarge);
        }
        let mut translation = Translation {
            text,
            rest: text,
            out: String::with_capacity(text.len()),
            open: 0,
            repeatable: false,
        };
        while let Some(c) = translation.next() {
            translation.element(c)?;
        }
        if translation.open > 0 {
            return Err(PatternError::MissingParenthesis(text.to_owned()));
        }
        Ok(translation.out)
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn element(&mut self, c: char) -> Result<(), PatternError> {
        match c {
            '\\' => {
                self.escape(false)?;
                self.repeatable = true;
            }
            '[' => {
                self.class()?;
                self.repeatable = true;
            }
            '(' => {
                self.group()?;
                self.repeatable = false;
            }
            ')' => {
                self.open = self
                    .open
                    .checked_sub(1)
                    .ok_or(PatternError::UnexpectedParenthesis(self.text.to_owned()))?;
                self.out.push(c);
                self.repeatable = true;
            }
            '|' => {
                self.out.push(c);
                self.repeatable = false;
            }
            '*' | '+' | '?' => self.repetition(c)?,
            '{' => self.counted()?,
            // The end of no class is a character.
            '}' | ']' => {
                self.out.push('\\');
                self.out.push(c);
                self.repeatable = true;
            }
            c => {
                self.out.push(c);
                self.repeatable = true;
            }
        }
        Ok(())
    }

    fn repetition(&mut self, c: char) -> Result<(), PatternError> {
        if !self.repeatable {
            return Err(PatternError::MissingArgument(c.to_string()));
        }
        self.out.push(c);
        self.lazy();
        Ok(())
    }

    /// Parses `{n}`, `{n,}` or `{n,m}`; anything else is text.
    fn counted(&mut self) -> Result<(), PatternError> {
        let counts = self.rest.split_once('}').and_then(|(inside, after)| {
            let (least, most) = inside.split_once(',').unwrap_or((inside, inside));
            let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
            (!least.is_empty() && number(least) && number(most)).then_some((inside, least, most, after))
        });
        let Some((inside, least, most, after)) = counts else {
            self.out.push_str("\\{");
            self.repeatable = true;
            return Ok(());
        };
        if !self.repeatable {
            return Err(PatternError::MissingArgument(format!("{{{inside}}}")));
        }
        let count = |text: &str| text.parse::<u32>().ok().filter(|count| *count <= MAX_REPEAT);
        let fits = match (count(least), most) {
            (Some(_), "") => true,
            (Some(least), most) => count(most).is_some_and(|most| least <= most),
            (None, _) => false,
        };
        if !fits {
            return Err(PatternError::RepeatCount(format!("{{{inside}}}")));
        }
        self.rest = after;
        self.out.push_str(&format!("{{{inside}}}"));
        self.lazy();
        Ok(())
    }

    /// Parses the `?` after a repetition. A further repetition operator is an error.
    fn lazy(&mut self) {
        if let Some(rest) = self.rest.strip_prefix('?') {
            self.rest = rest;
            self.out.push('?');
        }
        self.repeatable = false;
    }

    fn group(&mut self) -> Result<(), PatternError> {
        self.out.push('(');
        let Some(rest) = self.rest.strip_prefix('?') else {
            self.open += 1;
            return Ok(());
        };
        let name = |rest: &'t str| rest.strip_prefix("P<").or_else(|| rest.strip_prefix('<'));
        if let Some(named) = name(rest).filter(|named| !named.starts_with(['=', '!'])) {
            let Some((name, after)) = named.split_once('>') else {
                return Err(PatternError::Perl(self.text.to_owned()));
            };
            self.out.push_str(&format!("?P<{name}>"));
            self.rest = after;
            self.open += 1;
            return Ok(());
        }
        let end = rest.find([':', ')']);
        let flags = end.and_then(|end| rest.get(..=end)).unwrap_or_default();
        let known = |c: char| matches!(c, 'i' | 'm' | 's' | 'U' | '-' | ':' | ')');
        if flags.is_empty() || !flags.chars().all(known) || flags == ")" {
            let upto = rest
                .char_indices()
                .nth(1)
                .map_or(rest.len(), |(at, c)| if rest.starts_with('<') { at + c.len_utf8() } else { at });
            return Err(PatternError::Perl(format!("(?{}", &rest[..upto])));
        }
        self.out.push('?');
        self.out.push_str(flags);
        self.rest = &rest[flags.len()..];
        if flags.ends_with(':') {
            self.open += 1;
        }
        Ok(())
    }

    fn escape(&mut self, in_class: bool) -> Result<(), PatternError> {
        let c = self.next().ok_or(PatternError::TrailingBackslash)?;
        let ascii = match c {
            'd' => "0-9",
            's' => "\\t\\n\\x0C\\r ",
            'w' => "0-9A-Za-z_",
            'D' => "^0-9",
            'S' => "^\\t\\n\\x0C\\r ",
            'W' => "^0-9A-Za-z_",
            'b' | 'B' if !in_class => {
                self.out.push_str(&format!("(?-u:\\{c})"));
                return Ok(());
            }
            'Q' if !in_class => {
                let (literal, after) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
                self.out.push_str(&regex::escape(literal));
                self.rest = after;
                return Ok(());
            }
            '0' => {
                let digits = self.rest.bytes().take(2).take_while(|b| matches!(b, b'0'..=b'7')).count();
                let octal = u32::from_str_radix(&self.rest[..digits], 8).unwrap_or_default();
                self.rest = &self.rest[digits..];
                self.out.push_str(&format!("\\x{{{octal:x}}}"));
                return Ok(());
            }
            'A' | 'z' if !in_class => "",
            'a' | 'f' | 'n' | 'r' | 't' | 'v' | 'x' | 'p' | 'P' => "",
            c if c.is_ascii_alphanumeric() => return Err(PatternError::Escape(format!("\\{c}"))),
            _ => "",
        };
        match ascii {
            "" => {
                self.out.push('\\');
                self.out.push(c);
                // The name of a class or the digits of a character belong to it.
                if matches!(c, 'x' | 'p' | 'P')
                    && let Some(end) = self.rest.strip_prefix('{').and_then(|rest| rest.find('}'))
                {
                    self.out.push_str(&self.rest[..end + 2]);
                    self.rest = &self.rest[end + 2..];
                }
            }
            inside => self.out.push_str(&format!("[{inside}]")),
        }
        Ok(())
    }

    fn class(&mut self) -> Result<(), PatternError> {
        let start = self.rest;
        let missing = || PatternError::MissingBracket(format!("[{start}"));
        self.out.push('[');
        if let Some(rest) = self.rest.strip_prefix('^') {
            self.rest = rest;
            self.out.push('^');
        }
        let mut is_first = true;
        loop {
            match self.next().ok_or_else(missing)? {
                ']' if !is_first => break self.out.push(']'),
                '\\' => {
                    let is_class = self.rest.starts_with(['d', 's', 'w', 'D', 'S', 'W', 'p', 'P']);
                    self.escape(true)?;
                    if !is_class
                        && let Some(rest) = self.rest.strip_prefix('-').filter(|rest| !rest.starts_with(']'))
                    {
                        self.rest = rest;
                        self.out.push('-');
                    }
                }
                '[' => match self.rest.starts_with(':').then(|| self.rest.find(":]")).flatten() {
                    Some(end) => {
                        self.out.push('[');
                        self.out.push_str(&self.rest[..end + 2]);
                        self.rest = &self.rest[end + 2..];
                    }
                    None => self.out.push_str("\\["),
                },
                c => self.range(c)?,
            }
            is_first = false;
        }
        Ok(())
    }

    /// Parses a character of a class, or a range that begins with it. After a range a hyphen is a
    /// character.
    fn range(&mut self, first: char) -> Result<(), PatternError> {
        self.class_character(first);
        let mut after = self.rest.chars();
        if after.next() != Some('-') {
            return Ok(());
        }
        let Some(last) = after.next().filter(|last| *last != ']') else { return Ok(()) };
        self.out.push('-');
        self.rest = after.as_str();
        if last == '\\' {
            return self.escape(true);
        }
        if last < first {
            return Err(PatternError::ClassRange(format!("{first}-{last}")));
        }
        self.class_character(last);
        Ok(())
    }

    fn class_character(&mut self, c: char) {
        if matches!(c, '[' | ']' | '&' | '~' | '-' | '^') {
            self.out.push('\\');
        }
        self.out.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, text, want) in [
            ("^[a-z]+$", "abc", true),
            ("b", "abc", true),
            (r"^\d+$", "١", false),
            (r"^\w$", "ä", false),
            (r"^[\w.]+$", "a.b", true),
            (r"^[^[\]]+$", "a[b", false),
            (r"^[^[\]]+$", "ab", true),
            (r"^[[:alpha:]_]+$", "a_b", true),
            (r"^[a&&b]$", "&", true),
            (r"^[]a]$", "]", true),
            (r"^a{2,3}$", "aaa", true),
            (r"^a{,3}$", "a{,3}", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\/x$", "/x", true),
            (r"^[0-9]+((\.[0-9]+)?)(s|m|h)$", "1.5h", true),
            (r"^(?i:A)b$", "ab", true),
            (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a-b", true),
            (r"^[+-]$", "-", true),
            (r"^[0-9a-zA-Z-.]+$", "a-.Z", true),
            (r"^[a-z-0-9]+$", "a-0", true),
            (r"^[\p{L}]{0,200}$", "é", true),
            // A host name, in the definition of an OpenShift Ingress.
            (
                r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
                "a.example",
                true,
            ),
            (r"^[+--]+$", ",", true),
            (r"^[\x00-\x1f]$", "\n", true),
            (r"^[\.-\/]+$", "./", true),
            (r"^[\w-.]+$", "a-.", true),
            ("^}$", "}", true),
        ] {
            assert_eq!(Pattern::check(pattern), Ok(()), "{pattern}");
            assert_eq!(Pattern::new(pattern).matches(text), want, "{pattern} {text}");
        }
    }

    #[test]
    fn wrong_patterns_have_go_messages() {
        for (pattern, want) in [
            ("(", "missing closing ): `(`"),
            ("a)", "unexpected ): `a)`"),
            ("[a", "missing closing ]: `[a`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            (r"(a)\1", r"invalid escape sequence: `\1`"),
            ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
            ("(?<=a)", "invalid or unsupported Perl syntax: `(?<=`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            (r"a\", "trailing backslash at end of expression: ``"),
            (r"(\pL{1,200}){1000}", "expression too large"),
            (&r"\pL".repeat(4000), "expression too large"),
        ] {
            let error = Pattern::check(pattern).err().map(|error| error.to_string());
            assert_eq!(error, Some(format!("error parsing regexp: {want}")), "{pattern}");
        }
    }
}
