//! The errors of calls to a store. They do not refer to HTTP status codes. A lost compare-and-swap
//! is a value and not an error.

use std::sync::Arc;

use crate::{
    Compacted, Key, Revision, Unreadable,
    log::{LogError, Rejected, Unknown, UnreadableEntry},
};

/// The store has not come that far yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {asked} is above the newest, {newest}")]
pub struct Future {
    /// The revision to read at or to wait for.
    pub asked: Revision,
    /// The store's newest revision.
    pub newest: Revision,
}

/// The reasons for which the state at a revision cannot be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevisionError {
    /// The revision is below the compact revision.
    #[error(transparent)]
    Compacted(#[from] Compacted),
    /// The revision is above the newest one.
    #[error(transparent)]
    Future(#[from] Future),
}

/// The reasons for which a read cannot be linearizable.
#[derive(Debug, thiserror::Error)]
pub enum LinearizeError {
    /// The log cannot report the revision that was committed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The store does not show the revision that was committed.
    #[error(transparent)]
    Future(#[from] Future),
    /// The log did not respond in time.
    #[error("the log did not respond in time")]
    Timeout,
}

/// The reasons for which a write is neither committed nor in conflict. A retry can succeed only
/// after [`StoreError::Full`] and [`StoreError::NoSpace`], once there is space.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The index cannot read the value that was to be written.
    #[error("{key}: unreadable value: {reason}")]
    Unreadable {
        /// The key of the write.
        key: Key,
        /// The reason that the index reported.
        reason: Unreadable,
    },
    /// The write stores more than [`Limits::request_bytes`](crate::Limits).
    #[error("{key}: a request of {bytes} bytes is too large: the limit is {limit}")]
    TooLarge {
        /// The key of the write.
        key: Key,
        /// The bytes of the request, as the limit counts them.
        bytes: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The write would grow the store beyond [`Limits::store_bytes`](crate::Limits).
    #[error("the store is full: its objects take {bytes} bytes of {quota}")]
    Full {
        /// The size of the live objects, in bytes.
        bytes: u64,
        /// The bytes that they may take.
        quota: u64,
    },
    /// The disk is full, and the write would not free space.
    #[error("no space is left on the disk")]
    NoSpace,
    /// An atomic write contains the same key twice.
    #[error("{key} is named twice in one write")]
    Twice {
        /// The key.
        key: Key,
    },
    /// Another writer stored a version of the key that cannot be read here, and must not be
    /// overwritten.
    #[error("{key} has an unreadable version at revision {revision}: {reason}", key = .0.key, revision = .0.id.revision, reason = .0.reason)]
    Quarantined(Arc<UnreadableEntry>),
    /// The log cannot take this transaction.
    #[error("the log rejects the transaction: {0}")]
    Rejected(Rejected),
    /// The log did not respond in time: the transaction is committed as a whole, or it is not, or
    /// it will be.
    #[error("it is unknown whether the transaction is committed: {0}")]
    Unknown(Unknown),
    /// The log cannot be reached, which may pass.
    #[error("the log cannot be reached: {0}")]
    Unavailable(String),
    /// The log has failed, now or before: the store accepts no more writes. If this write was part
    /// of the failing batch, only a restart of the store shows whether it is on disk.
    #[error("the log failed")]
    Failed(#[source] Arc<LogError>),
    /// The store was closed before.
    #[error("the store is closed")]
    Closed,
}
