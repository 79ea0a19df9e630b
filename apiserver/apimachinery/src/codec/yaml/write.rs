//! Write: a value as YAML, in the style of kube-apiserver.
//!
//! Members are sorted with numbers by value (`a2` before `a10`), lists are not indented below their
//! member, and strings are plain where that is safe, otherwise quoted or a literal block.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::scalar::{ScalarValue, is_sexagesimal, resolve};
use crate::codec::json::write_untyped;

/// Lines are broken at the first blank after this column.
const BEST_WIDTH: usize = 80;

/// Longer keys are written after a question mark.
const MAX_SIMPLE_KEY_LENGTH: usize = 128;

/// Writes a value as a YAML document.
pub fn from_json(value: &Value) -> Vec<u8> {
    let mut writer = Writer { out: String::new(), column: 0 };
    match value {
        Value::Object(members) if !members.is_empty() => writer.map(members, 0),
        Value::Array(items) if !items.is_empty() => writer.list(items, 0),
        other => {
            writer.leaf(other, 0);
            writer.line(0);
        }
    }
    writer.out.into_bytes()
}

struct Writer {
    out: String,
    column: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

impl Writer {
    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column = if c == '\n' { 0 } else { self.column + 1 };
    }

    fn put_all(&mut self, text: &str) {
        text.chars().for_each(|c| self.put(c));
    }

    /// Starts a new line.
    fn line(&mut self, indent: usize) {
        if self.column > 0 {
            self.put('\n');
        }
        self.pad(indent);
    }

    fn pad(&mut self, indent: usize) {
        while self.column < indent {
            self.put(' ');
        }
    }

    /// Writes members from the current line on, which is indented already.
    fn map(&mut self, members: &Map<String, Value>, indent: usize) {
        let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
        sorted.sort_by(|(a, _), (b, _)| natural(a, b));
        for (name, value) in sorted {
            self.pad(indent);
            let simple = name.len() <= MAX_SIMPLE_KEY_LENGTH && !name.contains('\n');
            if simple {
                self.text(name, indent, true);
                self.put(':');
            } else {
                self.put_all("? ");
                self.text(name, indent + 2, false);
                self.line(indent);
                self.put(':');
            }
            match value {
                Value::Object(members) if !members.is_empty() => {
                    // After a question mark, the value is on the line of its colon.
                    if simple {
                        self.line(indent + 2);
                    } else {
                        self.put(' ');
                    }
                    self.map(members, indent + 2);
                }
                Value::Array(items) if !items.is_empty() => {
                    self.line(indent);
                    self.list(items, indent);
                }
                other => {
                    self.put(' ');
                    self.leaf(other, indent + 2);
                    self.line(0);
                }
            }
        }
    }

    fn list(&mut self, items: &[Value], indent: usize) {
        for item in items {
            self.pad(indent);
            self.put_all("- ");
            match item {
                Value::Object(members) if !members.is_empty() => self.map(members, indent + 2),
                Value::Array(items) if !items.is_empty() => self.list(items, indent + 2),
                other => {
                    self.leaf(other, indent + 2);
                    self.line(0);
                }
            }
        }
    }

    fn leaf(&mut self, value: &Value, indent: usize) {
        match value {
            Value::String(text) => self.text(text, indent, false),
            Value::Array(_) => self.put_all("[]"),
            Value::Object(_) => self.put_all("{}"),
            other => {
                let mut text = Vec::new();
                write_untyped(other, &mut text);
                self.put_all(&String::from_utf8_lossy(&text));
            }
        }
    }

    fn text(&mut self, text: &str, indent: usize, is_key: bool) {
        match style(text, is_key) {
            Style::Plain => self.folded(text, indent, is_key, |writer, c| writer.put(c)),
            Style::Single => {
                self.put('\'');
                self.folded(text, indent, is_key, |writer, c| {
                    if c == '\'' {
                        writer.put('\'');
                    }
                    writer.put(c);
                });
                self.put('\'');
            }
            Style::Double => self.double_quoted(text, indent, is_key),
            Style::Literal => self.literal(text, indent),
        }
    }

    /// Writes characters, and breaks lines that have grown long at single blanks.
    fn folded(&mut self, text: &str, indent: usize, is_key: bool, mut put: impl FnMut(&mut Writer, char)) {
        let mut blank = false;
        let mut rest = text.char_indices().peekable();
        while let Some((at, c)) = rest.next() {
            let last = at + 1 >= text.len();
            let next_blank = rest.peek().is_some_and(|(_, next)| *next == ' ');
            let breaks = c == ' ' && !is_key && !blank && self.column > BEST_WIDTH;
            if breaks && at > 0 && !last && !next_blank {
                self.line(indent);
            } else {
                put(self, c);
            }
            blank = c == ' ';
        }
    }

