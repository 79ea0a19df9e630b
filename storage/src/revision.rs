//! Revisions: of the store, of entries, and the compact revision, below which history is compacted.

use std::fmt;

/// A point in the store's history: the number of the transaction that led to it. Zero is before the
/// first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// Before the first transaction.
    pub const ZERO: Revision = Revision(0);

    /// Returns the revision after this one.
    pub fn next(self) -> Revision {
        Revision(self.0 + 1)
    }

    /// Encodes the revision for the disk: big-endian, so that byte order is revision order.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// Undoes [`to_bytes`](Self::to_bytes).
    pub fn from_bytes(bytes: [u8; 8]) -> Revision {
        Revision(u64::from_be_bytes(bytes))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of one change in the log: the revision of its transaction, and its index among the
/// transaction's changes.
///
/// Ordered by revision, then by index: the order of the writes in their transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// The revision that all changes of the transaction share.
    pub revision: Revision,
    /// The index of the change in its transaction, from zero.
    pub index: u32,
}

impl EntryId {
    /// Returns the id of the first change of the transaction at a revision.
    pub fn first(revision: Revision) -> EntryId {
        EntryId { revision, index: 0 }
    }

    /// Returns an id above those of all changes of the transaction at a revision.
    pub(crate) fn end(revision: Revision) -> EntryId {
        EntryId { revision, index: u32::MAX }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.revision, self.index)
    }
}

/// The oldest revision one may start from: every change *after* it is still known, and the state
/// *at* it can be rebuilt.
///
/// The change at the compact revision itself may be compacted too: a watch that starts after it
/// does not need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CompactRevision(Revision);

impl CompactRevision {
    /// Creates the compact revision at a revision: history starts after it.
    pub fn at(revision: Revision) -> CompactRevision {
        CompactRevision(revision)
    }

    /// Returns the revision itself.
    pub fn revision(self) -> Revision {
        self.0
    }

    /// Checks that one may watch after `asked`, or read at it.
    ///
    /// # Errors
    /// [`Compacted`] below the compact revision.
    pub fn admit(self, asked: Revision) -> Result<(), Compacted> {
        if asked < self.0 { Err(Compacted { asked, compact_revision: self }) } else { Ok(()) }
    }

    /// Raises the compact revision to `revision`; a lower value changes nothing. The caller drops
    /// the history.
    pub(crate) fn raise(&mut self, revision: Revision) {
        self.0 = self.0.max(revision);
    }
}

impl fmt::Display for CompactRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// History before `compact_revision` is compacted; only a fresh list recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {asked} is below the compact revision {compact_revision}")]
pub struct Compacted {
    /// The revision to watch after, or to read at.
    pub asked: Revision,
    /// The oldest revision one may ask for.
    pub compact_revision: CompactRevision,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compact_revision_admits_itself_and_what_is_above() {
        let compact_revision = CompactRevision::at(Revision(7));
        for (asked, admitted) in [(0, false), (6, false), (7, true), (8, true), (u64::MAX, true)] {
            assert_eq!(compact_revision.admit(Revision(asked)).is_ok(), admitted, "{asked}");
        }
    }

    #[test]
    fn bytes_sort_as_revisions_do() {
        let revisions = [0, 1, 255, 256, u64::from(u32::MAX), u64::MAX].map(Revision);
        assert!(revisions.map(Revision::to_bytes).is_sorted());
        assert_eq!(revisions.map(|r| Revision::from_bytes(r.to_bytes())), revisions);
    }
}
