//! The clock of a control plane.

use std::time::{Duration, SystemTime};

use coracle_clock::Work;
use coracle_control_plane::Testing;
use coracle_testing_api::timers::CLIENT_TIMER;

use crate::{ClockMode, ClockMoved, ClockRequest, ClockStatus, TestingError};

/// The clock of a control plane, which a test moves on if it was started with
/// [`Builder::clock`](crate::Builder::clock) and [`ClockMode::Manual`].
#[derive(Clone)]
pub struct ClockHandle(pub(crate) Testing);

impl ClockHandle {
    /// Returns the mode, the time and the next timers, at most `limit`.
    pub fn status(&self, limit: usize) -> ClockStatus {
        self.0.clock_status(limit)
    }

    /// Moves the clock on, from timer to timer, and waits at each until the control plane has
    /// settled.
    ///
    /// # Errors
    /// The clock is real, the control plane does not settle, or more timers fire than a million.
    pub async fn advance(&self, by: Duration) -> Result<ClockMoved, TestingError> {
        // The nanoseconds, as Go writes them.
        let by = format!("{}ns", by.as_nanos());
        self.move_on(&ClockRequest { advance: Some(by), ..ClockRequest::default() }).await
    }

    /// Moves the clock to the times at which the next timers fire, so many times.
    ///
    /// # Errors
    /// The errors of [`advance`](Self::advance).
    pub async fn next(&self, count: u64) -> Result<ClockMoved, TestingError> {
        self.move_on(&ClockRequest { next: Some(count), ..ClockRequest::default() }).await
    }

    /// Moves the clock to a time, as RFC 3339, that is not earlier than its own.
    ///
    /// # Errors
    /// The errors of [`advance`](Self::advance); the time is invalid, or earlier.
    pub async fn set(&self, to: &str) -> Result<ClockMoved, TestingError> {
        self.move_on(&ClockRequest { set: Some(to.to_owned()), ..ClockRequest::default() }).await
    }

    /// Returns the current time.
    pub fn now(&self) -> SystemTime {
        self.0.clock().now().into()
    }

    /// Waits for a time of the clock: the timer of an operator in this process. An advance stops at
    /// it, and goes on when the result is dropped and the control plane has settled, so that it
    /// misses nothing that the operator does until then.
    ///
    /// The timer is set when this is called, not when the future is polled first.
    pub fn sleep(&self, by: Duration) -> impl Future<Output = Work> + Send + 'static {
        let clock = self.0.clock().clone();
        let wait = clock.sleep(CLIENT_TIMER.after(by));
        async move {
            let due = wait.await;
            // Controllers go on meanwhile.
            let work = clock.activity().begin_request();
            drop(due);
            work
        }
    }

    /// Lets the clock run by itself, from its time on.
    ///
    /// # Errors
    /// The errors of [`move_on`](Self::move_on).
    pub async fn resume(&self) -> Result<ClockMoved, TestingError> {
        self.move_on(&ClockRequest { mode: Some(ClockMode::Real), ..ClockRequest::default() }).await
    }

    /// Moves the clock on in any of these ways.
    ///
    /// # Errors
    /// The errors of [`advance`](Self::advance); the request is contradictory.
    pub async fn move_on(&self, request: &ClockRequest) -> Result<ClockMoved, TestingError> {
        self.0.move_clock(request).await
    }
}
