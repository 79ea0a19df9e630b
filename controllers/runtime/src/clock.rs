//! Time as a parameter: the system's, or one that a test advances.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

/// Reads the time, and waits.
#[derive(Clone)]
pub struct Clock(Arc<dyn Time>);

trait Time: Send + Sync {
    fn now(&self) -> Timestamp;
    fn until(&self, at: Timestamp) -> BoxFuture<'static, ()>;
}

impl Clock {
    /// The clock of the machine.
    pub fn system() -> Clock {
        Clock(Arc::new(System))
    }

    /// A clock that stands still until the mock advances it.
    pub fn mock(start: Timestamp) -> (Clock, MockClock) {
        let time = watch::Sender::new(start);
        (Clock(Arc::new(MockTime(time.subscribe()))), MockClock(time))
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        self.0.now()
    }

    /// Waits until the clock shows `at`, which may be now.
    pub fn until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        self.0.until(at)
    }

    /// Waits for `delay`.
    pub fn sleep(&self, delay: Duration) -> BoxFuture<'static, ()> {
        self.until(self.after(delay))
    }

    /// The time `delay` from now.
    pub fn after(&self, delay: Duration) -> Timestamp {
        let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
        self.now().saturating_add(delay).unwrap_or(Timestamp::MAX)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}

struct System;

impl Time for System {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let delay = at.duration_since(Timestamp::now());
        tokio::time::sleep(Duration::try_from(delay).unwrap_or_default()).boxed()
    }
}

struct MockTime(watch::Receiver<Timestamp>);

impl Time for MockTime {
    fn now(&self) -> Timestamp {
        *self.0.borrow()
    }

    fn until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let mut time = self.0.clone();
        async move {
            if time.wait_for(|now| *now >= at).await.is_err() {
                // Without the mock the clock stands still for ever.
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    }
}

/// Advances a mocked clock.
#[derive(Debug)]
pub struct MockClock(watch::Sender<Timestamp>);

impl MockClock {
    /// Moves the time on, and wakes whatever waits for it.
    pub fn advance(&self, by: Duration) {
        let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
        self.0.send_modify(|now| *now = now.saturating_add(by).unwrap_or(Timestamp::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_mocked_clock_stands_still_until_it_is_advanced() {
        let (clock, mock) = Clock::mock(Timestamp::UNIX_EPOCH);
        let mut later = clock.sleep(Duration::from_secs(10));
        for (by, want) in [(0, false), (9, false), (1, true)] {
            mock.advance(Duration::from_secs(by));
            assert_eq!((&mut later).now_or_never().is_some(), want, "{by}");
        }
        assert_eq!(clock.now().as_second(), 10);
    }
}
