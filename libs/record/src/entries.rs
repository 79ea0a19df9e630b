//! The iterator over the entries of a record. It holds one block at a time.

use jiff::Timestamp;
use zstd::bulk::Decompressor;

use crate::block::{Head, Summary};
use crate::codec::decode;
use crate::record::{Block, Record};
use crate::{Entry, Error};

/// The first entry that is of interest.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    First,
    Revision(u64),
    Time(Timestamp),
}

impl Start {
    /// Returns `true` if the block may have the first entry of interest.
    fn may_be_in(self, head: &Head) -> bool {
        match self {
            Start::First => true,
            Start::Revision(revision) => {
                head.first_revision <= head.last_revision && head.last_revision >= revision
            }
            Start::Time(time) => head.times.1 >= time,
        }
    }

    /// Returns `true` if the entry is of interest; `None` if it depends on whether one was before
    /// it.
    fn includes(self, entry: &Entry) -> Option<bool> {
        match self {
            Start::First => Some(true),
            Start::Revision(revision) => entry.revision().map(|other| other >= revision),
            Start::Time(time) => entry.time().map(|other| other >= time),
        }
    }
}

/// An iterator over the entries of a record. It ends after an error.
pub struct Entries<'a> {
    record: &'a Record,
    /// The blocks that are not read yet.
    blocks: std::slice::Iter<'a, Block>,
    start: Start,
    has_started: bool,
    block: OpenBlock,
    decompressor: Option<Decompressor<'static>>,
}

/// The block that is being read.
#[derive(Default)]
struct OpenBlock {
    /// The zstd data, then the memory for the next block's.
    stored: Vec<u8>,
    raw: Vec<u8>,
    /// The offset of the next entry in `raw`.
    at: usize,
    /// The claims of the index, and the entries read so far.
    check: Option<(Block, Summary)>,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(record: &'a Record, start: Start) -> Entries<'a> {
        let blocks = record.blocks();
        let skipped = blocks.iter().position(|block| start.may_be_in(&block.head));
        let blocks = blocks[skipped.unwrap_or(blocks.len())..].iter();
        let block = OpenBlock::default();
        Entries { record, blocks, start, has_started: false, block, decompressor: None }
    }

    /// Returns the next entry of the file.
    fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        while self.block.at == self.block.raw.len() {
            self.check_block()?;
            let Some(block) = self.blocks.next() else { return Ok(None) };
            self.open_block(block)?;
        }
        let mut rest = &self.block.raw[self.block.at..];
        let entry = decode(&mut rest);
        self.block.at = self.block.raw.len() - rest.len();
        let entry = entry.map_err(|reason| self.damaged(reason))?;
        if let Some((_, summary)) = &mut self.block.check {
            summary.add(&entry);
        }
        Ok(Some(entry))
    }

    fn open_block(&mut self, block: &Block) -> Result<(), Error> {
        let OpenBlock { stored, raw, at, check } = &mut self.block;
        // The memory of a block is bounded by its head, which was checked.
        *at = 0;
        raw.clear();
        *check = Some((*block, Summary::new(block.head.times.1)));
        let failed = |source| Error::Read { path: self.record.path().to_owned(), source };
        self.record.read(block, stored).map_err(failed)?;
        if crc32fast::hash(stored) != block.head.checksum {
            return Err(self.damaged("a wrong checksum of the data of a block"));
        }
        let length = block.head.raw as usize;
        raw.shrink_to(length);
        raw.reserve_exact(length);
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new().map_err(failed)?),
        };
        let decompressed = decompressor.decompress_to_buffer(stored, raw);
        if decompressed.is_err() || raw.len() != length {
            return Err(self.damaged("a block that cannot be decompressed"));
        }
        Ok(())
    }

    /// Compares the entries of a block that was read with the claims of its head.
    fn check_block(&self) -> Result<(), Error> {
        match &self.block.check {
            Some((block, summary)) if !summary.agrees(&block.head) => {
                Err(self.damaged("a head that does not describe its block"))
            }
            _ => Ok(()),
        }
    }

    fn damaged(&self, reason: &'static str) -> Error {
        let at = self.block.check.map_or(0, |(block, _)| block.at);
        Error::Damaged { path: self.record.path().to_owned(), at, reason }
    }

    /// Ends the iteration, and frees the memory of the block.
    fn end(&mut self) {
        self.blocks = [].iter();
        self.block = OpenBlock::default();
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Result<Entry, Error>> {
        loop {
            match self.next_entry() {
                Ok(Some(entry)) => {
                    let is_included = self.start.includes(&entry);
                    self.has_started |= is_included == Some(true);
                    if is_included.unwrap_or(self.has_started) {
                        return Some(Ok(entry));
                    }
                }
                Ok(None) => {
                    self.end();
                    return None;
                }
                Err(error) => {
                    self.end();
                    return Some(Err(error));
                }
            }
        }
    }
}

impl std::iter::FusedIterator for Entries<'_> {}
