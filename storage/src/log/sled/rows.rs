//! The representation of transactions in the tree: as rows. A crash may leave only the first few of
//! them.
//!
//! ```text
//! log/ revision: u64, index: u32, part: u16  →  more: u8 | parts: u16, in part 0 only | a piece of the entry (see `entry.rs`)
//! ```
//!
//! `more` is 1 if the transaction continues in the next row. sled recovers a prefix of the written
//! rows, so a transaction is cut short only at the very end of the log, where the flag shows it.
//!
//! In stores of the formats 1 and 2 each entry has a revision of its own and keys have no index; a
//! transaction may continue at the next revision. Such rows are read and deleted, but no longer
//! written.
//!
//! Entries are cut into parts because sled rewrites a page of up to twenty rows at every tenth
//! change to it, and writes pages larger than a quarter of a segment into files of their own, which
//! it never syncs.

use super::entry::{Oversized, decode, encode};
use crate::{EntryId, Revision, log::transaction::Entry};

pub(super) const PREFIX: &[u8] = b"log/";

/// sled splits a leaf of more than 16 rows, and may have merged a few into it before.
const ROWS_PER_PAGE: usize = 20;
const PART: usize = 1500;
/// The unit in which sled writes and reuses its file, in bytes. It keeps several in memory, so they
/// are small.
pub(super) const SEGMENT: usize = 128 << 10;
const _: () = assert!(ROWS_PER_PAGE * (PART + 64) < SEGMENT / 4);

pub(super) type Row = (Vec<u8>, Vec<u8>);

/// Returns the rows of one transaction, in the order in which they must be written.
///
/// # Errors
/// [`Oversized`] for an entry of more than 65,535 parts (98 MB).
pub(super) fn rows(transaction: &[Entry]) -> Result<Vec<Row>, Oversized> {
    let mut rows = Vec::with_capacity(transaction.len());
    for entry in transaction {
        let bytes = encode(entry)?;
        let pieces = bytes.chunks(PART);
        let parts = u16::try_from(pieces.len()).map_err(|_| Oversized { bytes: bytes.len() })?;
        for (part, piece) in (0..parts).zip(pieces) {
            let mut value = Vec::with_capacity(3 + piece.len());
            value.push(1);
            if part == 0 {
                value.extend(parts.to_be_bytes());
            }
            value.extend(piece);
            rows.push((key(entry.id, part), value));
        }
    }
    if let Some((_, last)) = rows.last_mut() {
        last[0] = 0;
    }
    Ok(rows)
}

pub(super) fn key(id: EntryId, part: u16) -> Vec<u8> {
    [PREFIX, &id.revision.to_bytes(), &id.index.to_be_bytes(), &part.to_be_bytes()].concat()
}

/// Returns the key in a store of an earlier format, which has one entry at each revision.
pub(super) fn earlier_key(revision: Revision, part: u16) -> Vec<u8> {
    [PREFIX, &revision.to_bytes(), &part.to_be_bytes()].concat()
}

/// Returns the lowest key that a row of the transaction at `revision`, or of a later one, may have.
pub(super) fn first_key(revision: Revision) -> Vec<u8> {
    [PREFIX, &revision.to_bytes()[..]].concat()
}

/// Returns the size of a row in bytes.
pub(super) fn size(key: &[u8], value: &[u8]) -> u64 {
    u64::try_from(key.len() + value.len()).unwrap_or(u64::MAX)
}

/// The fields of a row other than its piece of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub id: EntryId,
    pub part: u16,
    /// Whether the transaction continues in the next row.
    pub more: bool,
    /// Whether the row was written in an earlier format, in which its transaction may continue at
    /// the next revision.
    pub is_earlier: bool,
}

/// Parses the key and the beginning of a row; None if it is not a row.
pub(super) fn read(key: &[u8], value: &[u8]) -> Option<Header> {
    let (revision, rest) = key.strip_prefix(PREFIX)?.split_first_chunk()?;
    let revision = Revision::from_bytes(*revision);
    let (index, part) = match rest.split_first_chunk() {
        Some((index, part)) => (Some(u32::from_be_bytes(*index)), part),
        None => (None, rest),
    };
    let id = EntryId { revision, index: index.unwrap_or(0) };
    let part = u16::from_be_bytes(part.try_into().ok()?);
    let more = *value.first()?;
    (more <= 1).then_some(Header { id, part, more: more == 1, is_earlier: index.is_none() })
}

/// Returns the number of parts of an entry, from its first row.
pub(super) fn parts(first: &[u8]) -> Option<u16> {
    let (parts, _) = first.get(1..)?.split_first_chunk()?;
    Some(u16::from_be_bytes(*parts))
}

/// Puts entries together from rows in order.
#[derive(Default)]
pub(super) struct Assembler(Option<Partial>);

/// An entry that lacks parts.
struct Partial {
    id: EntryId,
    parts: u16,
    here: u16,
    bytes: Vec<u8>,
}

/// The error of a row that is invalid at its position.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misplaced;

