//! The clock: the machine's time, or one that is advanced.
#![expect(clippy::disallowed_methods, reason = "the one clock, which everything else reads the time from")]

use std::borrow::Cow;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::activity::{Activity, Work};
use crate::interval::Interval;
use crate::timer::{Class, Delay, Timer};
use crate::timers::Timers;
use crate::turns::Turns;
use crate::wait::Wait;

/// Reads the time, and waits for it. Clones share the time, the registry of timers and the count of
/// the work under way.
#[derive(Clone)]
pub struct Clock(Arc<Inner>);

struct Inner {
    time: Time,
    timers: Timers,
    activity: Activity,
}

enum Time {
    /// The machine's, with an instant of its monotonic clock.
    System(Instant),
    /// One that is advanced.
    Advanced(Advanced),
}

struct Advanced {
    start: Timestamp,
    position: Mutex<Position>,
    /// Whether timers of [`Class::Pacing`] also wait for this clock, for tests of pacing.
    has_pace: bool,
    /// Whether sources hold back the timers that are due.
    holds: AtomicBool,
    /// Notified when a timer was added that may be the next one, and when the clock was resumed.
    changed: Notify,
}

/// The position of a clock that is advanced.
#[derive(Clone, Copy)]
enum Position {
    /// It stands still.
    At(Timestamp),
    /// It runs since a moment at which it showed a time.
    RunningFrom(Timestamp, Instant),
}

/// Pacing timers of a clock that stands still are this short, by the machine's time: no loop of
/// them takes all of the processor.
const MIN_PACE: Duration = Duration::from_millis(10);

impl Clock {
    fn new(time: Time) -> Clock {
        Clock(Arc::new(Inner { time, timers: Timers::default(), activity: Activity::default() }))
    }

    /// Creates a clock with the machine's time and a registry of its own.
    pub fn system() -> Clock {
        Clock::new(Time::System(Instant::now()))
    }

    /// Creates a clock that stands still until the mock advances it. Timers of all classes wait for
    /// it.
    pub fn mock(start: Timestamp) -> (Clock, MockClock) {
        let clock = Clock::advanced(start, true);
        (clock.clone(), MockClock(clock))
    }

    /// Creates a clock that stands still until it is advanced, for a whole control plane: timers of
    /// [`Class::Pacing`] fire at once.
    ///
    /// - `start`: the initial time; None for the machine's
    pub fn manual(start: Option<Timestamp>) -> (Clock, ManualClock) {
        let clock = Clock::advanced(start.unwrap_or_else(Timestamp::now), false);
        (clock.clone(), ManualClock(clock))
    }

    fn advanced(start: Timestamp, has_pace: bool) -> Clock {
        let position = Mutex::new(Position::At(start));
        let (holds, changed) = (AtomicBool::new(false), Notify::new());
        Clock::new(Time::Advanced(Advanced { start, position, has_pace, holds, changed }))
    }

    /// Returns `true` if the clock shows the machine's time.
    pub fn is_system(&self) -> bool {
        matches!(self.0.time, Time::System(_))
    }

    /// Returns `true` if time passes without being advanced.
    pub fn is_running(&self) -> bool {
        match &self.0.time {
            Time::System(_) => true,
            Time::Advanced(advanced) => advanced.is_running(),
        }
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        match &self.0.time {
            Time::System(_) => Timestamp::now(),
            Time::Advanced(advanced) => advanced.now(),
        }
    }

    /// Returns the time since an arbitrary moment. It never decreases, and does not follow when the
    /// machine's clock is set; that of a mock does.
    pub fn monotonic(&self) -> Duration {
        match &self.0.time {
            Time::System(started) => started.elapsed(),
            Time::Advanced(advanced) => saturating_duration(advanced.start, advanced.now()),
        }
    }

    /// Returns the time `delay` from now.
    pub fn after(&self, delay: Duration) -> Timestamp {
        later(self.now(), delay)
    }

    /// Returns the pending timers.
    pub fn timers(&self) -> &Timers {
        &self.0.timers
    }

    /// Returns the work in progress.
    pub fn activity(&self) -> &Activity {
        &self.0.activity
    }

    /// Returns the turns in which keys are processed; None if the clock is not manual: then they
    /// are processed as soon as possible.
    pub fn turns(&self) -> Option<&Turns> {
        match &self.0.time {
            Time::Advanced(advanced) if !advanced.has_pace => Some(self.0.activity.turns()),
            _ => None,
        }
    }

