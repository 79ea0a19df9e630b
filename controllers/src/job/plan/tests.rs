//! Whole reconciliations as sentences: pods in, actions and status out.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::job::backoff::BackoffRecord;
use crate::job::manage::Creation;
use crate::job::tracking::track;

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

pub fn job(spec: Value, status: Value) -> Job {
    let mut object = json!({
        "metadata": {"name": "j", "namespace": "n", "uid": "u"},
        "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 6, "template": {"spec": {"containers": []}}},
        "status": status,
    });
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

/// Builds pods from a text such as `a:Running b:Failed:1`: names, phases and indexes. A `+` after
/// the phase: ready; a `-`: terminating; `!`: without the finalizer; `~`: finished long ago.
pub fn pods(text: &str) -> Vec<Arc<Pod>> {
    text.split_whitespace().map(pod).collect()
}

fn pod(text: &str) -> Arc<Pod> {
    let parts: Vec<&str> = text.split(':').collect();
    let (name, phase) = (parts[0], parts[1]);
    let has = |mark: char| phase.contains(mark);
    let mut meta = json!({"name": name, "namespace": "n", "uid": name, "labels": {"a": "b"},
                          "creationTimestamp": "2026-01-01T00:00:00Z"});
    if !has('!') {
        meta["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
    }
    if has('-') {
        meta["deletionTimestamp"] = json!("2026-01-01T00:10:00Z");
    }
    if let Some(index) = parts.get(2) {
        meta["annotations"] = json!({"batch.kubernetes.io/job-completion-index": index});
    }
    if let Some(failures) = parts.get(3) {
        meta["annotations"]["batch.kubernetes.io/job-index-failure-count"] = json!(failures);
    }
    let conditions = json!([{"type": "Ready", "status": if has('+') { "True" } else { "False" },
        "lastTransitionTime": if has('~') { "2026-01-01T00:00:00Z" } else { "2026-01-01T00:10:00Z" }}]);
    let phase = phase.trim_end_matches(['+', '-', '!', '~']);
    serde_json::from_value(json!({"metadata": meta, "status": {"phase": phase, "conditions": conditions}}))
        .map(Arc::new)
        .unwrap()
}

fn names(pods: &[Arc<Pod>]) -> String {
    let mut names: Vec<&str> = pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
    names.sort_unstable();
    names.join(",")
}

fn render(action: &PodAction) -> String {
    match action {
        PodAction::None => "none".to_owned(),
        PodAction::Terminate(pods) => format!("terminate {}", names(pods)),
        PodAction::Remove(pods) => format!("remove {}", names(pods)),
        PodAction::Create(Creation::Plain(count)) => format!("create {count}"),
        PodAction::Create(Creation::Indexed(indexes)) => {
            let one =
                |(index, failures): &(i32, Option<crate::job::pod_counts::FailureCounts>)| match failures {
                    Some(failures) if failures.counted > 0 => format!("{index}({})", failures.counted),
                    _ => index.to_string(),
                };
            format!("create #{}", indexes.iter().map(one).collect::<Vec<_>>().join(","))
        }
        PodAction::BackOff(left) => format!("wait {}s", left.as_secs()),
    }
}

/// Returns the action, the reason of the verdict, and the status after a reconciliation in which
/// every request succeeded.
fn reconcile(job: &Job, pods: &[Arc<Pod>]) -> (String, String, Value) {
    let observed = Observed {
        job,
        spec: job.spec.as_ref().unwrap(),
        pods,
        released: &HashSet::new(),
        backoff: BackoffRecord::default(),
        now: now(),
    };
    let plan = plan(&observed);
    let executed = match &plan.action {
        PodAction::Create(creation) => Executed { created: creation.len(), ..Executed::default() },
        PodAction::Terminate(pods) | PodAction::Remove(pods) => Executed {
            deleted: pods.len(),
            deleted_ready: pods.iter().filter(|pod| coracle_kinds::pods::is_ready(pod)).count(),
            created: 0,
        },
        PodAction::None | PodAction::BackOff(_) => Executed::default(),
    };
    let settled = plan.settle(&observed, executed);
    let verdict = settled.verdict.as_ref().map_or(String::new(), |verdict| verdict.reason.clone());
    let tracking = track(&observed, &plan.pod_counts, settled);
    let released = tracking.released.iter().map(|pod| crate::job::pod_counts::uid(pod).to_owned()).collect();
    let concluded = tracking.conclude(&tracking.status, &released, true, now());
    let status = concluded.map_or_else(|| tracking.status.clone(), |(status, _)| status);
    (render(&plan.action), verdict, json!(status))
}

fn conditions(status: &Value) -> String {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let one = |condition: &Value| {
        let mark = if condition["status"] == "True" { "" } else { "!" };
        format!("{mark}{}", condition["type"].as_str().unwrap())
    };
    conditions.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn pods_are_created_and_deleted() {
    let indexed = |completions: i32, parallelism: i32| json!({"completionMode": "Indexed", "completions": completions, "parallelism": parallelism});
    let per_index = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3,
                           "backoffLimitPerIndex": 1, "backoffLimit": 2147483647});
    for (case, spec, existing, want) in [
        ("the first", json!({}), "", "create 1"),
        ("enough", json!({}), "a:Running", "none"),
        ("up to the parallelism", json!({"completions": 5, "parallelism": 3}), "a:Running", "create 2"),
        ("up to the completions", json!({"completions": 2, "parallelism": 9}), "a:Succeeded", "create 1"),
        ("a work queue", json!({"completions": null, "parallelism": 3}), "", "create 3"),
        (
            "a work queue with a success",
            json!({"completions": null, "parallelism": 3}),
            "a:Succeeded",
            "none",
        ),
        ("less parallelism", json!({"completions": 5}), "a:Running+ b:Pending", "remove b"),
        ("suspended", json!({"suspend": true}), "a:Running", "remove a"),
        ("suspended, no pods", json!({"suspend": true}), "", "none"),
        ("parallelism 0", json!({"parallelism": 0}), "", "none"),
        ("after a failure", json!({}), "a:Failed", "wait 10s"),
        ("long after a failure", json!({}), "a:Failed~", "create 1"),
        ("two failures", json!({}), "a:Failed b:Failed", "wait 20s"),
        ("replaced while terminating", json!({}), "a:Running-~", "create 1"),
        ("replaced when failed", json!({"podReplacementPolicy": "Failed"}), "a:Running-", "none"),
        ("indexes", indexed(3, 2), "", "create #0,1"),
        ("missing indexes", indexed(5, 5), "a:Running:1 b:Succeeded:3", "create #0,2,4"),
        ("a shared index", indexed(2, 2), "a:Running+:0 b:Pending:0", "remove b"),
        ("an index too high", indexed(2, 2), "a:Running:0 b:Running:2", "remove b"),
        ("no index", indexed(2, 2), "a:Running", "remove a"),
        ("a failed index", per_index.clone(), "a:Failed~:0:0 b:Running:1:0 c:Running:2:0", "create #0(1)"),
        ("a failed index waits", per_index.clone(), "a:Failed:0:0 b:Running:1:0 c:Running:2:0", "wait 10s"),
        ("others need not wait", per_index.clone(), "a:Failed:0:0", "create #1,2"),
        ("no further try", per_index, "a:Failed:0:1 b:Running:1:0", "create #2"),
    ] {
        assert_eq!(reconcile(&job(spec, json!({})), &pods(existing)).0, want, "{case}");
    }
}

#[test]
fn a_job_ends_for_the_first_reason_that_applies() {
    let started = || json!({"startTime": "2026-01-01T00:00:00Z"});
    let policy =
        json!({"rules": [{"action": "FailJob", "onPodConditions": [{"type": "Ready", "status": "False"}]}]});
    let indexed = |more: Value| {
        let mut spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3,
                              "backoffLimit": 2147483647});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let decided = json!({"startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "FailureTarget", "status": "True", "reason": "Earlier", "message": "m"}]});
    for (case, spec, status, existing, verdict, want) in [
        (
            "completed",
            json!({}),
            started(),
            "a:Succeeded",
            "CompletionsReached",
            "SuccessCriteriaMet Complete",
        ),
        (
            "no completions",
            json!({"completions": 0}),
            started(),
            "",
            "CompletionsReached",
            "SuccessCriteriaMet Complete",
        ),
        ("not all", json!({"completions": 2}), started(), "a:Succeeded b:Running", "", ""),
        (
            "a work queue",
            json!({"completions": null}),
            started(),
            "a:Succeeded",
            "CompletionsReached",
            "SuccessCriteriaMet Complete",
        ),
        (
            "a work queue, still active",
            json!({"completions": null}),
            started(),
            "a:Succeeded b:Running",
            "",
            "",
        ),
        (
            "too many failures",
            json!({"backoffLimit": 0}),
            started(),
            "a:Failed",
            "BackoffLimitExceeded",
            "FailureTarget Failed",
        ),
        (
            "active ones first",
            json!({"backoffLimit": 0}),
            started(),
            "a:Failed b:Running",
            "BackoffLimitExceeded",
            "FailureTarget",
        ),
        (
            "terminating ones first",
            json!({"backoffLimit": 0}),
            started(),
            "a:Failed b:Running-",
            "BackoffLimitExceeded",
            "FailureTarget",
        ),
        (
            "a deadline",
            json!({"activeDeadlineSeconds": 600}),
            started(),
            "",
            "DeadlineExceeded",
            "FailureTarget Failed",
        ),
        ("before the deadline", json!({"activeDeadlineSeconds": 601}), started(), "", "", ""),
        ("suspended", json!({"activeDeadlineSeconds": 6, "suspend": true}), started(), "", "", "Suspended"),
        (
            "a policy",
            json!({"podFailurePolicy": policy}),
            started(),
            "a:Failed",
            "PodFailurePolicy",
            "FailureTarget Failed",
        ),
        ("an earlier verdict", json!({}), decided, "a:Succeeded", "Earlier", "FailureTarget Failed"),
        (
            "failed indexes",
            indexed(json!({"backoffLimitPerIndex": 0})),
            started(),
            "a:Failed:0:0 b:Succeeded:1:0 c:Succeeded:2:0",
            "FailedIndexes",
            "FailureTarget Failed",
        ),
        (
            "too many failed indexes",
            indexed(json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 0})),
            started(),
            "a:Failed:0:0",
            "MaxFailedIndexesExceeded",
            "FailureTarget Failed",
        ),
        (
            "a success policy",
            indexed(json!({"successPolicy": {"rules": [{"succeededCount": 1}]}})),
            started(),
            "a:Succeeded:1",
            "SuccessPolicy",
            "SuccessCriteriaMet Complete",
        ),
    ] {
        let (_, reason, status) = reconcile(&job(spec, status), &pods(existing));
        assert_eq!((reason.as_str(), conditions(&status).as_str()), (verdict, want), "{case}");
        let is_complete = want.ends_with("Complete");
        assert_eq!(status.get("completionTime").is_some(), is_complete, "{case}");
    }
}