impl Assembler {
    /// Takes the next row; returns its entry if that is complete.
    pub fn take(&mut self, key: &[u8], value: &[u8]) -> Result<Option<Entry>, Misplaced> {
        let Header { id, part, .. } = read(key, value).ok_or(Misplaced)?;
        let entry = match self.0.take() {
            None if part == 0 => {
                let (parts, bytes) = (parts(value).ok_or(Misplaced)?, &value[3..]);
                if parts == 1 {
                    return decode(id, bytes).map(Some).ok_or(Misplaced);
                }
                Partial { id, parts, here: 1, bytes: bytes.into() }
            }
            Some(mut entry) if entry.id == id && entry.here == part => {
                entry.bytes.extend(&value[1..]);
                entry.here += 1;
                entry
            }
            _ => return Err(Misplaced),
        };
        if entry.here == entry.parts {
            return decode(id, &entry.bytes).map(Some).ok_or(Misplaced);
        }
        self.0 = Some(entry);
        Ok(None)
    }

    /// Returns whether the last entry lacks parts.
    pub fn is_incomplete(&self) -> bool {
        self.0.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, log::Change};

    /// Returns the entries of a transaction at revision 7, with the given sizes.
    fn entries(sizes: &[usize]) -> Vec<Entry> {
        let entry = |(index, size): (u32, &usize)| {
            let stored: Vec<u8> = (0..=u8::MAX).cycle().take(*size).collect();
            let change = Change::Put { created: None, stored: stored.into() };
            Entry { id: EntryId { revision: Revision(7), index }, key: Key::new("b", "n"), change }
        };
        (0..).zip(sizes).map(entry).collect()
    }

    /// Formats the assembled entries by id and size: a cross for a rejected row, dots for an
    /// incomplete entry.
    fn assembled(rows: &[Row]) -> String {
        let mut assembler = Assembler::default();
        let mut rendered: Vec<_> = rows
            .iter()
            .filter_map(|(key, value)| match assembler.take(key, value) {
                Ok(Some(Entry { id, change: Change::Put { stored, .. }, .. })) => {
                    Some(format!("{id}:{}", stored.len()))
                }
                Ok(_) => None,
                Err(Misplaced) => Some("x".into()),
            })
            .collect();
        rendered.extend(assembler.is_incomplete().then(|| "..".into()));
        rendered.join(" ")
    }

    #[test]
    fn entries_are_cut_and_put_together() {
        let overhead = encode(&entries(&[0])[0]).unwrap().len();
        for (case, sizes, parts, want) in [
            ("a small one", vec![10], 1, "7.0:10"),
            ("an empty one", vec![0], 1, "7.0:0"),
            ("just one part", vec![1500 - overhead], 1, "7.0:1489"),
            ("a byte more", vec![1500 - overhead + 1], 2, "7.0:1490"),
            (
                "large ones and small ones",
                vec![5_000, 5, 1_000_000],
                4 + 1 + 667,
                "7.0:5000 7.1:5 7.2:1000000",
            ),
        ] {
            let rows = rows(&entries(&sizes)).unwrap();
            assert_eq!(rows.len(), parts, "{case}");
            assert_eq!(assembled(&rows), want, "{case}");
            assert!(rows.is_sorted(), "{case}");
            let more: Vec<_> = rows.iter().map(|(key, value)| read(key, value).unwrap().more).collect();
            assert_eq!(
                more.iter().position(|more| !more),
                Some(rows.len() - 1),
                "{case}: only the last row ends it"
            );
        }
    }

    #[test]
    fn entries_with_more_parts_than_have_numbers_are_refused() {
        let overhead = encode(&entries(&[0])[0]).unwrap().len();
        let most = PART * usize::from(u16::MAX) - overhead;
        let fits = rows(&entries(&[most])).unwrap();
        assert_eq!((fits.len(), assembled(&fits)), (65_535, format!("7.0:{most}")));
        assert_eq!(rows(&entries(&[1, most + 1])), Err(Oversized { bytes: most + 1 + overhead }));
    }

    #[test]
    fn rows_of_earlier_formats_are_read() {
        let transaction = entries(&[5_000]);
        let earlier: Vec<Row> = (0..)
            .zip(rows(&transaction).unwrap())
            .map(|(part, (_, value))| (earlier_key(Revision(7), part), value))
            .collect();
        assert_eq!(assembled(&earlier), "7.0:5000");
        assert!(earlier.iter().all(|(key, value)| read(key, value).unwrap().is_earlier));
    }

    #[test]
    fn missing_parts_are_noticed() {
        let rows = rows(&entries(&[5_000, 5])).unwrap();
        assert_eq!(assembled(&rows), "7.0:5000 7.1:5");
        assert_eq!(assembled(&rows[1..]), "x x x 7.1:5");
        assert_eq!(assembled(&[&rows[..1], &rows[2..]].concat()), "x x 7.1:5");
        assert_eq!(assembled(&rows[..3]), "..");
        assert_eq!(assembled(&[&rows[..3], &rows[4..]].concat()), "x");
    }
}
