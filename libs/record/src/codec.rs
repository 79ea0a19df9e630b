//! The bytes of an entry: its JSON, then its payload as it is.

use bytes::Bytes;

use crate::Entry;

/// The greatest size of an entry: the largest object that a store takes, and some metadata.
pub(crate) const MAX_ENTRY: usize = 48 << 20;
/// The fewest bytes of an entry: two lengths and a JSON of one byte.
pub(crate) const MIN_ENTRY: usize = 3;

/// Appends an entry to a buffer. `scratch` is memory that is used again.
///
/// # Errors
/// The entry cannot be JSON. Nothing is appended.
pub(crate) fn encode(
    entry: &Entry,
    scratch: &mut Vec<u8>,
    buffer: &mut Vec<u8>,
) -> Result<(), serde_json::Error> {
    scratch.clear();
    serde_json::to_writer(&mut *scratch, entry)?;
    push_varint(buffer, scratch.len() as u64);
    buffer.extend_from_slice(scratch);
    match entry.payload() {
        Some(payload) => {
            push_varint(buffer, payload.len() as u64 + 1);
            buffer.extend_from_slice(payload);
        }
        None => push_varint(buffer, 0),
    }
    Ok(())
}

/// Decodes the entry at the beginning of `bytes`, and moves `bytes` behind it. The payload is
/// copied, so that an entry does not keep its whole block in memory.
///
/// # Errors
/// The reason why there is no entry.
pub(crate) fn decode(bytes: &mut &[u8]) -> Result<Entry, &'static str> {
    let length = pop_varint(bytes).ok_or("the length of an entry is cut short")?;
    let json = pop(bytes, length).ok_or("an entry is cut short")?;
    let mut entry: Entry = serde_json::from_slice(json).map_err(|_| "an entry cannot be decoded")?;
    let length = pop_varint(bytes).ok_or("the length of a payload is cut short")?;
    if let Some(length) = length.checked_sub(1) {
        let payload = pop(bytes, length).ok_or("a payload is cut short")?;
        if !entry.set_payload(Bytes::copy_from_slice(payload)) {
            return Err("an entry has a payload that it has no place for");
        }
    }
    Ok(entry)
}

fn pop<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (first, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(first)
}

/// Appends a number in LEB128: seven bits a byte, the lowest first.
fn push_varint(buffer: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return buffer.push(low & 0x7f);
        }
        buffer.push(low | 0x80);
    }
}

fn pop_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_have_all_numbers_and_refuse_greater_ones() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, number);
            assert!(bytes.len() <= 10);
            let mut rest = &bytes[..];
            assert_eq!((pop_varint(&mut rest), rest.len()), (Some(number), 0));
            assert_eq!(pop_varint(&mut &bytes[..bytes.len() - 1]), None, "{number} is cut short");
        }
        assert_eq!(pop_varint(&mut &[0xff; 11][..]), None, "it does not end");
        let greater = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(pop_varint(&mut &greater[..]), None, "2^65 - 1 does not fit");
    }

    #[test]
    fn lengths_beyond_the_buffer_are_refused() {
        for bytes in [&[0xff, 0xff, 0xff, 0xff, 0x7f, b'{'][..], b"\x05{}", b"", b"\x02{}\x00"] {
            assert!(decode(&mut &bytes[..]).is_err(), "{bytes:?}");
        }
        let json = br#"{"end":{"dropped":1}}"#;
        let entry = |payload: &[u8]| [&[json.len() as u8], &json[..], payload].concat();
        assert_eq!(decode(&mut &entry(&[0])[..]), Ok(Entry::End { dropped: 1 }));
        assert!(decode(&mut &entry(&[2, b'x'])[..]).is_err(), "an end has no payload");
        assert!(decode(&mut &entry(&[])[..]).is_err(), "the second length is missing");
    }
}
