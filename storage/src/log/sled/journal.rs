//! The journal: files beside sled's that hold the rows that sled has not flushed yet.
//!
//! sled keeps the newest rows in the memory of the process until it flushes them. With
//! [`Durability::Interval`] each batch is therefore also written here, with one call and without a
//! sync, before its writers get their results: the operating system has it then, and keeps it when
//! the process is killed. Only a crash of the machine can lose it.
//!
//! ```text
//! DIR/journal.0, DIR/journal.1   records: length: u32, crc32 of that: u32, crc32 of the rows: u32, rows
//! row                            key length: u16, value length: u32, key, value
//! ```
//! Numbers are little-endian.
//!
//! One segment takes the records while a flush makes those of the other one durable; then the other
//! one is emptied. Its pages rarely get to the disk at all.
//!
//! Invariants:
//! - A segment is emptied only when sled has flushed every revision in it.
//! - Records are in order of revisions, also across the segments, and hold whole transactions.
//! - A record that could not be written whole is cut off before another one follows.
//!
//! [`Durability::Interval`]: super::durability::Durability::Interval

use std::{
    fs::{self, File},
    io::{self, BufReader, Read},
    mem,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

use super::{private, rows, rows::Row};
use crate::Revision;

const HEADER: usize = 12;

/// The limit of a record's length. A batch has at most a few megabytes, and its last transaction
/// what one entry may have.
const MAX_RECORD: usize = 256 << 20;

/// The capacity up to which the buffer of records is kept between batches.
const KEPT_BUFFER: usize = 1 << 20;

/// The journal of a store in use. Clones share it.
#[derive(Clone)]
pub(super) struct Journal(Arc<Mutex<Segments>>);

struct Segments {
    active: Segment,
    /// Takes no records. None while it is being emptied.
    resting: Option<Segment>,
    /// The record that is being written.
    buffer: Vec<u8>,
}

/// One of the two files.
struct Segment {
    file: File,
    /// The bytes of its whole records.
    length: u64,
    /// The last revision in it.
    last: Revision,
    /// Whether an incomplete record follows.
    is_torn: bool,
}

/// The outcome of reading the segments.
pub(super) struct Recovered {
    /// Every row after the newest revision that sled has, without a gap between revisions.
    pub rows: Vec<Row>,
    /// The last revision of the rows, or the newest that sled has.
    pub newest: Revision,
    /// The reason if the journal ends earlier than a killed process can have left it.
    pub damage: Option<String>,
}

impl Journal {
    /// Creates the empty segments of a directory, or empties those that are there.
    pub fn create(directory: &Path) -> io::Result<Journal> {
        let [active, resting] = paths(directory).map(|path| Segment::create(&path));
        let segments = Segments { active: active?, resting: Some(resting?), buffer: Vec::new() };
        Ok(Journal(Arc::new(Mutex::new(segments))))
    }

    /// Writes the rows of a batch whose newest revision is `newest`.
    ///
    /// # Errors
    /// The record is not in the journal. Unless half of it can be cut off, nothing is appended
    /// until a flush.
    pub fn append(&self, rows: &[Row], newest: Revision) -> io::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut segments = self.0.lock();
        let mut buffer = mem::take(&mut segments.buffer);
        let written = encode(rows, &mut buffer).and_then(|()| segments.active.append(&buffer, newest));
        if buffer.capacity() <= KEPT_BUFFER {
            segments.buffer = buffer;
        }
        written
    }

    /// Directs further records to the other segment, if that is empty. Called before a flush.
    pub fn rotate(&self) {
        let mut segments = self.0.lock();
        let Segments { active, resting: Some(resting), .. } = &mut *segments else { return };
        if resting.length == 0 {
            mem::swap(active, resting);
        }
    }

    /// Empties the segments in which nothing is newer than `flushed`. Called after a flush.
    pub fn discard(&self, flushed: Revision) -> io::Result<()> {
        let mut segments = self.0.lock();
        if segments.active.last <= flushed {
            segments.active.clear()?;
        }
        let Some(mut resting) = segments.resting.take_if(|resting| resting.last <= flushed) else {
            return Ok(());
        };
        // Truncating may wait for the file system. Meanwhile records go to the active segment.
        drop(segments);
        let cleared = resting.clear();
        self.0.lock().resting = Some(resting);
        cleared
    }

    /// Opens a journal with segments that can only be read.
    #[cfg(test)]
    pub fn unwritable(directory: &Path) -> Journal {
        let segment = |path| {
            let file = File::open(path).unwrap();
            Segment { file, length: 0, last: Revision::ZERO, is_torn: false }
        };
        let [active, resting] = paths(directory).map(segment);
        let segments = Segments { active, resting: Some(resting), buffer: Vec::new() };
        Journal(Arc::new(Mutex::new(segments)))
    }
}

impl Segment {
    fn create(path: &Path) -> io::Result<Segment> {
        let file = private::file_options().open(path)?;
        file.set_len(0)?;
        Ok(Segment { file, length: 0, last: Revision::ZERO, is_torn: false })
    }

    fn append(&mut self, record: &[u8], newest: Revision) -> io::Result<()> {
        if self.is_torn {
            return Err(io::Error::other("half a record could not be cut off"));
        }
        if let Err(error) = self.write(record) {
            self.is_torn = self.file.set_len(self.length).is_err();
            return Err(error);
        }
        self.length += record.len() as u64;
        self.last = newest;
        Ok(())
    }

