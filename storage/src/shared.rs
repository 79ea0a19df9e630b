//! The state that a store's readers, its watchers and its sequencer share.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{BucketSnapshot, Index, Revision, StoreError, followers::Followers, log::LogError, view::State};

/// The state that the store's readers, its watchers and its sequencer share.
pub(crate) struct Shared<I: Index> {
    pub index: I,
    state: ArcSwap<State<I>>,
    /// Follows the newest revision, for those who wait for one.
    head: watch::Sender<Revision>,
    /// Wakes the watchers of a bucket that has any.
    wakers: Mutex<HashMap<Arc<str>, watch::Sender<()>>>,
    /// States rebuilt lately: clients page through one revision while others write.
    rebuilt: Mutex<VecDeque<(Arc<str>, BucketSnapshot<I>)>>,
    /// The watchers that wait for events.
    pub followers: Followers,
    failure: OnceLock<Arc<LogError>>,
    /// Changes when there is a failure.
    failed: watch::Sender<()>,
    disk_is_full: AtomicBool,
}

/// Rebuilding from fewer events than this costs less than remembering the result.
const CHEAP_REBUILD: usize = 64;

/// The number of rebuilt states that are remembered. What they hold, history holds as well.
const REBUILT: usize = 32;

impl<I: Index> Shared<I> {
    pub fn new(index: I, state: State<I>) -> Shared<I> {
        Shared {
            index,
            head: watch::Sender::new(state.revision()),
            state: ArcSwap::from_pointee(state),
            wakers: Mutex::default(),
            rebuilt: Mutex::default(),
            followers: Followers::default(),
            failure: OnceLock::new(),
            failed: watch::Sender::new(()),
            disk_is_full: AtomicBool::new(false),
        }
    }

    /// Returns the newest state.
    pub fn state(&self) -> Arc<State<I>> {
        self.state.load_full()
    }

    /// Returns the newest state for a short use: the cheapest way to read a little of it.
    pub fn peek(&self) -> Guard<Arc<State<I>>> {
        self.state.load()
    }

    /// Follows the newest revision.
    pub fn follow_revision(&self) -> watch::Receiver<Revision> {
        self.head.subscribe()
    }

    /// Follows whether the log has failed.
    pub fn follow_failure(&self) -> watch::Receiver<()> {
        self.failed.subscribe()
    }

    /// Publishes a new state to readers, then wakes those who wait for its changes.
    pub fn publish(&self, state: State<I>, changed: impl Iterator<Item = Arc<str>>) {
        let newest = state.revision();
        let mut changed = changed.peekable();
        if changed.peek().is_some() {
            self.followers.published();
        }
        self.state.store(Arc::new(state));
        let wakers = self.wakers.lock();
        for bucket in changed {
            if let Some(wake) = wakers.get(&bucket) {
                wake.send_replace(());
            }
        }
        drop(wakers);
        self.head.send_replace(newest);
    }

    /// Drops rebuilt states at compacted revisions.
    pub fn evict_rebuilt(&self, state: &State<I>) {
        self.rebuilt
            .lock()
            .retain(|(bucket, known)| state.compact_revision(bucket).admit(known.revision()).is_ok());
    }

    pub fn fail(&self, error: LogError) -> StoreError {
        let failure = self.failure.get_or_init(|| {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the log failed; no more writes are taken"
            );
            Arc::new(error)
        });
        self.failed.send_replace(());
        StoreError::Failed(failure.clone())
    }

    pub fn set_disk_is_full(&self, is_full: bool) {
        self.disk_is_full.store(is_full, Ordering::Release);
    }

    pub fn disk_is_full(&self) -> bool {
        self.disk_is_full.load(Ordering::Acquire)
    }

    pub fn health(&self) -> Result<(), StoreError> {
        self.failure.get().map_or(Ok(()), |failure| Err(StoreError::Failed(failure.clone())))
    }

    pub fn waker(&self, bucket: &Arc<str>) -> watch::Sender<()> {
        self.wakers.lock().entry(bucket.clone()).or_default().clone()
    }

    pub fn rebuilt(&self, bucket: &str, at: Revision) -> Option<BucketSnapshot<I>> {
        let is_it =
            |(name, known): &&(Arc<str>, BucketSnapshot<I>)| **name == *bucket && known.revision() == at;
        self.rebuilt.lock().iter().find(is_it).map(|(_, known)| known.clone())
    }

    /// Keeps a state that was rebuilt by undoing so many events, unless they were few.
    pub fn remember(&self, bucket: &str, snapshot: &BucketSnapshot<I>, undone: usize) {
        if undone < CHEAP_REBUILD {
            return;
        }
        let mut rebuilt = self.rebuilt.lock();
        if rebuilt.len() == REBUILT {
            rebuilt.pop_front();
        }
        rebuilt.push_back((bucket.into(), snapshot.clone()));
    }
}
