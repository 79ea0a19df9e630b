//! DER: the few types of it that a certificate is made of (X.690).

/// The tag of a SEQUENCE.
const SEQUENCE: u8 = 0x30;
/// The tag of a SET.
const SET: u8 = 0x31;

/// Encodes a value with its tag and length.
pub fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut value = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short) if short < 0x80 => value.push(short),
        _ => {
            let length = content.len().to_be_bytes();
            let digits: Vec<u8> = length.into_iter().skip_while(|byte| *byte == 0).collect();
            // There are eight at most.
            value.push(0x80 | u8::try_from(digits.len()).unwrap_or(0));
            value.extend(digits);
        }
    }
    value.extend_from_slice(content);
    value
}

/// Encodes a SEQUENCE of values.
pub fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    tagged(SEQUENCE, &parts.concat())
}

/// Encodes a SET of values, which are sorted.
pub fn set(parts: &[Vec<u8>]) -> Vec<u8> {
    tagged(SET, &parts.concat())
}

/// Encodes a text of a name: as a PrintableString if possible, else as a UTF8String.
pub fn directory_string(text: &str) -> Vec<u8> {
    let is_printable = |byte: u8| byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&byte);
    let tag = if text.bytes().all(is_printable) { 0x13 } else { 0x0c };
    tagged(tag, text.as_bytes())
}

/// Encodes a positive INTEGER from its bytes, the highest first.
pub fn integer(bytes: &[u8]) -> Vec<u8> {
    let digits: Vec<u8> = bytes.iter().copied().skip_while(|byte| *byte == 0).collect();
    // A leading bit would be a sign.
    let needs_zero = digits.first().is_none_or(|first| *first >= 0x80);
    tagged(0x02, &[if needs_zero { &[0][..] } else { &[] }, &digits].concat())
}

/// Encodes an OBJECT IDENTIFIER.
pub fn object_identifier(arcs: &[u64]) -> Vec<u8> {
    let (first, second) = (arcs.first().copied().unwrap_or(0), arcs.get(1).copied().unwrap_or(0));
    let mut content = base128(first * 40 + second);
    arcs.iter().skip(2).for_each(|arc| content.extend(base128(*arc)));
    tagged(0x06, &content)
}

/// Encodes a number in base 128. All bytes but the last have the high bit.
fn base128(mut number: u64) -> Vec<u8> {
    let mut bytes = vec![low_bits(number)];
    while number >= 0x80 {
        number >>= 7;
        bytes.push(low_bits(number) | 0x80);
    }
    bytes.reverse();
    bytes
}

fn low_bits(number: u64) -> u8 {
    u8::try_from(number & 0x7f).unwrap_or(0)
}

/// Encodes an OCTET STRING.
pub fn octet_string(bytes: &[u8]) -> Vec<u8> {
    tagged(0x04, bytes)
}

/// Encodes a BIT STRING of whole bytes.
pub fn bit_string(bytes: &[u8]) -> Vec<u8> {
    tagged(0x03, &[&[0], bytes].concat())
}

/// Encodes a BIT STRING of named bits; those in `set` are one.
pub fn named_bits(set: impl IntoIterator<Item = u8>) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut highest = None;
    for bit in set {
        let index = usize::from(bit / 8);
        if bytes.len() <= index {
            bytes.resize(index + 1, 0);
        }
        if let Some(byte) = bytes.get_mut(index) {
            *byte |= 0x80 >> (bit % 8);
        }
        highest = highest.max(Some(bit));
    }
    let unused = highest.map_or(0, |highest| 7 - highest % 8);
    tagged(0x03, &[&[unused], bytes.as_slice()].concat())
}

/// Encodes the boolean TRUE.
pub fn boolean_true() -> Vec<u8> {
    tagged(0x01, &[0xff])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        for (case, got, want) in [
            ("a short value", octet_string(b"ab"), vec![4, 2, b'a', b'b']),
            ("zero", integer(&[]), vec![2, 1, 0]),
            ("no sign", integer(&[0, 0x80]), vec![2, 2, 0, 0x80]),
            (
                "client auth",
                object_identifier(&[1, 3, 6, 1, 5, 5, 7, 3, 2]),
                vec![6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 2],
            ),
            (
                "large arcs",
                object_identifier(&[1, 2, 840, 113549]),
                vec![6, 6, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d],
            ),
            ("two bits", named_bits([0, 2]), vec![3, 2, 5, 0xa0]),
            ("the ninth bit", named_bits([8]), vec![3, 3, 7, 0, 0x80]),
            ("no bit", named_bits([]), vec![3, 1, 0]),
        ] {
            assert_eq!(got, want, "{case}");
        }
        let long = octet_string(&[0; 300]);
        assert_eq!((long[..4].to_vec(), long.len()), (vec![4, 0x82, 1, 0x2c], 304));
    }
}