    /// Returns `true` if a timer fires at once, regardless of its delay.
    pub fn skips(&self, timer: &Timer) -> bool {
        match &self.0.time {
            Time::System(_) => false,
            Time::Advanced(advanced) => timer.class == Class::Pacing && !advanced.has_pace,
        }
    }

    /// Returns the time up to which a [`Source`](crate::Source) may fire its timers; None while
    /// they are held back, since heartbeats come before them.
    pub fn now_of_sources(&self) -> Option<Timestamp> {
        match &self.0.time {
            Time::System(_) => Some(Timestamp::now()),
            Time::Advanced(advanced) => advanced.now_of_sources(),
        }
    }

    /// Waits until the clock shows `at`, which may be now.
    pub fn until(&self, timer: &'static Timer, at: Timestamp) -> Wait {
        self.wait(Some(timer), at, None)
    }

    /// Waits for a time. The work that is due then has begun when the wait ends.
    pub fn sleep(&self, Delay { delay, timer }: Delay) -> Wait {
        self.wait(Some(timer), self.after(delay), Some(delay))
    }

    /// Returns an interval. It ticks first when a period has passed.
    ///
    /// - `key`: the key that the timer is listed with, which may be empty
    pub fn interval(&self, period: Delay, key: impl Into<Cow<'static, str>>) -> Interval {
        Interval::new(self, period, key.into())
    }

    /// Awaits `work`, for a time at most.
    ///
    /// # Errors
    /// It took longer: the work that is due then has begun.
    pub async fn timeout<T>(&self, delay: Delay, work: impl Future<Output = T>) -> Result<T, Work> {
        let wait = self.sleep(delay);
        tokio::select! {
            biased;
            output = work => Ok(output),
            due = wait => Err(due),
        }
    }

    /// Waits without being listed, for a [`Source`](crate::Source): it lists the timers that it
    /// waits for. While these are [held back](Self::now_of_sources), the wait ends only when
    /// they are fired.
    pub fn until_next_of_source(&self, at: Timestamp) -> Wait {
        self.wait(None, at, None)
    }

    /// Creates a wait.
    ///
    /// - `delay`: the time left until `at`, if it is known
    fn wait(&self, timer: Option<&'static Timer>, at: Timestamp, delay: Option<Duration>) -> Wait {
        // A pause of the implementation is a part of the work that it is made in.
        let begun = timer.and_then(|timer| match timer.class {
            Class::Pacing => Some(self.0.activity.begin()),
            // Nobody waits for it.
            Class::Upkeep => Some(Work::uncounted()),
            _ => None,
        });
        let is_upkeep = timer.is_some_and(|timer| timer.class == Class::Upkeep);
        let advanced = match &self.0.time {
            Time::System(_) => None,
            Time::Advanced(advanced) => Some(advanced),
        };
        match advanced {
            Some(advanced) if advanced.has_pace || begun.is_none() => {
                let place = self.0.timers.insert(at, timer, || match timer {
                    Some(_) => advanced.now(),
                    None => advanced.now_of_sources().unwrap_or(Timestamp::MIN),
                });
                advanced.changed.notify_one();
                Wait::new(self.clone(), place, None, begun)
            }
            _ => {
                let now = self.now();
                let delay = delay.unwrap_or_else(|| saturating_duration(now, at));
                let delay = if advanced.is_some() && !is_upkeep { delay.min(MIN_PACE) } else { delay };
                let listed = timer.filter(|_| advanced.is_none());
                let place = listed.and_then(|timer| self.0.timers.insert(at, Some(timer), || now));
                Wait::new(self.clone(), place, Some(tokio::time::sleep(delay)), begun)
            }
        }
    }

    /// Wakes the tasks that wait for timers which are due and of a class that is included. Returns
    /// these timers.
    fn fire(&self, is_included: impl Fn(Class) -> bool) -> Vec<&'static Timer> {
        self.0.timers.fire(self.now(), &self.0.activity, is_included)
    }
}

impl Advanced {
    fn now(&self) -> Timestamp {
        match *self.position.lock() {
            Position::At(now) => now,
            Position::RunningFrom(from, since) => later(from, since.elapsed()),
        }
    }

    fn is_running(&self) -> bool {
        matches!(*self.position.lock(), Position::RunningFrom(..))
    }

    fn now_of_sources(&self) -> Option<Timestamp> {
        // Read in this order: a hold begins before the time changes that it is for.
        let now = self.now();
        (!self.holds.load(Ordering::SeqCst)).then_some(now)
    }

