//! The head of a block: everything that the index of a record needs.

use jiff::Timestamp;

use crate::Entry;
use crate::codec::{MAX_ENTRY, MIN_ENTRY};

/// The raw size at which a block is written.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;
/// The greatest raw size of a block: one that is nearly full, and then the largest entry.
pub(crate) const MAX_RAW: usize = 64 << 20;
/// The length of a head.
pub(crate) const HEAD_BYTES: usize = 68;

const _: () = assert!(BLOCK_BYTES + MAX_ENTRY < MAX_RAW);

const MARKER: [u8; 4] = *b"BLCK";
const LAST: u32 = 1;

/// The entries of a block in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The number of entries.
    pub entries: u32,
    /// The least revision of a version; greater than `last_revision` if there is none.
    pub first_revision: u64,
    /// The greatest revision of a version.
    pub last_revision: u64,
    /// The least and the greatest time. Without one, both are those of the block before.
    pub times: (Timestamp, Timestamp),
    has_time: bool,
}

impl Summary {
    /// Creates a summary of no entries.
    ///
    /// - `last_time`: the greatest time of the block before, or the start of the record
    pub fn new(last_time: Timestamp) -> Summary {
        Summary {
            entries: 0,
            first_revision: u64::MAX,
            last_revision: 0,
            times: (last_time, last_time),
            has_time: false,
        }
    }

    /// Counts an entry.
    pub fn add(&mut self, entry: &Entry) {
        self.entries += 1;
        if let Some(revision) = entry.revision() {
            self.first_revision = self.first_revision.min(revision);
            self.last_revision = self.last_revision.max(revision);
        }
        if let Some(time) = entry.time() {
            let (first, last) = if self.has_time { self.times } else { (time, time) };
            self.times = (first.min(time), last.max(time));
            self.has_time = true;
        }
    }

    /// Returns `true` if the head of a block agrees with the summary.
    pub fn agrees(&self, head: &Head) -> bool {
        self.entries == head.entries
            && (self.first_revision, self.last_revision) == (head.first_revision, head.last_revision)
            && (!self.has_time || self.times == head.times)
    }
}

/// The decoded head of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// True if the block ends a record that was finished.
    pub is_last: bool,
    /// The number of entries.
    pub entries: u32,
    /// The length of the zstd data.
    pub stored: u32,
    /// The length of the data once decompressed.
    pub raw: u32,
    /// The least revision of a version; greater than `last_revision` if there is none.
    pub first_revision: u64,
    /// The greatest revision of a version.
    pub last_revision: u64,
    /// The least and the greatest time.
    pub times: (Timestamp, Timestamp),
    /// The CRC-32 of the zstd data.
    pub checksum: u32,
}

impl Head {
    /// Encodes the head.
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        bytes.extend(MARKER);
        bytes.extend(if self.is_last { LAST } else { 0 }.to_be_bytes());
        bytes.extend(self.entries.to_be_bytes());
        bytes.extend(self.stored.to_be_bytes());
        bytes.extend(self.raw.to_be_bytes());
        bytes.extend(self.first_revision.to_be_bytes());
        bytes.extend(self.last_revision.to_be_bytes());
        for time in [self.times.0, self.times.1] {
            bytes.extend(time.as_second().to_be_bytes());
            bytes.extend(time.subsec_nanosecond().to_be_bytes());
        }
        bytes.extend(self.checksum.to_be_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(&bytes);
        head
    }

    /// Decodes a head and checks that its claims are possible.
    ///
    /// # Errors
    /// The reason why it is not a head.
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Head, &'static str> {
        let mut fields = Fields { rest: bytes };
        if fields.take() != MARKER {
            return Err("no block begins");
        }
        let (covered, checksum) = bytes.split_at(HEAD_BYTES - 4);
        if crc32fast::hash(covered).to_be_bytes() != checksum {
            return Err("a wrong checksum of the head of a block");
        }
        let flags = fields.number();
        let (entries, stored, raw) = (fields.number(), fields.number(), fields.number());
        let revisions = [fields.take(), fields.take()].map(u64::from_be_bytes);
        let times = (fields.time()?, fields.time()?);
        let head = Head {
            is_last: flags == LAST,
            entries,
            stored,
            raw,
            first_revision: revisions[0],
            last_revision: revisions[1],
            times,
            checksum: fields.number(),
        };
        head.check(flags)?;
        Ok(head)
    }

    fn check(&self, flags: u32) -> Result<(), &'static str> {
        let (raw, stored) = (self.raw as usize, self.stored as usize);
        if flags & !LAST != 0 {
            return Err("an unknown flag of a block");
        }
        if raw > MAX_RAW {
            return Err("a block that claims to be larger than blocks are");
        }
        if stored > zstd::zstd_safe::compress_bound(raw) {
            return Err("a block that claims to be larger than its content");
        }
        if self.entries == 0 || self.entries as usize > raw / MIN_ENTRY {
            return Err("a block that claims an impossible number of entries");
        }
        Ok(())
    }
}

/// The fields of a head, from the front.
struct Fields<'a> {
    rest: &'a [u8],
}

impl Fields<'_> {
    /// Takes the next bytes; zeros beyond the end, which no caller reaches.
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.rest.split_first_chunk() {
            Some((first, rest)) => {
                self.rest = rest;
                *first
            }
            None => [0; N],
        }
    }

    fn number(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    fn time(&mut self) -> Result<Timestamp, &'static str> {
        let (seconds, nanoseconds) = (i64::from_be_bytes(self.take()), i32::from_be_bytes(self.take()));
        Timestamp::new(seconds, nanoseconds).map_err(|_| "an impossible time of a block")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        let times = (Timestamp::MIN, Timestamp::MAX);
        let (first_revision, last_revision) = (7, u64::MAX);
        let checksum = 0xdead_beef;
        Head {
            is_last: true,
            entries: 3,
            stored: 40,
            raw: 90,
            first_revision,
            last_revision,
            times,
            checksum,
        }
    }

    #[test]
    fn a_head_survives_its_bytes() {
        assert_eq!(Head::decode(&head().encode()), Ok(head()));
        let before_1970 = Timestamp::new(-5, -999_999_999).unwrap();
        let head = Head { times: (before_1970, before_1970), is_last: false, ..head() };
        assert_eq!(Head::decode(&head.encode()), Ok(head));
    }

    #[test]
    fn impossible_claims_are_refused() {
        for (claim, head) in [
            ("no entries", Head { entries: 0, ..head() }),
            ("more entries than fit", Head { entries: 31, ..head() }),
            ("raw bytes beyond the bound", Head { raw: MAX_RAW as u32 + 1, ..head() }),
            ("as many raw bytes as a number can say", Head { raw: u32::MAX, ..head() }),
            ("more data than zstd makes of it", Head { stored: 1 << 30, ..head() }),
        ] {
            assert!(Head::decode(&head.encode()).is_err(), "{claim}");
        }
        let largest = Head { raw: MAX_RAW as u32, ..head() };
        assert_eq!(Head::decode(&largest.encode()), Ok(largest), "the bound itself is allowed");
    }
}
