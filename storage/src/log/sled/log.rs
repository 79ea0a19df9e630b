//! The log: what the store's thread calls.

use std::{io, path::Path};

use super::{
    directory::Directory,
    durability::Durability,
    failure::{catch, failed},
    flusher::Flusher,
    journal,
    recovery::{Recovered, recover},
    reserve::{Available, Reserve},
    rows::{self, Row},
    shrink::{self, Garbage, file_bytes},
    tree::{COMPACT_REVISION, RESERVED, Tree, wait_for_sled},
    unsynced::Unsynced,
};
use crate::{
    CompactRevision, EntryId, Revision,
    log::{
        error::LogError,
        interface::{Log, LogBounds},
        location::Location,
        notifier::Notifier,
        outcome::{Outcome, Rejected},
        transaction::{Record, Transaction, entries},
    },
};

/// A log in a directory of its own.
pub struct SledLog {
    /// Uses the tree, so it must go before it.
    flusher: Option<Flusher>,
    /// None after sled failed because the disk was full, until its files are opened again.
    tree: Option<Tree>,
    directory: Directory,
    reserve: Reserve,
    durability: Durability,
    /// After the first and up to the second there was a row for every revision when the log was
    /// opened.
    whole: (Revision, Revision),
    compact_revision: CompactRevision,
    newest: Revision,
    reserved: Revision,
    unread: Vec<Record>,
    /// The writes that may not be on disk yet.
    pub(super) unsynced: Unsynced,
    notifier: Option<Notifier>,
    /// The bytes of the rows, about: what a write that failed has left is not counted.
    live_bytes: u64,
    /// False once it has failed.
    can_shrink: bool,
}

/// The number of revisions that are reserved at a time: each reservation costs a flush, each crash
/// wastes those that are left.
const RESERVATION: u64 = 100_000;

impl SledLog {
    /// Opens the log in a directory, or begins one there.
    ///
    /// # Errors
    /// [`LogError::InUse`] at once if another process has it. [`LogError::Damaged`] if it was
    /// changed since it was closed, if it ends before what is known to have been on disk, or is not
    /// one of ours.
    pub fn open(path: &Path, durability: Durability) -> Result<SledLog, LogError> {
        SledLog::open_with(path, durability, Reserve::available())
    }

    /// Begins a log in a directory that has none, with a revision as its newest and its compact
    /// revision: it continues a history that others know up to there. What is appended is on disk
    /// when the log is closed.
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

    pub(super) fn open_with(
        path: &Path,
        durability: Durability,
        available: Available,
    ) -> Result<SledLog, LogError> {
        let directory = Directory::take(path)?;
        let mut reserve = Reserve::open(path, available);
        let recovered = catch(path, || recover(&directory, durability))?;
        reserve.hold();
        let Recovered { tree, journal, whole, compact_revision, newest, reserved } = recovered;
        Ok(SledLog {
            flusher: None,
            tree: Some(tree),
            directory,
            reserve,
            durability,
            whole,
            compact_revision,
            newest,
            reserved,
            unread: Vec::new(),
            unsynced: Unsynced::new(journal),
            notifier: None,
            live_bytes: 0,
            can_shrink: true,
        })
    }

    pub(super) fn tree(&self) -> Result<&Tree, LogError> {
        self.tree.as_ref().ok_or_else(|| LogError::NoSpace { location: self.location() })
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

    /// Writes rows, and again with more of the reserve if another process was faster to take the
    /// space that was made for them.
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

    /// Opens the files of a sled that has failed again, with parts of the reserve if need be.
    /// Returns whether that was possible.
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
        // Drops the transactions that were in progress when sled failed: no reader has seen them,
        // and their revisions are assigned again.
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

    /// Copies the log to a new file, if little of it is in use, and returns whether it did.
    /// Everything written before is on disk then.
    ///
    /// # Errors
    /// The log cannot be opened again.
    fn shrink(&mut self, garbage: Garbage) -> Result<bool, LogError> {
        let tree = self.tree()?.clone();
        if !self.can_shrink || !garbage.is_most_of(file_bytes(&self.directory), self.live_bytes) {
            return Ok(false);
        }
        tree.flush(self.newest)?;
        self.unsynced.drop_up_to(self.newest);
        // The copy reads parts that have not been read since the start.
        let copied = catch(&tree.path, || tree.copy(&self.directory));
        drop(tree);
        self.flusher = None;
        self.tree = None;
        let exchanged = copied.and_then(|()| {
            wait_for_sled(&self.directory.log(), self.directory.path())?;
            self.directory.exchange_logs()
        });
        if let Err(error) = &exchanged {
            // It would fail again.
            self.can_shrink = false;
            tracing::warn!(%error, "the log on disk cannot be made smaller");
        }
        self.tree = Some(Tree::open(&self.directory)?);
        self.start_flusher()?;
        Ok(exchanged.is_ok())
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
            return Err(LogError::NoSpace { location: self.location() });
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

    fn has_other_writers(&self) -> bool {
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

    fn location(&self) -> Location {
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
        let tree = tree.ok_or_else(|| LogError::NoSpace { location: directory.path().into() })?;
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
