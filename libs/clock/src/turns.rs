//! Turns: the keys of all queues are worked on one after the other.
//!
//! Two control planes that are given the same requests at the same times then do the same in the
//! same order, however fast their threads are. A key has its turn when all that the turn before has
//! caused has come to an end, but for other keys: caches have observed what was written, and Events
//! are recorded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::activity::{Activity, Work};

/// The queues that wait for a turn.
#[derive(Default)]
pub struct Turns {
    waiting: Mutex<Waiting>,
    /// The number of places.
    wanted: AtomicUsize,
    /// Notified when somebody takes a place.
    taken: Notify,
}

#[derive(Default)]
struct Waiting {
    places: BTreeMap<TurnOrder, Weak<dyn TakeTurn>>,
    /// The number of turns so far.
    round: u64,
}

/// The order of those that wait: by the number of turns before they began to wait, and then by
/// name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TurnOrder {
    /// Whether it comes after all others. Paced work waits until there is no other work.
    pub is_paced: bool,
    /// The number of turns that there had been when it was taken.
    pub round: u64,
    /// The name of the queue.
    pub name: Arc<str>,
    /// Tells queues of one name apart.
    pub id: usize,
}

/// A queue that wants a turn for one of its keys.
pub trait TakeTurn: Send + Sync {
    /// Processes the first key, if there still is one.
    ///
    /// - `place`: the place that it had
    /// - `work`: the work of the turn
    fn take_turn(&self, place: &TurnOrder, work: Work);
}

impl Turns {
    /// Returns the number of turns so far.
    pub fn round(&self) -> u64 {
        self.waiting.lock().round
    }

    /// Takes a place. It has to be taken before the work ends that is the reason for it.
    pub fn take_place(&self, place: TurnOrder, queue: Weak<dyn TakeTurn>) {
        {
            let mut waiting = self.waiting.lock();
            waiting.places.insert(place, queue);
            self.count(&waiting);
        }
        self.taken.notify_waiters();
    }

    /// Leaves a place.
    pub fn leave(&self, place: &TurnOrder) {
        let mut waiting = self.waiting.lock();
        waiting.places.remove(place);
        self.count(&waiting);
    }

    /// Returns `true` if a key waits for a turn.
    pub fn are_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > 0
    }

    /// Waits for a notification that a place was taken.
    pub fn taken(&self) -> Notified<'_> {
        self.taken.notified()
    }

    /// Gives a turn to the first queue.
    pub fn give(&self, activity: &Activity) {
        let (place, queue, work) = {
            let mut waiting = self.waiting.lock();
            let Some((place, queue)) = waiting.places.pop_first() else { return };
            waiting.round += 1;
            // The work begins before the wait ends, so that the control plane is not idle between
            // them.
            let work = activity.begin();
            self.count(&waiting);
            (place, queue, work)
        };
        if let Some(queue) = queue.upgrade() {
            queue.take_turn(&place, work);
        }
    }

    fn count(&self, waiting: &Waiting) {
        self.wanted.store(waiting.places.len(), Ordering::SeqCst);
    }
}
