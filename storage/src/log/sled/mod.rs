//! The log on disk: a sled tree.
//!
//! ```text
//! log/<revision><part>    the changes (see `rows.rs`), written once, deleted when they are of no more use
//! meta/floor              the floor when something was last forgotten
//! meta/reserved           no revision above it was given out, unless it was on disk before its writer was answered
//! ```
//! Nothing points at the newest version of an object: loading reads all rows in order anyway, and a second key a change
//! would halve the speed.
//!
//! sled's batches are not used. A batch keeps an I/O buffer open, and if a page that it has changed is evicted and needed again
//! before the batch is complete, sled waits for that buffer for ever. Rows in order, each saying whether more belong to
//! it, serve as well and are faster.
//!
//! Always true here:
//! - sled recovers a prefix of what was written: what is lost in a crash are the newest rows, if they were not flushed.
//! - The revisions above the floor were written without a gap; a hole is damage.
//! - The floor is written before what is below it is deleted, and a version is deleted before the deletion that ended it.
//! - Where answers do not wait for the disk, a range of revisions is reserved on disk beforehand. After a crash the store goes
//!   on above that range, and its floor with it: nobody may resume from a revision whose change is lost.

mod directory;
mod entry;
mod flusher;
mod rows;

use std::{
    fs::File,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use sled::Db;

use self::{
    directory::{Directory, Was},
    flusher::Flusher,
    rows::Assembler,
};
use super::{Appended, Entry, Extent, Log, LogError, Proposal, Tap, number};
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
    /// Uses the tree, so it must go before it.
    flusher: Option<Flusher>,
    tree: Tree,
    directory: Directory,
    durability: Durability,
    /// After the first and up to the second there was a row for every revision when the log was opened.
    whole: (Revision, Revision),
    floor: Floor,
    newest: Revision,
    reserved: Revision,
    unread: Vec<Entry>,
}

/// The open tree. Clones share it.
#[derive(Clone)]
struct Tree {
    db: Db,
    /// sled's file, to sync what sled only hands to the kernel.
    file: Arc<File>,
    path: Arc<Path>,
}

const FLOOR: &[u8] = b"meta/floor";
const RESERVED: &[u8] = b"meta/reserved";

/// How many revisions are reserved at a time: each reservation costs a flush, each crash wastes those that are left.
const RESERVATION: u64 = 100_000;

/// The unit in which sled writes and reuses its file. It holds several in memory, so they are small.
const SEGMENT: usize = 128 << 10;

/// sled's page cache: rows are not read again after loading, so it only has to hold the pages being written.
const CACHE: u64 = 4 << 20;

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
        let tree = Tree::open(&directory)?;
        let reserved = match tree.mark(RESERVED)? {
            Some(reserved) => reserved,
            None if was == Was::New => {
                tree.set_mark(RESERVED, Revision::ZERO)?;
                tree.flush()?;
                // From here on, an empty log is a lost one.
                directory.unseal()?;
                Revision::ZERO
            }
            None => return Err(tree.damaged("its log is empty")),
        };
        let mut floor = Floor::at(tree.mark(FLOOR)?.unwrap_or_default());
        let mut newest = tree.drop_unfinished(floor)?.max(floor.revision());
        let whole = (floor.revision(), newest);
        if reserved > newest {
            if let Was::Sealed(_) = was {
                return Err(tree.damaged(format!("nothing after revision {newest}")));
            }
            tracing::warn!(path = %path.display(), %newest, %reserved, "the store was not closed; history is lost");
            newest = reserved;
            floor = Floor::at(newest);
            // Later rows would hide that those up to here are not all there.
            tree.set_mark(FLOOR, newest)?;
        }
        let unread = Vec::new();
        Ok(SledLog { flusher: None, tree, directory, durability, whole, floor, newest, reserved, unread })
    }

    /// Makes sure that revisions up to one may be given out without waiting for the disk.
    fn reserve(&mut self, newest: Revision) -> Result<(), LogError> {
        if self.durability == Durability::Sync || newest <= self.reserved {
            return Ok(());
        }
        self.reserved = Revision(newest.0 + RESERVATION);
        self.tree.set_mark(RESERVED, self.reserved)?;
        self.tree.flush()
    }
}

