//! Quoting of texts, as Go does it.

/// Escapes JSON for HTML, as Go's encoder does.
pub fn escape_html(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Quotes as Go's `%q`, with one deviation: of the characters that Go does not print, only control
/// characters are escaped (U+00A0 and U+200B are kept).
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Undoes [`quote`].
pub(super) fn unquote(quoted: &str) -> String {
    let inner = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(quoted);
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        let code = match c {
            '\\' => rest.next(),
            _ => None,
        };
        let mut digits = |count: usize| {
            let hex: String = rest.by_ref().take(count).collect();
            u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        text.push(match code {
            None => c,
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('v') => '\u{b}',
            Some('f') => '\u{c}',
            Some('x') => digits(2),
            Some('u') => digits(4),
            Some(other) => other,
        });
    }
    text
}
