//! Transactions, in the forms in which they are proposed to a log, held by it and read back.

use bytes::Bytes;

use crate::{EntryId, Key, Revision, Unreadable};

/// Changes that are committed together or not at all.
pub type Transaction = Vec<Proposal>;

/// A change that the sequencer has checked.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The key of the object that is written.
    pub key: Key,
    /// The revision of the key's live object at the time of the check; None if there was none. A
    /// log with other writers must verify it.
    pub previous: Option<Revision>,
    /// The change to make.
    pub change: Change,
}

/// The change of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object gets a new version.
    Put {
        /// The revision at which the object was created; `None` if by this very change.
        created: Option<Revision>,
        /// The bytes of the version, without its revision.
        stored: Bytes,
    },
    /// The object is deleted.
    Delete,
}

/// A change in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The position of the entry in the log.
    pub id: EntryId,
    /// The key of the object that was written.
    pub key: Key,
    /// The change that was made.
    pub change: Change,
}

/// A record that a log reads back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A change.
    Entry(Entry),
    /// An entry of another writer that this log cannot decode.
    Unreadable(UnreadableEntry),
}

/// An entry of another writer that cannot be decoded, or has a value that the index cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableEntry {
    /// The position of the entry in the log.
    pub id: EntryId,
    /// The key of the object that was written.
    pub key: Key,
    /// The reason why it cannot be read.
    pub reason: Unreadable,
}

/// Returns the entries of a transaction that is committed at a revision.
pub(super) fn entries(transaction: &[Proposal], revision: Revision) -> Vec<Entry> {
    let entry = |(index, proposal): (u32, &Proposal)| Entry {
        id: EntryId { revision, index },
        key: proposal.key.clone(),
        change: proposal.change.clone(),
    };
    (0..).zip(transaction).map(entry).collect()
}
