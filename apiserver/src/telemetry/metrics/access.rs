//! The metrics of authentication and authorization.
//!
//! Source: `pkg/endpoints/filters/metrics.go` and `pkg/authentication/request/x509/x509.go` of
//! k8s.io/apiserver.

use std::sync::OnceLock;
use std::time::Duration;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, Registry};

use super::{counters, histogram, histograms};

/// Bounds of the remaining validity of a client certificate, in seconds.
const REMAINING_SECONDS: &[f64] = &[
    0.0,
    1800.0,
    3600.0,
    7200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

/// The outcome of the authentication of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationResult<'a> {
    /// The request is made by the user with this name, who may be the anonymous one.
    Success(&'a str),
    /// The request has invalid credentials.
    Error,
    /// The request has no credentials, and needs some.
    Failure,
}

/// Counts and times authentications and authorizations.
pub(super) struct AccessMetrics {
    users: IntCounterVec,
    /// The counter of the user name of almost everybody.
    other: IntCounter,
    /// `success`, `error` and `failure`.
    authentications: [Timed; 3],
    /// `allowed` and `no-opinion`.
    authorizations: [Timed; 2],
    certificate_seconds: Histogram,
}

/// A counter and a histogram of the events with one result. They are shown from the first one on.
struct Timed {
    attempts: IntCounterVec,
    seconds: HistogramVec,
    result: &'static str,
    found: OnceLock<(IntCounter, Histogram)>,
}

impl Timed {
    fn record(&self, took: Duration) {
        let (attempts, seconds) = self.found.get_or_init(|| {
            let labels = [self.result];
            (self.attempts.with_label_values(&labels), self.seconds.with_label_values(&labels))
        });
        attempts.inc();
        seconds.observe(took.as_secs_f64());
    }
}

impl AccessMetrics {
    pub fn new(registry: &Registry) -> AccessMetrics {
        let buckets: Vec<f64> = (0..15).map(|power| 0.001 * f64::from(1_u32 << power)).collect();
        let timed = |attempts: (&str, &str), seconds: (&str, &str)| {
            let attempts = counters(registry, attempts.0, attempts.1, &["result"]);
            let seconds = histograms(registry, seconds.0, seconds.1, &["result"], &buckets);
            move |result| Timed {
                attempts: attempts.clone(),
                seconds: seconds.clone(),
                result,
                found: OnceLock::new(),
            }
        };
        let authentication = timed(
            ("authentication_attempts", "Requests that were authenticated or not, by result."),
            ("authentication_duration_seconds", "Time to authenticate a request."),
        );
        let authorization = timed(
            ("authorization_attempts_total", "Requests that were authorized or not, by result."),
            ("authorization_duration_seconds", "Time to authorize a request."),
        );
        let users = counters(
            registry,
            "authenticated_user_requests",
            "Authenticated requests, by groups of user names.",
            &["username"],
        );
        AccessMetrics {
            other: users.with_label_values(&["other"]),
            users,
            authentications: ["success", "error", "failure"].map(authentication),
            authorizations: ["allowed", "no-opinion"].map(authorization),
            certificate_seconds: histogram(
                registry,
                "apiserver_client_certificate_expiration_seconds",
                "Remaining validity of the certificates of requests.",
                REMAINING_SECONDS,
            ),
        }
    }

    pub fn authentication(&self, result: AuthenticationResult<'_>, took: Duration) {
        let [success, error, failure] = &self.authentications;
        match result {
            AuthenticationResult::Success(name) => {
                match group_of(name) {
                    "other" => self.other.inc(),
                    group => self.users.with_label_values(&[group]).inc(),
                }
                success.record(took);
            }
            AuthenticationResult::Error => error.record(took),
            AuthenticationResult::Failure => failure.record(took),
        }
    }

    pub fn authorization(&self, is_allowed: bool, took: Duration) {
        let [allowed, no_opinion] = &self.authorizations;
        if is_allowed { allowed.record(took) } else { no_opinion.record(took) }
    }

    pub fn certificate(&self, remaining_seconds: f64) {
        self.certificate_seconds.observe(remaining_seconds);
    }
}

/// Returns the group under which a user name is counted, so that there are few.
fn group_of(name: &str) -> &str {
    match name {
        "admin" | "client" | "kube_proxy" | "kubelet" | "system:serviceaccount:kube-system:default" => name,
        _ if name.contains('@') => "email_id",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_counted_by_result_and_users_by_group() {
        let registry = Registry::new();
        let metrics = AccessMetrics::new(&registry);
        let took = Duration::from_micros(10);
        for name in ["alice", "system:anonymous", "admin", "a@example.com", "b@example.com"] {
            metrics.authentication(AuthenticationResult::Success(name), took);
        }
        metrics.authentication(AuthenticationResult::Error, took);
        metrics.authentication(AuthenticationResult::Failure, took);
        metrics.authorization(true, took);
        metrics.authorization(false, took);
        metrics.certificate(3000.0);
        let mut text = String::new();
        super::super::text::write_families(&mut text, &registry.gather()).expect("a text");
        for line in [
            r#"authentication_attempts{result="success"} 5"#,
            r#"authentication_attempts{result="error"} 1"#,
            r#"authentication_attempts{result="failure"} 1"#,
            r#"authentication_duration_seconds_bucket{result="error",le="0.001"} 1"#,
            r#"authentication_duration_seconds_bucket{result="error",le="16.384"} 1"#,
            r#"authenticated_user_requests{username="other"} 2"#,
            r#"authenticated_user_requests{username="admin"} 1"#,
            r#"authenticated_user_requests{username="email_id"} 2"#,
            r#"authorization_attempts_total{result="allowed"} 1"#,
            r#"authorization_attempts_total{result="no-opinion"} 1"#,
            r#"apiserver_client_certificate_expiration_seconds_bucket{le="1800"} 0"#,
            r#"apiserver_client_certificate_expiration_seconds_bucket{le="3600"} 1"#,
            r#"apiserver_client_certificate_expiration_seconds_bucket{le="3.1104e+07"} 1"#,
        ] {
            assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
        }
    }
}
