//! certificatesigningrequest-cleaner-controller: deletes requests that are no longer needed.
//!
//! All of them are checked hourly: those that were issued, denied or failed an hour ago, those that
//! waited for a day, and those with an expired certificate.

use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::Cache;
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_conflict, ignore_not_found,
    uid_precondition,
};
use coracle_kinds::certificate_request::{condition, expiry, is_issued};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::settings::{Context, Settings};
use crate::timers::CERTIFICATE_SIGNING_REQUEST_CLEANUP;

const PERIOD: Duration = Duration::from_secs(3600);
const DECIDED: SignedDuration = SignedDuration::from_hours(1);
const PENDING: SignedDuration = SignedDuration::from_hours(24);

pub struct CertificateSigningRequestCleaner {
    clock: Clock,
    requests: Arc<Cache<CertificateSigningRequest>>,
}

impl Initialize<Settings> for CertificateSigningRequestCleaner {
    fn new(context: &Context) -> CertificateSigningRequestCleaner {
        CertificateSigningRequestCleaner { clock: context.clock.clone(), requests: context.cache() }
    }
}

impl Controller for CertificateSigningRequestCleaner {
    const NAME: &'static str = "certificatesigningrequest-cleaner-controller";
    const QUEUE_NAME: &'static str = "certificatesigningrequest_cleaner";
    const WORKERS: usize = 1;
    /// There is one: all requests.
    type Key = &'static str;

    fn sources(&self, sources: &mut Sources<&'static str>) {
        sources.every(CERTIFICATE_SIGNING_REQUEST_CLEANUP.after(PERIOD), &self.clock, "requests");
    }

    async fn reconcile(&self, _: &&'static str, ctx: &ReconcileContext) -> Result<Action, Error> {
        let now = self.clock.now();
        for request in self.requests.all().into_iter().filter(|request| is_due(request, now)) {
            let params = uid_precondition(request.as_ref());
            let deleted = ctx.api(&self.requests).delete(&request, &params).await;
            ignore_not_found(ignore_conflict(deleted))?;
        }
        Ok(Action::AwaitChange)
    }
}

fn is_due(request: &CertificateSigningRequest, now: Timestamp) -> bool {
    let is_past =
        |since: Option<&Time>, limit| since.is_some_and(|since| now.duration_since(since.0) > limit);
    let has = |r#type: &str, limit| {
        condition(request, r#type).is_some_and(|c| is_past(c.last_update_time.as_ref(), limit))
    };
    let is_undecided = request.status.as_ref().and_then(|s| s.conditions.as_ref()).is_none_or(Vec::is_empty);
    let certificate = request.status.as_ref().and_then(|status| status.certificate.as_ref());
    let is_expired = condition(request, "Approved").is_some()
        && certificate.and_then(|pem| expiry(&pem.0)).is_some_and(|end| end < now);
    let approved_limit = if is_issued(request) { DECIDED } else { PENDING };
    is_expired
        || (is_undecided && is_past(request.metadata.creation_timestamp.as_ref(), PENDING))
        || has("Denied", DECIDED)
        || has("Failed", DECIDED)
        || has("Approved", approved_limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn decided_and_abandoned_requests_are_deleted() {
        let now: Timestamp = "2026-01-03T00:00:00Z".parse().unwrap();
        let at = |hours: i64| (now - SignedDuration::from_hours(hours)).to_string();
        let request = |age: i64, conditions: Value, certificate: Option<&str>| {
            serde_json::from_value::<CertificateSigningRequest>(json!({
                "metadata": {"name": "c", "creationTimestamp": at(age)},
                "spec": {"signerName": "s", "request": ""},
                "status": {"conditions": conditions, "certificate": certificate},
            }))
            .unwrap()
        };
        let since =
            |r#type: &str, hours| json!([{"type": r#type, "status": "True", "lastUpdateTime": at(hours)}]);
        for (case, request, want) in [
            ("new", request(0, json!([]), None), false),
            ("waits", request(24, json!([]), None), false),
            ("forgotten", request(25, json!([]), None), true),
            ("just issued", request(30, since("Approved", 1), Some("eA==")), false),
            ("issued", request(30, since("Approved", 2), Some("eA==")), true),
            ("approved", request(30, since("Approved", 2), None), false),
            ("never issued", request(30, since("Approved", 25), None), true),
            ("denied", request(3, since("Denied", 2), None), true),
            ("failed", request(3, since("Failed", 2), None), true),
            ("of another kind", request(99, since("Other", 90), None), false),
        ] {
            assert_eq!(is_due(&request, now), want, "{case}");
        }
    }
}
