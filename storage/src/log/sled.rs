//! The log on disk: a sled tree.
//!
//! ```text
//! log/<revision>    an entry (see `entry.rs`), written once, deleted when it is of no more use
//! meta/floor        the floor when something was last forgotten
//! meta/reserved     no revision above this one was given out, unless it was on disk before its writer was answered
//! ```
//! Nothing points at the newest entry of a key: loading reads the entries in order anyway, and a second key a change would
//! halve the speed.
//!
//! Always true here:
//! - A batch of changes is one sled batch, so it is there whole or not at all.
//! - sled recovers a prefix of what was written: what is lost in a crash are the newest changes, if they were not flushed.
//! - The entries above the floor are contiguous; a hole is damage.
//! - Where answers do not wait for the disk, a range of revisions is reserved on disk beforehand. After a crash the store goes
//!   on above that range, and its floor with it: nobody may resume from a revision whose change is lost.

use std::{
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use sled::{Batch, Db};

use super::{
    Appended, Entry, Extent, Log, LogError, Proposal, Tap,
    directory::{Directory, Was},
    entry::{decode, encode},
    flusher::Flusher,
    number,
};
use crate::{Floor, Revision};

/// When a change is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before its writer is answered.
    Sync,
    /// At most so long (and the time a flush takes) after its writer is answered.
    Interval(Duration),
    /// Some time; when the store is closed, at the latest.
    None,
}

/// A log in a directory of its own.
pub struct SledLog {
    /// Holds the tree, so it must go before it.
    flusher: Option<Flusher>,
    db: Db,
    directory: Directory,
    durability: Durability,
    floor: Floor,
    newest: Revision,
    reserved: Revision,
    unread: Vec<Entry>,
}

const ENTRIES: &[u8] = b"log/";
const FLOOR: &[u8] = b"meta/floor";
const RESERVED: &[u8] = b"meta/reserved";

/// How many revisions are reserved at a time: each reservation costs a flush, each crash wastes those that are left.
const RESERVATION: u64 = 100_000;

/// sled's page cache: entries are not read again after loading, so it only has to hold the pages being written.
const CACHE_BYTES: u64 = 8 << 20;

/// How long to wait for sled's own threads to let go of its files.
const LET_GO: Duration = Duration::from_secs(5);

impl SledLog {
    /// Opens the log in a directory, or begins one there.
    ///
    /// # Errors
    /// [`LogError::InUse`] at once if another process has it. [`LogError::Damaged`] if it was changed since it was closed, or
    /// is not one of ours; nothing is written then.
    pub fn open(path: &Path, durability: Durability) -> Result<SledLog, LogError> {
        let mut directory = Directory::take(path)?;
        let was = directory.was();
        if was != Was::New {
            directory.unseal()?;
        }
        let db = open(&directory)?;
        let failed = |cause| failed("cannot read", path, cause);
        let damaged = |reason: &str| LogError::Damaged { path: path.into(), reason: reason.into() };
        let mark = |key| match db.get(key).map_err(failed)? {
            None => Ok(None),
            Some(value) => revision(&value).map(Some).ok_or_else(|| damaged("its marks are unreadable")),
        };
        let reserved = match mark(RESERVED)? {
            Some(reserved) => reserved,
            None if was == Was::New => begin(&db, &mut directory)?,
            None => return Err(damaged("its log is empty")),
        };
        let last = match db.scan_prefix(ENTRIES).next_back().transpose().map_err(failed)? {
            Some((key, _)) => {
                revision(&key[ENTRIES.len()..]).ok_or_else(|| damaged("a revision is unreadable"))?
            }
            None => Revision::ZERO,
        };
        let mut floor = Floor::at(mark(FLOOR)?.unwrap_or_default());
        let mut newest = last.max(floor.revision());
        if reserved > newest {
            tracing::warn!(path = %path.display(), %newest, %reserved, "the store was not closed; history is lost");
            newest = reserved;
            floor = Floor::at(newest);
            // Later entries would hide that those up to here are not all there.
            db.insert(FLOOR, &newest.to_bytes()).map_err(failed)?;
        }
        Ok(SledLog { flusher: None, db, directory, durability, floor, newest, reserved, unread: Vec::new() })
    }

    fn failed(&self, action: &'static str, cause: sled::Error) -> LogError {
        failed(action, self.directory.path(), cause)
    }

    fn flush(&self) -> Result<(), LogError> {
        self.db.flush().map(drop).map_err(|cause| self.failed("cannot flush", cause))
    }
}

impl Log for SledLog {
    fn start(&mut self, tap: Tap) -> Result<Extent, LogError> {
        if let Durability::Interval(interval) = self.durability {
            let (db, path) = (self.db.clone(), self.directory.path().to_path_buf());
            let flush = move || db.flush().map(drop).map_err(|cause| failed("cannot flush", &path, cause));
            let started = Flusher::start(interval, tap, flush);
            self.flusher = Some(started.map_err(|cause| self.failed("cannot start to flush", cause.into()))?);
        }
        Ok(Extent { floor: self.floor, newest: self.newest })
    }

