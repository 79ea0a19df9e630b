//! Reader: JSON text, token by token.
//!
//! Accepts what Go's scanner accepts (malformed UTF-8 and lone surrogates become U+FFFD) and
//! rejects the rest with its messages, which clients see. Nesting is bounded, since values are
//! built and dropped recursively.

use std::borrow::Cow;

use crate::codec::limits::Limits;

/// A syntax error, with Go's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError(pub String);

type Result<T> = std::result::Result<T, SyntaxError>;

/// The kind of a value, by its first character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl Kind {
    /// Returns the name that Go's type errors use.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Null => "null",
            Kind::Bool => "bool",
            Kind::Number => "number",
            Kind::String => "string",
            Kind::Array => "array",
            Kind::Object => "object",
        }
    }
}

/// Reads JSON text token by token.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    collections: usize,
    values: usize,
    limits: Limits,
}

impl<'a> Reader<'a> {
    /// Reads a whole document.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader::within(bytes, Limits::REQUEST)
    }

    /// Reads a whole document within limits.
    pub fn within(bytes: &'a [u8], limits: Limits) -> Reader<'a> {
        Reader { bytes, at: 0, depth: 0, collections: 0, values: 0, limits }
    }

    /// Reads text that is part of a document: at that depth, after that many other objects and
    /// arrays.
    pub fn inside(bytes: &'a [u8], depth: usize, collections: usize) -> Reader<'a> {
        Reader { depth, collections, ..Reader::new(bytes) }
    }

    /// Returns the number of objects and arrays that were begun, including those before the text.
    pub fn collections(&self) -> usize {
        self.collections
    }

    /// Returns the kind of the next value, without reading it.
    pub fn peek(&mut self) -> Result<Kind> {
        match self.peek_byte()? {
            b'{' => Ok(Kind::Object),
            b'[' => Ok(Kind::Array),
            b'"' => Ok(Kind::String),
            b't' | b'f' => Ok(Kind::Bool),
            b'n' => Ok(Kind::Null),
            b'-' | b'0'..=b'9' => Ok(Kind::Number),
            _ => Err(self.refuse("looking for beginning of value")),
        }
    }

    /// Reads a null.
    pub fn null(&mut self) -> Result<()> {
        self.literal("null")
    }

    /// Reads a boolean.
    pub fn bool(&mut self) -> Result<bool> {
        let value = self.bytes.get(self.at) == Some(&b't');
        self.literal(if value { "true" } else { "false" })?;
        Ok(value)
    }

    fn literal(&mut self, word: &'static str) -> Result<()> {
        for expected in word.bytes() {
            if self.byte()? != expected {
                let expected = char::from(expected);
                return Err(self.refuse(&format!("in literal {word} (expecting '{expected}')")));
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Reads the text of a number.
    pub fn number(&mut self) -> Result<&'a str> {
        let start = self.at;
        if self.bytes.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        match self.byte()? {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits(),
            _ => return Err(self.refuse("in numeric literal")),
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.required_digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes.get(self.at) {
                self.at += 1;
            }
            self.required_digits("in exponent of numeric literal")?;
        }
        Ok(std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or_default())
    }

    fn required_digits(&mut self, context: &str) -> Result<()> {
        if !self.byte()?.is_ascii_digit() {
            return Err(self.refuse(context));
        }
        self.digits();
        Ok(())
    }

    fn digits(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    /// Reads a string.
    pub fn string(&mut self) -> Result<Cow<'a, str>> {
        let (text, escaped) = self.quoted()?;
        Ok(unescape(text, escaped))
    }

    /// Reads the bytes between the quotes; the boolean says whether there are escapes among them.
    fn quoted(&mut self) -> Result<(&'a [u8], bool)> {
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at += plain_prefix(&self.bytes[self.at..]);
            match self.byte()? {
                b'"' => {
                    let text = &self.bytes[start..self.at];
                    self.at += 1;
                    return Ok((text, escaped));
                }
                b'\\' => {
                    escaped = true;
                    self.at += 1;
                    self.escape()?;
                }
                _ => return Err(self.refuse("in string literal")),
            }
        }
    }

    fn escape(&mut self) -> Result<()> {
        match self.byte()? {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => self.at += 1,
            b'u' => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.byte()?.is_ascii_hexdigit() {
                        return Err(self.refuse("in \\u hexadecimal character escape"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.refuse("in string escape code")),
        }
        Ok(())
    }

    /// Enters an object or an array.
    pub fn begin(&mut self) -> Result<()> {
        if self.depth >= self.limits.depth {
            return Err(self.refuse("exceeded max depth"));
        }
        if self.collections >= self.limits.collections {
            return Err(self.refuse("exceeded max number of objects and arrays"));
        }
        self.collections += 1;
        self.depth += 1;
        self.at += 1;
        Ok(())
    }

    /// Reads the next key of the current object, in its escaped form; the value follows. None ends
    /// the object.
    pub fn key(&mut self, first: bool) -> Result<Option<Key<'a>>> {
        match (self.peek_byte()?, first) {
            (b'}', _) => return self.end().map(|()| None),
            (b',', false) => {
                self.at += 1;
                self.peek_byte()?;
            }
            (_, false) => return Err(self.refuse("after object key:value pair")),
            (_, true) => {}
        }
        if self.byte()? != b'"' {
            return Err(self.refuse("looking for beginning of object key string"));
        }
        let (text, escaped) = self.quoted()?;
        if self.peek_byte()? != b':' {
            return Err(self.refuse("after object key"));
        }
        self.at += 1;
        self.count_value()?;
        Ok(Some(Key { text, escaped }))
    }

    /// Moves to the next item of the current array and returns `true`, or consumes the end of the
    /// array and returns `false`.
    pub fn item(&mut self, first: bool) -> Result<bool> {
        match (self.peek_byte()?, first) {
            (b']', _) => return self.end().map(|()| false),
            (b',', false) => {
                self.at += 1;
                // A bracket after a comma is a missing value.
                self.peek()?;
            }
            (_, false) => return Err(self.refuse("after array element")),
            (_, true) => {}
        }
        self.count_value()?;
        Ok(true)
    }

    fn count_value(&mut self) -> Result<()> {
        if self.values >= self.limits.values {
            return Err(self.refuse("exceeded max number of values"));
        }
        self.values += 1;
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.depth -= 1;
        self.at += 1;
        Ok(())
    }

    /// Reads ahead without moving.
    pub fn ahead<T>(&mut self, read: impl FnOnce(&mut Reader<'a>) -> Result<T>) -> Result<T> {
        let (at, collections, values) = (self.at, self.collections, self.values);
        let found = read(self);
        (self.at, self.collections, self.values) = (at, collections, values);
        found
    }

    /// Skips a value that takes no memory, however many others are in it, and returns its text.
    pub fn skip_uncounted(&mut self) -> Result<&'a [u8]> {
        let (collections, values, limits) = (self.collections, self.values, self.limits);
        self.limits = Limits { depth: limits.depth, ..Limits::STORED };
        let skipped = self.skip();
        (self.collections, self.values, self.limits) = (collections, values, limits);
        skipped
    }

    /// Skips a value and returns its text.
    pub fn skip(&mut self) -> Result<&'a [u8]> {
        let kind = self.peek()?;
        let start = self.at;
        match kind {
            Kind::Null => self.null()?,
            Kind::Bool => self.bool().map(|_| ())?,
            Kind::Number => self.number().map(|_| ())?,
            Kind::String => self.quoted().map(|_| ())?,
            Kind::Array => {
                self.begin()?;
                let mut first = true;
                while self.item(first)? {
                    self.skip()?;
                    first = false;
                }
            }
            Kind::Object => {
                self.begin()?;
                let mut first = true;
                while self.key(first)?.is_some() {
                    self.skip()?;
                    first = false;
                }
            }
        }
        Ok(&self.bytes[start..self.at])
    }

    /// Rejects anything but white space after the value.
    pub fn finish(&mut self) -> Result<()> {
        self.skip_space();
        if self.at < self.bytes.len() {
            return Err(self.refuse("after top-level value"));
        }
        Ok(())
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn peek_byte(&mut self) -> Result<u8> {
        self.skip_space();
        self.byte()
    }

    fn byte(&self) -> Result<u8> {
        let end = || SyntaxError("unexpected end of JSON input".to_owned());
        self.bytes.get(self.at).copied().ok_or_else(end)
    }

    fn refuse(&self, context: &str) -> SyntaxError {
        let byte = self.bytes.get(self.at).copied().unwrap_or_default();
        SyntaxError(format!("invalid character {} {context}", quote(byte)))
    }
}

/// A key as it stands in the text.
#[derive(Clone, Copy)]
pub struct Key<'a> {
    text: &'a [u8],
    escaped: bool,
}

impl<'a> Key<'a> {
    /// Returns the key without escapes.
    pub fn name(self) -> Cow<'a, str> {
        unescape(self.text, self.escaped)
    }
}

/// Counts the leading bytes that are neither quote, backslash nor control character.
fn plain_prefix(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    // The high bit of each byte that is zero (and maybe of some after it).
    let zeroes = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let mut chunks = bytes.chunks_exact(8);
    let mut at = 0;
    for chunk in &mut chunks {
        let word = chunk.try_into().map_or(0, u64::from_le_bytes);
        let quotes = zeroes(word ^ (ONES * u64::from(b'"')));
        let escapes = zeroes(word ^ (ONES * u64::from(b'\\')));
        let controls = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
        let found = quotes | escapes | controls;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + chunks.remainder().iter().take_while(|&&byte| byte != b'"' && byte != b'\\' && byte >= 0x20).count()
}

/// Removes the escapes from the validated text between two quotes.
fn unescape(text: &[u8], escaped: bool) -> Cow<'_, str> {
    if !escaped {
        return match std::str::from_utf8(text) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => Cow::Owned(repair(text)),
        };
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        plain.extend_from_slice(&rest[..at]);
        let code = rest.get(at + 1).copied().unwrap_or_default();
        rest = rest.get(at + 2..).unwrap_or_default();
        match code {
            b'b' => plain.push(0x08),
            b'f' => plain.push(0x0c),
            b'n' => plain.push(b'\n'),
            b'r' => plain.push(b'\r'),
            b't' => plain.push(b'\t'),
            b'u' => {
                let (found, after) = unicode_escape(rest);
                plain.extend_from_slice(found.encode_utf8(&mut [0; 4]).as_bytes());
                rest = after;
            }
            other => plain.push(other),
        }
    }
    plain.extend_from_slice(rest);
    Cow::Owned(String::from_utf8(plain).unwrap_or_else(|error| repair(error.as_bytes())))
}

