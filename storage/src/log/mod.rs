//! The log: where changes last. It orders them, keeps them, and tells what happened.
//!
//! Everything above this trait is the same for every log, and assumes nothing about who else writes: a log may be shared
//! by several stores ([`memory`] is, an etcd cluster would be). So a write becomes visible only when the log's *tail* says it.

mod ephemeral;
mod memory;
mod sled;

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;

pub use ephemeral::EphemeralLog;
pub use memory::MemoryLog;
pub use sled::{Durability, SledLog};

use crate::{Floor, Key, Revision};

/// A durable, ordered list of changes, of which each has a revision of its own.
///
/// Used by one thread, which may block.
pub trait Log: Send + 'static {
    /// Called once, first. From here on the log calls `tap` when something happens that no call of the store's caused.
    fn start(&mut self, tap: Tap) -> Result<Extent, LogError>;

    /// Called once, second: hands every live object and every change after the floor to `visit`, in order of revision, up
    /// to the extent's newest. An error of `visit` ends it.
    fn load(&mut self, visit: &mut dyn FnMut(Entry) -> Result<(), LogError>) -> Result<(), LogError>;

    /// Appends a batch of transactions in which no key occurs twice. It is as durable as the log promises when this returns;
    /// should it be cut short by a crash, the first few transactions are there, each of them whole.
    fn append(&mut self, batch: &[Vec<Proposal>]) -> Result<Appended, LogError>;

    /// What happened since the last call (the first: since the extent's newest), in order of revision, no matter who wrote
    /// it. Waits until the change at `until` is among it, or was before.
    fn tail(&mut self, until: Revision) -> Result<Vec<Entry>, LogError>;

    /// Forgets: nobody will start below `floor` any more, and the entries at the revisions in `garbage` (all at or below
    /// the floor: versions that were superseded, and deletions) are of no use to anyone.
    fn compact(&mut self, floor: Floor, garbage: &[Revision]) -> Result<(), LogError>;

    /// Tries to go on after [`LogError::NoSpace`], now and then. Returns whether there is room for all writes again; if not,
    /// there may be room for a few: a log keeps a reserve for deletions.
    fn make_room(&mut self) -> Result<bool, LogError> {
        Ok(true)
    }

    /// Where the log is, for messages.
    fn place(&self) -> PathBuf;

    /// Makes all that was appended durable and lets go of the log. Called once, last.
    fn close(self: Box<Self>) -> Result<(), LogError>;
}

/// From where to where a log reaches.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub floor: Floor,
    /// At or above every revision ever given: the next change gets a higher one.
    pub newest: Revision,
}

/// A change that the sequencer has checked.
#[derive(Clone, Debug)]
pub struct Proposal {
    pub key: Key,
    /// The revision of the live object that the check saw under the key. A log that others write to must make sure of it.
    pub previous: Option<Revision>,
    pub change: Change,
}

/// What becomes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put {
        /// The revision at which the object was created; `None` if by this very change.
        created: Option<Revision>,
        stored: Bytes,
    },
    Delete,
}

/// A change as the log holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub revision: Revision,
    pub key: Key,
    pub change: Change,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    /// Each change has its revision, in the batch's order and increasing.
    Done(Vec<Revision>),
    /// Another writer came first, with the change at `newest` or before; nothing was appended. Read the tail up to there and
    /// check again.
    Stale { newest: Revision },
}

/// Gives a batch the revisions that follow `newest`.
fn number(batch: &[Vec<Proposal>], newest: Revision) -> Vec<Entry> {
    let revisions = (newest.0 + 1..).map(Revision);
    let entry = |(proposal, revision): (&Proposal, _)| Entry {
        revision,
        key: proposal.key.clone(),
        change: proposal.change.clone(),
    };
    batch.iter().flatten().zip(revisions).map(entry).collect()
}

/// How a log speaks up when it was not asked.
#[derive(Clone)]
pub struct Tap(Arc<dyn Fn(Signal) + Send + Sync>);

/// What a log may say through its [`Tap`].
#[derive(Debug)]
pub enum Signal {
    /// Another writer's changes can be read from the tail.
    Changed,
    /// Something failed in the background, and appended changes may not be durable.
    Failed(LogError),
}

impl Tap {
    pub(crate) fn new(listen: impl Fn(Signal) + Send + Sync + 'static) -> Tap {
        Tap(Arc::new(listen))
    }

    pub fn signal(&self, signal: Signal) {
        (self.0)(signal);
    }
}

/// Why a log cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("{path} is in use by another process", path = .path.display())]
    InUse { path: PathBuf },
    /// What is there is not what was written; nothing was changed.
    #[error("the store in {path} is damaged: {reason}", path = .path.display())]
    Damaged { path: PathBuf, reason: String },
    /// The disk is full. Of what was to be appended nothing is there; what was appended before is not lost.
    #[error("no space is left on the disk that holds {path}", path = .path.display())]
    NoSpace { path: PathBuf },
    #[error("{action} in {path}", path = .path.display())]
    Failed {
        /// What was tried, such as `cannot write`.
        action: &'static str,
        path: PathBuf,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}
