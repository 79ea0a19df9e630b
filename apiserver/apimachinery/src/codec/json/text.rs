//! JSON text without types: strings and numbers as Go prints them, and what holds them.

use std::io::Write as _;

use serde_json::{Map, Number, Value};

/// Writes a value without a type: members sorted.
pub fn write_untyped(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(set) => out.extend_from_slice(if *set { b"true" } else { b"false" }),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => write_list(items, out, write_untyped),
        Value::Object(members) => write_map(members, out, write_untyped),
    }
}

/// Writes an array, each item by `write_item`.
pub fn write_list(items: &[Value], out: &mut Vec<u8>, write_item: impl Fn(&Value, &mut Vec<u8>)) {
    out.push(b'[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_item(item, out);
    }
    out.push(b']');
}

/// Writes an object, the value of each member by `write_entry`.
pub fn write_map(
    entries: &Map<String, Value>,
    out: &mut Vec<u8>,
    write_entry: impl Fn(&Value, &mut Vec<u8>),
) {
    out.push(b'{');
    for (index, (name, value)) in entries.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(name, out);
        out.push(b':');
        write_entry(value, out);
    }
    out.push(b'}');
}

/// Writes a number. A whole float has no fraction, and an exponent is used only far from one.
fn write_number(number: &Number, out: &mut Vec<u8>) {
    let written = match number.as_f64() {
        Some(float) if number.is_f64() && float != 0.0 && !(1e-6..1e21).contains(&float.abs()) => {
            let text = format!("{float:e}");
            match text.split_once('e') {
                Some((digits, power)) if !power.starts_with('-') => write!(out, "{digits}e+{power}"),
                _ => write!(out, "{text}"),
            }
        }
        Some(float) if number.is_f64() => write!(out, "{float}"),
        _ => write!(out, "{number}"),
    };
    // Writing to a vector does not fail.
    let _ = written;
}

/// Bytes that need an escape in strings: 1 always, 2 may begin a line separator.
const SPECIAL: [u8; 256] = {
    let mut special = [0; 256];
    let mut byte = 0;
    while byte < 0x20 {
        special[byte] = 1;
        byte += 1;
    }
    special[b'"' as usize] = 1;
    special[b'\\' as usize] = 1;
    special[b'<' as usize] = 1;
    special[b'>' as usize] = 1;
    special[b'&' as usize] = 1;
    special[0xe2] = 2;
    special
};

/// Writes a string. Characters that are special in HTML and JavaScript are escaped too, as in Go.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    out.push(b'"');
    let mut written = 0;
    let mut at = 0;
    while let Some(found) = next_special(bytes, at) {
        at = found + 1;
        let byte = bytes[found];
        let length = match SPECIAL[usize::from(byte)] {
            2 => match bytes.get(found..found + 3) {
                Some([0xe2, 0x80, 0xa8 | 0xa9]) => 3,
                _ => continue,
            },
            _ => 1,
        };
        out.extend_from_slice(&bytes[written..found]);
        written = found + length;
        let escape: &[u8] = match byte {
            b'"' => br#"\""#,
            b'\\' => br"\\",
            b'\n' => br"\n",
            b'\r' => br"\r",
            b'\t' => br"\t",
            0x08 => br"\b",
            0x0c => br"\f",
            0xe2 if bytes[found + 2] == 0xa8 => br"\u2028",
            0xe2 => br"\u2029",
            _ => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                &[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]
            }
        };
        out.extend_from_slice(escape);
    }
    out.extend_from_slice(&bytes[written..]);
    out.push(b'"');
}

/// Returns the position of the next byte that may need an escape. Most text has none, so it is
/// searched in blocks, which the compiler turns into a few wide instructions each.
fn next_special(bytes: &[u8], from: usize) -> Option<usize> {
    const BLOCK: usize = 32;
    let is_special = |byte: u8| {
        (byte < 0x20)
            | (byte == b'"')
            | (byte == b'\\')
            | (byte == b'<')
            | (byte == b'>')
            | (byte == b'&')
            | (byte == 0xe2)
    };
    let (blocks, _) = bytes.get(from..)?.as_chunks::<BLOCK>();
    let clean =
        blocks.iter().take_while(|block| !block.iter().fold(false, |any, &byte| any | is_special(byte)));
    let start = from + clean.count() * BLOCK;
    bytes[start..].iter().position(|&byte| SPECIAL[usize::from(byte)] != 0).map(|offset| start + offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_is_escaped_as_go_does() {
        for (text, want) in [
            ("plain", r#""plain""#),
            ("<a href=\"x\">&amp;</a>", r#""\u003ca href=\"x\"\u003e\u0026amp;\u003c/a\u003e""#),
            ("tab\tnl\ncr\r\u{1}\u{8}\u{c}\u{7f}", "\"tab\\tnl\\ncr\\r\\u0001\\b\\f\u{7f}\""),
            ("\u{2028}\u{2029}…", "\"\\u2028\\u2029…\""),
            ("", "\"\""),
            (
                "a text that is longer than one block, with a <tag> behind the first, and more than another block behind that",
                r#""a text that is longer than one block, with a \u003ctag\u003e behind the first, and more than another block behind that""#,
            ),
        ] {
            let mut out = Vec::new();
            write_string(text, &mut out);
            assert_eq!(String::from_utf8(out).as_deref(), Ok(want));
        }
    }

    #[test]
    fn every_byte_that_is_special_is_found_anywhere() {
        for byte in 0..=u8::MAX {
            for at in 0..70 {
                let mut bytes = [b'x'; 70];
                bytes[at] = byte;
                let want = (SPECIAL[usize::from(byte)] != 0).then_some(at);
                assert_eq!(next_special(&bytes, 0), want, "{byte} at {at}");
                assert_eq!(next_special(&bytes, at + 1), None, "{byte} before {at}");
            }
        }
    }

    #[test]
    fn numbers_are_printed_as_go_does() {
        for (value, want) in [
            (json!(1.0), "1"),
            (json!(-2.5), "-2.5"),
            (json!(1e20), "100000000000000000000"),
            (json!(1e21), "1e+21"),
            (json!(1.5e-7), "1.5e-7"),
            (json!(0.000001), "0.000001"),
            (json!(0.0), "0"),
            (json!(i64::MIN), "-9223372036854775808"),
        ] {
            let mut out = Vec::new();
            write_untyped(&value, &mut out);
            assert_eq!(String::from_utf8(out).as_deref(), Ok(want));
        }
    }
}
