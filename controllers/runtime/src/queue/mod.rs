//! The keyed work queue: keys to reconcile, each one once and never twice at the same time.
//!
//! A key that is added while it waits is not added again; a key that is added while it is processed
//! is enqueued again when its worker is done. A key can be added after a delay
//! ([`Queue::add_after`]) or after a failure ([`Queue::retry`]), with a growing delay until
//! [`Queue::forget`]. The rules and the names of the metrics are client-go's workqueue. One rule is
//! an addition: a key can pause after it was processed ([`Queue::done_and_pause`]), and additions
//! in the meantime enqueue it once. Under a manual clock, keys are processed in turns with those of
//! all other queues ([`coracle_clock::Turns`]).
#![expect(clippy::disallowed_methods, reason = "pauses limit processor time, and metrics are measured")]

mod ready_keys;

use std::collections::{BTreeMap, HashMap};
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use coracle_clock::{
    AWAITED_RETRIES, Class, Clock, Delay, Pending, Source, TakeTurn, Timer, TurnOrder, UnderWay, Wait, Work,
};
use futures::future::OptionFuture;
use k8s_openapi::jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time;

use self::ready_keys::ReadyKeys;
use super::metrics::QueueMetrics;
use super::timers::{RETRY, RETRY_BACKOFF};

/// A key that a queue can hold.
pub trait Key: Clone + Eq + Hash + Ord + Debug + Display + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + Ord + Debug + Display + Send + Sync + 'static> Key for K {}

/// client-go's default: how long the first retry waits. Each further one waits twice as long.
pub const FIRST_RETRY: Duration = Duration::from_millis(5);
/// client-go's default: how long a retry waits at most.
pub const MAX_RETRY: Duration = Duration::from_secs(1000);
/// The longest delay of a retry that has the timer [`RETRY`].
const MAX_FIRST_RETRY: Duration = Duration::from_secs(1);

/// A queue of keys; clones share it.
pub struct Queue<K>(Arc<Inner<K>>);

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Queue<K> {
        Queue(self.0.clone())
    }
}

struct Inner<K> {
    state: Mutex<State<K>>,
    /// Notified when a worker may find a key, or has to wait for an earlier time than before.
    changed: Notify,
    clock: Clock,
    metrics: QueueMetrics,
    first_retry: Duration,
    longest_retry: Duration,
}

struct State<K> {
    waiting: ReadyKeys<K>,
    /// The keys that wait, or are enqueued again once their workers are done.
    dirty: HashMap<K, Dirty>,
    working: HashMap<K, Instant>,
    /// The time until which a key is not processed again.
    paused_until: HashMap<K, time::Instant>,
    /// The delayed keys, in order of time; also the list of pending timers: see [`Source`].
    later: BTreeMap<(Timestamp, u64), (K, &'static Timer)>,
    due: HashMap<K, (Timestamp, u64)>,
    /// The number of keys that are delayed by a pause of the implementation.
    pacing_timers: usize,
    failures: HashMap<K, u32>,
    sequence: u64,
    /// The work of all keys that are processed, are delayed by a pause of the implementation, or
    /// wait only for a turn.
    work: Option<Work>,
}

/// The wait of a key.
struct Dirty {
    since: Instant,
    /// Whether the key is taken only after all keys that are not paced. Used under a manual clock.
    is_paced: bool,
}

impl<K: Key> TakeTurn for Inner<K> {
    fn take_turn(&self, place: &TurnOrder, work: Work) {
        self.state.lock().waiting.take_turn(place, work);
        self.changed.notify_one();
    }
}

impl<K: Key> Source for Inner<K> {
    fn pending(&self, limit: usize) -> Vec<Pending> {
        let state = self.state.lock();
        let later = state.later.iter().take(limit);
        later.map(|((due, _), (key, timer))| Pending { due: *due, timer, key: key.to_string() }).collect()
    }

