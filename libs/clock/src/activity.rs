//! The work that is under way.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::turns::Turns;

/// Counts the work that is under way in a control plane: requests, changes on their way to
/// controllers, keys that wait in a queue or are reconciled, pauses. Clones share the count.
///
/// Work that causes other work ends after that has begun, so that the count is zero only when
/// nothing is left to happen.
#[derive(Clone, Default)]
pub struct Activity(Arc<Counts>);

#[derive(Default)]
struct Counts {
    /// By [`Kind`].
    counts: [Count; 2],
    turns: Turns,
    /// The number of those who want to be notified.
    observers: AtomicUsize,
    idle: Notify,
}

#[derive(Default)]
struct Count {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// The two kinds of work, which are counted each.
#[derive(Clone, Copy)]
enum Kind {
    /// Work of the control plane itself.
    Own,
    /// Work for a client, which may come at any time and last as long as the client likes.
    Request,
}

/// Work that is under way until this is dropped.
#[must_use = "the work ends when this is dropped"]
pub struct Work(Option<(Arc<Counts>, Kind)>);

/// Has the end of all work be notified until this is dropped.
pub struct Observation(Arc<Counts>);

impl Activity {
    /// Begins work.
    pub fn begin(&self) -> Work {
        self.begin_kind(Kind::Own)
    }

    /// Begins work for a client. No turn waits for its end.
    pub fn begin_request(&self) -> Work {
        self.begin_kind(Kind::Request)
    }

    fn begin_kind(&self, kind: Kind) -> Work {
        self.0.count(kind).begun.fetch_add(1, Ordering::SeqCst);
        Work(Some((self.0.clone(), kind)))
    }

    /// Enables notifications of the end of work until the result is dropped.
    pub fn observe(&self) -> Observation {
        self.0.observers.fetch_add(1, Ordering::SeqCst);
        Observation(self.0.clone())
    }

    /// Returns `true` if no work is in progress and no key waits for a turn.
    pub fn is_idle(&self) -> bool {
        // The number of begun works is read last: it is never less than that of ended ones, so that
        // both were equal at all moments between.
        let [own, requests] = self.0.counts.each_ref().map(|count| count.ended.load(Ordering::SeqCst));
        !self.0.turns.are_wanted()
            && self.0.count(Kind::Own).begun.load(Ordering::SeqCst) == own
            && self.0.count(Kind::Request).begun.load(Ordering::SeqCst) == requests
    }

    /// Returns the amount of work that has begun so far, if no work is in progress except for
    /// clients; turns may be pending. While it is unchanged, no work has begun.
    pub fn quiet(&self) -> Option<u64> {
        let count = self.0.count(Kind::Own);
        count.is_idle().then(|| count.begun.load(Ordering::SeqCst))
    }

    /// Returns the amount of work that has begun so far. While it is unchanged, no work has begun.
    pub fn begun(&self) -> u64 {
        self.0.counts.iter().map(|count| count.begun.load(Ordering::SeqCst)).sum()
    }

    /// Returns a number that changes whenever work for a client begins or ends.
    pub fn requests(&self) -> u64 {
        let Count { begun, ended } = self.0.count(Kind::Request);
        begun.load(Ordering::SeqCst).wrapping_add(ended.load(Ordering::SeqCst))
    }

    /// Waits for a notification that the last work of a kind has ended. Requires an
    /// [`Observation`].
    pub fn idle(&self) -> Notified<'_> {
        self.0.idle.notified()
    }

    /// Returns the turns in which keys are processed if the clock is manual.
    pub(crate) fn turns(&self) -> &Turns {
        &self.0.turns
    }
}

impl Counts {
    fn count(&self, kind: Kind) -> &Count {
        let [own, requests] = &self.counts;
        match kind {
            Kind::Own => own,
            Kind::Request => requests,
        }
    }
}

impl Count {
    fn is_idle(&self) -> bool {
        // Read in this order for the reason that `Activity::is_idle` gives.
        let ended = self.ended.load(Ordering::SeqCst);
        ended == self.begun.load(Ordering::SeqCst)
    }
}

impl Work {
    /// Creates work that does not count.
    pub(crate) fn uncounted() -> Work {
        Work(None)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let Some((counts, kind)) = &self.0 else { return };
        let count = counts.count(*kind);
        count.ended.fetch_add(1, Ordering::SeqCst);
        if counts.observers.load(Ordering::SeqCst) > 0 && count.is_idle() {
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
