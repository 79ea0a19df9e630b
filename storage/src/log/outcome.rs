//! The outcome of a transaction that is appended to a log.

use crate::Revision;

/// The outcome of one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All its changes are in the log, at this revision.
    Committed(Revision),
    /// Another writer changed one of its keys first; nothing of it is in the log.
    Conflict(Conflict),
    /// The log cannot take this transaction, now or later; nothing of it is in the log, and others
    /// are not affected.
    Rejected(Rejected),
    /// The log did not respond in time. The transaction is in the log as a whole or not at all; if
    /// it is, the tail will have it.
    Unknown(Unknown),
}

/// The version that the log has, where the proposal expected
/// [`previous`](super::Proposal::previous).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The index of the first proposal of the transaction that is in conflict.
    pub index: usize,
    /// The revision of the live object that the log has under the key.
    pub found: Option<Revision>,
    /// Once the tail is read up to this revision, it includes the conflicting change, and the
    /// transaction can be checked again.
    pub newest: Revision,
}

/// The reason why a log cannot append a transaction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Rejected(pub String);

/// The reason why it is not known whether a transaction is in the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unknown(pub String);

impl Outcome {
    /// Returns the revision up to which the tail must be read before this outcome is visible.
    pub(crate) fn visible_at(&self) -> Option<Revision> {
        match self {
            Outcome::Committed(revision) => Some(*revision),
            Outcome::Conflict(conflict) => Some(conflict.newest),
            Outcome::Rejected(_) | Outcome::Unknown(_) => None,
        }
    }
}