    fn double_quoted(&mut self, text: &str, indent: usize, is_key: bool) {
        self.put('"');
        let mut blank = false;
        let mut rest = text.char_indices().peekable();
        while let Some((at, c)) = rest.next() {
            let last = at + c.len_utf8() >= text.len();
            if c == ' ' && !is_key && !blank && self.column > BEST_WIDTH && at > 0 && !last {
                self.line(indent);
                if rest.peek().is_some_and(|(_, next)| *next == ' ') {
                    self.put('\\');
                }
            } else {
                self.escaped(c);
            }
            blank = c == ' ';
        }
        self.put('"');
    }

    fn escaped(&mut self, c: char) {
        let short = match c {
            '"' | '\\' => c,
            '\0' => '0',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '\u{85}' => 'N',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            c if is_printable(c) => return self.put(c),
            c => {
                let code = u32::from(c);
                return self.put_all(&match code {
                    0..=0xff => format!("\\x{code:02X}"),
                    0x100..=0xffff => format!("\\u{code:04X}"),
                    _ => format!("\\U{code:08X}"),
                });
            }
        };
        self.put('\\');
        self.put(short);
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.put('|');
        if text.starts_with([' ', '\n']) {
            self.put('2');
        }
        if !text.ends_with('\n') {
            self.put('-');
        } else if text == "\n" || text.ends_with("\n\n") {
            self.put('+');
        }
        self.put('\n');
        for (at, line) in text.strip_suffix('\n').unwrap_or(text).split('\n').enumerate() {
            if at > 0 {
                self.put('\n');
            }
            if !line.is_empty() {
                self.pad(indent);
                self.put_all(line);
            }
        }
        // An empty line still ends.
        if text.ends_with('\n') || self.column == 0 {
            self.put('\n');
        }
    }
}

/// Chooses the plainest style in which a string is read back unchanged.
fn style(text: &str, is_key: bool) -> Style {
    let facts = AllowedStyles::of(text);
    let wanted = if text.contains('\n') {
        Style::Literal
    } else if resolve(text) == ScalarValue::Text && !is_sexagesimal(text) {
        Style::Plain
    } else {
        Style::Double
    };
    match wanted {
        _ if is_key && facts.breaks => Style::Double,
        Style::Plain if facts.plain => Style::Plain,
        Style::Plain if facts.single => Style::Single,
        Style::Literal if facts.literal && !is_key => Style::Literal,
        _ => Style::Double,
    }
}

/// The styles that a string allows.
struct AllowedStyles {
    breaks: bool,
    plain: bool,
    single: bool,
    literal: bool,
}

impl AllowedStyles {
    fn of(text: &str) -> AllowedStyles {
        let special = text.chars().any(|c| c != '\n' && !is_printable(c));
        let breaks = text.contains('\n');
        let edge = |c: char| c == ' ' || c == '\n';
        let space_break = text.contains(" \n");
        AllowedStyles {
            breaks,
            plain: !special
                && !breaks
                && !text.starts_with(edge)
                && !text.ends_with(edge)
                && !has_indicators(text),
            single: !special && !space_break && !text.contains("\n "),
            literal: !special && !space_break && !text.ends_with(' '),
        }
    }
}

/// Returns `true` if a character of the string would be read as syntax.
fn has_indicators(text: &str) -> bool {
    if text.starts_with("---") || text.starts_with("...") {
        return true;
    }
    let mut before = ' ';
    let mut rest = text.chars().enumerate().peekable();
    while let Some((at, c)) = rest.next() {
        let blank_after = rest.peek().is_none_or(|(_, next)| *next == ' ');
        let indicates = match c {
            ':' => blank_after,
            '#' => at == 0 || before == ' ',
            '?' | '-' => at == 0 && blank_after,
            ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => {
                at == 0
            }
            _ => false,
        };
        if indicates {
            return true;
        }
        before = c;
    }
    false
}

/// Returns `true` if a character is printable. Line separators count as unprintable here, so that
/// they are escaped.
fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

/// Compares keys as go-yaml's `keyList.Less` (`sorter.go`) does: non-letters before letters, digit
/// runs by value.
fn natural(a: &str, b: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = a.iter().zip(&b).position(|(a, b)| a != b) else {
        return a.len().cmp(&b.len());
    };
    let (x, y) = (a[at], b[at]);
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => return x.cmp(&y),
        (false, false) => {}
        (x_letter, _) => {
            // After a digit, a letter comes first, since the other one may be another digit.
            let behind_digit = at > 0 && a[at - 1].is_numeric();
            return if x_letter == behind_digit { Ordering::Less } else { Ordering::Greater };
        }
    }
    let digits = |text: &[char]| -> Vec<char> {
        text[at..].iter().copied().take_while(char::is_ascii_digit).collect()
    };
    let (m, n) = (digits(&a), digits(&b));
    // A zero counts only after another digit.
    let inside =
        (x == '0' || y == '0') && a[..at].iter().rev().take_while(|c| c.is_ascii_digit()).any(|&c| c != '0');
    let value = |digits: &[char]| {
        let start = u64::from(inside);
        digits.iter().fold(start, |value, digit| {
            value.saturating_mul(10).saturating_add(digit.to_digit(10).unwrap_or(0).into())
        })
    };
    value(&m).cmp(&value(&n)).then(m.len().cmp(&n.len())).then(x.cmp(&y))
}
