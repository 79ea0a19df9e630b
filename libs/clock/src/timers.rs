//! The registry of pending timers.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::activity::{Activity, Work};
use crate::timer::{Class, Timer};

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

/// Work that is under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnderWay {
    /// The part of the control plane that does it, such as the queue of a controller.
    pub what: String,
    /// The object that it is about, such as `namespace/name`; empty if there is none.
    pub key: String,
}

/// A collection that keeps timers of its own, such as a queue of delayed keys.
pub trait Source: Send + Sync {
    /// Returns the first pending timers, at most `limit`, the next one first.
    fn pending(&self, limit: usize) -> Vec<Pending>;

    /// Returns the time of the first pending timer of a class that is included.
    fn first_due(&self, is_included: &dyn Fn(Class) -> bool) -> Option<Timestamp> {
        let pending = self.pending(usize::MAX).into_iter();
        pending.filter(|pending| is_included(pending.timer.class)).map(|pending| pending.due).min()
    }

    /// Returns the pending timers that are due by a time.
    fn due(&self, by: Timestamp) -> Vec<&'static Timer> {
        let pending = self.pending(usize::MAX).into_iter();
        pending.take_while(|pending| pending.due <= by).map(|pending| pending.timer).collect()
    }

    /// Returns the work in progress, at most `limit` pieces of it.
    fn under_way(&self, _limit: usize) -> Vec<UnderWay> {
        Vec::new()
    }
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
    /// The work of entries that were taken out because they are due, until their tasks take it.
    fired: HashMap<Place, Work>,
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
    /// Returns a snapshot of all pending timers, the next one first.
    pub fn pending(&self) -> Vec<Pending> {
        self.next(usize::MAX)
    }

    /// Returns the next timers, at most `limit`. The cost does not depend on how many are pending
    /// after them.
    pub fn next(&self, limit: usize) -> Vec<Pending> {
        let mut pending = self.waiting(limit);
        pending.extend(self.sources().iter().flat_map(|source| source.pending(limit)));
        pending.sort_unstable();
        pending.truncate(limit);
        pending
    }

    /// Returns the work in progress of all sources, at most `limit` pieces of it, and the pauses,
    /// which are a part of work.
    pub fn under_way(&self, limit: usize) -> Vec<UnderWay> {
        let waiting = self.waiting(usize::MAX).into_iter();
        let pauses = waiting.filter(|pending| pending.timer.class == Class::Pacing);
        let pauses =
            pauses.map(|Pending { timer, key, .. }| UnderWay { what: format!("timer {}", timer.name), key });
        let sources = self.sources();
        let keys = sources.iter().flat_map(|source| source.under_way(limit));
        keys.chain(pauses).take(limit).collect()
    }

    fn sources(&self) -> Vec<Arc<dyn Source>> {
        // The sources are asked without this lock: each has one of its own.
        self.sources.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the time of the first pending timer of a class that is included.
    pub fn first_due(&self, is_included: impl Fn(Class) -> bool) -> Option<Timestamp> {
        let first_wait = {
            let waits = self.waits.lock();
            let includes = |entry: &Entry| entry.timer.is_some_and(|timer| is_included(timer.class));
            waits.by_due.iter().find(|(_, entry)| includes(entry)).map(|((due, _), _)| *due)
        };
        self.sources().iter().filter_map(|source| source.first_due(&is_included)).chain(first_wait).min()
    }

    /// Returns the pending timers of all sources that are due by a time.
    pub fn due_of_sources(&self, by: Timestamp) -> Vec<&'static Timer> {
        self.sources().iter().flat_map(|source| source.due(by)).collect()
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

    /// Registers the task that an entry wakes. If the entry was removed because it is due, returns
    /// the work that has begun.
    pub(crate) fn wake(&self, place: Place, waker: &Waker) -> Poll<Option<Work>> {
        let mut waits = self.waits.lock();
        let Some(entry) = waits.by_due.get_mut(&place) else {
            return Poll::Ready(waits.fired.remove(&place));
        };
        if entry.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            return Poll::Pending;
        }
        let replaced = entry.waker.replace(waker.clone());
        // Not under the lock: with the last waker of a task its waits end, which take the lock.
        drop(waits);
        drop(replaced);
        Poll::Pending
    }

    /// Removes an entry, which may have been removed already.
    pub(crate) fn remove(&self, place: Place) {
        let mut waits = self.waits.lock();
        let removed = (waits.by_due.remove(&place), waits.fired.remove(&place));
        // Not under the lock, as in `wake`.
        drop(waits);
        drop(removed);
    }

    /// Returns the time of the first entry.
    pub(crate) fn first_wait(&self) -> Option<Timestamp> {
        self.waits.lock().by_due.first_key_value().map(|((due, _), _)| *due)
    }

    /// Removes the entries that are due and of a class that is included, begins their work, and
    /// wakes their tasks. Returns their timers. The wait of a [`Source`] counts as semantic.
    pub(crate) fn fire(
        &self,
        now: Timestamp,
        activity: &Activity,
        is_included: impl Fn(Class) -> bool,
    ) -> Vec<&'static Timer> {
        let (mut wakers, mut timers) = (Vec::new(), Vec::new());
        {
            let mut waits = self.waits.lock();
            let Waits { by_due, fired, .. } = &mut *waits;
            let class = |entry: &Entry| entry.timer.map_or(Class::Semantic, |timer| timer.class);
            let due = by_due.range(..=(now, u64::MAX)).filter(|(_, entry)| is_included(class(entry)));
            let due: Vec<Place> = due.map(|(place, _)| *place).collect();
            for place in due {
                let Some(entry) = by_due.remove(&place) else { continue };
                // A task that does not wait yet finds that its time has come.
                fired.insert(place, activity.begin());
                wakers.extend(entry.waker);
                timers.extend(entry.timer);
            }
        }
        wakers.into_iter().for_each(Waker::wake);
        timers
    }
}
