//! The backoff of a Job before it replaces failed pods.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use coracle_kinds::pods;

/// The delay of the next pod after the first failure, as in kube-controller-manager. Each further
/// failure doubles it, up to [`MAX_DELAY`].
const INITIAL_DELAY: Duration = Duration::from_secs(10);
const MAX_DELAY: Duration = Duration::from_secs(600);
/// A wait is not worth less than this.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// The failures of a Job since its last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackoffRecord {
    failures: u32,
    last_failure: Option<Timestamp>,
}

impl BackoffRecord {
    /// Returns the record by the pods that are counted, as far as they are still there.
    ///
    /// - `is_listed`: returns `true` for a pod that the status lists as failed, which may have
    ///   another phase yet
    pub fn of_counted<'a>(
        counted: impl Iterator<Item = &'a Pod>,
        is_listed: impl Fn(&Pod) -> bool,
    ) -> BackoffRecord {
        let (mut succeeded, mut failed) = (Vec::new(), Vec::new());
        for pod in counted {
            match pods::phase(pod) {
                _ if is_listed(pod) => failed.push(finish_time(pod)),
                "Succeeded" => succeeded.push(finish_time(pod)),
                "Failed" => failed.push(finish_time(pod)),
                _ => {}
            }
        }
        BackoffRecord::default().with(&succeeded, &failed)
    }

    /// Returns the record with the pods that finished since. A success resets the number of
    /// failures before it.
    pub fn with(&self, succeeded: &[Timestamp], failed: &[Timestamp]) -> BackoffRecord {
        let newest = failed.iter().copied().max();
        let Some(success) = succeeded.iter().copied().max() else {
            let failures = self.failures.saturating_add(u32::try_from(failed.len()).unwrap_or(u32::MAX));
            return BackoffRecord { failures, last_failure: newest.or(self.last_failure) };
        };
        let later = failed.iter().filter(|time| **time > success).count();
        BackoffRecord {
            failures: u32::try_from(later).unwrap_or(u32::MAX),
            last_failure: newest.filter(|time| *time > success),
        }
    }

    /// Returns the time until a pod may be created, or `None` if one may be created now.
    pub fn remaining(&self, now: Timestamp) -> Option<Duration> {
        remaining(self.failures, self.last_failure?, now)
    }
}

/// Returns the time until a pod may be created after a number of failures, or `None` if one may be
/// created now.
pub fn remaining(failures: u32, last_failure: Timestamp, now: Timestamp) -> Option<Duration> {
    let doublings = failures.checked_sub(1)?;
    let length = INITIAL_DELAY.saturating_mul(1 << doublings.min(10)).min(MAX_DELAY);
    let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
    let left = length - now.duration_since(last_failure);
    Duration::try_from(left).ok().filter(|left| !left.is_zero()).map(|left| left.max(MIN_WAIT))
}

