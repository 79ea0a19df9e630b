//! The log: where changes are durable. It orders them, keeps them, and reports what was committed.
//!
//! Everything above this trait is the same for every log, and assumes nothing about who else writes: a log may be shared
//! by several stores ([`memory`] is, an etcd cluster would be). So a write becomes visible only when the log's *tail* has
//! it.

mod ephemeral;
mod memory;
mod sled;

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;

pub use ephemeral::EphemeralLog;
pub use memory::MemoryLog;
pub use sled::{CheckReport, Durability, SledLog};

use crate::{CompactRevision, EntryId, Key, Revision, Unreadable};

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
        Err(LogError::HistoryLost { path: self.path() })
    }

    /// Up to where the tail has returned all changes, if it knows of revisions without any: those of a cluster that is used
    /// for other things, too.
    fn progress(&self) -> Option<Revision> {
        None
    }

    /// Do others write to this log, too? Then an entry that cannot be read is quarantined. In a log that only this store
    /// writes, it means damage.
    fn is_shared(&self) -> bool;

    /// How to read not older than others wrote; None if nobody else writes to this log. Asked once, before `start`.
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

    /// Where the log is, for messages.
    fn path(&self) -> PathBuf;

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

/// Changes that are committed together or not at all.
pub type Transaction = Vec<Proposal>;

/// A change that the sequencer has checked.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// What is written.
    pub key: Key,
    /// The revision of the live object that the check saw under the key. A log that others write to must make sure of it.
    pub previous: Option<Revision>,
    /// What to do.
    pub change: Change,
}

/// What becomes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has a new version.
    Put {
        /// The revision at which the object was created; `None` if by this very change.
        created: Option<Revision>,
        /// The bytes of the version, without its revision.
        stored: Bytes,
    },
    /// It is deleted.
    Delete,
}

/// A change as the log holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is in the log.
    pub id: EntryId,
    /// What was written.
    pub key: Key,
    /// What was done.
    pub change: Change,
}

/// What a log reads back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A change.
    Entry(Entry),
    /// Another writer's entry that this log cannot decode.
    Unreadable(UnreadableEntry),
}

/// An entry of another writer that cannot be decoded, or has a value that the index cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableEntry {
    /// Where it is in the log.
    pub id: EntryId,
    /// What was written.
    pub key: Key,
    /// Why it cannot be read.
    pub reason: Unreadable,
}

/// What became of one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All its changes are in the log, at this revision.
    Committed(Revision),
    /// Another writer changed one of its keys first; nothing of it is in the log.
    Conflict(Conflict),
    /// The log cannot take this transaction, now or later; nothing of it is in the log, and others are not affected.
    Rejected(Rejected),
    /// The log did not respond in time. The transaction is in the log as a whole or not at all; if it is, the tail will
    /// have it.
    Unknown(Unknown),
}

/// What a log found in place of the version that a proposal names as [`previous`](Proposal::previous).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The index of the proposal in its transaction: of the first that is in conflict.
    pub index: usize,
    /// The revision of the live object that the log has under the key.
    pub found: Option<Revision>,
    /// The tail shows the conflicting change when it was read up to here; then the transaction can be checked again.
    pub newest: Revision,
}

/// Why a log cannot take a transaction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Rejected(pub String);

/// Why it is not known whether a transaction is in the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unknown(pub String);

impl Outcome {
    /// Up to where the tail is to be read because of this outcome.
    pub(crate) fn newest(&self) -> Option<Revision> {
        match self {
            Outcome::Committed(revision) => Some(*revision),
            Outcome::Conflict(conflict) => Some(conflict.newest),
            Outcome::Rejected(_) | Outcome::Unknown(_) => None,
        }
    }
}

/// The entries of a transaction that is committed at a revision.
fn entries(transaction: &[Proposal], revision: Revision) -> Vec<Entry> {
    let entry = |(index, proposal): (u32, &Proposal)| Entry {
        id: EntryId { revision, index },
        key: proposal.key.clone(),
        change: proposal.change.clone(),
    };
    (0..).zip(transaction).map(entry).collect()
}

/// Lets a log notify its store of what no call of the store's caused.
#[derive(Clone)]
pub struct Notifier(Arc<dyn Fn(Notification) + Send + Sync>);

/// What a log reports through its [`Notifier`].
#[derive(Debug)]
pub enum Notification {
    /// Another writer's changes can be read from the tail.
    Changed,
    /// Something failed in the background, and appended changes may not be durable.
    Failed(LogError),
}

impl Notifier {
    /// A notifier that calls a function.
    pub fn new(listen: impl Fn(Notification) + Send + Sync + 'static) -> Notifier {
        Notifier(Arc::new(listen))
    }

    /// Notifies the store. Returns at once.
    pub fn notify(&self, notification: Notification) {
        (self.0)(notification);
    }
}

/// Why a log cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another process has the log open.
    #[error("{path} is in use by another process", path = .path.display())]
    InUse {
        /// Where the log is.
        path: PathBuf,
    },
    /// What is there is not what was written; nothing was changed.
    #[error("the store in {path} is damaged: {reason}", path = .path.display())]
    Damaged {
        /// Where the log is.
        path: PathBuf,
        /// What is wrong, in one line.
        reason: String,
    },
    /// The disk is full. Of what was to be appended nothing is there; what was appended before is not lost.
    #[error("no space is left on the disk that holds {path}", path = .path.display())]
    NoSpace {
        /// Where the log is.
        path: PathBuf,
    },
    /// Changes that the tail has not returned are compacted, in a log that others write to.
    #[error("changes in {path} were compacted before they were read", path = .path.display())]
    HistoryLost {
        /// Where the log is.
        path: PathBuf,
    },
    /// An operation failed; of the changes that were being appended some may be durable.
    #[error("{action} in {path}", path = .path.display())]
    Failed {
        /// What was tried, such as `cannot write`.
        action: &'static str,
        /// Where the log is.
        path: PathBuf,
        /// The error of the operation.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}
