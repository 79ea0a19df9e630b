//! The reader: opens a file and indexes its blocks.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::block::{HEAD_BYTES, Head};
use crate::entries::{Entries, Start};
use crate::{Error, Header};

/// The buffer for the heads of blocks. A seek beyond it costs less than reading what is between.
const SCAN_BUFFER: usize = 4 << 10;

/// The limits within which a record is opened. They bound memory and time, whatever the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The greatest sum of the sizes of all blocks once decompressed (default: 256 GiB).
    pub raw_bytes: u64,
    /// The greatest number of blocks (default: 4,194,304). The index takes 80 bytes for each.
    pub blocks: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { raw_bytes: 256 << 30, blocks: 4 << 20 }
    }
}

/// Damage that does not prevent reading: the record ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The last block is cut short. It was being written when its process was killed.
    Truncated {
        /// The offset of the block.
        at: u64,
        /// The number of bytes from there to the end of the file.
        lost: u64,
    },
    /// The record has no end. Its process was killed between two blocks, or still writes it.
    Unfinished,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Truncated { at, lost } => {
                write!(f, "the record is cut short: the {lost} bytes from byte {at} on are not a whole block")
            }
            Damage::Unfinished => {
                write!(f, "the record has no end: its process was killed, or still writes it")
            }
        }
    }
}

/// An opened record.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    file: Mutex<File>,
    header: Header,
    blocks: Vec<Block>,
    raw_bytes: u64,
    damage: Option<Damage>,
}

/// A block in the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// The offset of the head.
    pub at: u64,
    pub head: Head,
}

impl Record {
    /// Opens a record: reads its header and the heads of its blocks, but no entries.
    ///
    /// A record that is still being written is opened up to its last block.
    ///
    /// # Errors
    /// The file cannot be read, is not a record, is newer than this program, is damaged before its
    /// last block, or exceeds a limit.
    pub fn open(path: &Path, limits: Limits) -> Result<Record, Error> {
        let failed = |source| Error::Read { path: path.to_owned(), source };
        // Opening a named pipe would wait for its writer.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(Error::NotARecord { path: path.to_owned(), reason: "it is not a file" });
        }
        let file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut source = BufReader::with_capacity(SCAN_BUFFER, file);
        let (header, start) = Header::read(&mut source, path)?;
        let scan = Scan { source, path, limits, length, at: start, blocks: Vec::new(), raw_bytes: 0 };
        let (scan, damage) = scan.run()?;
        let Scan { source, blocks, raw_bytes, .. } = scan;
        let file = Mutex::new(source.into_inner());
        Ok(Record { path: path.to_owned(), file, header, blocks, raw_bytes, damage })
    }

    /// Returns the description of the recorded run.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the damage at the end; `None` if the record was finished.
    pub fn damage(&self) -> Option<Damage> {
        self.damage
    }

    /// Returns the number of entries.
    pub fn len(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.head.entries)).sum()
    }

    /// Returns `true` if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the size of the decompressed entries, in bytes.
    pub fn raw_bytes(&self) -> u64 {
        self.raw_bytes
    }

    /// Returns the lowest and the highest revision; `None` without versions.
    pub fn revisions(&self) -> Option<RangeInclusive<u64>> {
        let first = self.blocks.iter().map(|block| block.head.first_revision).min()?;
        let last = self.blocks.iter().map(|block| block.head.last_revision).max()?;
        (first <= last).then_some(first..=last)
    }

    /// Returns the earliest and the latest time; the start of the run without entries.
    pub fn times(&self) -> RangeInclusive<Timestamp> {
        let started = self.header.run.started;
        let first = self.blocks.iter().map(|block| block.head.times.0).min();
        let last = self.blocks.iter().map(|block| block.head.times.1).max();
        first.unwrap_or(started)..=last.unwrap_or(started)
    }

    /// Iterates over all entries in the order of the file, which is that in which they were
    /// appended.
    pub fn entries(&self) -> Entries<'_> {
        Entries::new(self, Start::First)
    }

    /// Iterates over the entries from a revision on: all versions of that revision or a higher one,
    /// and the other entries after the first of them. Blocks before that are not read.
    pub fn entries_from_revision(&self, revision: u64) -> Entries<'_> {
        Entries::new(self, Start::Revision(revision))
    }

    /// Iterates over the entries from a time on: all that have this time or a later one, and those
    /// without a time after the first of them. Blocks before that are not read.
    pub fn entries_from_time(&self, time: Timestamp) -> Entries<'_> {
        Entries::new(self, Start::Time(time))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Reads the zstd data of a block into a buffer.
    pub(crate) fn read(&self, block: &Block, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.clear();
        buffer.resize(block.head.stored as usize, 0);
        let mut file = self.file.lock();
        file.seek(SeekFrom::Start(block.at + HEAD_BYTES as u64))?;
        file.read_exact(buffer)
    }
}

/// The scan of a file from head to head.
struct Scan<'a> {
    source: BufReader<File>,
    path: &'a Path,
    limits: Limits,
    length: u64,
    /// The offset of the next head.
    at: u64,
    blocks: Vec<Block>,
    raw_bytes: u64,
}

impl Scan<'_> {
    /// Indexes all blocks. Returns the damage at the end, too.
    fn run(mut self) -> Result<(Self, Option<Damage>), Error> {
        loop {
            let rest = self.length.saturating_sub(self.at);
            if rest == 0 {
                return Ok((self, Some(Damage::Unfinished)));
            }
            let truncated = Damage::Truncated { at: self.at, lost: rest };
            if rest < HEAD_BYTES as u64 {
                return Ok((self, Some(truncated)));
            }
            let head = self.head()?;
            let length = HEAD_BYTES as u64 + u64::from(head.stored);
            if length > rest {
                return Ok((self, Some(truncated)));
            }
            self.add(head)?;
            self.at += length;
            if head.is_last {
                if self.at < self.length {
                    return Err(self.damaged("bytes after the end of the record"));
                }
                return Ok((self, None));
            }
            self.source.seek_relative(i64::from(head.stored)).map_err(|source| self.failed(source))?;
        }
    }

    fn head(&mut self) -> Result<Head, Error> {
        let mut bytes = [0; HEAD_BYTES];
        self.source.read_exact(&mut bytes).map_err(|source| self.failed(source))?;
        Head::decode(&bytes).map_err(|reason| self.damaged(reason))
    }

    fn add(&mut self, head: Head) -> Result<(), Error> {
        self.raw_bytes += u64::from(head.raw);
        self.blocks.push(Block { at: self.at, head });
        let too_large = |limit, unit| Err(Error::TooLarge { path: self.path.to_owned(), limit, unit });
        if self.raw_bytes > self.limits.raw_bytes {
            return too_large(self.limits.raw_bytes, "decompressed bytes");
        }
        if self.blocks.len() as u64 > self.limits.blocks {
            return too_large(self.limits.blocks, "blocks");
        }
        Ok(())
    }

    fn damaged(&self, reason: &'static str) -> Error {
        Error::Damaged { path: self.path.to_owned(), at: self.at, reason }
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Read { path: self.path.to_owned(), source }
    }
}
