//! The interface of a log.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{
    error::LogError,
    location::Location,
    notifier::Notifier,
    outcome::Outcome,
    transaction::{Record, Transaction},
};
use crate::{CompactRevision, EntryId, Revision};

/// A durable, ordered list of transactions. Each transaction has a revision of its own, which all its changes share.
///
/// Used by one thread, which may block.
pub trait Log: Send + 'static {
    /// Called once, first. From here on the log calls `notifier` when something happens that no call of the store's
    /// caused.
    fn start(&mut self, notifier: Notifier) -> Result<LogBounds, LogError>;

    /// Called once, second: passes to `visit` every live object at the compact revision, in any order, then every change
    /// after it, in order of their ids, up to the newest revision of the bounds. An error of `visit` ends it.
    fn load(&mut self, visit: &mut dyn FnMut(Record) -> Result<(), LogError>) -> Result<(), LogError>;

    /// Appends a batch of transactions, none of them empty, in which no key occurs twice. Returns what became of each, in
    /// the batch's order. The log may commit them in another order.
    ///
    /// What is committed is as durable as the log promises when this returns. Should a crash interrupt it, some of the
    /// transactions are there, each of them whole; in a log that only this store writes, the first few.
    ///
    /// # Errors
    /// Only what concerns the log as a whole. After [`LogError::NoSpace`] nothing of the batch is in the log; after any
    /// other error that is unknown. What concerns one transaction is its [`Outcome`].
    fn append(&mut self, batch: &[Transaction]) -> Result<Vec<Outcome>, LogError>;

    /// What was committed since the last call (the first: since the newest revision of the bounds), in order of ids, no
    /// matter who wrote it. Waits until the transaction at `until` is among it, or was before. A transaction is never
    /// split between calls.
    ///
    /// # Errors
    /// [`LogError::HistoryLost`] if the log cannot show all of it; [`relist`](Log::relist) goes on then.
    fn tail(&mut self, until: Revision) -> Result<Vec<Record>, LogError>;

    /// Called after [`LogError::HistoryLost`]: passes every live object at a newer revision to `visit`, in any order, and returns that
    /// revision. The tail continues after it.
    ///
    /// # Errors
    /// [`LogError::HistoryLost`] if it was lost again meanwhile: what was visited is of no use.
    fn relist(
        &mut self,
        _visit: &mut dyn FnMut(Record) -> Result<(), LogError>,
    ) -> Result<Revision, LogError> {
        Err(LogError::HistoryLost { location: self.location() })
    }

    /// Up to where the tail has returned all changes, if it knows of revisions without any: those of a cluster that is used
    /// for other things, too.
    fn progress(&self) -> Option<Revision> {
        None
    }

    /// Whether others may write to this log, too. Then an entry that cannot be read is quarantined.
    /// In a log that only this store writes, it means damage.
    fn has_other_writers(&self) -> bool;

    /// The way to read not older than others wrote; None if a read never has to wait for that.
    /// Asked once, before `start`.
    fn linearizer(&self) -> Option<Arc<dyn Linearizer>> {
        None
    }

    /// Deletes: no reader will start below `compact_revision` any more, and the entries in `superseded` (all at or below
    /// the compact revision: versions that were replaced or deleted, and deletions) are of no use to anyone.
    fn compact(&mut self, compact_revision: CompactRevision, superseded: &[EntryId]) -> Result<(), LogError>;

    /// Tries to recover from [`LogError::NoSpace`], now and then. Returns whether there is space for all writes again; if
    /// not, there may be space for a few: a log keeps a reserve for deletions.
    fn recover_space(&mut self) -> Result<bool, LogError> {
        Ok(true)
    }

    /// The place of the log, for messages.
    fn location(&self) -> Location;

    /// Makes all that was appended durable and releases the log. Called once, last.
    fn close(self: Box<Self>) -> Result<(), LogError>;
}

/// Finds out what has been committed to a shared log, so that a read can wait until the view shows it.
pub trait Linearizer: Send + Sync {
    /// A revision at or above those of all changes that were committed before the call. The log's progress has come to it, or
    /// is about to: a view at this revision shows them all.
    fn committed(&self) -> BoxFuture<'_, Result<Revision, LogError>>;

    /// Can the log be reached, as far as is known without asking it?
    ///
    /// # Errors
    /// Why not; it may pass.
    fn readiness(&self) -> Result<(), String>;
}

/// The first and the last revision of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogBounds {
    /// Below it, changes may be missing.
    pub compact_revision: CompactRevision,
    /// At or above every revision ever given: the next change gets a higher one.
    pub newest: Revision,
}
