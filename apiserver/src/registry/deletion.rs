//! The decision about a DELETE of an object, without effects.
//!
//! The order is kube-apiserver's: preconditions, then the grace period of kinds with graceful
//! deletion (Pods), then the finalizers for the propagation policy. The object is deleted
//! immediately only if it has neither a grace period nor finalizers. An object of a kind with
//! graceful deletion gets its deletionTimestamp in a write of its own first, so that watchers see
//! MODIFIED and DELETED.
//!
//! Source: "Garbage Collection", "Finalizers"; spec of DeleteOptions; `rest.BeforeDelete`.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::object_meta::ObjectMeta;
use crate::pods;
use crate::request::options::{DeleteOptions, Propagation};
use crate::strategy::DeletionDefaults;

/// The finalizer of an object whose dependents are to be orphaned.
pub const ORPHAN: &str = "orphan";
/// The finalizer of an object that waits until its dependents are deleted.
pub const FOREGROUND: &str = "foregroundDeletion";

/// The outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum Deletion {
    /// The object is deleted by this request, in its stored version.
    Remove,
    /// Stored like this, then deleted with this request.
    MarkAndRemove(Value),
    /// The object stays, marked as terminating; this version is to be stored.
    Mark(Value),
    /// The object is already terminating as requested: nothing is stored.
    AlreadyTerminating,
}

/// Decides how to delete an object. `object` is the stored one.
pub fn decide(
    object: &Value,
    options: &DeleteOptions,
    defaults: DeletionDefaults,
    now: Timestamp,
) -> Deletion {
    if defaults.by_finalizing && (!object.is_terminating() || spec_finalizers(object)) {
        return terminate_namespace(object, options, now);
    }
    let mut after = object.clone();
    let grace = match grace(&mut after, options, defaults, now) {
        Grace::Pending => return Deletion::AlreadyTerminating,
        Grace::Ends(seconds) => Some(seconds),
        Grace::Unsupported => None,
    };
    let finalizers = finalizers(&after, options, defaults);
    let held = !finalizers.is_empty();
    if finalizers != after.finalizers() {
        after.set_finalizers(finalizers);
    }
    if held && grace.is_none() {
        mark(&mut after, now);
    }
    match grace {
        _ if held => keep(object, after),
        Some(seconds) if seconds > 0 => keep(object, after),
        Some(_) => Deletion::MarkAndRemove(after),
        None => Deletion::Remove,
    }
}

fn spec_finalizers(namespace: &Value) -> bool {
    namespace.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty())
}

fn terminate_namespace(namespace: &Value, options: &DeleteOptions, now: Timestamp) -> Deletion {
    if namespace.is_terminating() {
        return Deletion::AlreadyTerminating;
    }
    let mut after = namespace.clone();
    after.set_meta("deletionTimestamp", rfc3339(now));
    after["status"]["phase"] = "Terminating".into();
    let own = match options.propagation {
        None => return Deletion::Mark(after),
        Some(Propagation::Orphan) => Some(ORPHAN),
        Some(Propagation::Foreground) => Some(FOREGROUND),
        // Unlike elsewhere, `orphanDependents: false` adds the finalizer here.
        Some(Propagation::Background) => options.legacy_background.then_some(FOREGROUND),
    };
    after.set_finalizers(with_policy(&namespace.finalizers(), own));
    Deletion::Mark(after)
}

fn keep(before: &Value, after: Value) -> Deletion {
    if *before == after { Deletion::AlreadyTerminating } else { Deletion::Mark(after) }
}

/// Sets the deletionTimestamp (no later than `now`) of an object without grace.
pub fn mark(object: &mut Value, now: Timestamp) {
    if !object.is_terminating() {
        object.bump_generation();
    }
    if deadline(object).is_none_or(|deadline| deadline > now) {
        object.set_meta("deletionTimestamp", rfc3339(now));
    }
    object.set_meta("deletionGracePeriodSeconds", 0);
}

fn deadline(object: &Value) -> Option<Timestamp> {
    object.meta_str("deletionTimestamp").parse().ok()
}

enum Grace {
    Unsupported,
    /// Terminating, with a new or shortened grace period in seconds.
    Ends(i64),
    /// Already terminating, with a deadline no later than requested.
    Pending,
}

fn grace(object: &mut Value, options: &DeleteOptions, defaults: DeletionDefaults, now: Timestamp) -> Grace {
    if !defaults.graceful {
        return Grace::Unsupported;
    }
    if object.is_terminating() {
        let present = match object.grace_period() {
            // It only waits for its finalizers, or the second write of its deletion was lost.
            None | Some(0) => return Grace::Unsupported,
            Some(present) => grace_or_one_second(present),
        };
        return match options.grace_period_seconds.map(grace_or_one_second) {
            Some(asked) if asked < present => {
                let ends = later(deadline(object).unwrap_or(now), asked - present);
                // The deadline never moves into the past. A graceful deletion leaves its kubelet at
                // least one second.
                let (ends, left) = if ends < now { (now, asked.min(1)) } else { (ends, asked) };
                object.set_meta("deletionTimestamp", rfc3339(ends));
                object.set_meta("deletionGracePeriodSeconds", left);
                Grace::Ends(left)
            }
            _ => Grace::Pending,
        };
    }
    let seconds = grace_period(object, options);
    object.set_meta("deletionTimestamp", rfc3339(later(now, seconds)));
    object.set_meta("deletionGracePeriodSeconds", seconds);
    object.bump_generation();
    Grace::Ends(seconds)
}

