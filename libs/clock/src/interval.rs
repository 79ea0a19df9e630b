//! A wait that repeats.

use std::borrow::Cow;
use std::fmt;

use crate::activity::Work;
use crate::clock::Clock;
use crate::timer::Delay;
use crate::wait::Wait;

/// A [`Wait`] that repeats as long as it is asked to.
///
/// The next time is known before the work of this one begins, and that work ends only when the
/// next time is awaited: a manual clock, which advances when no work is left, finds the same timers
/// however fast a task is.
#[must_use = "it waits only when it is asked to"]
pub struct Interval {
    clock: Clock,
    period: Delay,
    key: Cow<'static, str>,
    next: Wait,
    /// The work that is due since the last time.
    due: Option<Work>,
}

impl Interval {
    pub(crate) fn new(clock: &Clock, period: Delay, key: Cow<'static, str>) -> Interval {
        let next = clock.sleep(period).of(key.clone());
        Interval { clock: clock.clone(), period, key, next, due: None }
    }

    /// Waits for the next time. The work that is due then has begun when this ends, and ends with
    /// the next call or when this is dropped. The next period begins with it. A wait that is dropped
    /// loses nothing.
    pub async fn tick(&mut self) {
        drop(self.due.take());
        let due = (&mut self.next).await;
        self.next = self.clock.sleep(self.period).of(self.key.clone());
        self.due = Some(due);
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interval")
            .field("period", &self.period)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