    fn first_due(&self, is_included: &dyn Fn(Class) -> bool) -> Option<Timestamp> {
        let state = self.state.lock();
        let mut later = state.later.iter();
        later.find(|(_, (_, timer))| is_included(timer.class)).map(|((due, _), _)| *due)
    }

    fn due(&self, by: Timestamp) -> Vec<&'static Timer> {
        let state = self.state.lock();
        state.later.range(..=(by, u64::MAX)).map(|(_, (_, timer))| *timer).collect()
    }

    fn under_way(&self, limit: usize) -> Vec<UnderWay> {
        let state = self.state.lock();
        let later = state.later.values().filter(|(_, timer)| timer.class == Class::Pacing);
        let keys = state.working.keys().chain(state.dirty.keys()).chain(later.map(|(key, _)| key));
        let what = |key: &K| UnderWay { what: format!("queue {}", self.metrics.name), key: key.to_string() };
        keys.take(limit).map(what).collect()
    }
}

impl<K: Key> Queue<K> {
    /// Returns an empty queue.
    ///
    /// - `[first_retry, longest_retry]`: the shortest and the longest backoff after an error
    pub fn new(clock: Clock, metrics: QueueMetrics, [first_retry, longest_retry]: [Duration; 2]) -> Queue<K> {
        let state = |waiting| State {
            waiting,
            dirty: HashMap::new(),
            working: HashMap::new(),
            paused_until: HashMap::new(),
            later: BTreeMap::new(),
            due: HashMap::new(),
            pacing_timers: 0,
            failures: HashMap::new(),
            sequence: 0,
            work: None,
        };
        let inner = Arc::new_cyclic(|inner: &Weak<Inner<K>>| Inner {
            state: Mutex::new(state(ReadyKeys::new(&clock, inner.clone(), &metrics.name))),
            changed: Notify::new(),
            clock: clock.clone(),
            metrics,
            first_retry,
            longest_retry,
        });
        let source: Weak<Inner<K>> = Arc::downgrade(&inner);
        inner.clock.timers().register(source);
        Queue(inner)
    }

    /// Adds the key, which waits, or is enqueued again once its worker is done.
    pub fn add(&self, key: K) {
        self.enter(&mut self.state(), key, false);
    }

    /// Adds the key, unless it is to be added later anyway.
    pub fn offer(&self, key: K) {
        let mut state = self.state();
        if !state.due.contains_key(&key) {
            self.enter(&mut state, key, false);
        }
    }

    /// Adds the key later; of several times the earliest counts.
    pub fn add_after(&self, key: K, Delay { delay, timer }: Delay) {
        if delay.is_zero() {
            return self.add(key);
        }
        let mut state = self.state();
        if self.0.clock.skips(timer) {
            return self.enter(&mut state, key, true);
        }
        let at = self.0.clock.after(delay);
        if let Some(place) = state.due.get(&key).copied() {
            if place.0 <= at {
                return;
            }
            state.remove_later(place);
        }
        state.sequence += 1;
        let place = (at, state.sequence);
        state.later.insert(place, (key.clone(), timer));
        state.due.insert(key, place);
        state.pacing_timers += usize::from(timer.class == Class::Pacing);
        self.track(&mut state);
        // A worker that waits for the next delayed key may have to wait for this one instead.
        self.0.changed.notify_one();
    }

    /// Cancels the delayed addition of the key if it has this timer.
    pub fn cancel(&self, key: &K, timer: &'static Timer) {
        let mut state = self.state();
        let Some(place) = state.due.get(key).copied() else { return };
        if state.later.get(&place).is_some_and(|(_, waiting)| std::ptr::eq(*waiting, timer)) {
            state.due.remove(key);
            state.remove_later(place);
            self.track(&mut state);
        }
    }