    fn load(&mut self, visit: &mut dyn FnMut(Entry) -> Result<(), LogError>) -> Result<(), LogError> {
        let damaged = |reason| LogError::Damaged { path: self.place(), reason };
        let mut known = self.floor.revision();
        for entry in self.db.scan_prefix(ENTRIES) {
            let (key, value) = entry.map_err(|cause| self.failed("cannot read", cause))?;
            let revision =
                revision(&key[ENTRIES.len()..]).ok_or_else(|| damaged("a revision is unreadable".into()))?;
            let entry = decode(revision, &value)
                .ok_or_else(|| damaged(format!("revision {revision} is unreadable")))?;
            if revision > self.floor.revision() {
                if revision != known.next() {
                    return Err(damaged(format!("revisions between {known} and {revision} are missing")));
                }
                known = revision;
            }
            visit(entry)?;
        }
        Ok(())
    }

    fn append(&mut self, batch: &[Proposal]) -> Result<Appended, LogError> {
        let entries = number(batch, self.newest);
        let newest = Revision(self.newest.0 + entries.len() as u64);
        let mut writes = Batch::default();
        for (entry, proposal) in entries.iter().zip(batch) {
            writes.insert(entry_key(entry.revision), encode(proposal));
        }
        let reserve = self.durability != Durability::Sync && newest > self.reserved;
        if reserve {
            self.reserved = Revision(newest.0 + RESERVATION);
            writes.insert(RESERVED, &self.reserved.to_bytes());
        }
        self.db.apply_batch(writes).map_err(|cause| self.failed("cannot write", cause))?;
        if reserve || self.durability == Durability::Sync {
            self.flush()?;
        } else if let Some(flusher) = &self.flusher {
            flusher.changed();
        }
        self.newest = newest;
        let revisions = entries.iter().map(|entry| entry.revision).collect();
        self.unread.extend(entries);
        Ok(Appended::Done(revisions))
    }

    fn tail(&mut self, _: Revision) -> Result<Vec<Entry>, LogError> {
        Ok(std::mem::take(&mut self.unread))
    }

    fn compact(&mut self, floor: Floor, garbage: &[Revision]) -> Result<(), LogError> {
        let mut writes = Batch::default();
        writes.insert(FLOOR, &floor.revision().to_bytes());
        for revision in garbage {
            writes.remove(entry_key(*revision));
        }
        self.db.apply_batch(writes).map_err(|cause| self.failed("cannot write", cause))?;
        self.flusher.iter().for_each(Flusher::changed);
        Ok(())
    }

    fn place(&self) -> PathBuf {
        self.directory.path().into()
    }

    fn close(self: Box<Self>) -> Result<(), LogError> {
        let SledLog { flusher, db, mut directory, newest, .. } = *self;
        drop(flusher);
        let closed = db.insert(RESERVED, &newest.to_bytes()).and_then(|_| db.flush());
        closed.map_err(|cause| failed("cannot flush", directory.path(), cause))?;
        drop(db);
        wait_for_sled(&directory)?;
        directory.seal()
    }
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Durability, String> {
        let interval = |text: &str| text.strip_prefix("interval=")?.parse().ok().map(Duration::from_millis);
        match text {
            "sync" => Ok(Durability::Sync),
            "none" => Ok(Durability::None),
            _ => interval(text)
                .map(Durability::Interval)
                .ok_or_else(|| format!("{text:?} is not one of sync, interval=MILLISECONDS, none")),
        }
    }
}

fn open(directory: &Directory) -> Result<Db, LogError> {
    wait_for_sled(directory)?;
    let config = sled::Config::new()
        .path(directory.log())
        .mode(sled::Mode::HighThroughput)
        .cache_capacity(CACHE_BYTES)
        .flush_every_ms(None);
    // sled trusts some of what it reads, and panics where it should not have.
    match catch_unwind(AssertUnwindSafe(|| config.open())) {
        Ok(opened) => opened.map_err(|cause| failed("cannot open", directory.path(), cause)),
        Err(_) => {
            let reason = "sled cannot make sense of its files".into();
            Err(LogError::Damaged { path: directory.path().into(), reason })
        }
    }
}

/// Marks a new store as begun: from here on, an empty log is a lost one.
fn begin(db: &Db, directory: &mut Directory) -> Result<Revision, LogError> {
    let begun = db.insert(RESERVED, &Revision::ZERO.to_bytes()).and_then(|_| db.flush());
    begun.map_err(|cause| failed("cannot write", directory.path(), cause))?;
    directory.unseal()?;
    Ok(Revision::ZERO)
}

/// Waits until sled's threads have let go of its file, which they do some time after the last handle is dropped.
fn wait_for_sled(directory: &Directory) -> Result<(), LogError> {
    let Ok(file) = File::open(directory.log().join("db")) else { return Ok(()) };
    let deadline = Instant::now() + LET_GO;
    while file.try_lock().is_err() {
        if Instant::now() >= deadline {
            return Err(LogError::InUse { path: directory.path().into() });
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn entry_key(revision: Revision) -> Vec<u8> {
    [ENTRIES, &revision.to_bytes()].concat()
}

fn revision(bytes: &[u8]) -> Option<Revision> {
    bytes.try_into().ok().map(Revision::from_bytes)
}

fn failed(action: &'static str, path: &Path, cause: sled::Error) -> LogError {
    match cause {
        sled::Error::Corruption { .. } => LogError::Damaged { path: path.into(), reason: cause.to_string() },
        cause => LogError::Failed { action, path: path.into(), cause: cause.into() },
    }
}