#[test]
fn pods_are_counted_by_their_finalizers() {
    let two = || json!({"completions": 9, "parallelism": 2});
    for (case, spec, status, existing, want) in [
        ("new ones", two(), json!({}), "a:Succeeded b:Failed", json!({"succeeded": 1, "failed": 1})),
        ("counted ones", two(), json!({"succeeded": 1}), "a:Succeeded!", json!({"succeeded": 1})),
        (
            "uncounted, with finalizer",
            two(),
            json!({"uncountedTerminatedPods": {"succeeded": ["a"]}}),
            "a:Succeeded",
            json!({"succeeded": 1}),
        ),
        (
            "uncounted, without",
            two(),
            json!({"failed": 2, "uncountedTerminatedPods": {"failed": ["a"]}}),
            "a:Failed!",
            json!({"failed": 3}),
        ),
        (
            "uncounted, gone",
            two(),
            json!({"uncountedTerminatedPods": {"failed": ["a"]}}),
            "",
            json!({"failed": 1}),
        ),
        ("terminating", two(), json!({}), "a:Running-", json!({"failed": 1})),
        (
            "terminating, when only failed ones count",
            json!({"completions": 9, "podReplacementPolicy": "Failed"}),
            json!({}),
            "a:Running-",
            json!({}),
        ),
        (
            "active ones of a failing job",
            json!({"backoffLimit": 0, "parallelism": 9}),
            json!({}),
            "a:Failed b:Running",
            json!({"failed": 2}),
        ),
        ("suspended", json!({"suspend": true}), json!({}), "a:Running", json!({})),
        (
            "ignored",
            json!({"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "Ready", "status": "False"}]}]}}),
            json!({}),
            "a:Failed",
            json!({}),
        ),
    ] {
        let (_, _, status) = reconcile(&job(spec, status), &pods(existing));
        let uncounted = &status["uncountedTerminatedPods"];
        assert_eq!(uncounted, &json!({}), "{case}");
        for counter in ["succeeded", "failed"] {
            assert_eq!(status.get(counter), want.get(counter), "{case}: {counter}");
        }
    }
}

#[test]
fn a_pod_that_was_counted_as_failed_does_not_succeed() {
    let listed = json!({"uncountedTerminatedPods": {"failed": ["a"]}});
    let indexed = json!({"completionMode": "Indexed"});
    for (case, spec, existing) in
        [("plain", json!({}), "a:Succeeded-"), ("indexed", indexed, "a:Succeeded-:0")]
    {
        let (_, verdict, status) = reconcile(&job(spec, listed.clone()), &pods(existing));
        assert_eq!((verdict.as_str(), status.get("succeeded")), ("", None), "{case}");
        assert_eq!(status["failed"], 1, "{case}");
    }
}

#[test]
fn indexes_are_completed_once() {
    let spec = json!({"completionMode": "Indexed", "completions": 4, "parallelism": 4, "backoffLimit": 9});
    let (_, _, status) = reconcile(
        &job(spec, json!({"completedIndexes": "1", "succeeded": 1})),
        &pods("a:Succeeded:1 b:Succeeded:0 c:Succeeded:0 d:Succeeded:7 e:Failed:2"),
    );
    assert_eq!((&status["completedIndexes"], &status["succeeded"]), (&json!("0,1"), &json!(2)));
    assert_eq!(status["failed"], 1);
}

#[test]
fn the_last_failed_pod_of_an_index_keeps_its_finalizer_until_it_is_replaced() {
    let spec = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 3,
                      "backoffLimit": 2147483647});
    for (case, existing, failed) in [
        ("not replaced", "a:Failed:0:0 b:Running:1:0", json!(null)),
        ("replaced", "a:Failed:0:0 c:Running:0:1 b:Running:1:0", json!(1)),
        ("failed again", "a:Failed:0:0 c:Failed:0:1 b:Running:1:0", json!(1)),
        ("no further try", "a:Failed:0:3 b:Running:1:0", json!(1)),
    ] {
        let (_, _, status) = reconcile(&job(spec.clone(), json!({})), &pods(existing));
        assert_eq!(status["failed"], failed, "{case}");
    }
}

