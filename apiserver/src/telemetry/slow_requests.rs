//! Slow requests: logs them with the durations of their phases.
//!
//! Source: kube-apiserver's traces of requests that take longer than half a second
//! (`k8s.io/utils/trace`).
#![expect(clippy::disallowed_methods, reason = "the duration of a request is measured")]

use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::latency::{LatencyTrackers, Phase};

/// Requests that take as long are logged: upstream's threshold, for which it has no flag either.
pub const THRESHOLD: Duration = Duration::from_millis(500);
/// The number of requests that are logged per second; further ones are counted.
const PER_SECOND: u32 = 10;

/// The logged properties of a request. Only the path of its URL is logged, since a query may
/// contain secrets.
#[derive(Clone, Debug)]
pub struct SlowRequest<'a> {
    /// Its `Audit-ID`.
    pub audit_id: &'a str,
    /// The verb of the API, such as `list`, or the method in lower case.
    pub verb: &'a str,
    /// The path.
    pub path: &'a str,
    /// The authenticated user; "" if there is none.
    pub user: &'a str,
    /// The `User-Agent`.
    pub user_agent: &'a str,
    /// The address of the client, if it is not in this process.
    pub client: Option<IpAddr>,
    /// The status code of the response.
    pub status: u16,
    /// The time until the response began.
    pub took: Duration,
    /// The durations of the phases.
    pub latency: &'a LatencyTrackers,
}

/// The log of slow requests.
#[derive(Debug, Default)]
pub struct SlowRequests {
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    began: Option<Instant>,
    logged: u32,
    suppressed: u64,
}

impl SlowRequests {
    /// Logs a slow request, unless too many were logged within a second. The next log line has the
    /// number of suppressed ones.
    pub fn log(&self, request: &SlowRequest<'_>) {
        let Some(suppressed) = self.admit(Instant::now()) else { return };
        let SlowRequest { audit_id, verb, path, user, user_agent, client, status, took, latency } = request;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let phase = |phase| millis(latency.get(phase));
        let client = client.map(tracing::field::display);
        tracing::warn!(
            // The request's own span would repeat some of the fields.
            parent: None,
            audit_id, verb, path, user, user_agent, client, status,
            took_ms = millis(*took),
            body_ms = phase(Phase::Body),
            queue_ms = phase(Phase::Queue),
            admission_ms = phase(Phase::Admission),
            webhooks_ms = phase(Phase::Webhooks),
            store_ms = phase(Phase::Store),
            suppressed,
            "slow request"
        );
    }

    /// Returns the number of requests since the last logged one that were not logged; None if
    /// another one may not be logged now.
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut window = self.window.lock();
        if window.began.is_none_or(|began| now.duration_since(began) >= Duration::from_secs(1)) {
            (window.began, window.logged) = (Some(now), 0);
        }
        if window.logged == PER_SECOND {
            window.suppressed += 1;
            return None;
        }
        window.logged += 1;
        Some(std::mem::take(&mut window.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_requests_a_second_are_logged_and_the_others_counted() {
        let (slow_requests, began) = (SlowRequests::default(), Instant::now());
        let admit = |millis| slow_requests.admit(began + Duration::from_millis(millis));
        for request in 0..10 {
            assert_eq!(admit(request * 90), Some(0), "{request}");
        }
        assert_eq!([admit(900), admit(950), admit(999)], [None; 3]);
        assert_eq!([admit(1000), admit(1001)], [Some(3), Some(0)]);
    }
}
