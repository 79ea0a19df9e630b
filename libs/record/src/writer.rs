//! Writes blocks to the file of a record, within its limits.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use zstd::bulk::Compressor;

use crate::block::{BLOCK_BYTES, HEAD_BYTES, Head, MAX_RAW, Summary};
use crate::codec::encode;
use crate::{Entry, StopReason};

/// The bytes at the end of a file for the last two blocks: that of `Stopped` and that of `End`.
pub(crate) const RESERVED: u64 = 1024;
/// The greatest length of an error's text in the record.
const MAX_ERROR: usize = 200;

/// The limits of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileLimits {
    /// The greatest length of the file.
    pub bytes: u64,
    /// The greatest sum of the raw sizes of its blocks.
    pub raw_bytes: u64,
    /// The greatest number of its blocks.
    pub blocks: u64,
}

/// The totals of a file, without the block that is being filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub entries: u64,
    pub raw_bytes: u64,
    pub file_bytes: u64,
    pub blocks: u64,
    /// The entries that were taken and did not get into the file.
    pub lost: u64,
}

/// The writer of one file. It stops at a limit or an error, and is then only finished.
pub(crate) struct Writer {
    /// `None` once a part of a block could not be cut off.
    file: Option<File>,
    path: PathBuf,
    limits: FileLimits,
    compressor: Compressor<'static>,
    /// The content of the block that is being filled.
    raw: Vec<u8>,
    summary: Summary,
    totals: Totals,
    stopped: Option<StopReason>,
    scratch: Vec<u8>,
    output: Vec<u8>,
}

impl Writer {
    /// Creates a writer that appends to a file.
    ///
    /// - `length`: the length of the file, which has a header only
    /// - `started`: the time of the start, for blocks without a time of their own
    ///
    /// # Errors
    /// zstd refuses the level, or cannot allocate memory.
    pub fn new(
        file: File,
        path: &Path,
        length: u64,
        started: Timestamp,
        level: i32,
        limits: FileLimits,
    ) -> io::Result<Writer> {
        Ok(Writer {
            file: Some(file),
            path: path.to_owned(),
            limits,
            compressor: Compressor::new(level)?,
            raw: Vec::with_capacity(BLOCK_BYTES + BLOCK_BYTES / 4),
            summary: Summary::new(started),
            totals: Totals { file_bytes: length, ..Totals::default() },
            stopped: None,
            scratch: Vec::new(),
            output: Vec::new(),
        })
    }

    /// Adds an entry, and writes the block if it is full. After a stop the entry is lost.
    pub fn append(&mut self, entry: &Entry) {
        if self.stopped.is_some() {
            self.totals.lost += 1;
            return;
        }
        let before = self.raw.len();
        let encoded = encode(entry, &mut self.scratch, &mut self.raw);
        if encoded.is_err() || self.raw.len() > MAX_RAW {
            self.raw.truncate(before);
            self.totals.lost += 1;
            return;
        }
        self.summary.add(entry);
        if self.raw.len() >= BLOCK_BYTES {
            self.flush();
        }
    }

    /// Writes the block that is being filled, if it has entries.
    pub fn flush(&mut self) {
        if self.summary.entries == 0 {
            return;
        }
        let entries = u64::from(self.summary.entries);
        let written =
            self.compress(false).and_then(|()| self.check_limits()).and_then(|()| self.write_output());
        self.begin_block();
        if let Err(reason) = written {
            self.totals.lost += entries;
            self.stop(reason);
        }
    }

    /// Ends the file.
    ///
    /// - `dropped`: the entries that did not get to this writer
    pub fn finish(&mut self, dropped: u64) {
        self.flush();
        let end = Entry::End { dropped: dropped + self.totals.lost };
        // After a stop there may be no space for it, and a warning was logged already.
        if let Err(reason) = self.write_alone(&end, true)
            && self.stopped.is_none()
        {
            tracing::warn!(path = %self.path.display(), ?reason, "the end of the record cannot be written");
        }
    }

    /// Returns `true` if the block that is being filled has entries.
    pub fn has_open_block(&self) -> bool {
        self.summary.entries > 0
    }

