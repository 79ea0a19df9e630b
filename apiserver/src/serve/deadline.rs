//! The deadline of a request's response.

use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;

use crate::request::options::Query;
use crate::{Error, Result};

/// The longest duration of a request other than a watch, from its first byte to its response:
/// upstream's `--request-timeout`.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The duration that stands for no deadline: a year.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The latest time for the response to a request.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    began: Instant,
    at: Instant,
}

impl Default for Deadline {
    /// Returns the deadline of a request without a `timeout`.
    fn default() -> Deadline {
        let began = Instant::now();
        Deadline { began, at: began + REQUEST_TIMEOUT }
    }
}

impl Deadline {
    /// Returns the deadline of a request that arrives now: its `timeout`, but not more than the
    /// server's.
    ///
    /// # Errors
    /// 400 for an invalid `timeout`.
    pub fn of(query: &Query) -> Result<Deadline> {
        let timeout = Deadline::timeout_of(query)?;
        let began = Instant::now();
        Ok(Deadline { began, at: began + timeout })
    }

    /// Returns the longest duration of a request with this query.
    ///
    /// # Errors
    /// 400 for an invalid `timeout`.
    pub fn timeout_of(query: &Query) -> Result<Duration> {
        let asked = query.timeout()?.filter(|timeout| !timeout.is_zero()).unwrap_or(REQUEST_TIMEOUT);
        Ok(asked.min(REQUEST_TIMEOUT))
    }

    /// Returns the deadline of a request that may take any time.
    pub fn never() -> Deadline {
        let began = Instant::now();
        Deadline { began, at: began + NEVER }
    }

    /// Returns the latest time at which a request that waits for a seat must start: after a quarter
    /// of its time, as in upstream.
    pub fn of_queue(&self) -> Instant {
        self.began + (self.at - self.began) / 4
    }

    /// Runs some work until the deadline.
    ///
    /// # Errors
    /// 504 if it is not done by then, or the work's own.
    pub fn run<T>(&self, work: impl Future<Output = Result<T>>) -> impl Future<Output = Result<T>> {
        tokio::time::timeout_at(self.at, work).map(|done| {
            done.unwrap_or_else(|_| {
                let text = "request did not complete within requested timeout - context deadline exceeded";
                Err(Error::Timeout(text.to_owned()))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_end_in_time() {
        for (query, seconds) in
            [("", 60), ("timeout=10s", 10), ("timeout=0", 60), ("timeout=1h", 60), ("timeout=-5s", 60)]
        {
            let began = Instant::now();
            let deadline = Deadline::of(&Query::parse(query)).expect(query);
            assert_eq!(deadline.of_queue() - began, Duration::from_secs(seconds) / 4, "{query}");
            let error = deadline.run(std::future::pending::<Result<()>>()).await.err();
            assert_eq!(error.map(|e| e.code()), Some(504), "{query}");
            assert_eq!(began.elapsed().as_secs(), seconds, "{query}");
        }
        assert_eq!(Deadline::of(&Query::parse("timeout=soon")).err().map(|e| e.code()), Some(400));
    }
}