#[test]
fn suspension_is_a_condition_and_stops_the_clock() {
    let suspended = json!([{"type": "Suspended", "status": "True"}]);
    let (_, _, status) = reconcile(
        &job(json!({"suspend": true}), json!({"startTime": "2026-01-01T00:00:00Z"})),
        &pods("a:Running"),
    );
    assert_eq!((conditions(&status).as_str(), status.get("startTime")), ("Suspended", None));
    let (_, _, status) = reconcile(&job(json!({}), json!({"conditions": suspended})), &[]);
    assert_eq!(conditions(&status), "!Suspended");
    assert_eq!(status["startTime"], "2026-01-01T00:10:00Z");
    let (_, _, status) = reconcile(&job(json!({}), json!({})), &[]);
    assert_eq!(conditions(&status), "", "never suspended");
}

#[test]
fn a_verdict_waits_for_deletions_that_failed() {
    let job = job(json!({"backoffLimit": 0}), json!({}));
    let existing = pods("a:Failed b:Running");
    let observed = Observed {
        job: &job,
        spec: job.spec.as_ref().unwrap(),
        pods: &existing,
        released: &HashSet::new(),
        backoff: BackoffRecord::default(),
        now: now(),
    };
    let settled = plan(&observed).settle(&observed, Executed::default());
    assert_eq!((settled.verdict, settled.status.active), (None, Some(1)));
}

