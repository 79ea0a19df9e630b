//! The log on disk: a sled tree.
//!
//! ```text
//! log/<revision><index><part>   the changes (see `rows.rs`), written once, deleted when they are of no more use
//! meta/floor                    the compact revision when something was last forgotten
//! meta/reserved                 no revision above it was given out, unless it was on disk before its writer got the result
//! ```
//! Nothing points at the newest version of an object: loading reads all rows in order anyway, and a second key a change
//! would halve the speed.
//!
//! sled's batches are not used. A batch keeps an I/O buffer open, and if a page that it has changed is evicted and needed
//! again before the batch is complete, sled waits for that buffer for ever. Rows in order, each with a flag for whether
//! more follow in it, serve as well and are faster.
//!
//! Always true here:
//! - sled recovers a prefix of what was written: what is lost in a crash are the newest rows, if they were not flushed.
//! - The transactions above the compact revision are whole, and their revisions were written without a gap; a hole is
//!   damage.
//! - Up to where the log is on disk is remembered outside of it (`state.rs`): a log that ends below that is damaged.
//! - The compact revision is written before what is below it is deleted, and a version is deleted before the deletion
//!   that ended it.
//! - What sled has not flushed is in the journal too (`journal.rs`), unless durability is [`Durability::None`]: a killed process
//!   loses nothing.
//! - After a write that failed because the disk was full sled takes no more writes. Its files are opened again, and what
//!   sled had not written yet is written again: it is kept until it is on disk (`unsynced.rs`).
//! - Where results do not wait for the disk, a range of revisions is reserved on disk beforehand. After a crash that may have lost
//!   some (of the machine, or without a journal) the store continues above that range, and its compact revision with it: no
//!   watch may resume from a revision with a change that is lost.

mod check;
mod directory;
mod entry;
mod flusher;
mod journal;
mod load;
mod private;
mod recovery;
mod reserve;
mod rows;
mod shrink;
mod state;
mod unsynced;

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

pub use self::check::CheckReport;
use self::{
    directory::Directory,
    flusher::Flusher,
    reserve::{Available, Reserve},
    rows::{Header, Row},
    state::StateFile,
    unsynced::Unsynced,
};
use super::{Log, LogBounds, LogError, Notifier, Outcome, Record, Rejected, Transaction, entries};
use crate::{CompactRevision, EntryId, Revision};

/// The time at which a change is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On disk before its writer gets the result.
    Sync,
    /// With the operating system before its writer gets the result, so that a killed process loses nothing; on disk at most so long
    /// (and the time a flush takes) after that.
    Interval(Duration),
    /// On disk some time; when the store is closed, at the latest.
    None,
}

/// A log in a directory of its own.
pub struct SledLog {
    /// Uses the tree, so it must go before it.
    flusher: Option<Flusher>,
    /// None after sled failed because the disk was full, until its files are opened again.
    tree: Option<Tree>,
    directory: Directory,
    reserve: Reserve,
    durability: Durability,
    /// After the first and up to the second there was a row for every revision when the log was opened.
    whole: (Revision, Revision),
    compact_revision: CompactRevision,
    newest: Revision,
    reserved: Revision,
    unread: Vec<Record>,
    /// What may not be on disk yet.
    unsynced: Unsynced,
    notifier: Option<Notifier>,
    /// The bytes of the rows, about: what a write that failed has left is not counted.
    live_bytes: u64,
    /// False once it has failed.
    can_shrink: bool,
}

/// The open tree. Clones share it.
#[derive(Clone)]
struct Tree {
    db: Db,
    /// sled's file, to sync what sled has only written to the kernel.
    file: Arc<File>,
    /// Remembers what was synced.
    state: Arc<StateFile>,
    path: Arc<Path>,
}

const COMPACT_REVISION: &[u8] = b"meta/floor";
const RESERVED: &[u8] = b"meta/reserved";

/// How many revisions are reserved at a time: each reservation costs a flush, each crash wastes those that are left.
const RESERVATION: u64 = 100_000;

/// The unit in which sled writes and reuses its file. It holds several in memory, so they are small.
const SEGMENT: usize = 128 << 10;

