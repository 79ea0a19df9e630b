//! The watchers that wait for events of a bucket, and the events that they have yet to handle.
//!
//! A watcher has handled what it has returned once it is asked for more. So it is known whether
//! anybody has yet to handle an event, without any message to them or from them.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Revision;

/// The watchers that wait for events, and those that have yet to handle some.
pub(crate) struct Followers {
    followers: Mutex<Vec<Weak<Follower>>>,
    /// Notified when a watcher has handled the events that it had, if there are observers.
    handled: Notify,
    observers: AtomicUsize,
    began: Instant,
    /// The nanoseconds from the beginning to the last write.
    published: AtomicU64,
}

/// Ends an observation when it is dropped.
struct Observation<'a>(&'a AtomicUsize);

impl Drop for Observation<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A watcher that waits for events, or handles them.
pub(crate) struct Follower {
    bucket: Arc<str>,
    handled: AtomicU64,
    name: Option<WatcherName>,
}

/// The name of a watcher.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatcherName {
    /// The name.
    pub name: Arc<str>,
    /// Whether the events leave this process, so that it cannot know when they are handled.
    pub is_external: bool,
}

/// A watcher that has yet to handle events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unfollowed {
    /// The bucket of the events.
    pub bucket: Arc<str>,
    /// The name of the watcher, if it has one.
    pub name: Option<WatcherName>,
}

impl Default for Followers {
    fn default() -> Followers {
        let followers = Mutex::default();
        Followers {
            followers,
            handled: Notify::new(),
            observers: AtomicUsize::new(0),
            began: Instant::now(),
            published: AtomicU64::new(0),
        }
    }
}

impl Followers {
    pub fn add(&self, bucket: &Arc<str>, handled: Revision, name: Option<WatcherName>) -> Arc<Follower> {
        let follower = Follower { bucket: bucket.clone(), handled: AtomicU64::new(handled.0), name };
        let follower = Arc::new(follower);
        let mut followers = self.followers.lock();
        // The dead are removed whenever there is no room left, so that a new one costs little in
        // the mean.
        if followers.len() == followers.capacity() {
            followers.retain(|follower| follower.strong_count() > 0);
        }
        followers.push(Arc::downgrade(&follower));
        follower
    }

    /// Records that a follower has handled the events up to a revision.
    pub fn handle(&self, follower: &Follower, revision: Revision) {
        follower.handled.store(revision.0, Ordering::SeqCst);
        if self.observers.load(Ordering::SeqCst) > 0 {
            self.handled.notify_waiters();
        }
    }

    /// Waits until a follower has handled the events that it had.
    pub async fn handled(&self) {
        self.observers.fetch_add(1, Ordering::SeqCst);
        let _observation = Observation(&self.observers);
        self.handled.notified().await;
    }

    /// Records that something was written.
    pub fn published(&self) {
        let nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.published.store(nanos, Ordering::SeqCst);
    }

    /// Returns the time since the last write, or since the start if there was none.
    pub fn since_published(&self) -> Duration {
        let published = Duration::from_nanos(self.published.load(Ordering::SeqCst));
        self.began.elapsed().saturating_sub(published)
    }

    /// Returns `true` if any watcher has events that it has not handled yet.
    ///
    /// - `is_included`: whether a watcher with this name counts.
    /// - `has_events`: whether a bucket has events after a revision.
    pub fn has_unfollowed(
        &self,
        is_included: impl Fn(Option<&WatcherName>) -> bool,
        has_events: impl Fn(&str, Revision) -> bool,
    ) -> bool {
        let followers = self.followers.lock();
        followers
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|follower| is_included(follower.name.as_ref()))
            .any(|follower| has_events(&follower.bucket, Revision(follower.handled.load(Ordering::SeqCst))))
    }

    /// Returns the watchers that have not handled all events.
    ///
    /// - `has_events`: whether a bucket has events after a revision
    pub fn unfollowed(&self, has_events: impl Fn(&str, Revision) -> bool) -> Vec<Unfollowed> {
        let followers = self.followers.lock();
        let followers = followers.iter().filter_map(Weak::upgrade);
        let behind = followers.filter(|follower| {
            has_events(&follower.bucket, Revision(follower.handled.load(Ordering::SeqCst)))
        });
        let unfollowed = |follower: Arc<Follower>| Unfollowed {
            bucket: follower.bucket.clone(),
            name: follower.name.clone(),
        };
        behind.map(unfollowed).collect()
    }
}
