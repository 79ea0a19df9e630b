//! The rate limit of writes of the endpoints of one Service.
//!
//! While hundreds of pods of a Service are created and deleted, each of them changes its endpoints.
//! So the writes of a Service are limited by a token bucket, like the client of
//! kube-controller-manager; changes in the meantime are written together.

use std::collections::HashMap;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::NamespacedName;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

use crate::timers::ENDPOINTS_RATE;

/// The number of writes of one Service that are made at once ...
const BURST: f64 = 30.0;
/// ... and the number of further writes per second.
const PER_SECOND: f64 = 10.0;

/// The token buckets of Services.
pub struct RateLimit {
    clock: Clock,
    buckets: Mutex<HashMap<NamespacedName, Bucket>>,
}

struct Bucket {
    tokens: f64,
    at: Timestamp,
}

impl RateLimit {
    /// Creates the rate limit, with all buckets full.
    pub fn new(clock: Clock) -> RateLimit {
        RateLimit { clock, buckets: Mutex::default() }
    }

    /// Returns the time until the endpoints of a Service may be written, or `None` if they may be
    /// written now.
    pub fn delay(&self, service: &NamespacedName) -> Option<Duration> {
        // Under a manual clock the bucket gets no tokens, and no wait would end.
        if self.clock.skips(&ENDPOINTS_RATE) {
            return None;
        }
        let mut buckets = self.buckets.lock();
        let bucket = buckets.get_mut(service)?;
        bucket.refill(self.clock.now());
        if bucket.tokens >= BURST {
            buckets.remove(service);
            return None;
        }
        let missing = -bucket.tokens;
        (missing > 0.0).then(|| Duration::from_secs_f64((missing / PER_SECOND).max(0.001)))
    }

    /// Counts writes. They may exceed the available tokens: the next ones wait longer.
    pub fn spend(&self, service: &NamespacedName, writes: usize) {
        if writes == 0 {
            return;
        }
        let now = self.clock.now();
        let mut buckets = self.buckets.lock();
        let bucket = buckets.entry(service.clone()).or_insert(Bucket { tokens: BURST, at: now });
        bucket.refill(now);
        bucket.tokens -= writes as f64;
    }

    /// Removes the state of a deleted Service.
    pub fn forget(&self, service: &NamespacedName) {
        self.buckets.lock().remove(service);
    }
}

impl Bucket {
    fn refill(&mut self, now: Timestamp) {
        let seconds = now.duration_since(self.at).as_secs_f64().max(0.0);
        self.tokens = (self.tokens + seconds * PER_SECOND).min(BURST);
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_wait_once_the_burst_is_spent() {
        let (clock, mock) = Clock::mock(Timestamp::UNIX_EPOCH);
        let rate_limit = RateLimit::new(clock);
        let service = NamespacedName::new("n", "s");
        assert_eq!(rate_limit.delay(&service), None);
        rate_limit.spend(&service, 30);
        assert_eq!(rate_limit.delay(&service), None);
        rate_limit.spend(&service, 10);
        assert_eq!(rate_limit.delay(&service), Some(Duration::from_secs(1)));
        assert_eq!(rate_limit.delay(&NamespacedName::new("n", "other")), None);
        mock.advance(Duration::from_secs(1));
        assert_eq!(rate_limit.delay(&service), None);
        mock.advance(Duration::from_secs(3));
        assert_eq!(rate_limit.delay(&service), None);
        assert!(rate_limit.buckets.lock().is_empty(), "a full bucket is not kept");
    }
}
