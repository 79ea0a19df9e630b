//! Base64 as Go decodes it: line breaks are skipped, stray bits in the last character ignored.

use std::borrow::Cow;

use ::base64::Engine as _;
use ::base64::engine::general_purpose::STANDARD;

/// The text is not base64, at this byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("illegal base64 data at input byte {0}")]
pub struct Corrupt(pub usize);

/// Converts base64 text to its canonical form.
pub fn canonical(text: &str) -> Result<Cow<'_, str>, Corrupt> {
    // Text that this engine accepts is canonical already.
    if STANDARD.decode(text).is_ok() {
        return Ok(Cow::Borrowed(text));
    }
    Ok(Cow::Owned(encode(&decode_lenient(text.as_bytes())?)))
}

/// Encodes bytes as canonical text.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes canonical text. Other text, which no decoded object contains, decodes to no bytes.
pub fn decode(canonical: &str) -> Vec<u8> {
    STANDARD.decode(canonical).unwrap_or_default()
}

fn decode_lenient(text: &[u8]) -> Result<Vec<u8>, Corrupt> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut group = [0u8; 4];
    let mut filled = 0;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'\r' | b'\n' => {}
            b'=' => {
                let end = padding(text, at, filled)?;
                let bits = group[..filled].iter().fold(0u32, |bits, &six| bits << 6 | u32::from(six));
                let whole = (bits << (6 * (4 - filled))).to_be_bytes();
                bytes.extend_from_slice(&whole[1..filled]);
                return if end == text.len() { Ok(bytes) } else { Err(Corrupt(end)) };
            }
            _ => {
                group[filled] = six_bits(byte).ok_or(Corrupt(at - 1))?;
                filled += 1;
            }
        }
        if filled == 4 {
            let bits = group.iter().fold(0u32, |bits, &six| bits << 6 | u32::from(six));
            bytes.extend_from_slice(&bits.to_be_bytes()[1..]);
            filled = 0;
        }
    }
    if filled == 0 { Ok(bytes) } else { Err(Corrupt(at - filled)) }
}

/// Returns the end of the padding that begins before `at`.
fn padding(text: &[u8], mut at: usize, filled: usize) -> Result<usize, Corrupt> {
    let breaks =
        |at: usize| at + text[at..].iter().take_while(|&&byte| byte == b'\r' || byte == b'\n').count();
    if filled < 2 {
        return Err(Corrupt(at - 1));
    }
    if filled == 2 {
        at = breaks(at);
        match text.get(at) {
            Some(b'=') => at += 1,
            Some(_) => return Err(Corrupt(at - 1)),
            None => return Err(Corrupt(text.len())),
        }
    }
    Ok(breaks(at))
}

fn six_bits(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_canonical() {
        for (text, want) in [
            ("", Ok("")),
            ("QUI=", Ok("QUI=")),
            ("Q\nQ=\n=", Ok("QQ==")),
            ("QUJD\r\n", Ok("QUJD")),
            ("QR==", Ok("QQ==")),
            ("QUJ=", Ok("QUI=")),
            ("A-_=", Err(Corrupt(1))),
            ("QQ", Err(Corrupt(0))),
            ("QUJDQ", Err(Corrupt(4))),
            ("QQ=", Err(Corrupt(3))),
            ("QQ=a", Err(Corrupt(2))),
            ("Q=", Err(Corrupt(1))),
            ("QQ==QQ==", Err(Corrupt(4))),
            ("not base64!", Err(Corrupt(3))),
        ] {
            assert_eq!(canonical(text).as_deref(), want.as_ref().map(|text| *text), "{text:?}");
        }
    }
}