/// Decodes the `\u` escape whose digits the text begins with; returns the character and the rest.
/// Surrogates come in pairs.
fn unicode_escape(text: &[u8]) -> (char, &[u8]) {
    let digits = |text: &[u8]| {
        let hex = std::str::from_utf8(text.get(..4)?).ok()?;
        u32::from_str_radix(hex, 16).ok()
    };
    let first = digits(text).unwrap_or_default();
    let rest = text.get(4..).unwrap_or_default();
    if let Some(single) = char::from_u32(first) {
        return (single, rest);
    }
    let second = rest.strip_prefix(b"\\u").and_then(digits).unwrap_or_default();
    if first < 0xdc00 && (0xdc00..0xe000).contains(&second) {
        let pair = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return (
            char::from_u32(pair).unwrap_or(char::REPLACEMENT_CHARACTER),
            rest.get(6..).unwrap_or_default(),
        );
    }
    (char::REPLACEMENT_CHARACTER, rest)
}

/// Replaces each byte of malformed UTF-8 by U+FFFD, as Go does.
pub(in crate::codec) fn repair(text: &[u8]) -> String {
    let mut repaired = String::with_capacity(text.len() + 8);
    for chunk in text.utf8_chunks() {
        repaired.push_str(chunk.valid());
        repaired.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    repaired
}

/// Formats a byte as Go's syntax errors print it: the character with that number, escaped if it is
/// not printable.
fn quote(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        0x07 => r"'\a'".to_owned(),
        0x08 => r"'\b'".to_owned(),
        0x0c => r"'\f'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        0x0b => r"'\v'".to_owned(),
        0..=0x1f | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..=0xa0 | 0xad => format!("'\\u{byte:04x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::limits::{MAX_COLLECTIONS, MAX_DEPTH};

    #[test]
    fn strings_are_unescaped_as_go_does() {
        for (text, want) in [
            (&br#""plain and long enough for words""#[..], "plain and long enough for words"),
            (br#""a\n\t\"\\\/\b\f\r""#, "a\n\t\"\\/\u{8}\u{c}\r"),
            (br#""\u0041\ud83d\ude00!""#, "A\u{1f600}!"),
            (br#""\ud83dx""#, "\u{fffd}x"),
            (br#""\ud83d\u0041""#, "\u{fffd}A"),
            (br#""\ude00""#, "\u{fffd}"),
            (b"\"a\xff\xfeb\"", "a\u{fffd}\u{fffd}b"),
            (b"\"\xe2\x82\"", "\u{fffd}\u{fffd}"),
            ("\"żółć ✓ 日本 \u{2028}\"".as_bytes(), "żółć ✓ 日本 \u{2028}"),
        ] {
            let mut reader = Reader::new(text);
            assert_eq!(reader.peek(), Ok(Kind::String));
            assert_eq!(reader.string().as_deref(), Ok(want));
        }
    }

    #[test]
    fn syntax_errors_have_gos_messages() {
        for (text, want) in [
            ("", "unexpected end of JSON input"),
            ("{\"a\":1", "unexpected end of JSON input"),
            ("hello", "invalid character 'h' looking for beginning of value"),
            ("{\"a\":tru}", "invalid character '}' in literal true (expecting 'e')"),
            ("{\"a\":1}}", "invalid character '}' after top-level value"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("{,}", "invalid character ',' looking for beginning of object key string"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("{\"a\":01}", "invalid character '1' after object key:value pair"),
            ("{\"a\":-}", "invalid character '}' in numeric literal"),
            ("{\"a\":1.}", "invalid character '}' after decimal point in numeric literal"),
            ("{\"a\":1e}", "invalid character '}' in exponent of numeric literal"),
            ("{\"a\":\"\\x\"}", "invalid character 'x' in string escape code"),
            ("{\"a\":\"\\u12g4\"}", "invalid character 'g' in \\u hexadecimal character escape"),
            ("{\"a\":\"x\ny\"}", "invalid character '\\n' in string literal"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("\0", "invalid character '\\x00' looking for beginning of value"),
            ("é", "invalid character 'Ã' looking for beginning of value"),
        ] {
            let mut reader = Reader::new(text.as_bytes());
            let read = reader.skip().and_then(|_| reader.finish());
            assert_eq!(read, Err(SyntaxError(want.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        for (depth, fits) in [(MAX_DEPTH, true), (MAX_DEPTH + 1, false), (100_000, false)] {
            let text = "[".repeat(depth) + &"]".repeat(depth);
            assert_eq!(Reader::new(text.as_bytes()).skip().is_ok(), fits, "{depth}");
        }
    }

    #[test]
    fn objects_and_arrays_are_counted() {
        for (inner, fits) in [(MAX_COLLECTIONS - 1, true), (MAX_COLLECTIONS, false)] {
            for one in ["{}", "[]"] {
                let text = format!("[{}]", vec![one; inner].join(","));
                let mut reader = Reader::new(text.as_bytes());
                assert_eq!(reader.ahead(|reader| reader.skip().map(|_| ())).is_ok(), fits, "{inner} {one}");
                assert_eq!(reader.skip().is_ok(), fits, "{inner} {one} after a look ahead");
            }
        }
    }

    #[test]
    fn values_are_counted() {
        let limits = Limits { values: 100, ..Limits::REQUEST };
        for (values, fits) in [(100, true), (101, false)] {
            let list = format!("[{}]", vec!["0"; values].join(","));
            let members: Vec<String> = (0..values).map(|i| format!("\"{i}\":0")).collect();
            for text in [list, format!("{{{}}}", members.join(","))] {
                let mut reader = Reader::within(text.as_bytes(), limits);
                assert_eq!(reader.ahead(|reader| reader.skip().map(|_| ())).is_ok(), fits, "{text}");
                assert_eq!(reader.skip_uncounted().map(<[u8]>::len), Ok(text.len()));
                let mut reader = Reader::within(text.as_bytes(), limits);
                assert_eq!(reader.skip().is_ok(), fits, "{text}");
            }
        }
    }

    #[test]
    fn plain_prefixes_end_at_the_first_special_byte() {
        for text in ["", "a", "abcdefgh", "abcdefghijk", "\u{7f}\u{80}żółć and more"] {
            for special in ["\"", "\\", "\u{1f}", "\0"] {
                for tail in ["", "abcdefghijklmnop", "\"\""] {
                    let whole = format!("{text}{special}{tail}");
                    assert_eq!(plain_prefix(whole.as_bytes()), text.len(), "{whole:?}");
                }
            }
            assert_eq!(plain_prefix(text.as_bytes()), text.len());
        }
    }
}
