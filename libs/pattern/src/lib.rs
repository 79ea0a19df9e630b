//! Regular expressions in Go's syntax (RE2), which are matched in linear time.
//!
//! The `regex` crate reads almost the same syntax. What differs is translated: in a class a bracket
//! is a character and there are no set operations, `\d`, `\s`, `\w` and `\b` mean ASCII, `\<` is a
//! character, and groups may have any flags and names. A repetition right after flags alone
//! (`a(?i)*`) is refused, which Go applies to what stands before them.
//!
//! Source: the documentation of Go's `regexp/syntax`, and that of the `regex` crate.

#![warn(missing_docs)]

mod classes;
pub mod glob;
mod translation;

use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use translation::translate;

/// The size of a compiled pattern, in bytes. Classes such as `\p{L}` take some thousand for each
/// repetition.
const MAX_BYTES: usize = 16 << 20;

/// The depth to which groups are nested, as Go limits it.
const MAX_DEPTH: u32 = 1000;

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
    /// A group with a name that is none.
    #[error("error parsing regexp: invalid named capture: `{0}`")]
    NamedCapture(String),
    /// A repetition of a repetition.
    #[error("error parsing regexp: invalid nested repetition operator: `{0}`")]
    NestedRepetition(String),
    /// A repetition of nothing.
    #[error("error parsing regexp: missing argument to repetition operator: `{0}`")]
    MissingArgument(String),
    /// A repetition that is too large.
    #[error("error parsing regexp: invalid repeat count: `{0}`")]
    RepeatCount(String),
    /// A range from a later character to an earlier one, or a named class that there is not.
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
    let translated = translate(text)?;
    let built = RegexBuilder::new(&translated).size_limit(max_bytes).nest_limit(MAX_DEPTH).build();
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
    let translated = translate(text)?;
    let mut parser = ParserBuilder::new().nest_limit(MAX_DEPTH).build();
    parser.parse(&translated).map(drop).map_err(|_| PatternError::Other(text.to_owned()))
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
            (r"^\<a\>$", "<a>", true),
            (r"^\p{^L}$", "1", true),
            (r"^\P{^L}$", "1", false),
            (r"^\p{uppercase letter}\p{Greek}$", "A\u{3b1}", true),
            (r"^\101[\060-\071]$", "A5", true),
            (r"^\x{D800}$", "a", false),
            (r"^[\x{D800}-\x{E000}]$", "\u{e000}", true),
            ("^(?)a$", "a", true),
            ("^(?ii)a$", "A", true),
            ("^(?i-i)a$", "A", false),
            ("^(?i-i:a)$", "A", false),
            ("(?P<1>a)(?<n>b)(?P<n>c)", "abc", true),
            ("^(a{0}b){2}$", "bb", true),
            ("^((a{600}){0}b){2}$", "bb", true),
            ("^x{01}$", "x{01}", true),
            (r"^\p{Cs}$", "a", false),
            (&format!("^{}a{}$", "(".repeat(300), ")".repeat(300)), "a", true),
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
            ("(?<=a)", "invalid named capture: `(?<=a)`"),
            ("(?P<\u{e9}>a)", "invalid named capture: `(?P<\u{e9}>`"),
            ("(?<a.b>c)", "invalid named capture: `(?<a.b>`"),
            ("(?-:a)", "invalid or unsupported Perl syntax: `(?-:`"),
            ("(?i-)a", "invalid or unsupported Perl syntax: `(?i-)`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a{1}{2}", "invalid nested repetition operator: `{1}{2}`"),
            ("x*+", "invalid nested repetition operator: `*+`"),
            ("(a{500}){3}", "invalid repeat count: `{3}`"),
            ("((a{10}b){10}c|d{3}){11}", "invalid repeat count: `{11}`"),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
            (r"\p{IsGreek}", r"invalid character class range: `\p{IsGreek}`"),
            (r"\p{Script=Greek}", r"invalid character class range: `\p{Script=Greek}`"),
            (r"\p{Alphabetic}", r"invalid character class range: `\p{Alphabetic}`"),
            (r"[a\p{", r"invalid character class range: `\p{`"),
            (r"\p", r"invalid character class range: `\p`"),
            (r"\p{_isGreek}", r"invalid character class range: `\p{_isGreek}`"),
            ("(?i", "invalid or unsupported Perl syntax: `(?i`"),
            ("(?P<", "invalid or unsupported Perl syntax: `(?P`"),
            (r"[a-\d]", r"invalid escape sequence: `\d`"),
            (r"[a-\n]", r"invalid character class range: `a-\n`"),
            (r"\x{110000}", r"invalid escape sequence: `\x{110000`"),
            (r"\xg0", r"invalid escape sequence: `\xg0`"),
            ("\\\u{e9}", "invalid escape sequence: `\\\u{e9}`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            (r"a\", "trailing backslash at end of expression: ``"),
            (r"(\pL{1,200}){1000}", "invalid repeat count: `{1000}`"),
            (&r"\pL".repeat(4000), "expression too large"),
        ] {
            let error = Pattern::check(pattern).err().map(|error| error.to_string());
            assert_eq!(error, Some(format!("error parsing regexp: {want}")), "{pattern}");
        }
    }
}
