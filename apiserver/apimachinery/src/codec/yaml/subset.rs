//! The subset of JSON that YAML 1.1 reads as JSON.
//!
//! Clients send most of the configurations that they apply as JSON, which is also YAML; what means
//! the same in both needs no conversion.

/// The maximum bytes of a document.
const MAX_BYTES: usize = 256 * 1024;

/// The maximum depth of objects and lists, below the limits of both formats.
const MAX_DEPTH: u32 = 50;

/// The maximum bytes of a string: YAML has a limit for keys on one line.
const MAX_STRING_BYTES: usize = 1000;

/// The maximum digits of a number: no parser makes a float of it.
const MAX_DIGITS: usize = 15;

/// Returns `true` if a text, provided that it is a JSON object without repeated keys, is the same
/// object in YAML 1.1. A `false` says nothing.
///
/// Such a text is one line of ASCII, without fractions, exponents, `\u` and long strings.
pub fn is_read_as_json(text: &[u8]) -> bool {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.first() == Some(&b'{') && text.len() <= MAX_BYTES && tokens_are_shared(text)
}

fn tokens_are_shared(text: &[u8]) -> bool {
    let mut depth = 0;
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        rest = match first {
            b'"' => match after_string(after) {
                Some(after) => after,
                None => return false,
            },
            b'{' | b'[' if depth < MAX_DEPTH => {
                depth += 1;
                after
            }
            b'}' | b']' if depth > 0 => {
                depth -= 1;
                after
            }
            b',' | b':' | b' ' => after,
            b'-' | b'0'..=b'9' => match after_number(rest) {
                Some(after) => after,
                None => return false,
            },
            _ => match [&b"true"[..], b"false", b"null"].iter().find_map(|word| rest.strip_prefix(*word)) {
                Some(after) => after,
                None => return false,
            },
        };
    }
    true
}

/// Returns what follows a string whose opening quote has been read.
fn after_string(text: &[u8]) -> Option<&[u8]> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => break,
            b'\\' if matches!(text.get(at + 1)?, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                at += 2;
            }
            b'\\' => return None,
            b' '..=b'~' => at += 1,
            _ => return None,
        }
    }
    // A key `<<` merges, quoted or not, in some parsers.
    let is_shared = at <= MAX_STRING_BYTES && &text[..at] != b"<<";
    is_shared.then(|| &text[at + 1..])
}

/// Returns what follows a whole number.
fn after_number(text: &[u8]) -> Option<&[u8]> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_shared = match digits.first()? {
        // Octal in YAML, and the negative zero.
        b'0' => count == 1 && digits.len() == text.len(),
        _ => (1..=MAX_DIGITS).contains(&count),
    };
    let after = &digits[count..];
    (is_shared && matches!(after.first(), Some(b',' | b'}' | b']' | b' '))).then_some(after)
}
