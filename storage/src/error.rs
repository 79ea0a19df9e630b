//! Why a call failed. Nothing here names an HTTP code. Losing a compare-and-swap is not among them: it is a value.

use std::sync::Arc;

use crate::{
    CompactRevision, Key, Revision, Unreadable,
    log::{LogError, Rejected, UnreadableEntry},
};

/// History before `compact_revision` is gone; only a fresh list recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {asked} is below the compact revision {compact_revision}")]
pub struct Compacted {
    pub asked: Revision,
    pub compact_revision: CompactRevision,
}

/// The store has not come that far yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {asked} is above the newest, {newest}")]
pub struct Future {
    pub asked: Revision,
    pub newest: Revision,
}

/// Why the state at a revision cannot be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevisionError {
    #[error(transparent)]
    Compacted(#[from] Compacted),
    #[error(transparent)]
    Future(#[from] Future),
}

/// Why a write was neither done nor lost. Only [`StoreError::Full`] and [`StoreError::NoSpace`] may be cured by trying again,
/// when there is room.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The index cannot read what was to be written.
    #[error("{key}: unreadable value: {reason}")]
    Unreadable { key: Key, reason: Unreadable },
    /// The write stores more than [`Limits::request_bytes`](crate::Limits).
    #[error("{key}: a request of {bytes} bytes is too large: the limit is {limit}")]
    TooLarge { key: Key, bytes: usize, limit: usize },
    /// The write would grow the store beyond [`Limits::store_bytes`](crate::Limits).
    #[error("the store is full: its objects take {bytes} bytes of {quota}")]
    Full { bytes: u64, quota: u64 },
    /// The disk is full, and the write would not give room back.
    #[error("no space is left on the disk")]
    NoSpace,
    /// One atomic write names the same key twice.
    #[error("{key} is named twice in one write")]
    Twice { key: Key },
    /// Another writer stored a version of the key that cannot be read here, and that must not be overwritten.
    #[error("{key} has an unreadable version at revision {revision}: {reason}", key = .0.key, revision = .0.id.revision, reason = .0.reason)]
    Quarantined(Arc<UnreadableEntry>),
    /// The log cannot take this transaction.
    #[error("the log rejects the transaction: {0}")]
    Rejected(Rejected),
    /// The log failed, now or before: the store takes no more writes. Whether a write that gets this error from the failing
    /// batch itself is on disk shows only when the store is opened again.
    #[error("the log failed")]
    Failed(#[source] Arc<LogError>),
    #[error("the store is closed")]
    Closed,
}
