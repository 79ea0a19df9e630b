//! Watch: a cursor on a bucket's events.
//!
//! A watcher *pulls*: it reads the published state's events after its cursor. Writers publish,
//! wake, and leave; a slow reader costs only itself.
//!
//! Always true here:
//! - Each event of the bucket after the start is returned exactly once, in order of revision; those
//!   of one revision are returned together, in the order of the writes in their transaction.
//! - A cursor below the bucket's compact revision ends in [`Compacted`], never in silence.
//! - A wake-up carries nothing: whoever misses one finds the events all the same.

use std::sync::Arc;

use tokio::sync::watch;

use crate::{
    Compacted, Event, Index, Revision,
    followers::{Follower, WatcherName},
    shared::Shared,
};

/// A batch with so many events ends with its current transaction, so that a watcher far behind
/// leaves others their turn.
const BATCH: usize = 256;

/// So does a batch with so many bytes of objects: this bounds what a watcher holds that does not go
/// on.
const BATCH_BYTES: usize = 32 << 10;

/// One reader of a bucket's changes.
pub struct Watcher<I: Index> {
    shared: Arc<Shared<I>>,
    bucket: Arc<str>,
    /// Everything in the bucket up to here was returned, or came before the start.
    seen: Revision,
    /// Wakes all watchers of the bucket.
    waker: watch::Sender<()>,
    woken: watch::Receiver<()>,
    name: Option<WatcherName>,
    /// Shows which events it has handled, from the first time on that it waited for some.
    follower: Option<Arc<Follower>>,
}

impl<I: Index> Watcher<I> {
    pub(crate) fn new(
        shared: Arc<Shared<I>>,
        bucket: Arc<str>,
        after: Revision,
        waker: watch::Sender<()>,
        woken: watch::Receiver<()>,
    ) -> Watcher<I> {
        Watcher { shared, bucket, seen: after, waker, woken, name: None, follower: None }
    }

    /// Waits for events and returns those there are, oldest first: one at least, and not more than
    /// fit a batch. The events of a transaction are never in two batches, however many they are.
    ///
    /// The events that were returned before count as handled: see
    /// [`Store::unfollowed`](crate::Store::unfollowed).
    ///
    /// Safe to drop while waiting: nothing is lost. Once the store is closed there are no more
    /// events, and this waits for ever.
    ///
    /// # Errors
    /// [`Compacted`] once the watcher has fallen so far behind that events it has not seen are
    /// forgotten.
    pub async fn next(&mut self) -> Result<Vec<Arc<Event<I>>>, Compacted> {
        let followers = &self.shared.followers;
        match &self.follower {
            Some(follower) => followers.handle(follower, self.seen),
            None => self.follower = Some(followers.add(&self.bucket, self.seen, self.name.take())),
        }
        loop {
            // The wake must be taken before the state is read: a state published in between wakes
            // again.
            self.woken.borrow_and_update();
            let events = self.try_next()?;
            if !events.is_empty() {
                return Ok(events);
            }
            if self.woken.changed().await.is_err() {
                // Never: the watcher holds a sender.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns the events that exist already, which may be none.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn try_next(&mut self) -> Result<Vec<Arc<Event<I>>>, Compacted> {
        let state = self.shared.state();
        let mut bytes = 0;
        let mut events: Vec<Arc<Event<I>>> = Vec::new();
        for event in state.events_after(&self.bucket, self.seen)? {
            let is_full = events.len() >= BATCH || bytes >= BATCH_BYTES;
            if is_full && events.last().is_some_and(|last| last.revision != event.revision) {
                break;
            }
            let versions = event.before.iter().chain(&event.after);
            bytes += versions.map(|object| object.bytes.len()).sum::<usize>();
            events.push(event.clone());
        }
        self.seen = match events.last() {
            Some(last) => last.revision,
            // Nothing in the bucket up to this state: so much is certain, even if only other
            // buckets moved.
            None => self.seen.max(state.revision()),
        };
        Ok(events)
    }

    /// Gives it a name, by which [`Store::unfollowed`](crate::Store::unfollowed) lists it.
    pub fn name(&mut self, name: WatcherName) {
        self.name = Some(name);
    }

    /// Counts the watchers of the bucket, including this one.
    pub fn watchers(&self) -> usize {
        self.waker.receiver_count()
    }

    /// Returns the revision up to which this watcher has certainly returned everything: the
    /// resourceVersion of a bookmark.
    ///
    /// It advances with the whole store, not just with the bucket, as long as no event waits to be
    /// read.
    pub fn progress(&mut self) -> Revision {
        let state = self.shared.state();
        if state.events_after(&self.bucket, self.seen).is_ok_and(|mut events| events.next().is_none()) {
            self.seen = self.seen.max(state.revision());
        }
        self.seen
    }
}
