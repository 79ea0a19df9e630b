//! The errors of a log as a whole.

use super::location::Location;

/// The reason why a log cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another process has the log open.
    #[error("{location} is in use by another process")]
    InUse {
        /// The place of the log.
        location: Location,
    },
    /// The data is not as it was written; nothing was changed.
    #[error("the store in {location} is damaged: {reason}")]
    Damaged {
        /// The place of the log.
        location: Location,
        /// The fault, in one line.
        reason: String,
    },
    /// The disk is full. Nothing of the batch was appended; earlier entries are not lost.
    #[error("no space is left on the disk that holds {location}")]
    NoSpace {
        /// The place of the log.
        location: Location,
    },
    /// Changes that the tail has not returned are compacted, in a log that others write to.
    #[error("changes in {location} were compacted before they were read")]
    HistoryLost {
        /// The place of the log.
        location: Location,
    },
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
    /// An operation failed; of the changes that were being appended some may be durable.
    #[error("{action} in {location}")]
    Failed {
        /// The attempted operation, such as `cannot write`.
        action: &'static str,
        /// The place of the log.
        location: Location,
        /// The error of the operation.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}