    /// Returns the totals up to the last block that was written.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the reason why the writer stopped, if it did.
    pub fn stopped(&self) -> Option<&StopReason> {
        self.stopped.as_ref()
    }

    /// Ends the recording, and tries to say so in the file.
    fn stop(&mut self, reason: StopReason) {
        let (path, dropped) = (self.path.display(), self.totals.lost);
        match &reason {
            StopReason::MaxBytes => {
                let limit = self.limits.bytes;
                tracing::warn!(%path, limit, dropped, "the record has reached its limit; recording stops");
            }
            StopReason::WriteFailed { error } => {
                tracing::warn!(%path, %error, dropped, "the record cannot be written; recording stops");
            }
        }
        let stopped = Entry::Stopped { reason: reason.clone() };
        self.stopped = Some(reason);
        if let Err(reason) = self.write_alone(&stopped, false) {
            tracing::debug!(path = %self.path.display(), ?reason, "the record has no entry for its stop");
        }
    }

    /// Writes one entry as a block, for which [`RESERVED`] bytes are kept.
    fn write_alone(&mut self, entry: &Entry, is_last: bool) -> Result<(), StopReason> {
        encode(entry, &mut self.scratch, &mut self.raw).map_err(|error| write_failed(&error.into()))?;
        self.summary.add(entry);
        let written = self.compress(is_last).and_then(|()| self.write_output());
        self.begin_block();
        written
    }

    fn begin_block(&mut self) {
        self.raw.clear();
        // A large entry is rare, and its memory need not stay.
        self.raw.shrink_to(2 * BLOCK_BYTES);
        self.output.shrink_to(2 * BLOCK_BYTES);
        self.summary = Summary::new(self.summary.times.1);
    }

    /// Fails if the compressed block would leave no space for the last two blocks.
    fn check_limits(&self) -> Result<(), StopReason> {
        let Totals { file_bytes, raw_bytes, blocks, .. } = self.totals;
        let fits = file_bytes + self.output.len() as u64 + RESERVED <= self.limits.bytes
            && raw_bytes + self.raw.len() as u64 + RESERVED <= self.limits.raw_bytes
            && blocks + 3 <= self.limits.blocks;
        if fits { Ok(()) } else { Err(StopReason::MaxBytes) }
    }

    /// Compresses the open block, with its head, into `output`.
    fn compress(&mut self, is_last: bool) -> Result<(), StopReason> {
        let too_large = |_| write_failed(&io::Error::other("a block is too large"));
        self.output.clear();
        self.output.resize(HEAD_BYTES, 0);
        let data = self.compressor.compress(&self.raw).map_err(|error| write_failed(&error))?;
        let Summary { entries, first_revision, last_revision, times, .. } = self.summary;
        let head = Head {
            is_last,
            entries,
            stored: u32::try_from(data.len()).map_err(too_large)?,
            raw: u32::try_from(self.raw.len()).map_err(too_large)?,
            first_revision,
            last_revision,
            times,
            checksum: crc32fast::hash(&data),
        };
        self.output[..HEAD_BYTES].copy_from_slice(&head.encode());
        self.output.extend_from_slice(&data);
        Ok(())
    }

    /// Writes the compressed block in one call. If that fails the file keeps its length.
    fn write_output(&mut self) -> Result<(), StopReason> {
        let Some(file) = &mut self.file else { return Err(write_failed(&io::ErrorKind::BrokenPipe.into())) };
        if let Err(error) = file.write_all(&self.output) {
            let end = self.totals.file_bytes;
            let undone = file.set_len(end).and_then(|()| file.seek(SeekFrom::Start(end)));
            if undone.is_err() {
                // A block after a part of one could not be read.
                self.file = None;
            }
            return Err(write_failed(&error));
        }
        self.totals.entries += u64::from(self.summary.entries);
        self.totals.raw_bytes += self.raw.len() as u64;
        self.totals.file_bytes += self.output.len() as u64;
        self.totals.blocks += 1;
        Ok(())
    }
}

/// Returns the reason of a stop after an error of the operating system.
fn write_failed(error: &io::Error) -> StopReason {
    let text: String = error.to_string().chars().take(MAX_ERROR).collect();
    StopReason::WriteFailed { error: text.into() }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