impl Log for SledLog {
    fn start(&mut self, tap: Tap) -> Result<Extent, LogError> {
        if let Durability::Interval(interval) = self.durability {
            let tree = self.tree.clone();
            let started = Flusher::start(interval, tap, move || tree.flush());
            self.flusher = Some(started.map_err(|cause| self.tree.failed("cannot start to flush", cause))?);
        }
        Ok(Extent { floor: self.floor, newest: self.newest })
    }

    fn load(&mut self, visit: &mut dyn FnMut(Entry) -> Result<(), LogError>) -> Result<(), LogError> {
        let (floor, last) = self.whole;
        let mut known = floor;
        let mut assembler = Assembler::default();
        for row in self.tree.db.scan_prefix(rows::PREFIX) {
            let (key, value) = row.map_err(|cause| self.tree.sled_failed("cannot read", cause))?;
            self.tree.touch(&key)?;
            let is_rest = |(revision, part, _)| revision <= floor && part > 0;
            if !assembler.is_amid() && rows::read(&key, &value).is_some_and(is_rest) {
                // A crash came between the deletion of its first row and of this one.
                continue;
            }
            let taken = assembler.take(&key, &value);
            let Some(entry) =
                taken.map_err(|_| self.tree.damaged(format!("unreadable after revision {known}")))?
            else {
                continue;
            };
            if entry.revision > floor {
                if entry.revision != known.next() {
                    let reason = format!("no revisions between {known} and {}", entry.revision);
                    return Err(self.tree.damaged(reason));
                }
                known = entry.revision;
            }
            visit(entry)?;
        }
        if assembler.is_amid() || known != last {
            return Err(self.tree.damaged(format!("nothing after revision {known}")));
        }
        Ok(())
    }

    fn append(&mut self, batch: &[Vec<Proposal>]) -> Result<Appended, LogError> {
        let entries = number(batch, self.newest);
        let revisions: Vec<_> = entries.iter().map(|entry| entry.revision).collect();
        let newest = revisions.last().copied().unwrap_or(self.newest);
        self.reserve(newest)?;
        let mut rest = &entries[..];
        for transaction in batch {
            let (transaction, others) = rest.split_at(transaction.len());
            rest = others;
            let rows = rows::rows(transaction).map_err(|oversized| LogError::Failed {
                action: "cannot write",
                path: self.place(),
                cause: oversized.into(),
            })?;
            for (key, value) in rows {
                self.tree.insert(&key, value)?;
            }
        }
        match &self.flusher {
            _ if self.durability == Durability::Sync => self.tree.flush()?,
            Some(flusher) => flusher.changed(),
            None => {}
        }
        self.newest = newest;
        self.unread.extend(entries);
        Ok(Appended::Done(revisions))
    }

    fn tail(&mut self, _: Revision) -> Result<Vec<Entry>, LogError> {
        Ok(std::mem::take(&mut self.unread))
    }

    fn compact(&mut self, floor: Floor, garbage: &[Revision]) -> Result<(), LogError> {
        self.tree.set_mark(FLOOR, floor.revision())?;
        for revision in garbage {
            let first = self.tree.remove(&rows::key(*revision, 0))?;
            for part in 1..first.as_deref().and_then(rows::parts).unwrap_or_default() {
                self.tree.remove(&rows::key(*revision, part))?;
            }
        }
        self.flusher.iter().for_each(Flusher::changed);
        Ok(())
    }

    fn place(&self) -> PathBuf {
        self.directory.path().into()
    }

    fn close(self: Box<Self>) -> Result<(), LogError> {
        let SledLog { flusher, tree, mut directory, newest, .. } = *self;
        drop(flusher);
        tree.set_mark(RESERVED, newest)?;
        tree.flush()?;
        drop(tree);
        wait_for_sled(&directory)?;
        directory.seal()
    }
}

