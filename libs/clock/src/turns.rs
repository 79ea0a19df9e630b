//! Turns: the keys of all queues are worked on one after the other.
//!
//! Two control planes that are given the same requests at the same times then do the same in the same order, however fast their
//! threads are. A key has its turn when all that the turn before has caused has come to an end, but for other keys: caches have
//! observed what was written, and Events are recorded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::activity::{Activity, Work};

/// The line of those who wait for a turn.
#[derive(Default)]
pub struct Turns {
    line: Mutex<Line>,
    /// The number of places in the line.
    wanted: AtomicUsize,
    /// Notified when somebody takes a place.
    taken: Notify,
}

#[derive(Default)]
struct Line {
    places: BTreeMap<Place, Weak<dyn TakeTurn>>,
    /// The number of turns so far.
    round: u64,
}

/// A place in the line. Who has wanted a turn since fewer turns comes first, and of those the first by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Whether it comes after all others: what is paced waits until there is nothing else to do.
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
    /// Works on the first key, if there is still one.
    ///
    /// - `place`: the place that it had
    /// - `work`: the work of the turn
    fn take_turn(&self, place: &Place, work: Work);
}

impl Turns {
    /// The number of turns so far.
    pub fn round(&self) -> u64 {
        self.line.lock().round
    }

    /// Takes a place. It has to be taken before the work ends that is the reason for it.
    pub fn take_place(&self, place: Place, queue: Weak<dyn TakeTurn>) {
        {
            let mut line = self.line.lock();
            line.places.insert(place, queue);
            self.count(&line);
        }
        self.taken.notify_waiters();
    }

    /// Leaves a place.
    pub fn leave(&self, place: &Place) {
        let mut line = self.line.lock();
        line.places.remove(place);
        self.count(&line);
    }

    /// Whether somebody waits for a turn.
    pub fn are_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > 0
    }

    /// Is notified when somebody takes a place.
    pub fn taken(&self) -> Notified<'_> {
        self.taken.notified()
    }

    /// Gives a turn to the first one in the line.
    pub fn give(&self, activity: &Activity) {
        let (place, queue, work) = {
            let mut line = self.line.lock();
            let Some((place, queue)) = line.places.pop_first() else { return };
            line.round += 1;
            // There is work before nobody waits any longer.
            let work = activity.begin();
            self.count(&line);
            (place, queue, work)
        };
        if let Some(queue) = queue.upgrade() {
            queue.take_turn(&place, work);
        }
    }

    fn count(&self, line: &Line) {
        self.wanted.store(line.places.len(), Ordering::SeqCst);
    }
}