/// sled's page cache: rows are not read again after loading, so it only has to hold the pages being written.
const CACHE: u64 = 4 << 20;

/// How long to wait for sled's own threads to close its files.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

impl SledLog {
    /// Opens the log in a directory, or begins one there.
    ///
    /// # Errors
    /// [`LogError::InUse`] at once if another process has it. [`LogError::Damaged`] if it was changed since it was
    /// closed, if it ends before what is known to have been on disk, or is not one of ours.
    pub fn open(path: &Path, durability: Durability) -> Result<SledLog, LogError> {
        SledLog::open_with(path, durability, Reserve::available())
    }

    /// Begins a log in a directory that has none, with a revision as its newest and its compact revision: it continues a
    /// history that others know up to there. What is appended is on disk when the log is closed.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`LogError::Damaged`] if the directory has a log.
    pub fn begin_at(path: &Path, revision: Revision) -> Result<SledLog, LogError> {
        let mut log = SledLog::open(path, Durability::None)?;
        if log.newest > Revision::ZERO {
            return Err(log.tree()?.damaged("it has a log already"));
        }
        let tree = log.tree()?;
        tree.set_mark(COMPACT_REVISION, revision)?;
        tree.set_mark(RESERVED, revision)?;
        tree.flush(revision)?;
        log.compact_revision = CompactRevision::at(revision);
        (log.newest, log.reserved) = (revision, revision);
        log.whole = (revision, revision);
        Ok(log)
    }

    fn open_with(path: &Path, durability: Durability, available: Available) -> Result<SledLog, LogError> {
        let directory = Directory::take(path)?;
        let reserve = Reserve::open(path, available);
        catch(path, || SledLog::recover(directory, reserve, durability))
    }

    fn tree(&self) -> Result<&Tree, LogError> {
        self.tree.as_ref().ok_or_else(|| LogError::NoSpace { path: self.path() })
    }

    /// Makes sure that revisions up to one may be given out without waiting for the disk.
    fn reserve_revisions(&mut self, newest: Revision) -> Result<(), LogError> {
        if self.durability == Durability::Sync || newest <= self.reserved {
            return Ok(());
        }
        let reserved = Revision(newest.0.saturating_add(RESERVATION));
        let tree = self.tree()?;
        tree.set_mark(RESERVED, reserved)?;
        tree.flush(self.newest)?;
        self.unsynced.drop_up_to(self.newest);
        self.reserved = reserved;
        Ok(())
    }

    /// Writes rows, and makes them as durable as they must be before their writers get the results.
    fn write(&mut self, rows: &[Row], newest: Revision) -> Result<(), LogError> {
        self.reserve_revisions(newest)?;
        let tree = self.tree()?;
        for (key, value) in rows {
            tree.insert(key, value)?;
        }
        if self.durability == Durability::Sync || self.reserve.is_in_use() {
            return tree.flush(newest);
        }
        self.unsynced.write_journal(rows, newest).or_else(|error| {
            tracing::debug!(%error, "the journal takes nothing; the log is flushed instead");
            tree.flush(newest)
        })
    }

    /// Writes rows, and again with more of the reserve if another process was faster to take the space that was made for them.
    fn write_with_reserve(&mut self, rows: &[Row], newest: Revision) -> Result<(), LogError> {
        loop {
            let written = self.write(rows, newest);
            match self.close_failed_tree(written) {
                Err(LogError::NoSpace { .. })
                    if self.reserve.is_in_use() && self.reserve.give_up() && self.reopen_failed_tree()? => {}
                written => return written,
            }
        }
    }

    /// Opens the files of a sled that has failed again, with parts of the reserve if need be. Returns whether that was possible.
    fn reopen_failed_tree(&mut self) -> Result<bool, LogError> {
        while self.tree.as_ref().is_none_or(|tree| tree.has_failed()) {
            match self.reopen() {
                Err(LogError::NoSpace { .. }) => {
                    self.tree = None;
                    if !self.reserve.give_up() {
                        return Ok(false);
                    }
                }
                reopened => reopened?,
            }
        }
        Ok(true)
    }

    /// Closes a sled that failed because the disk was full: it takes no more writes.
    fn close_failed_tree<T>(&mut self, result: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(LogError::NoSpace { .. }) = result {
            self.flusher = None;
            self.tree = None;
        }
        result
    }