/// Returns the time at which the last container of a pod finished. If it is not known, returns the
/// nearest known time.
///
/// Source: kube-controller-manager's `backoff_utils.go`.
pub fn finish_time(pod: &Pod) -> Timestamp {
    let created = || pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    end_of_containers(pod)
        .or_else(|| unready_since(pod))
        .or_else(|| pods::begin_of_deletion(pod))
        .or_else(created)
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

fn end_of_containers(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let is_sidecar = |status: &&ContainerStatus| {
        let mut init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
        init.any(|spec| spec.name == status.name && coracle_kinds::resources::is_sidecar(spec))
    };
    let sidecars = status.init_container_statuses.iter().flatten().filter(is_sidecar);
    let containers = status.container_statuses.iter().flatten().chain(sidecars);
    let end =
        |status: &ContainerStatus| Some(status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0);
    let ends = containers.map(end).collect::<Option<Vec<_>>>()?;
    ends.into_iter().max()
}

fn unready_since(pod: &Pod) -> Option<Timestamp> {
    let unready = pods::conditions(pod).find(|c| c.type_ == "Ready" && c.status == "False")?;
    unready.last_transition_time.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn failures_in_a_row_are_counted() {
        let record = |failures, last: Option<i64>| BackoffRecord { failures, last_failure: last.map(at) };
        for (case, before, succeeded, failed, want) in [
            ("nothing new", record(2, Some(5)), &[][..], &[][..], record(2, Some(5))),
            ("one more", record(2, Some(5)), &[], &[7], record(3, Some(7))),
            ("two more", record(0, None), &[], &[9, 7], record(2, Some(9))),
            ("a success", record(2, Some(5)), &[6], &[], record(0, None)),
            ("a success after a failure", record(2, Some(5)), &[8], &[7], record(0, None)),
            ("failures after a success", record(2, Some(5)), &[4, 8], &[9, 7, 10], record(2, Some(10))),
        ] {
            let times = |seconds: &[i64]| seconds.iter().map(|second| at(*second)).collect::<Vec<_>>();
            assert_eq!(before.with(&times(succeeded), &times(failed)), want, "{case}");
        }
    }

    #[test]
    fn a_record_continues_by_the_pods_that_are_counted() {
        let pod = |phase: &str, end: i64| -> Pod {
            let state = json!({"terminated": {"exitCode": 1, "finishedAt": at(end).to_string()}});
            let container = json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
            serde_json::from_value(json!({"status": {"phase": phase, "containerStatuses": [container]}}))
                .unwrap()
        };
        let pods =
            [pod("Failed", 5), pod("Succeeded", 7), pod("Failed", 9), pod("Failed", 8), pod("Running", 20)];
        let want = BackoffRecord { failures: 2, last_failure: Some(at(9)) };
        assert_eq!(BackoffRecord::of_counted(pods.iter(), |_| false), want);
        let want = BackoffRecord { failures: 3, last_failure: Some(at(20)) };
        assert_eq!(BackoffRecord::of_counted(pods.iter(), |pod| pods::phase(pod) == "Running"), want);
    }

    #[test]
    fn the_wait_doubles_up_to_a_limit() {
        for (failures, elapsed, want) in [
            (0, 0, None),
            (1, 0, Some(10)),
            (1, 4, Some(6)),
            (1, 10, None),
            (2, 5, Some(15)),
            (3, 0, Some(40)),
            (7, 0, Some(600)),
            (4_000_000, 0, Some(600)),
        ] {
            let wait = remaining(failures, at(0), at(elapsed)).map(|wait| wait.as_secs());
            assert_eq!(wait, want, "{failures} {elapsed}");
        }
        assert_eq!(BackoffRecord::default().remaining(at(0)), None);
    }

    #[test]
    fn pods_finish_when_their_last_container_does() {
        let ended = |name: &str, second: Option<i64>| {
            let state = match second {
                Some(second) => json!({"terminated": {"exitCode": 1, "finishedAt": at(second).to_string()}}),
                None => json!({"running": {}}),
            };
            json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state})
        };
        let unready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": at(3).to_string()}]);
        let meta = json!({"creationTimestamp": at(1).to_string()});
        let deleted = json!({"creationTimestamp": at(1).to_string(), "deletionTimestamp": at(40).to_string(),
                             "deletionGracePeriodSeconds": 30});
        for (case, meta, containers, conditions, want) in [
            ("created", &meta, vec![], json!([]), 1),
            ("deleted", &deleted, vec![], json!([]), 10),
            ("not ready", &deleted, vec![ended("a", Some(8)), ended("b", None)], unready.clone(), 3),
            ("ended", &deleted, vec![ended("a", Some(8)), ended("b", Some(6))], unready, 8),
        ] {
            let containers: Value = containers.into();
            let status = json!({"containerStatuses": containers, "conditions": conditions});
            let status = if containers == json!([]) { json!({"conditions": conditions}) } else { status };
            let pod: Pod = serde_json::from_value(json!({"metadata": meta, "status": status})).unwrap();
            assert_eq!(finish_time(&pod), at(want), "{case}");
        }
    }
}
