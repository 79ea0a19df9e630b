//! An entry's bytes on disk: its change and key. Its id is part of the keys of its rows.
//!
//! ```text
//! form: u8 | bucket: u32 length, bytes | name: u32 length, bytes | created: u64, if form is UPDATED | stored bytes
//! ```
//! Numbers are big-endian. A form is never given another meaning; a new shape gets a new form.

use bytes::Bytes;

use crate::{
    EntryId, Key, Revision,
    log::transaction::{Change, Entry},
};

const CREATED: u8 = 1;
const UPDATED: u8 = 2;
const DELETED: u8 = 3;

/// An entry that the format on disk has no numbers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entry of {bytes} bytes is larger than the format allows")]
pub(super) struct Oversized {
    pub bytes: usize,
}

/// Encodes the entry, without its id.
///
/// # Errors
/// [`Oversized`] for a bucket or name of 4 GiB or more.
pub(super) fn encode(Entry { key, change, .. }: &Entry) -> Result<Vec<u8>, Oversized> {
    let (form, created, stored): (_, _, &[u8]) = match change {
        Change::Put { created: None, stored } => (CREATED, None, stored),
        Change::Put { created: Some(created), stored } => (UPDATED, Some(created.to_bytes()), stored),
        Change::Delete => (DELETED, None, &[]),
    };
    let mut bytes = Vec::with_capacity(17 + key.bucket().len() + key.name().len() + stored.len());
    bytes.push(form);
    for part in [key.bucket(), key.name()] {
        let length = u32::try_from(part.len()).map_err(|_| Oversized { bytes: part.len() })?;
        bytes.extend(length.to_be_bytes());
        bytes.extend(part.as_bytes());
    }
    bytes.extend(created.iter().flatten());
    bytes.extend(stored);
    Ok(bytes)
}

/// Decodes an entry; returns None if the bytes are not an encoded entry.
pub(super) fn decode(id: EntryId, bytes: &[u8]) -> Option<Entry> {
    let (form, rest) = bytes.split_first()?;
    let (bucket, rest) = part(rest)?;
    let (name, rest) = part(rest)?;
    let change = match *form {
        CREATED => Change::Put { created: None, stored: Bytes::copy_from_slice(rest) },
        UPDATED => {
            let (created, stored) = rest.split_first_chunk()?;
            let created = Some(Revision::from_bytes(*created));
            Change::Put { created, stored: Bytes::copy_from_slice(stored) }
        }
        DELETED if rest.is_empty() => Change::Delete,
        _ => return None,
    };
    Some(Entry { id, key: Key::new(bucket, name), change })
}

fn part(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (part, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    Some((std::str::from_utf8(part).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: EntryId = EntryId { revision: Revision(9), index: 2 };

    fn entries() -> Vec<Entry> {
        let put = |created, stored: &'static str| Change::Put { created, stored: stored.into() };
        [
            ("b", "n", put(None, "value")),
            ("apps/deployments", "ns/name", put(Some(Revision(7)), "{}")),
            ("", "", put(None, "")),
            ("bücket", "näme", put(Some(Revision(u64::MAX)), "")),
            ("b", "n", Change::Delete),
        ]
        .map(|(bucket, name, change)| Entry { id: ID, key: Key::new(bucket, name), change })
        .into()
    }

    fn encoded(entry: &Entry) -> Vec<u8> {
        encode(entry).unwrap()
    }

    #[test]
    fn decoding_undoes_encoding() {
        for entry in entries() {
            assert_eq!(decode(ID, &encoded(&entry)).as_ref(), Some(&entry));
        }
    }

    #[test]
    fn what_is_cut_short_or_foreign_is_refused() {
        for entry in entries() {
            let bytes = encoded(&entry);
            let fixed =
                bytes.len() - if let Change::Put { stored, .. } = &entry.change { stored.len() } else { 0 };
            for end in 0..fixed {
                assert_eq!(decode(ID, &bytes[..end]), None, "{entry:?} cut at {end}");
            }
        }
        for (case, bytes) in [
            ("unknown form", &b"\x04\0\0\0\x01b\0\0\0\x01n"[..]),
            ("a length beyond the end", b"\x01\xff\xff\xff\xffb"),
            ("not UTF-8", b"\x01\0\0\0\x01\xff\0\0\0\x01n"),
            ("a deletion with a value", b"\x03\0\0\0\x01b\0\0\0\x01nx"),
        ] {
            assert_eq!(decode(ID, bytes), None, "{case}");
        }
    }
}