    /// Adds the key after a failure: the more of them in a row, the later.
    pub fn retry(&self, key: K) {
        let failures = {
            let mut state = self.state();
            let failures = state.failures.entry(key.clone()).or_default();
            *failures += 1;
            *failures
        };
        self.0.metrics.retries.inc();
        let delay = self.0.first_retry.saturating_mul(1 << (failures - 1).min(20));
        let delay = delay.min(self.0.longest_retry);
        let is_first = failures <= AWAITED_RETRIES && delay <= MAX_FIRST_RETRY;
        let timer = if is_first { &RETRY } else { &RETRY_BACKOFF };
        self.add_after(key, timer.after(delay));
    }

    /// Returns `true` if a key waits, or was added again while it is processed.
    pub fn is_dirty(&self, key: &K) -> bool {
        self.state().dirty.contains_key(key)
    }

    /// Returns the number of consecutive failures of a key.
    pub fn failures(&self, key: &K) -> u32 {
        self.state().failures.get(key).copied().unwrap_or(0)
    }

    /// Ends a row of failures.
    pub fn forget(&self, key: &K) {
        self.state().failures.remove(key);
    }

    /// Waits for the next key and takes it; [`Queue::done`] must follow.
    pub async fn next(&self) -> K {
        let (mut due, mut wait) = (None::<Work>, None::<Wait>);
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let (next_time, pause_end) = {
                let mut state = self.state();
                self.end_pauses(&mut state);
                self.enter_due(&mut state);
                // A wait that another event has ended may have fired, too.
                drop((due.take(), wait.take()));
                if let Some(key) = self.take(&mut state) {
                    if state.waiting.is_ready() {
                        self.0.changed.notify_one();
                    }
                    return key;
                }
                let next_time = state.later.first_key_value().map(|((at, _), _)| *at);
                (next_time, state.paused_until.values().min().copied())
            };
            wait = next_time.map(|at| self.0.clock.until_next_of_source(at));
            // The keys that are due have entered before this work ends.
            due = tokio::select! {
                () = changed => None,
                due = OptionFuture::from(wait.as_mut()), if wait.is_some() => due,
                Some(()) = OptionFuture::from(pause_end.map(|at| time::sleep_until(at))) => None,
            };
        }
    }

    /// Marks a key from [`Queue::next`] as processed.
    pub fn done(&self, key: &K) {
        self.done_and_pause(key, Duration::ZERO);
    }

    /// Marks a key as done; it is not processed again for a time, even if it is added. The time is
    /// the machine's, not the clock's.
    pub fn done_and_pause(&self, key: &K, pause: Duration) {
        let mut state = self.state();
        if let Some(since) = state.working.remove(key) {
            self.0.metrics.work_duration.observe(since.elapsed().as_secs_f64());
        }
        if !pause.is_zero() && !state.waiting.is_in_turns() {
            state.paused_until.insert(key.clone(), time::Instant::now() + pause);
            // A worker that waits for the next delayed key may have to wait for this one instead.
            self.0.changed.notify_one();
        } else if let Some(Dirty { is_paced, .. }) = state.dirty.get(key)
            && !state.paused_until.contains_key(key)
        {
            let is_paced = *is_paced;
            state.waiting.push(key.clone(), is_paced);
            self.0.changed.notify_one();
        }
        self.track(&mut state);
        self.report(&state);
    }

    fn end_pauses(&self, state: &mut State<K>) {
        let now = time::Instant::now();
        let State { paused_until, waiting, dirty, working, .. } = state;
        let ended = paused_until.extract_if(|_, until| *until <= now).map(|(key, _)| key);
        // A key in process is enqueued when its worker is done.
        let ended = ended.filter(|key| dirty.contains_key(key) && !working.contains_key(key));
        ended.for_each(|key| waiting.push(key, false));
    }

    fn enter(&self, state: &mut State<K>, key: K, is_paced: bool) {
        if let Some(dirty) = state.dirty.get_mut(&key) {
            dirty.is_paced &= is_paced;
            return;
        }
        self.0.metrics.adds.inc();
        state.dirty.insert(key.clone(), Dirty { since: Instant::now(), is_paced });
        self.track(state);
        if !state.working.contains_key(&key) && !state.paused_until.contains_key(&key) {
            state.waiting.push(key, is_paced);
            self.0.changed.notify_one();
        }
        self.report(state);
    }

    fn enter_due(&self, state: &mut State<K>) {
        let Some(now) = self.0.clock.now_of_sources() else { return };
        while let Some((place, _)) = state.later.first_key_value().filter(|((at, _), _)| *at <= now) {
            let place = *place;
            // The delay ends after the key has been enqueued.
            if let Some((key, timer)) = state.later.remove(&place) {
                state.due.remove(&key);
                self.enter(state, key, false);
                state.pacing_timers -= usize::from(timer.class == Class::Pacing);
            }
        }
    }

    /// Begins the work of the queue with its first key, and ends it after the last one. Keys that
    /// wait for turns are registered there.
    fn track(&self, state: &mut State<K>) {
        let has_work = !state.dirty.is_empty() && !state.waiting.is_in_turns();
        let is_idle = !has_work && state.working.is_empty() && state.pacing_timers == 0;
        match is_idle {
            true => state.work = None,
            false if state.work.is_none() => state.work = Some(self.0.clock.activity().begin()),
            false => {}
        }
    }

    fn take(&self, state: &mut State<K>) -> Option<K> {
        let (key, turn) = state.waiting.pop()?;
        if let Some(Dirty { since, .. }) = state.dirty.remove(&key) {
            self.0.metrics.queue_duration.observe(since.elapsed().as_secs_f64());
        }
        state.working.insert(key.clone(), Instant::now());
        self.track(state);
        drop(turn);
        self.report(state);
        Some(key)
    }

    fn report(&self, state: &State<K>) {
        self.0.metrics.depth.set(state.waiting.len() as i64);
        let times = state.working.values().map(|since| since.elapsed().as_secs_f64());
        let (sum, longest) = times.fold((0.0, 0.0_f64), |(sum, longest), t| (sum + t, longest.max(t)));
        self.0.metrics.unfinished_work.set(sum);
        self.0.metrics.longest_running.set(longest);
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.0.state.lock()
    }
}