    #[cfg(unix)]
    fn write(&mut self, record: &[u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(&self.file, record, self.length)
    }

    #[cfg(not(unix))]
    fn write(&mut self, record: &[u8]) -> io::Result<()> {
        io::Seek::seek(&mut self.file, io::SeekFrom::Start(self.length))?;
        io::Write::write_all(&mut self.file, record)
    }

    fn clear(&mut self) -> io::Result<()> {
        if self.length > 0 || self.is_torn {
            self.file.set_len(0)?;
            (self.length, self.is_torn) = (0, false);
        }
        Ok(())
    }
}

/// Removes the segments of a directory, for good.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    let mut was_there = false;
    for path in paths(directory) {
        match fs::remove_file(path) {
            Ok(()) => was_there = true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    // A segment that came back after a stop of the machine would seem to belong to a closed store.
    if was_there { File::open(directory)?.sync_all() } else { Ok(()) }
}

/// Returns whether any segment in a directory has records.
pub(super) fn has_records(directory: &Path) -> bool {
    paths(directory).iter().any(|path| fs::symlink_metadata(path).is_ok_and(|file| file.len() > 0))
}

/// Copies the segments of a directory to another one.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for (from, to) in paths(from).iter().zip(paths(to)) {
        match open(from)? {
            Some(mut segment) => drop(io::copy(&mut segment, &mut private::file_options().open(to)?)?),
            None => continue,
        }
    }
    Ok(())
}

/// Reads the rows that follow the newest revision of sled.
///
/// A killed process leaves at most half a record at the end of a segment. A stopped machine may
/// leave any part of the segments: what follows a gap is of no use then, and none of it was
/// promised.
pub(super) fn recover(directory: &Path, newest: Revision) -> io::Result<Recovered> {
    let mut segments = Vec::new();
    let mut recovered = Recovered { rows: Vec::new(), newest, damage: None };
    for path in paths(directory) {
        let Some(file) = open(&path)? else { continue };
        let (records, is_torn) = read(file)?;
        if is_torn {
            recovered.damage = Some(format!("a record of {} is unreadable", path.display()));
        }
        segments.push(records);
    }
    segments.sort_by_key(|records| records.first().map(|record| record.first));
    for Record { first, last, rows } in segments.into_iter().flatten() {
        if first > recovered.newest.next() {
            let newest = recovered.newest;
            recovered.damage = Some(format!("the journal lacks the revisions between {newest} and {first}"));
            break;
        }
        if last > recovered.newest {
            let known = recovered.newest;
            recovered.rows.extend(rows.into_iter().filter(|row| revision(row).is_some_and(|of| of > known)));
            recovered.newest = last;
        }
    }
    Ok(recovered)
}

fn paths(directory: &Path) -> [PathBuf; 2] {
    ["journal.0", "journal.1"].map(|name| directory.join(name))
}

/// Opens a segment for reading; a symbolic link is not followed.
fn open(path: &Path) -> io::Result<Option<File>> {
    match private::file_options().write(false).create(false).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A batch as it was written.
struct Record {
    first: Revision,
    last: Revision,
    rows: Vec<Row>,
}

/// Reads the records of a segment up to its end, or to the first one that is unreadable. Returns
/// them, and whether something else follows than the part of a record that a process wrote before
/// it was killed.
fn read(file: File) -> io::Result<(Vec<Record>, bool)> {
    let mut rest = file.metadata()?.len();
    let mut file = BufReader::new(file);
    let mut records = Vec::new();
    while rest >= HEADER as u64 {
        let mut header = [0; HEADER];
        file.read_exact(&mut header)?;
        rest -= HEADER as u64;
        let [length, crc_of_length, crc] = [&header[..4], &header[4..8], &header[8..]].map(number);
        if u64::from(crc32fast::hash(&header[..4])) != crc_of_length
            || length == 0
            || length > MAX_RECORD as u64
        {
            return Ok((records, true));
        }
        if length > rest {
            return Ok((records, false));
        }
        let mut body = Vec::new();
        (&mut file).take(length).read_to_end(&mut body)?;
        rest -= length;
        match decode(&body) {
            Some(record) if u64::from(crc32fast::hash(&body)) == crc => records.push(record),
            _ => return Ok((records, true)),
        }
    }
    Ok((records, false))
}

fn encode(rows: &[Row], buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    buffer.extend([0; HEADER]);
    for (key, value) in rows {
        let lengths = u16::try_from(key.len()).ok().zip(u32::try_from(value.len()).ok());
        let (key_length, value_length) = lengths.ok_or(io::ErrorKind::InvalidInput)?;
        buffer.extend(key_length.to_le_bytes());
        buffer.extend(value_length.to_le_bytes());
        buffer.extend(key);
        buffer.extend(value);
    }
    let body = &buffer[HEADER..];
    if body.len() > MAX_RECORD {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let length = u32::try_from(body.len()).map_err(io::Error::other)?.to_le_bytes();
    let crc = crc32fast::hash(body);
    buffer[..4].copy_from_slice(&length);
    buffer[4..8].copy_from_slice(&crc32fast::hash(&length).to_le_bytes());
    buffer[8..HEADER].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}

/// Decodes a record; returns None if the bytes are not the body of a record.
fn decode(mut body: &[u8]) -> Option<Record> {
    let mut rows = Vec::new();
    while !body.is_empty() {
        let (lengths, rest) = body.split_at_checked(6)?;
        let [key, value] = [&lengths[..2], &lengths[2..]].map(|length| usize::try_from(number(length)).ok());
        let (key, rest) = rest.split_at_checked(key?)?;
        let (value, rest) = rest.split_at_checked(value?)?;
        rows.push((key.to_vec(), value.to_vec()));
        body = rest;
    }
    let (first, last) = (revision(rows.first()?)?, revision(rows.last()?)?);
    Some(Record { first, last, rows })
}

fn revision((key, value): &Row) -> Option<Revision> {
    rows::read(key, value).map(|header| header.id.revision)
}

/// Decodes the number in up to eight bytes, the least significant one first.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