    /// Opens sled's files again, and writes what it had not written.
    fn reopen(&mut self) -> Result<(), LogError> {
        self.flusher = None;
        self.tree = None;
        let tree = Tree::open(&self.directory)?;
        let last = tree.last_revision(self.compact_revision)?;
        // What was on its way when sled failed: nobody has seen it, and its revisions are given to others.
        tree.drop_after(last.min(self.newest))?;
        for transaction in self.unsynced.transactions() {
            let rows = rows::rows(&transaction)
                .map_err(|oversized| tree.failed("cannot write", io::Error::other(oversized)))?;
            for (key, value) in &rows {
                tree.insert(key, value)?;
            }
        }
        let last = self.unsynced.newest().unwrap_or(last).max(self.compact_revision.revision());
        if last < self.newest {
            return Err(
                tree.damaged(format!("nothing after revision {last} but {} was on disk", self.newest))
            );
        }
        tree.set_mark(RESERVED, self.reserved)?;
        tree.set_mark(COMPACT_REVISION, self.compact_revision.revision())?;
        tree.flush(self.newest)?;
        self.unsynced.drop_up_to(self.newest);
        self.tree = Some(tree);
        self.start_flusher()
    }

    fn start_flusher(&mut self) -> Result<(), LogError> {
        let (Durability::Interval(interval), Some(notifier)) = (self.durability, self.notifier.clone())
        else {
            return Ok(());
        };
        let (tree, unsynced) = (self.tree()?.clone(), self.unsynced.clone());
        let flush = move || {
            let Some(newest) = unsynced.newest() else { return Ok(()) };
            unsynced.begin_flush();
            tree.flush(newest)?;
            unsynced.drop_up_to(newest);
            Ok(())
        };
        let started = Flusher::start(interval, notifier, flush);
        self.flusher =
            Some(started.map_err(|cause| failed("cannot start to flush", self.directory.path(), cause))?);
        Ok(())
    }
}

impl Log for SledLog {
    fn start(&mut self, notifier: Notifier) -> Result<LogBounds, LogError> {
        self.notifier = Some(notifier);
        self.start_flusher()?;
        Ok(LogBounds { compact_revision: self.compact_revision, newest: self.newest })
    }

    fn load(&mut self, visit: &mut dyn FnMut(Record) -> Result<(), LogError>) -> Result<(), LogError> {
        let tree = self.tree()?;
        self.live_bytes = catch(&tree.path, || tree.load(self.whole, visit))?;
        Ok(())
    }

    fn append(&mut self, batch: &[Transaction]) -> Result<Vec<Outcome>, LogError> {
        let mut newest = self.newest;
        let mut rows = Vec::new();
        let mut transactions = Vec::with_capacity(batch.len());
        let mut outcomes = Vec::with_capacity(batch.len());
        for transaction in batch {
            let entries = entries(transaction, newest.next());
            match rows::rows(&entries) {
                Ok(of_transaction) => {
                    newest = newest.next();
                    rows.extend(of_transaction);
                    transactions.push(entries);
                    outcomes.push(Outcome::Committed(newest));
                }
                Err(oversized) => outcomes.push(Outcome::Rejected(Rejected(oversized.to_string()))),
            }
        }
        let bytes = rows.iter().map(|(key, value)| key.len() + value.len()).sum();
        if !self.reserve.make_space(u64::try_from(bytes).unwrap_or(u64::MAX)) {
            return Err(LogError::NoSpace { path: self.path() });
        }
        if self.unsynced.is_full() {
            let flushed = self.tree()?.flush(self.newest);
            self.close_failed_tree(flushed)?;
            self.unsynced.drop_up_to(self.newest);
        }
        self.write_with_reserve(&rows, newest)?;
        if self.durability != Durability::Sync {
            self.unsynced.add(&transactions, bytes);
        }
        self.newest = newest;
        if self.reserve.is_in_use() {
            self.unsynced.drop_up_to(self.newest);
            self.reserve.restore();
        }
        self.flusher.iter().for_each(Flusher::changed);
        self.live_bytes = self.live_bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        self.unread.extend(transactions.into_iter().flatten().map(Record::Entry));
        Ok(outcomes)
    }

