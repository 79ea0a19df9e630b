//! The lexer: tokens with their positions.
//!
//! Source: the grammar of cel-spec; the texts of errors are those of cel-go's generated lexer.

use crate::source::Issue;

/// The kind of a token, with its value.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// An identifier or a reserved word.
    Ident(String),
    /// An identifier in backticks.
    Escaped(String),
    /// A number without a fraction, without its sign and suffix.
    Int(String),
    /// The same with the suffix `u`.
    Uint(String),
    /// A number with a fraction or exponent.
    Double(String),
    /// A string literal, unescaped.
    String(String),
    /// A bytes literal, unescaped.
    Bytes(Vec<u8>),
    /// An operator or a bracket, or `in`, `true`, `false`, `null`.
    Symbol(&'static str),
    /// The end.
    End,
}

/// A token in its place.
#[derive(Clone, Debug)]
pub struct Lexeme {
    /// The token.
    pub token: Token,
    /// The start of the token, in characters.
    pub offset: usize,
    /// The text of the token.
    pub text: String,
}

const SYMBOLS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":",
    "+", "*", "/", "%",
];
const WORDS: [&str; 4] = ["in", "true", "false", "null"];

/// Splits an expression into tokens; the last is [`Token::End`].
pub fn tokens(text: &str, issues: &mut Vec<Issue>) -> Vec<Lexeme> {
    let chars: Vec<char> = text.chars().collect();
    let mut lexer = Lexer { chars: &chars, at: 0 };
    let mut found = Vec::new();
    while let Some(c) = lexer.peek(0) {
        let start = lexer.at;
        if c.is_ascii_whitespace() || c == '\u{b}' {
            lexer.at += 1;
            continue;
        }
        if c == '/' && lexer.peek(1) == Some('/') {
            while lexer.peek(0).is_some_and(|c| c != '\n') {
                lexer.at += 1;
            }
            continue;
        }
        match lexer.token() {
            Ok(token) => {
                let text = chars.get(start..lexer.at).unwrap_or_default().iter().collect();
                found.push(Lexeme { token, offset: start, text });
            }
            Err(Fault::Unrecognized(length)) => {
                let end = (start + length).min(chars.len());
                let text: String = chars.get(start..end).unwrap_or_default().iter().collect();
                let message = format!("Syntax error: token recognition error at: '{}'", printed(&text));
                issues.push(Issue { offset: start, message });
                lexer.at = end.max(start + 1);
            }
            Err(Fault::Literal(message)) => issues.push(Issue { offset: start, message }),
        }
    }
    found.push(Lexeme { token: Token::End, offset: chars.len(), text: "<EOF>".into() });
    found
}

/// Returns a text as errors print it, with escaped line breaks.
pub fn printed(text: &str) -> String {
    text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}

enum Fault {
    /// The number of characters that begin no token.
    Unrecognized(usize),
    /// A literal with a wrong escape.
    Literal(String),
}

