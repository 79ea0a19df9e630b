//! Quoting of texts, as Go does it.

/// Escapes JSON for HTML, as Go's encoder does.
pub fn escape_html(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Returns `true` if Go prints a character (`unicode.IsPrint`): a letter, mark, number,
/// punctuation, symbol, or the space.
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    // Debug texts of Rust have the same rule, but for marks at their beginning.
    let mut text = [0; 5];
    let (first, rest) = text.split_at_mut(1);
    first[0] = b'a';
    let length = 1 + c.encode_utf8(rest).len();
    std::str::from_utf8(&text[..length]).is_ok_and(|text| text.escape_debug().nth(1) == Some(c))
}

/// Quotes as Go's `%q`.
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
            c if is_printable(c) => out.push(c),
            c if (c as u32) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push_str(&format!("\\U{:08x}", c as u32)),
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
            Some('U') => digits(8),
            Some(other) => other,
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_printed_as_by_go() {
        for (text, want) in [
            ("a'b \u{e9}\u{301}\u{1f600}", "\"a'b \u{e9}\u{301}\u{1f600}\""),
            ("\"\\\n\u{1}\u{7f}", "\"\\\"\\\\\\n\\x01\\x7f\""),
            ("\u{85}\u{a0}\u{ad}\u{200b}", "\"\\u0085\\u00a0\\u00ad\\u200b\""),
            ("\u{2028}\u{e000}\u{378}\u{f0000}", "\"\\u2028\\ue000\\u0378\\U000f0000\""),
        ] {
            assert_eq!((quote(text).as_str(), unquote(want).as_str()), (want, text));
        }
    }
}
