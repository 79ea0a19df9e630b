//! Transactions: as they are proposed to a log, and as it holds them and reads them back.

use bytes::Bytes;

use crate::{EntryId, Key, Revision, Unreadable};

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

/// The change of an object.
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
    /// Its place in the log.
    pub id: EntryId,
    /// What was written.
    pub key: Key,
    /// What was done.
    pub change: Change,
}

/// A record that a log reads back.
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
    /// Its place in the log.
    pub id: EntryId,
    /// What was written.
    pub key: Key,
    /// Why it cannot be read.
    pub reason: Unreadable,
}

/// The entries of a transaction that is committed at a revision.
pub(super) fn entries(transaction: &[Proposal], revision: Revision) -> Vec<Entry> {
    let entry = |(index, proposal): (u32, &Proposal)| Entry {
        id: EntryId { revision, index },
        key: proposal.key.clone(),
        change: proposal.change.clone(),
    };
    (0..).zip(transaction).map(entry).collect()
}
