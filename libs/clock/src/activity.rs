//! The work that is under way.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Counts the work that is under way in a control plane: requests, changes on their way to controllers, keys that wait in a queue or
/// are reconciled, pauses. Clones share the count.
///
/// Work that causes other work ends after that has begun, so that the count is zero only when nothing is left to happen.
#[derive(Clone, Default)]
pub struct Activity(Arc<Counts>);

#[derive(Default)]
struct Counts {
    begun: AtomicU64,
    ended: AtomicU64,
    /// The number of those who want to be notified.
    observers: AtomicUsize,
    idle: Notify,
}

/// Work that is under way until this is dropped.
#[must_use = "the work ends when this is dropped"]
pub struct Work(Option<Arc<Counts>>);

/// Has the end of all work be notified until this is dropped.
pub struct Observation(Arc<Counts>);

impl Activity {
    /// Begins work.
    pub fn begin(&self) -> Work {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        Work(Some(self.0.clone()))
    }

    /// Has the end of all work be notified until the result is dropped.
    pub fn observe(&self) -> Observation {
        self.0.observers.fetch_add(1, Ordering::SeqCst);
        Observation(self.0.clone())
    }

    /// Whether no work is under way.
    pub fn is_idle(&self) -> bool {
        self.0.is_idle()
    }

    /// The amount of work that has begun so far. As long as it is the same, none has begun.
    pub fn begun(&self) -> u64 {
        self.0.begun.load(Ordering::SeqCst)
    }

    /// Is notified each time that the last work under way has ended, as long as there is an [`Observation`].
    pub fn idle(&self) -> Notified<'_> {
        self.0.idle.notified()
    }
}

impl Counts {
    fn is_idle(&self) -> bool {
        // What has begun is read last: it is never less than what has ended, so that both were equal at that moment.
        let ended = self.ended.load(Ordering::SeqCst);
        ended == self.begun.load(Ordering::SeqCst)
    }
}

impl Work {
    /// Work that does not count.
    pub(crate) fn uncounted() -> Work {
        Work(None)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let Some(counts) = &self.0 else { return };
        counts.ended.fetch_add(1, Ordering::SeqCst);
        if counts.observers.load(Ordering::SeqCst) > 0 && counts.is_idle() {
            counts.idle.notify_waiters();
        }
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.0.observers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Activity({})", if self.is_idle() { "idle" } else { "under way" })
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}
