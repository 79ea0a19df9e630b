//! Transactions: the writes that a store is asked for, and what became of them.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Event, Index, Key, Object, Revision};

/// One write of one key.
#[derive(Clone, Debug)]
pub struct Write {
    /// The key that is written.
    pub key: Key,
    /// The condition.
    pub expect: Expect,
    /// The bytes to store; `None` deletes.
    pub value: Option<Bytes>,
}

/// The condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No live object.
    Absent,
    /// A live object at exactly this revision.
    Revision(Revision),
    /// A live object, whichever.
    Present,
    /// No condition. A deletion still fails if there is no object.
    Any,
}

/// The outcome of an atomic write of several keys.
pub enum CommitOutcome<I: Index> {
    /// All of it is done, at one revision: one event a write, in the order of the writes.
    Done(Vec<Arc<Event<I>>>),
    /// Nothing of the transaction was done, because a write did not find what it expected.
    Conflict {
        /// The index of the first such write.
        index: usize,
        /// The object that it found.
        current: Option<Arc<Object<I>>>,
    },
}

/// The outcome of a put.
pub enum PutOutcome<I: Index> {
    /// The new version.
    Stored(Arc<Object<I>>),
    /// The expectation did not hold; nothing was written.
    Conflict {
        /// The object that was there.
        current: Option<Arc<Object<I>>>,
    },
}

/// The outcome of a deletion.
pub enum DeleteOutcome<I: Index> {
    /// The object is deleted.
    Deleted {
        /// Its last version.
        last: Arc<Object<I>>,
        /// The revision of the deletion.
        revision: Revision,
    },
    /// The expectation did not hold, or there was nothing to delete.
    Conflict {
        /// The object that was there.
        current: Option<Arc<Object<I>>>,
    },
}

impl Write {
    /// Creates a write that stores `stored`. The bytes must not contain a resourceVersion;
    /// [`Indexed::stamp`](crate::Indexed::stamp) inserts it.
    pub fn put(key: Key, expect: Expect, stored: impl Into<Bytes>) -> Write {
        Write { key, expect, value: Some(stored.into()) }
    }

    /// Creates a write that deletes the object under a key.
    pub fn delete(key: Key, expect: Expect) -> Write {
        Write { key, expect, value: None }
    }
}