impl Tree {
    fn open(directory: &Directory) -> Result<Tree, LogError> {
        let path: Arc<Path> = directory.path().into();
        wait_for_sled(directory)?;
        let config = sled::Config::new()
            .path(directory.log())
            .mode(sled::Mode::HighThroughput)
            .segment_size(SEGMENT)
            .cache_capacity(CACHE)
            .flush_every_ms(None);
        // sled trusts some of what it reads, and panics where it should not have.
        let db = match catch_unwind(AssertUnwindSafe(|| config.open())) {
            Ok(opened) => opened.map_err(|cause| sled_failed("cannot open", &path, cause))?,
            Err(_) => {
                let reason = "sled cannot make sense of its files".into();
                return Err(LogError::Damaged { path: path.to_path_buf(), reason });
            }
        };
        let file =
            File::open(directory.log().join("db")).map_err(|cause| failed("cannot open", &path, cause))?;
        Ok(Tree { db, file: file.into(), path })
    }

    fn mark(&self, name: &[u8]) -> Result<Option<Revision>, LogError> {
        let value = self.db.get(name).map_err(|cause| self.sled_failed("cannot read", cause))?;
        let revision = |value: sled::IVec| value.as_ref().try_into().map(Revision::from_bytes);
        value.map(revision).transpose().map_err(|_| self.damaged("its marks are unreadable"))
    }

    fn set_mark(&self, name: &[u8], revision: Revision) -> Result<(), LogError> {
        self.insert(name, revision.to_bytes().into())
    }

    fn insert(&self, key: &[u8], value: Vec<u8>) -> Result<(), LogError> {
        self.db.insert(key, value).map(drop).map_err(|cause| self.sled_failed("cannot write", cause))
    }

    fn remove(&self, key: &[u8]) -> Result<Option<sled::IVec>, LogError> {
        self.db.remove(key).map_err(|cause| self.sled_failed("cannot write", cause))
    }

    /// Has sled notice that a page was used. It evicts only after 64 uses of a shard of its cache, of which a scan makes one a
    /// page: loading would leave everything in memory twice.
    fn touch(&self, key: &[u8]) -> Result<(), LogError> {
        self.db.contains_key(key).map(drop).map_err(|cause| self.sled_failed("cannot read", cause))
    }

    /// Makes all that was written durable.
    fn flush(&self) -> Result<(), LogError> {
        self.db.flush().map_err(|cause| self.sled_failed("cannot flush", cause))?;
        self.file.sync_data().map_err(|cause| self.failed("cannot flush", cause))
    }

    /// Takes a transaction that a crash cut short off the end. Returns the last revision that is there.
    fn drop_unfinished(&self, floor: Floor) -> Result<Revision, LogError> {
        loop {
            let last = self.db.scan_prefix(rows::PREFIX).next_back().transpose();
            let Some((key, value)) = last.map_err(|cause| self.sled_failed("cannot read", cause))? else {
                return Ok(Revision::ZERO);
            };
            let row = rows::read(&key, &value).ok_or_else(|| self.damaged("its last row is unreadable"))?;
            match row {
                // Below the floor, what followed may have been deleted since.
                (revision, _, true) if revision > floor.revision() => drop(self.remove(&key)?),
                (revision, ..) => return Ok(revision),
            }
        }
    }

    fn damaged(&self, reason: impl Into<String>) -> LogError {
        LogError::Damaged { path: self.path.to_path_buf(), reason: reason.into() }
    }

    fn failed(&self, action: &'static str, cause: io::Error) -> LogError {
        failed(action, &self.path, cause)
    }

    fn sled_failed(&self, action: &'static str, cause: sled::Error) -> LogError {
        sled_failed(action, &self.path, cause)
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

fn failed(action: &'static str, path: &Path, cause: io::Error) -> LogError {
    LogError::Failed { action, path: path.into(), cause: cause.into() }
}

fn sled_failed(action: &'static str, path: &Path, cause: sled::Error) -> LogError {
    match cause {
        sled::Error::Corruption { .. } => LogError::Damaged { path: path.into(), reason: cause.to_string() },
        sled::Error::Io(cause) => failed(action, path, cause),
        cause => LogError::Failed { action, path: path.into(), cause: cause.into() },
    }
}

#[cfg(test)]
mod tests;