/// Returns the grace period of a pod in seconds: 0 if the pod is not scheduled or has ended,
/// otherwise the requested or default one.
fn grace_period(pod: &Value, options: &DeleteOptions) -> i64 {
    let text = |pointer| pod.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    if text("/spec/nodeName").is_empty() || pods::is_terminal(pod) {
        return 0;
    }
    let default = || pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
    grace_or_one_second(options.grace_period_seconds.unwrap_or_else(default))
}

/// Returns the grace period in seconds; a negative one means one second.
fn grace_or_one_second(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

/// Returns the finalizers of an object with a propagation policy. The policy's finalizer is added
/// at the end, and that of another policy is removed.
fn finalizers(object: &Value, options: &DeleteOptions, defaults: DeletionDefaults) -> Vec<String> {
    let present = object.finalizers();
    let policy = policy(&present, options, defaults);
    let own = match policy {
        Propagation::Orphan => Some(ORPHAN),
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Background => None,
    };
    with_policy(&present, own)
}

fn with_policy(present: &[&str], own: Option<&str>) -> Vec<String> {
    if own.is_some_and(|own| present.contains(&own))
        && !present.iter().any(|f| Some(*f) != own && is_policy(f))
    {
        return present.iter().map(|f| (*f).to_owned()).collect();
    }
    present.iter().copied().filter(|f| !is_policy(f)).chain(own).map(str::to_owned).collect()
}

fn is_policy(finalizer: &str) -> bool {
    finalizer == ORPHAN || finalizer == FOREGROUND
}

fn policy(present: &[&str], options: &DeleteOptions, defaults: DeletionDefaults) -> Propagation {
    if defaults.not_garbage_collected {
        return Propagation::Background;
    }
    if let Some(asked) = options.propagation {
        return asked;
    }
    if present.contains(&ORPHAN) {
        Propagation::Orphan
    } else if present.contains(&FOREGROUND) {
        Propagation::Foreground
    } else if defaults.orphans {
        Propagation::Orphan
    } else {
        Propagation::Background
    }
}

/// Returns whether a terminating object has neither finalizers nor a grace period left, so that the
/// same write deletes it.
pub fn is_released(object: &Value) -> bool {
    object.is_terminating() && object.finalizers().is_empty() && object.grace_period().unwrap_or(0) == 0
}

fn later(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(time)
}

/// Returns a time as the API writes it, in whole seconds.
pub fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn defaults(kind: &str) -> DeletionDefaults {
        let group = if kind == "Job" { "batch" } else { "" };
        coracle_resources::behavior(group, kind).deletion
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().expect("a time")
    }

    /// Returns `[finalizers] generation deletionTimestamp grace`, or the other outcome.
    fn render(deletion: Deletion) -> String {
        let show = |o: Value| {
            format!(
                "[{}] g{} {} {:?}",
                o.finalizers().join(","),
                o.generation(),
                o.meta_str("deletionTimestamp"),
                o.grace_period()
            )
        };
        match deletion {
            Deletion::Remove => "remove".to_owned(),
            Deletion::MarkAndRemove(object) => format!("mark and remove {}", show(object)),
            Deletion::Mark(object) => format!("mark {}", show(object)),
            Deletion::AlreadyTerminating => "already".to_owned(),
        }
    }

    fn options(text: &str) -> DeleteOptions {
        DeleteOptions::from_query(&crate::request::options::Query::parse(text)).expect("good options")
    }

    #[test]
    fn finalizers_follow_the_policy() {
        for (case, style, finalizers, query, want) in [
            ("nothing holds it", defaults("ConfigMap"), json!([]), "", "remove"),
            (
                "a finalizer holds it",
                defaults("ConfigMap"),
                json!(["x.io/f"]),
                "",
                "mark [x.io/f] g0 2026-01-01T00:00:00Z Some(0)",
            ),
            (
                "orphan",
                defaults("ConfigMap"),
                json!([]),
                "propagationPolicy=Orphan",
                "mark [orphan] g0 2026-01-01T00:00:00Z Some(0)",
            ),
            (
                "foreground goes last",
                defaults("ConfigMap"),
                json!(["x.io/f"]),
                "propagationPolicy=Foreground",
                "mark [x.io/f,foregroundDeletion] g0 2026-01-01T00:00:00Z Some(0)",
            ),
            (
                "a present policy stays",
                defaults("ConfigMap"),
                json!(["orphan"]),
                "",
                "mark [orphan] g0 2026-01-01T00:00:00Z Some(0)",
            ),
            (
                "background removes it",
                defaults("ConfigMap"),
                json!(["foregroundDeletion"]),
                "propagationPolicy=Background",
                "remove",
            ),
            (
                "a job orphans by default",
                defaults("Job"),
                json!([]),
                "",
                "mark [orphan] g0 2026-01-01T00:00:00Z Some(0)",
            ),
            (
                "unless the options say otherwise",
                defaults("Job"),
                json!([]),
                "orphanDependents=false",
                "remove",
            ),
        ] {
            let object = json!({"metadata": {"finalizers": finalizers}});
            assert_eq!(render(decide(&object, &options(query), style, now())), want, "{case}");
        }
    }

    #[test]
    fn a_namespace_keeps_the_finalizer_of_the_policy() {
        for (finalizers, query, want) in [
            (json!([]), "", "[]"),
            (json!(["orphan"]), "", "[orphan]"),
            (json!(["x.io/f"]), "propagationPolicy=Foreground", "[x.io/f,foregroundDeletion]"),
            (json!(["foregroundDeletion"]), "propagationPolicy=Orphan", "[orphan]"),
            (json!(["orphan"]), "propagationPolicy=Background", "[]"),
            (json!([]), "orphanDependents=false", "[foregroundDeletion]"),
        ] {
            let namespace =
                json!({"metadata": {"finalizers": finalizers}, "spec": {"finalizers": ["kubernetes"]}});
            let decision = render(decide(&namespace, &options(query), defaults("Namespace"), now()));
            assert_eq!(decision, format!("mark {want} g0 2026-01-01T00:00:00Z None"), "{finalizers} {query}");
        }
    }

    #[test]
    fn a_pod_ends_with_grace() {
        let running = json!({"metadata": {"generation": 1}, "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}});
        let unscheduled =
            json!({"metadata": {"generation": 1}, "spec": {"terminationGracePeriodSeconds": 30}});
        let ending = json!({
            "metadata": {"generation": 2, "deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30},
            "spec": {"nodeName": "n"},
        });
        let begun = json!({
            "metadata": {"generation": 2, "deletionTimestamp": "2025-12-31T23:59:59Z", "deletionGracePeriodSeconds": 0},
            "spec": {"nodeName": "n"},
        });
        let overdue = json!({
            "metadata": {"generation": 2, "deletionTimestamp": "2026-01-01T00:00:02Z", "deletionGracePeriodSeconds": 30},
            "spec": {"nodeName": "n"},
        });
        for (case, pod, query, want) in [
            ("its own", &running, "", "mark [] g2 2026-01-01T00:00:30Z Some(30)"),
            ("as asked", &running, "gracePeriodSeconds=5", "mark [] g2 2026-01-01T00:00:05Z Some(5)"),
            ("none", &running, "gracePeriodSeconds=0", "mark and remove [] g2 2026-01-01T00:00:00Z Some(0)"),
            (
                "negative is one second",
                &running,
                "gracePeriodSeconds=-7",
                "mark [] g2 2026-01-01T00:00:01Z Some(1)",
            ),
            ("unscheduled", &unscheduled, "", "mark and remove [] g2 2026-01-01T00:00:00Z Some(0)"),
            ("again", &ending, "", "already"),
            ("longer is ignored", &ending, "gracePeriodSeconds=60", "already"),
            ("shorter counts", &ending, "gracePeriodSeconds=10", "mark [] g2 2026-01-01T00:00:10Z Some(10)"),
            ("negative again", &ending, "gracePeriodSeconds=-7", "mark [] g2 2026-01-01T00:00:01Z Some(1)"),
            ("begun, not ended", &begun, "", "remove"),
            ("overdue", &overdue, "gracePeriodSeconds=10", "mark [] g2 2026-01-01T00:00:00Z Some(1)"),
            (
                "overdue, now",
                &overdue,
                "gracePeriodSeconds=0",
                "mark and remove [] g2 2026-01-01T00:00:00Z Some(0)",
            ),
            ("now", &ending, "gracePeriodSeconds=0", "mark and remove [] g2 2026-01-01T00:00:00Z Some(0)"),
        ] {
            assert_eq!(render(decide(pod, &options(query), defaults("Pod"), now())), want, "{case}");
        }
    }

    #[test]
    fn a_second_delete_of_a_held_object_changes_nothing() {
        let object = json!({"metadata": {"finalizers": ["x.io/f"], "generation": 1}});
        let Deletion::Mark(marked) = decide(&object, &options(""), defaults("ConfigMap"), now()) else {
            panic!("held")
        };
        assert_eq!(decide(&marked, &options(""), defaults("ConfigMap"), now()), Deletion::AlreadyTerminating);
    }
}
