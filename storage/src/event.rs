//! One change to one object, as watchers share it.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{EntryId, Index, Key, Object, Revision};

/// One change: a creation has no `before`, a deletion no `after`. All changes of a transaction have
/// the same revision.
///
/// If a watcher has to see a deletion (the object was deleted, or left the watcher's selection),
/// the object to send is `before.restamped(event.revision)`.
pub struct Event<I: Index> {
    /// The object's key.
    pub key: Key,
    /// The revision of the transaction.
    pub revision: Revision,
    /// The version that was replaced or deleted.
    pub before: Option<Arc<Object<I>>>,
    /// The version that was stored.
    pub after: Option<Arc<Object<I>>>,
    /// The author that [`Store::commit_by`](crate::Store::commit_by) was called with. None if there
    /// was none, if another process wrote it, and if the log was read since.
    pub author: Option<I::Author>,
    /// The position of this change in its transaction.
    index: u32,
    frame: Mutex<FrameCache<I::Frame>>,
}

/// Frames are kept for recent events only: watchers that keep up share them, and the past would
/// cost twice its bytes.
enum FrameCache<F> {
    Enabled(Option<F>),
    Disabled,
}

impl<I: Index> Event<I> {
    pub(crate) fn new(
        key: Key,
        EntryId { revision, index }: EntryId,
        before: Option<Arc<Object<I>>>,
        after: Option<Arc<Object<I>>>,
        author: Option<I::Author>,
    ) -> Event<I> {
        Event { key, revision, before, after, author, index, frame: Mutex::new(FrameCache::Enabled(None)) }
    }

    /// Returns the id of the log entry with this change.
    pub(crate) fn entry_id(&self) -> EntryId {
        EntryId { revision: self.revision, index: self.index }
    }

    /// Returns this event's frame. `make` encodes it for the first caller, and it is shared with
    /// the others.
    ///
    /// There is one frame to an event: a watcher that shows the event otherwise (a selection it
    /// enters or leaves, another representation) makes its own.
    pub fn frame(&self, make: impl FnOnce(&Event<I>) -> I::Frame) -> I::Frame {
        // Made under the lock, so that a crowd woken at once encodes once.
        let mut slot = self.frame.lock();
        match &mut *slot {
            FrameCache::Enabled(Some(frame)) => frame.clone(),
            FrameCache::Enabled(empty) => empty.insert(make(self)).clone(),
            FrameCache::Disabled => make(self),
        }
    }

    /// Drops the frame and keeps none any more.
    pub(crate) fn stop_caching_frame(&self) {
        *self.frame.lock() = FrameCache::Disabled;
    }
}