#[test]
fn a_deadline_and_a_back_off_wake_the_job() {
    for (case, spec, existing, want) in [
        ("neither", json!({}), "", None),
        ("a deadline", json!({"activeDeadlineSeconds": 700}), "a:Running", Some(100)),
        ("a back-off", json!({}), "a:Failed", Some(10)),
        ("the earlier one", json!({"activeDeadlineSeconds": 604}), "a:Failed", Some(4)),
        ("none for an end", json!({"activeDeadlineSeconds": 600}), "a:Running", None),
    ] {
        let job = job(spec, json!({"startTime": "2026-01-01T00:00:00Z"}));
        let existing = pods(existing);
        let observed = Observed {
            job: &job,
            spec: job.spec.as_ref().unwrap(),
            pods: &existing,
            released: &HashSet::new(),
            backoff: BackoffRecord::default(),
            now: now(),
        };
        assert_eq!(plan(&observed).requeue_after.map(|delay| delay.delay.as_secs()), want, "{case}");
    }
}

#[test]
fn a_plan_does_not_grow_with_the_wanted_pods() {
    let most = i32::MAX;
    let indexed = json!({"completionMode": "Indexed", "completions": most, "parallelism": most});
    let per_index = json!({"completionMode": "Indexed", "completions": most, "parallelism": most,
                           "backoffLimitPerIndex": most, "maxFailedIndexes": most});
    for spec in [json!({"completions": most, "parallelism": most}), indexed, per_index] {
        let action = |spec: &Value, status: Value, pending: usize| {
            let pods = (0..pending).map(|index| format!("p{index}:Pending:{index}"));
            let pods = self::pods(&pods.collect::<Vec<_>>().join(" "));
            let job = job(spec.clone(), status);
            let observed = Observed {
                job: &job,
                spec: job.spec.as_ref().unwrap(),
                pods: &pods,
                released: &HashSet::new(),
                backoff: BackoffRecord::default(),
                now: now(),
            };
            match plan(&observed).action {
                PodAction::Create(creation) => creation.len(),
                PodAction::None => 0,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(action(&spec, json!({}), 0), 250, "{spec}");
        assert_eq!(action(&spec, json!({}), 249), 1, "{spec}");
        assert_eq!(action(&spec, json!({}), 250), 0, "{spec}");
        // All but three are done.
        let done = json!({"succeeded": most - 3, "completedIndexes": format!("0-{}", most - 4)});
        assert_eq!(action(&spec, done, 0), 3, "{spec}");
    }
}
