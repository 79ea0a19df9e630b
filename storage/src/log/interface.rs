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

/// A durable, ordered list of transactions. Each transaction has a revision of its own, which all
/// its changes share.
///
/// Used by one thread, which may block.
pub trait Log: Send + 'static {
    /// Starts the log. It is called once, before the log is loaded, read or written. From then on
    /// the log calls `notifier` when something happens that no call of the store's caused.
    fn start(&mut self, notifier: Notifier) -> Result<LogBounds, LogError>;

    /// Loads the log. Called once, after `start`: passes to `visit` every live object at the
    /// compact revision, in any order, then every change after it, in order of their ids, up to the
    /// newest revision of the bounds. An error of `visit` ends it.
    fn load(&mut self, visit: &mut dyn FnMut(Record) -> Result<(), LogError>) -> Result<(), LogError>;

    /// Appends a batch of transactions, none of them empty, in which no key occurs twice. Returns
    /// the outcome of each, in the batch's order. The log may commit them in another order.
    ///
    /// Committed transactions are as durable as the log promises when this returns. If a crash
    /// interrupts it, some of the transactions are present, each of them whole; in a log that only
    /// this store writes, the first few.
    ///
    /// # Errors
    /// Only errors of the log as a whole. After [`LogError::NoSpace`] nothing of the batch is in
    /// the log; after any other error that is unknown. An error of one transaction is its
    /// [`Outcome`].
    fn append(&mut self, batch: &[Transaction]) -> Result<Vec<Outcome>, LogError>;

    /// Returns the changes by any writer that were committed since the last call (in the first
    /// call: since the newest revision of the bounds), in order of ids. It waits until the
    /// transaction at `until` is among them, unless an earlier call has returned it. A transaction
    /// is never split between calls.
    ///
    /// # Errors
    /// [`LogError::HistoryLost`] if the log no longer has all of these changes;
    /// [`relist`](Log::relist) then continues.
    fn tail(&mut self, until: Revision) -> Result<Vec<Record>, LogError>;

    /// Passes every live object at a newer revision to `visit`, in any order, and returns that
    /// revision. Called after [`LogError::HistoryLost`]. The tail continues after the returned
    /// revision.
    ///
    /// # Errors
    /// [`LogError::HistoryLost`] if history was lost again in the meantime: the visited objects
    /// must be discarded.
    fn relist(
        &mut self,
        _visit: &mut dyn FnMut(Record) -> Result<(), LogError>,
    ) -> Result<Revision, LogError> {
        Err(LogError::HistoryLost { location: self.location() })
    }

    /// Returns the revision up to which [`tail`](Log::tail) has returned all changes; None if every
    /// revision of the log has changes that the tail returns. In a cluster that others use as well,
    /// some revisions have none.
    fn progress(&self) -> Option<Revision> {
        None
    }

    /// Returns whether others may write to this log, too. Then an entry that cannot be read is
    /// quarantined. In a log that only this store writes, such an entry means damage.
    fn has_other_writers(&self) -> bool;

    /// Returns the linearizer for reads that must not be older than the writes of others; None if a
    /// read never has to wait. It is called once, before `start`.
    fn linearizer(&self) -> Option<Arc<dyn Linearizer>> {
        None
    }

    /// Deletes superseded entries. No reader will start below `compact_revision` any more, and the
    /// entries in `superseded` (all at or below the compact revision: versions that were replaced
    /// or deleted, and deletions) are no longer needed.
    fn compact(&mut self, compact_revision: CompactRevision, superseded: &[EntryId]) -> Result<(), LogError>;

    /// Tries to recover from [`LogError::NoSpace`]. Called periodically. Returns whether there is
    /// space for all writes again. If not, there may be space for a few: a log keeps a reserve for
    /// deletions.
    fn recover_space(&mut self) -> Result<bool, LogError> {
        Ok(true)
    }

    /// Returns the location of the log, for messages.
    fn location(&self) -> Location;

    /// Makes all appended transactions durable and releases the log. Called once, last.
    fn close(self: Box<Self>) -> Result<(), LogError>;
}

/// Determines the revision that has been committed to a shared log, so that a read can wait until
/// the view shows it.
pub trait Linearizer: Send + Sync {
    /// Returns a revision at or above those of all changes that were committed before the call. The
    /// log's progress has reached it, or will soon: a view at this revision has all these changes.
    fn committed(&self) -> BoxFuture<'_, Result<Revision, LogError>>;

    /// Checks that the log can be reached, as far as known without a request.
    ///
    /// # Errors
    /// The reason why it cannot be reached, which may be temporary.
    fn readiness(&self) -> Result<(), String>;
}

/// The first and the last revision of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogBounds {
    /// Below it, changes may be missing.
    pub compact_revision: CompactRevision,
    /// A revision at or above every revision ever assigned: the next change gets a higher one.
    pub newest: Revision,
}