    /// Moves it on; a clock that runs is left alone.
    fn change(&self, to: impl FnOnce(Timestamp) -> Timestamp) {
        if let Position::At(now) = &mut *self.position.lock() {
            *now = to(*now);
        }
    }
}

/// Returns the time `delay` after another, or the maximum.
fn later(time: Timestamp, delay: Duration) -> Timestamp {
    let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
    time.saturating_add(delay).unwrap_or(Timestamp::MAX)
}

/// Returns the time from one moment to another; zero if that is earlier.
fn saturating_duration(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}

/// Advances a mocked clock.
#[derive(Clone, Debug)]
pub struct MockClock(Clock);

impl MockClock {
    /// Moves the time on, and wakes whatever is due by then and nothing else.
    pub fn advance(&self, by: Duration) {
        self.change(|now| later(now, by));
    }

    /// Sets the time, and wakes whatever is due.
    pub fn set(&self, to: Timestamp) {
        self.change(|_| to);
    }

    fn change(&self, to: impl FnOnce(Timestamp) -> Timestamp) {
        if let Time::Advanced(advanced) = &self.0.0.time {
            advanced.change(to);
        }
        // Timers that a concurrent change made due fire as well.
        self.0.fire(|_| true);
    }
}

/// Has sources hold back the timers that are due.
#[must_use = "they hold them back as long as this lives"]
pub struct Hold<'a>(&'a ManualClock);

impl Hold<'_> {
    /// Wakes the tasks that wait for timers which are due, those of sources among them. Returns
    /// the timers as [`ManualClock::fire`] does.
    pub fn fire(self) -> Vec<&'static Timer> {
        ManuallyDrop::new(self).end()
    }

    fn end(&self) -> Vec<&'static Timer> {
        self.0.advanced().into_iter().for_each(|advanced| advanced.holds.store(false, Ordering::SeqCst));
        self.0.fire()
    }
}

impl Drop for Hold<'_> {
    /// Fires what was held back by an advance that does not come to its end.
    fn drop(&mut self) {
        self.end();
    }
}

/// Advances the clock of a control plane.
#[derive(Clone, Debug)]
pub struct ManualClock(Clock);

impl ManualClock {
    /// Returns the clock.
    pub fn clock(&self) -> &Clock {
        &self.0
    }

    /// Returns `true` if the clock runs by itself.
    pub fn is_running(&self) -> bool {
        self.advanced().is_some_and(Advanced::is_running)
    }

    /// Sets a clock that stands still to a time that is not earlier than its own. Nothing is woken
    /// yet.
    pub fn set(&self, to: Timestamp) {
        if let Some(advanced) = self.advanced() {
            advanced.change(|now| now.max(to));
        }
    }

    /// Wakes the tasks that wait for timers which are due. Returns these timers; those of a
    /// [`Source`](crate::Source) are not among them.
    pub fn fire(&self) -> Vec<&'static Timer> {
        self.0.fire(|_| true)
    }

    /// Fires the due heartbeats alone.
    pub fn fire_heartbeats(&self) -> Vec<&'static Timer> {
        self.0.fire(|class| class == Class::Heartbeat)
    }

    /// Makes sources hold back due timers until the result fires them or is dropped.
    pub fn hold(&self) -> Hold<'_> {
        self.advanced().into_iter().for_each(|advanced| advanced.holds.store(true, Ordering::SeqCst));
        Hold(self)
    }

    /// Lets the clock run from its time on, as fast as the machine's. What waits for it is woken as
    /// long as [`run`](Self::run) is polled.
    pub fn resume(&self) {
        let Some(advanced) = self.advanced() else { return };
        {
            let mut position = advanced.position.lock();
            if let Position::At(now) = *position {
                *position = Position::RunningFrom(now, Instant::now());
            }
        }
        advanced.changed.notify_one();
    }

    /// Wakes what is due while the clock runs by itself, until the future is dropped.
    pub async fn run(self) {
        let Some(advanced) = self.advanced() else { return std::future::pending().await };
        loop {
            let changed = advanced.changed.notified();
            if !self.is_running() {
                changed.await;
                continue;
            }
            let left = self.0.timers().first_wait().map(|due| saturating_duration(self.0.now(), due));
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(left.unwrap_or_default()), if left.is_some() => {}
            }
            self.fire();
        }
    }

    fn advanced(&self) -> Option<&Advanced> {
        match &self.0.0.time {
            Time::System(_) => None,
            Time::Advanced(advanced) => Some(advanced),
        }
    }
}