    fn tail(&mut self, _: Revision) -> Result<Vec<Record>, LogError> {
        Ok(std::mem::take(&mut self.unread))
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn compact(&mut self, compact_revision: CompactRevision, superseded: &[EntryId]) -> Result<(), LogError> {
        self.compact_revision = compact_revision;
        if self.reserve.is_in_use() {
            self.reserve.make_space(0);
        }
        let compacted = self.tree()?.compact(compact_revision, superseded);
        let removed = self.close_failed_tree(compacted)?;
        if self.reserve.is_in_use() {
            let flushed = self.tree()?.flush(self.newest);
            self.close_failed_tree(flushed)?;
            self.reserve.restore();
        }
        self.live_bytes = self.live_bytes.saturating_sub(removed);
        let shrunk = self.shrink(shrink::WHILE_OPEN);
        self.close_failed_tree(shrunk)?;
        self.flusher.iter().for_each(Flusher::changed);
        Ok(())
    }

    fn recover_space(&mut self) -> Result<bool, LogError> {
        self.reserve.begin_use();
        Ok(self.reopen_failed_tree()? && self.reserve.hold())
    }

    fn path(&self) -> PathBuf {
        self.directory.path().into()
    }

    fn close(mut self: Box<Self>) -> Result<(), LogError> {
        if self.tree.as_ref().is_none_or(|tree| tree.has_failed()) {
            self.recover_space()?;
        }
        self.reserve.begin_use();
        self.reserve.make_space(0);
        self.shrink(shrink::AT_CLOSE)?;
        let SledLog { flusher, tree, directory, mut reserve, newest, .. } = *self;
        let tree = tree.ok_or_else(|| LogError::NoSpace { path: directory.path().into() })?;
        drop(flusher);
        tree.set_mark(RESERVED, newest)?;
        tree.flush(newest)?;
        journal::remove(directory.path()).map_err(|cause| tree.failed("cannot remove the journal", cause))?;
        drop(tree);
        wait_for_sled(&directory.log(), directory.path())?;
        directory.seal(newest)?;
        reserve.hold();
        Ok(())
    }
}

impl Tree {
    fn open(directory: &Directory) -> Result<Tree, LogError> {
        wait_for_sled(&directory.log(), directory.path())?;
        let removed = directory.remove_unfinished().and_then(|()| directory.remove_copy());
        removed.map_err(|cause| failed("cannot open", directory.path(), cause))?;
        Tree::open_log(directory, &directory.log())
    }

    /// Opens the files of a log of a directory.
    fn open_log(directory: &Directory, log: &Path) -> Result<Tree, LogError> {
        let path: Arc<Path> = directory.path().into();
        let config = sled::Config::new()
            .path(log)
            .mode(sled::Mode::HighThroughput)
            .segment_size(SEGMENT)
            .cache_capacity(CACHE)
            .flush_every_ms(None);
        let open = || config.open().map_err(|cause| sled_failed("cannot open", &path, cause));
        let db = catch(&path, open)?;
        let file = File::open(log.join("db")).map_err(|cause| failed("cannot open", &path, cause))?;
        if let Err(error) = private::restrict(log) {
            tracing::warn!(%error, path = %path.display(), "cannot take the rights of others to the log");
        }
        Ok(Tree { db, file: file.into(), state: directory.state().clone(), path })
    }

    fn mark(&self, name: &[u8]) -> Result<Option<Revision>, LogError> {
        let value = self.db.get(name).map_err(|cause| self.sled_failed("cannot read", cause))?;
        let revision = |value: sled::IVec| value.as_ref().try_into().map(Revision::from_bytes);
        value.map(revision).transpose().map_err(|_| self.damaged("its marks are unreadable"))
    }

    fn set_mark(&self, name: &[u8], revision: Revision) -> Result<(), LogError> {
        self.insert(name, &revision.to_bytes())
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), LogError> {
        self.db.insert(key, value).map(drop).map_err(|cause| self.sled_failed("cannot write", cause))
    }

    fn remove(&self, key: &[u8]) -> Result<Option<sled::IVec>, LogError> {
        self.db.remove(key).map_err(|cause| self.sled_failed("cannot write", cause))
    }

