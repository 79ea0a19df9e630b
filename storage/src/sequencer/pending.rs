//! A transaction that waits for its turn, and what it asks of the view.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    CommitOutcome, Expect, Index, Indexed, Key, Object, Revision, StoreError,
    log::{Change, Proposal, Record},
    object,
    space::Growth,
    view::State,
};

/// The receiver of the result of a request.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Writes that are done together or not at all.
pub(crate) struct PendingTransaction<I: Index> {
    pub writes: Vec<PendingWrite<I>>,
    pub author: Option<I::Author>,
    pub reply: Reply<CommitOutcome<I>>,
    /// Its share of what may wait in the mailbox; released when this is dropped.
    pub permit: OwnedSemaphorePermit,
}

/// One write.
pub(crate) struct PendingWrite<I: Index> {
    pub key: Key,
    pub expect: Expect,
    /// The value to store, with its indexed metadata; None for a deletion.
    pub value: Option<(Bytes, Indexed<I::Meta>)>,
}

/// A write of ours that the tail is to show.
pub(super) struct Own<'a, I: Index> {
    pub revision: Revision,
    pub key: &'a Key,
    pub known: Known<I>,
}

/// The properties of a record that need not be read, because this store wrote it.
pub(super) struct Known<I: Index> {
    /// The result of the index; None for a deletion.
    pub indexed: Option<Indexed<I::Meta>>,
    pub author: Option<I::Author>,
}

impl<I: Index> Known<I> {
    /// Returns the properties of a record of another writer, or of an earlier process: none are
    /// known.
    pub(super) fn nothing() -> Known<I> {
        Known { indexed: None, author: None }
    }
}

impl<I: Index> Own<'_, I> {
    pub(super) fn is_for(&self, record: &Record) -> bool {
        matches!(record, Record::Entry(entry) if entry.id.revision == self.revision && entry.key == *self.key)
    }
}

impl<I: Index> PendingTransaction<I> {
    /// Ends the wait. A writer that no longer waits has its write all the same.
    pub(super) fn reply(self, result: Result<CommitOutcome<I>, StoreError>) {
        let PendingTransaction { reply, permit: _permit, .. } = self;
        drop(reply.send(result));
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.writes.iter().map(|write| &write.key)
    }

    /// Returns the conflict of the first write that does not find what it expects; None if there is
    /// none.
    pub(super) fn conflict(&self, state: &State<I>) -> Option<CommitOutcome<I>> {
        self.writes.iter().enumerate().find_map(|(index, write)| {
            let current = state.get(&write.key);
            (!write.finds_what_it_expects(current))
                .then(|| CommitOutcome::Conflict { index, current: current.cloned() })
        })
    }

    /// Returns the growth of the store.
    ///
    /// - `began`: the revision that a fork began with
    pub(super) fn growth(&self, state: &State<I>, began: Option<Revision>) -> Growth {
        let mut growth = Growth::default();
        for write in &self.writes {
            let after = write.value.as_ref().map(|(stored, _)| object::cost(&write.key, stored.len()));
            growth.add(state.get(&write.key), after, began);
        }
        growth
    }

    pub(super) fn bytes(&self) -> usize {
        self.writes.iter().filter_map(|write| write.value.as_ref()).map(|(stored, _)| stored.len()).sum()
    }
}

impl<I: Index> PendingWrite<I> {
    /// Returns the record that the log's tail has once this write is committed. It moves the result
    /// of the index out of the write.
    pub(super) fn take(&mut self, revision: Revision, author: Option<I::Author>) -> Own<'_, I> {
        let indexed = self.value.take().map(|(_, indexed)| indexed);
        Own { revision, key: &self.key, known: Known { indexed, author } }
    }

    pub(super) fn finds_what_it_expects(&self, current: Option<&Arc<Object<I>>>) -> bool {
        let held = match self.expect {
            Expect::Absent => current.is_none(),
            Expect::Present => current.is_some(),
            Expect::Revision(revision) => current.is_some_and(|object| object.revision == revision),
            Expect::Any => true,
        };
        let deletes = self.value.is_none();
        held && (current.is_some() || !deletes)
    }

    pub(super) fn proposal(&self, current: Option<&Arc<Object<I>>>) -> Proposal {
        let change = match &self.value {
            Some((stored, _)) => {
                Change::Put { created: current.map(|object| object.created), stored: stored.clone() }
            }
            None => Change::Delete,
        };
        Proposal { key: self.key.clone(), previous: current.map(|object| object.revision), change }
    }
}
