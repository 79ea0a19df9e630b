//! The registry of pending timers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::task::Waker;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::timer::Timer;

/// A timer that is pending. Of several, the next one comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pending {
    /// The time at which it fires.
    pub due: Timestamp,
    /// Its name and class.
    pub timer: &'static Timer,
    /// The object that it is about, such as `namespace/name`; empty if there is none.
    pub key: String,
}

/// A collection that keeps timers of its own, such as a queue of delayed keys.
pub trait Source: Send + Sync {
    /// The first pending timers, at most `limit`, the next one first.
    fn pending(&self, limit: usize) -> Vec<Pending>;
}

/// The registry of all pending timers of a clock.
#[derive(Default)]
pub struct Timers {
    waits: Mutex<Waits>,
    sources: Mutex<Vec<Weak<dyn Source>>>,
}

#[derive(Default)]
struct Waits {
    by_due: BTreeMap<Place, Entry>,
    sequence: u64,
}

/// The place of an entry: no two are equal.
pub(crate) type Place = (Timestamp, u64);

struct Entry {
    /// None where a [`Source`] lists the timers that this entry waits for.
    timer: Option<&'static Timer>,
    key: Cow<'static, str>,
    /// The task to wake when the clock is advanced; the machine's clock has no use for it.
    waker: Option<Waker>,
}

impl Timers {
    /// A snapshot of all pending timers, the next one first.
    pub fn pending(&self) -> Vec<Pending> {
        self.next(usize::MAX)
    }

    /// The next timers, at most `limit`. The cost does not depend on how many are pending after them.
    pub fn next(&self, limit: usize) -> Vec<Pending> {
        let mut pending = self.waiting(limit);
        // Not under the lock: a source has one of its own.
        let sources: Vec<Arc<dyn Source>> = self.sources.lock().iter().filter_map(Weak::upgrade).collect();
        pending.extend(sources.iter().flat_map(|source| source.pending(limit)));
        pending.sort_unstable();
        pending.truncate(limit);
        pending
    }

    /// Lists the timers of a source, too, for as long as it lives.
    pub fn register(&self, source: Weak<dyn Source>) {
        let mut sources = self.sources.lock();
        sources.retain(|known| known.strong_count() > 0);
        sources.push(source);
    }

    fn waiting(&self, limit: usize) -> Vec<Pending> {
        let waits = self.waits.lock();
        let listed = waits.by_due.iter().filter_map(|((due, _), entry)| {
            Some(Pending { due: *due, timer: entry.timer?, key: entry.key.clone().into_owned() })
        });
        listed.take(limit).collect()
    }

    /// Adds an entry, unless it is due by `now`, which is read while no entry can be taken out.
    pub(crate) fn insert(
        &self,
        due: Timestamp,
        timer: Option<&'static Timer>,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<Place> {
        let mut waits = self.waits.lock();
        if due <= now() {
            return None;
        }
        waits.sequence += 1;
        let place = (due, waits.sequence);
        waits.by_due.insert(place, Entry { timer, key: Cow::Borrowed(""), waker: None });
        Some(place)
    }

    /// Sets the key of an entry that is there.
    pub(crate) fn name(&self, place: Place, key: Cow<'static, str>) {
        if let Some(entry) = self.waits.lock().by_due.get_mut(&place) {
            entry.key = key;
        }
    }

    /// Has an entry wake a task. Returns false if it was taken out, because it is due.
    pub(crate) fn wake(&self, place: Place, waker: &Waker) -> bool {
        let mut waits = self.waits.lock();
        let Some(entry) = waits.by_due.get_mut(&place) else { return false };
        if entry.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            return true;
        }
        let replaced = entry.waker.replace(waker.clone());
        // Not under the lock: with the last waker of a task its waits end, which take the lock.
        drop(waits);
        drop(replaced);
        true
    }

    /// Takes out an entry, which may be gone.
    pub(crate) fn remove(&self, place: Place) {
        let removed = self.waits.lock().by_due.remove(&place);
        // Not under the lock, as in `wake`.
        drop(removed);
    }

    /// Takes out the entries that are due, and wakes their tasks.
    pub(crate) fn fire(&self, now: Timestamp) {
        let due = {
            let mut waits = self.waits.lock();
            let mut due = Vec::new();
            while let Some(first) = waits.by_due.first_entry().filter(|first| first.key().0 <= now) {
                due.extend(first.remove().waker);
            }
            due
        };
        due.into_iter().for_each(Waker::wake);
    }
}