    /// Makes all that was written durable, which is everything up to a revision.
    fn flush(&self, newest: Revision) -> Result<(), LogError> {
        self.db.flush().map_err(|cause| self.sled_failed("cannot flush", cause))?;
        self.file.sync_data().map_err(|cause| self.failed("cannot flush", cause))?;
        self.state.advance(newest).map_err(|cause| self.failed("cannot flush", cause))
    }

    /// Has sled failed before? It takes no more writes then.
    fn has_failed(&self) -> bool {
        self.db.flush().is_err()
    }

    /// Returns the bytes of the rows that are gone.
    fn compact(&self, compact_revision: CompactRevision, superseded: &[EntryId]) -> Result<u64, LogError> {
        self.set_mark(COMPACT_REVISION, compact_revision.revision())?;
        superseded.iter().try_fold(0, |bytes, id| Ok(bytes + self.remove_entry(*id)?))
    }

    fn remove_entry(&self, id: EntryId) -> Result<u64, LogError> {
        let removed = self.remove_parts(|part| rows::key(id, part))?;
        match removed {
            0 => self.remove_parts(|part| rows::earlier_key(id.revision, part)),
            bytes => Ok(bytes),
        }
    }

    /// Removes all rows of an entry, of which the first has their number. Returns their bytes.
    fn remove_parts(&self, key: impl Fn(u16) -> Vec<u8>) -> Result<u64, LogError> {
        let remove = |part| {
            let key = key(part);
            let removed = self.remove(&key)?;
            let bytes = removed.as_ref().map_or(0, |value| size(&key, value));
            Ok((removed, bytes))
        };
        let (Some(first), bytes) = remove(0)? else { return Ok(0) };
        let parts = rows::parts(&first).unwrap_or_default();
        (1..parts).try_fold(bytes, |bytes, part| Ok(bytes + remove(part)?.1))
    }

    /// The last revision that has its whole transaction: a crash may have cut the very last one short.
    fn last_revision(&self, compact_revision: CompactRevision) -> Result<Revision, LogError> {
        for row in self.db.scan_prefix(rows::PREFIX).rev() {
            let (key, value) = row.map_err(|cause| self.sled_failed("cannot read", cause))?;
            match rows::read(&key, &value).ok_or_else(|| self.damaged("its last row is unreadable"))? {
                // Below the compact revision, what followed may have been deleted since.
                Header { id, more: true, .. } if id.revision > compact_revision.revision() => {}
                Header { id, .. } => return Ok(id.revision),
            }
        }
        Ok(Revision::ZERO)
    }

    /// Deletes what comes after a revision.
    fn drop_after(&self, last: Revision) -> Result<(), LogError> {
        for row in self.db.range(rows::first_key(last.next())..).rev() {
            let (key, _) = row.map_err(|cause| self.sled_failed("cannot read", cause))?;
            if key.starts_with(rows::PREFIX) {
                self.remove(&key)?;
            }
        }
        Ok(())
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

/// Reads what may be damaged: sled trusts some of what it reads, and panics where it should not have.
fn catch<T>(path: &Path, read: impl FnOnce() -> Result<T, LogError>) -> Result<T, LogError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        let reason = "sled cannot make sense of its files".into();
        Err(LogError::Damaged { path: path.into(), reason })
    })
}

/// The bytes of a row.
fn size(key: &[u8], value: &[u8]) -> u64 {
    u64::try_from(key.len() + value.len()).unwrap_or(u64::MAX)
}

/// Waits until sled's threads have closed the file of a log, which they do some time after the last handle is dropped.
fn wait_for_sled(log: &Path, store: &Path) -> Result<(), LogError> {
    let Ok(file) = File::open(log.join("db")) else { return Ok(()) };
    let deadline = Instant::now() + RELEASE_TIMEOUT;
    while file.try_lock().is_err() {
        if Instant::now() >= deadline {
            return Err(LogError::InUse { path: store.into() });
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn failed(action: &'static str, path: &Path, cause: io::Error) -> LogError {
    match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => LogError::NoSpace { path: path.into() },
        _ => LogError::Failed { action, path: path.into(), cause: cause.into() },
    }
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