impl<K: Key> State<K> {
    fn remove_later(&mut self, place: (Timestamp, u64)) {
        if let Some((_, timer)) = self.later.remove(&place) {
            self.pacing_timers -= usize::from(timer.class == Class::Pacing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::Metrics;
    use super::*;
    use coracle_clock::{ManualClock, MockClock};
    use futures::FutureExt;

    fn queue() -> (Queue<&'static str>, MockClock) {
        let (clock, mock) = Clock::mock(Timestamp::UNIX_EPOCH);
        (
            Queue::new(
                clock,
                Metrics::new(prometheus::Registry::new()).queue("test"),
                [FIRST_RETRY, Duration::from_secs(1)],
            ),
            mock,
        )
    }

    fn next(queue: &Queue<&'static str>) -> Option<&'static str> {
        queue.next().now_or_never()
    }

    #[test]
    fn a_key_waits_once_and_is_worked_on_once() {
        let (queue, _mock) = queue();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        assert_eq!(next(&queue), Some("a"));
        assert!(!queue.is_dirty(&"a"));
        queue.add("a");
        assert!(queue.is_dirty(&"a"));
        assert_eq!(next(&queue), Some("b"), "a is being worked on");
        assert_eq!(next(&queue), None);
        queue.done(&"a");
        assert_eq!(next(&queue), Some("a"));
        queue.done(&"a");
        queue.done(&"b");
        assert_eq!(next(&queue), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_key_is_processed_once_afterwards() {
        let (queue, _mock) = queue();
        let pause = Duration::from_millis(20);
        queue.add("a");
        assert_eq!(next(&queue), Some("a"));
        queue.add("a");
        queue.done_and_pause(&"a", pause);
        let began = time::Instant::now();
        queue.add("a");
        queue.add("b");
        assert_eq!(next(&queue), Some("b"), "a is paused");
        assert_eq!(next(&queue), None);
        assert_eq!(queue.next().await, "a");
        assert!(began.elapsed() >= pause, "{:?}", began.elapsed());
        queue.done_and_pause(&"a", pause);
        time::sleep(2 * pause).await;
        assert_eq!(next(&queue), None, "nothing added it");
        queue.add("a");
        assert_eq!(next(&queue), Some("a"), "its pause is over");
    }

    #[test]
    fn a_wait_is_cancelled_by_its_timer() {
        let (queue, mock) = queue();
        queue.add_after("a", RETRY.after(Duration::from_secs(5)));
        for (timer, left) in [(&RETRY_BACKOFF, 1), (&RETRY, 0), (&RETRY, 0)] {
            queue.cancel(&"a", timer);
            assert_eq!(queue.0.clock.timers().pending().len(), left, "{}", timer.name);
        }
        mock.advance(Duration::from_secs(6));
        assert_eq!(next(&queue), None);
        queue.add("a");
        assert_eq!(next(&queue), Some("a"));
    }

    #[test]
    fn the_earliest_time_counts() {
        let (queue, mock) = queue();
        queue.add_after("a", RETRY.after(Duration::from_secs(5)));
        queue.add_after("a", RETRY_BACKOFF.after(Duration::from_secs(3)));
        queue.add_after("a", RETRY.after(Duration::from_secs(4)));
        queue.offer("a");
        let pending = queue.0.clock.timers().pending();
        let want = Pending {
            due: Timestamp::UNIX_EPOCH + Duration::from_secs(3),
            timer: &RETRY_BACKOFF,
            key: "a".to_owned(),
        };
        assert_eq!(pending, [want], "a queue lists its keys, and not its own wait for them");
        mock.advance(Duration::from_secs(2));
        assert_eq!(next(&queue), None);
        mock.advance(Duration::from_secs(1));
        assert_eq!(next(&queue), Some("a"));
        queue.done(&"a");
        mock.advance(Duration::from_secs(10));
        assert_eq!(next(&queue), None);
    }

    #[test]
    fn failures_in_a_row_wait_longer_up_to_a_limit() {
        let (queue, mock) = queue();
        let mut timers = Vec::new();
        let mut wait_of = || {
            queue.retry("a");
            timers.push(queue.0.clock.timers().next(1)[0].timer.name);
            let mut waited = 0;
            while next(&queue).is_none() {
                mock.advance(Duration::from_millis(5));
                waited += 5;
            }
            queue.done(&"a");
            waited
        };
        let waits: Vec<u64> = std::iter::repeat_with(&mut wait_of).take(10).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        queue.forget(&"a");
        assert_eq!(wait_of(), 5);
        assert_eq!(timers[4..7], ["retry", "retry-backoff", "retry-backoff"]);
        assert_eq!(timers[10], "retry");
    }

    #[tokio::test]
    async fn every_worker_finds_its_key() {
        let (queue, _mock) = queue();
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.next().await })
            })
            .collect();
        tokio::task::yield_now().await;
        for key in ["a", "b", "c"] {
            queue.add(key);
        }
        let mut found = Vec::new();
        for worker in workers {
            found.push(worker.await.unwrap());
        }
        found.sort_unstable();
        assert_eq!(found, ["a", "b", "c"]);
    }

    /// Creates two queues of a control plane with a manual clock.
    fn queues_in_turns() -> (Clock, [Queue<&'static str>; 2]) {
        let (clock, _manual, queues) = queues_of_manual_clock();
        (clock, queues)
    }

    fn queues_of_manual_clock() -> (Clock, ManualClock, [Queue<&'static str>; 2]) {
        let (clock, manual) = Clock::manual(Some(Timestamp::UNIX_EPOCH));
        let metrics = Metrics::new(prometheus::Registry::new());
        let queue =
            |name| Queue::new(clock.clone(), metrics.queue(name), [FIRST_RETRY, Duration::from_secs(1)]);
        let queues = ["one", "other"].map(queue);
        (clock, manual, queues)
    }

    /// Verifies that no turn is given before all keys that were held back have entered, whether
    /// their queues had something to do during the hold or not.
    #[test]
    fn keys_that_are_held_back_enter_before_the_next_turn() {
        let (clock, manual, [one, other]) = queues_of_manual_clock();
        one.add_after("a", RETRY_BACKOFF.after(Duration::from_secs(1)));
        other.add_after("b", RETRY_BACKOFF.after(Duration::from_secs(1)));
        let (mut of_one, mut of_other) = (pin!(one.next()), pin!(other.next()));
        let mut poll = || ((&mut of_one).now_or_never(), (&mut of_other).now_or_never());
        assert_eq!(poll(), (None, None), "both wait");
        let hold = manual.hold();
        manual.set(Timestamp::UNIX_EPOCH + Duration::from_secs(2));
        other.add("c");
        assert_eq!(poll(), (None, None), "the other one has begun to wait again");
        hold.fire();
        assert!(clock.activity().quiet().is_none(), "neither has entered its key");
        assert_eq!(poll(), (None, None));
        assert!(clock.activity().quiet().is_some(), "they wait for turns");
        let turns = clock.turns().expect("turns");
        turns.give(clock.activity());
        assert_eq!(poll(), (Some("a"), None), "by the name of its queue");
        turns.give(clock.activity());
        assert_eq!(of_other.now_or_never(), Some("b"), "by its name");
    }

    #[test]
    fn keys_of_all_queues_have_their_turns_in_order() {
        let (clock, [one, other]) = queues_in_turns();
        let turns = clock.turns().expect("turns");
        let give = || turns.give(clock.activity());
        other.add("b");
        other.add("a");
        one.add("c");
        one.add_after("paced", RETRY.after(Duration::from_secs(1)));
        assert!(clock.activity().quiet().is_some() && !clock.activity().is_idle(), "they wait for a turn");
        assert_eq!((next(&one), next(&other)), (None, None));
        give();
        assert_eq!((next(&one), next(&other), next(&one)), (Some("c"), None, None));
        assert!(clock.activity().quiet().is_none(), "it is worked on");
        // A key added in a turn comes after the keys that were queued before.
        one.add("0");
        one.done(&"c");
        for want in [(None, Some("a")), (None, Some("b")), (Some("0"), None), (Some("paced"), None)] {
            assert!(clock.activity().quiet().is_some());
            give();
            assert_eq!((next(&one), next(&other)), want);
            let (of_one, of_other) = want;
            of_one.iter().for_each(|key| one.done(key));
            of_other.iter().for_each(|key| other.done(key));
        }
        assert!(clock.activity().is_idle() && !turns.are_wanted());
    }

    #[test]
    fn a_retry_comes_after_all_that_is_not_paced() {
        let (clock, [one, other]) = queues_in_turns();
        let give = || clock.turns().expect("turns").give(clock.activity());
        one.add("a");
        give();
        assert_eq!(next(&one), Some("a"));
        one.retry("a");
        one.done(&"a");
        other.add("b");
        give();
        assert_eq!((next(&one), next(&other)), (None, Some("b")));
        other.done(&"b");
        give();
        assert_eq!(next(&one), Some("a"));
    }

    #[test]
    fn a_key_that_comes_again_waits_for_another_turn() {
        let (clock, [one, other]) = queues_in_turns();
        let turns = clock.turns().expect("turns");
        one.add("a");
        turns.give(clock.activity());
        assert_eq!(next(&one), Some("a"));
        one.add("a");
        other.add("b");
        one.done_and_pause(&"a", Duration::from_secs(1));
        assert_eq!(next(&one), None);
        turns.give(clock.activity());
        assert_eq!((next(&one), next(&other)), (Some("a"), None), "by the name of its queue");
        one.done(&"a");
        drop(one);
        turns.give(clock.activity());
        assert_eq!(next(&other), Some("b"));
        other.done(&"b");
        assert!(clock.activity().is_idle());
    }
}
