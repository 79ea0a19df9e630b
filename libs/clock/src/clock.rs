//! The clock: the machine's time, or one that is advanced.
#![expect(clippy::disallowed_methods, reason = "the one clock, which everything else reads the time from")]

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::timer::{Delay, Timer};
use crate::timers::Timers;
use crate::wait::Wait;

/// Reads the time, and waits for it. Clones share the time and the registry of timers.
#[derive(Clone)]
pub struct Clock(Arc<Inner>);

struct Inner {
    time: Time,
    timers: Timers,
}

enum Time {
    /// The machine's, with an instant of its monotonic clock.
    System(Instant),
    /// A mock's: where it began, and where it is.
    Mock(Timestamp, Mutex<Timestamp>),
}

impl Clock {
    fn new(time: Time) -> Clock {
        Clock(Arc::new(Inner { time, timers: Timers::default() }))
    }

    /// The clock of the machine, with a registry of its own.
    pub fn system() -> Clock {
        Clock::new(Time::System(Instant::now()))
    }

    /// A clock that stands still until the mock advances it.
    pub fn mock(start: Timestamp) -> (Clock, MockClock) {
        let clock = Clock::new(Time::Mock(start, Mutex::new(start)));
        (clock.clone(), MockClock(clock))
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        match &self.0.time {
            Time::System(_) => Timestamp::now(),
            Time::Mock(_, now) => *now.lock(),
        }
    }

    /// The time since an arbitrary moment. It never goes back, and does not follow when the machine's clock is set; that of a mock
    /// does.
    pub fn monotonic(&self) -> Duration {
        match &self.0.time {
            Time::System(started) => started.elapsed(),
            Time::Mock(start, now) => saturating_duration(*start, *now.lock()),
        }
    }

    /// The time `delay` from now.
    pub fn after(&self, delay: Duration) -> Timestamp {
        later(self.now(), delay)
    }

    /// The pending timers.
    pub fn timers(&self) -> &Timers {
        &self.0.timers
    }

    /// Waits until the clock shows `at`, which may be now.
    pub fn until(&self, timer: &'static Timer, at: Timestamp) -> Wait {
        self.wait(Some(timer), at, None)
    }

    /// Waits for a time.
    pub fn sleep(&self, Delay { delay, timer }: Delay) -> Wait {
        self.wait(Some(timer), self.after(delay), Some(delay))
    }

    /// Awaits `work`, for a time at most: None if it took longer.
    pub async fn timeout<T>(&self, delay: Delay, work: impl Future<Output = T>) -> Option<T> {
        let wait = self.sleep(delay);
        tokio::select! {
            biased;
            output = work => Some(output),
            () = wait => None,
        }
    }

    /// Waits without being listed, for a [`Source`](crate::Source): it lists the timers that it waits for.
    pub fn until_next_of_source(&self, at: Timestamp) -> Wait {
        self.wait(None, at, None)
    }

    /// - `delay`: the time left until `at`, where it is known
    fn wait(&self, timer: Option<&'static Timer>, at: Timestamp, delay: Option<Duration>) -> Wait {
        let (place, sleep) = match &self.0.time {
            Time::System(_) => {
                let now = self.now();
                let delay = delay.unwrap_or_else(|| saturating_duration(now, at));
                let place = timer.and_then(|timer| self.0.timers.insert(at, Some(timer), || now));
                (place, Some(tokio::time::sleep(delay)))
            }
            Time::Mock(_, now) => (self.0.timers.insert(at, timer, || *now.lock()), None),
        };
        Wait::new(self.clone(), place, sleep)
    }
}

/// The time `delay` after another, or the last one that there is.
fn later(time: Timestamp, delay: Duration) -> Timestamp {
    let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
    time.saturating_add(delay).unwrap_or(Timestamp::MAX)
}

/// The time from one moment to another; zero if that is earlier.
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
        if let Time::Mock(_, now) = &self.0.0.time {
            let mut now = now.lock();
            *now = to(*now);
        }
        // What another change makes due by now is due as well.
        self.0.timers().fire(self.0.now());
    }
}