struct Lexer<'a> {
    chars: &'a [char],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn token(&mut self) -> Result<Token, Fault> {
        let Some(c) = self.peek(0) else { return Ok(Token::End) };
        if c.is_ascii_digit() || c == '.' && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
            return Ok(self.number());
        }
        if let Some(prefix) = self.string_prefix() {
            return self.string(prefix);
        }
        if c.is_ascii_alphabetic() || c == '_' {
            let mut name = String::new();
            while let Some(c) = self.peek(0).filter(|c| c.is_ascii_alphanumeric() || *c == '_') {
                name.push(c);
                self.at += 1;
            }
            return Ok(match WORDS.iter().find(|word| **word == name) {
                Some(word) => Token::Symbol(word),
                None => Token::Ident(name),
            });
        }
        if c == '`' {
            let rest = self.chars.get(self.at + 1..).unwrap_or_default();
            let length = rest.iter().position(|c| *c == '`');
            let fits = |c: &char| c.is_ascii_alphanumeric() || "_.-/ ".contains(*c);
            return match length.filter(|length| *length > 0 && rest.iter().take(*length).all(fits)) {
                Some(length) => {
                    self.at += length + 2;
                    Ok(Token::Escaped(rest.iter().take(length).collect()))
                }
                None => Err(Fault::Unrecognized(1)),
            };
        }
        for symbol in SYMBOLS {
            if symbol.chars().enumerate().all(|(ahead, c)| self.peek(ahead) == Some(c)) {
                self.at += symbol.len();
                return Ok(Token::Symbol(symbol));
            }
        }
        // The beginning of an operator fails at the character after it, which is lost with it.
        Err(Fault::Unrecognized(if "=&|".contains(c) { 2 } else { 1 }))
    }

    fn digits(&mut self, text: &mut String, accepted: fn(&char) -> bool) {
        while let Some(c) = self.peek(0).filter(accepted) {
            text.push(c);
            self.at += 1;
        }
    }

    fn number(&mut self) -> Token {
        let mut text = String::new();
        let hex = self.peek(0) == Some('0')
            && self.peek(1) == Some('x')
            && self.peek(2).is_some_and(|c| c.is_ascii_hexdigit());
        if hex {
            self.at += 2;
            text.push_str("0x");
            self.digits(&mut text, char::is_ascii_hexdigit);
        } else {
            self.digits(&mut text, char::is_ascii_digit);
            let mut double = false;
            if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
                double = true;
                text.push('.');
                self.at += 1;
                self.digits(&mut text, char::is_ascii_digit);
            }
            let signed = self.peek(1).is_some_and(|c| "+-".contains(c));
            let digit = self.peek(if signed { 2 } else { 1 });
            if self.peek(0).is_some_and(|c| "eE".contains(c)) && digit.is_some_and(|c| c.is_ascii_digit()) {
                double = true;
                for _ in 0..=usize::from(signed) {
                    text.extend(self.peek(0));
                    self.at += 1;
                }
                self.digits(&mut text, char::is_ascii_digit);
            }
            if double {
                return Token::Double(text);
            }
        }
        if self.peek(0).is_some_and(|c| "uU".contains(c)) {
            self.at += 1;
            return Token::Uint(text);
        }
        Token::Int(text)
    }

    /// Returns the length of the prefix before a quote, whether the literal is raw, and whether it
    /// is bytes; `None` if there is no string literal here.
    fn string_prefix(&self) -> Option<(usize, bool, bool)> {
        let (mut length, mut raw, mut bytes) = (0, false, false);
        loop {
            match self.peek(length)? {
                '"' | '\'' => return Some((length, raw, bytes)),
                'r' | 'R' if !raw => raw = true,
                'b' | 'B' if !bytes && !raw => bytes = true,
                _ => return None,
            }
            length += 1;
        }
    }

    fn string(&mut self, (prefix, raw, bytes): (usize, bool, bool)) -> Result<Token, Fault> {
        let start = self.at;
        let quote = self.peek(prefix).unwrap_or('"');
        let triple = self.peek(prefix + 1) == Some(quote) && self.peek(prefix + 2) == Some(quote);
        let width = if triple { 3 } else { 1 };
        self.at += prefix + width;
        let begin = self.at;
        loop {
            let Some(c) = self.peek(0) else {
                let length = self.at - start;
                self.at = start;
                return Err(Fault::Unrecognized(length));
            };
            let closed =
                if triple { (0..3).all(|ahead| self.peek(ahead) == Some(quote)) } else { c == quote };
            if closed {
                break;
            }
            if !triple && (c == '\n' || c == '\r') {
                let length = self.at - start + 1;
                self.at = start;
                return Err(Fault::Unrecognized(length));
            }
            self.at += if c == '\\' && !raw && self.peek(1).is_some() { 2 } else { 1 };
        }
        let body = self.chars.get(begin..self.at).unwrap_or_default();
        self.at += width;
        let content = if raw { Ok(encode(body)) } else { unescape(body, bytes) };
        let content = content.map_err(|message| Fault::Literal(message.to_owned()))?;
        if bytes {
            return Ok(Token::Bytes(content));
        }
        String::from_utf8(content)
            .map(Token::String)
            .map_err(|_| Fault::Literal("invalid string literal".into()))
    }
}

fn encode(chars: &[char]) -> Vec<u8> {
    chars.iter().collect::<String>().into_bytes()
}

fn unescape(body: &[char], bytes: bool) -> Result<Vec<u8>, &'static str> {
    const WRONG: &str = "unable to unescape string";
    let mut found = Vec::with_capacity(body.len());
    let mut at = 0;
    let push_char = |found: &mut Vec<u8>, c: char| found.extend(c.encode_utf8(&mut [0; 4]).bytes());
    while let Some(c) = body.get(at) {
        at += 1;
        if *c != '\\' {
            push_char(&mut found, *c);
            continue;
        }
        let escape = *body.get(at).ok_or(WRONG)?;
        at += 1;
        let simple = match escape {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            '\\' | '\'' | '"' | '`' | '?' => escape,
            'x' | 'X' | 'u' | 'U' | '0'..='3' => {
                let (digits, radix) = match escape {
                    'x' | 'X' => (2, 16),
                    'u' => (4, 16),
                    'U' => (8, 16),
                    _ => (3, 8),
                };
                let begin = if radix == 8 { at - 1 } else { at };
                let text: String = body.get(begin..begin + digits).ok_or(WRONG)?.iter().collect();
                let code = u32::from_str_radix(&text, radix).map_err(|_| WRONG)?;
                at = begin + digits;
                if bytes {
                    if digits > 3 {
                        return Err(WRONG);
                    }
                    found.push(u8::try_from(code).map_err(|_| WRONG)?);
                    continue;
                }
                char::from_u32(code).ok_or(WRONG)?
            }
            _ => return Err(WRONG),
        };
        push_char(&mut found, simple);
    }
    Ok(found)
}
