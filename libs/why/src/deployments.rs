//! Deployments, ReplicaSets, ReplicationControllers and DaemonSets.

use serde_json::Value;

use crate::conditions::{self, condition, is_true, unobserved};
use crate::context::{Context, Target, event_time, is_terminating};
use crate::explanation::Cause;
use crate::kubectl;
use crate::owners::is_owned_by;
use crate::pods;
use crate::policies;
use crate::reason::Reason;
use crate::text::{count, items, plural, quoted, text, text_or_empty};

/// The resource of the ReplicaSets.
pub const REPLICA_SETS: &str = "replicasets.apps";

/// The pods of an owner that are explained.
const MAX_PODS: usize = 3;

/// Explains why a Deployment is not complete.
pub fn deployment(ctx: &Context, target: Target) -> Option<Reason> {
    if let Some(unobserved) = unobserved(ctx, target) {
        return Some(unobserved);
    }
    let short = ctx.short_of(target);
    let status = target.status();
    let desired = target.spec()["replicas"].as_i64().unwrap_or(1);
    let [updated, ready, available, total] =
        ["updatedReplicas", "readyReplicas", "availableReplicas", "replicas"]
            .map(|name| count(&status[name]));
    let failure = is_true(target.object, "ReplicaFailure");
    let is_complete = updated >= desired && available >= desired && total <= desired;
    let is_paused = target.spec()["paused"] == true;
    let progress = condition(target.object, "Progressing").filter(|progress| progress["status"] == "False");
    if is_complete && failure.is_none() && progress.is_none() {
        return None;
    }
    let counted = format!(
        "{} of {desired} replicas updated, {ready} ready, {available} available",
        updated.min(desired)
    );
    let word = format!("{ready}/{desired} ready");
    let set = newest_replica_set(ctx, target);
    let causes =
        set.as_ref().map(|name| ctx.explain(REPLICA_SETS, target.namespace, name)).unwrap_or_default();
    if let Some(failure) = failure {
        let sentence = format!(
            "{short} has {counted}: {}. The controller tries again.",
            conditions::describe(ctx, failure)
        );
        let quotas = policies::quotas_in(ctx, target.namespace, text_or_empty(&failure["message"]));
        return Some(
            Reason::failing("ReplicaFailure", sentence)
                .because([conditions::cause(ctx, target, failure)])
                .because(quotas)
                .because(causes),
        );
    }
    if is_paused {
        let remedy = kubectl::command("rollout resume", "deployments.apps", target.namespace, target.name);
        let sentence = format!(
            "{short} has {counted}, and is paused: changes of its template are not rolled out. To go on: {remedy}"
        );
        let cause = Cause::of(ctx.reference_of(target)).field("spec.paused: true").remedy(remedy);
        return Some(Reason::progressing("paused", sentence).because([cause]).because(causes));
    }
    if let Some(progress) = progress {
        let seconds = target.spec()["progressDeadlineSeconds"].as_i64().unwrap_or(600);
        let sentence = format!(
            "{short} has {counted}, and made no progress for {} (progressDeadlineSeconds): {}. Nothing is rolled back; it goes on as \
             soon as its pods become ready.",
            plural(seconds, "second"),
            conditions::describe(ctx, progress)
        );
        let word = text(&progress["reason"]).map_or(word, quoted);
        return Some(
            Reason::failing(word, sentence)
                .because([conditions::cause(ctx, target, progress)])
                .because(causes),
        );
    }
    let sentence = match (updated < desired || total > desired, &set) {
        (true, Some(set)) => format!(
            "{short} is being rolled out to {}: it has {counted}. Pods are replaced within {}.",
            ctx.short(REPLICA_SETS, set),
            bounds(target)
        ),
        (_, Some(set)) => format!(
            "{short} has {counted}: the pods of {} are not all available.",
            ctx.short(REPLICA_SETS, set)
        ),
        (_, None) => {
            format!("{short} has {counted}, and no ReplicaSet yet; the deployment controller makes it.")
        }
    };
    let cause = Cause::of(ctx.reference_of(target))
        .field("status.availableReplicas")
        .waits_for(format!("{counted} of {desired}"));
    let causes = if causes.is_empty() { vec![cause] } else { causes };
    Some(Reason::progressing(word, sentence).because(causes))
}

/// Formats the bounds of a rolling update.
fn bounds(target: Target) -> String {
    let strategy = &target.spec()["strategy"];
    if strategy["type"] == "Recreate" {
        return "the strategy Recreate: all old pods are deleted first".to_owned();
    }
    let shown = |name: &str| match &strategy["rollingUpdate"][name] {
        Value::String(percent) => quoted(percent),
        Value::Number(number) => number.to_string(),
        _ => "25%".to_owned(),
    };
    format!("maxSurge {} and maxUnavailable {}", shown("maxSurge"), shown("maxUnavailable"))
}

/// Returns the ReplicaSet of a Deployment with the highest revision.
fn newest_replica_set(ctx: &Context, target: Target) -> Option<String> {
    let revision = |set: &&Value| {
        let revision = &set["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
        text(revision).and_then(|revision| revision.parse::<i64>().ok()).unwrap_or_default()
    };
    let list = ctx.list(REPLICA_SETS, Some(target.namespace));
    let newest = list.iter().filter(|set| is_owned_by(set, target.uid())).max_by_key(revision)?;
    Some(text_or_empty(&newest["metadata"]["name"]).to_owned())
}

/// Explains why a ReplicaSet or a ReplicationController does not have its pods.
pub fn replica_set(ctx: &Context, target: Target) -> Option<Reason> {
    if let Some(unobserved) = unobserved(ctx, target) {
        return Some(unobserved);
    }
    let short = ctx.short_of(target);
    let desired = target.spec()["replicas"].as_i64().unwrap_or(1);
    let [total, ready, available] =
        ["replicas", "readyReplicas", "availableReplicas"].map(|name| count(&target.status()[name]));
    let failure = is_true(target.object, "ReplicaFailure");
    if total == desired && available >= desired && failure.is_none() {
        return None;
    }
    let counted = format!("{ready} of {desired} pods ready");
    if let Some(failure) = failure {
        let message = text_or_empty(&failure["message"]);
        let verb = if failure["reason"] == "FailedDelete" { "deleted" } else { "created" };
        let sentence = format!(
            "{short} has {counted}: pods cannot be {verb}: {}. The controller tries again.",
            quoted(message)
        );
        return Some(
            Reason::failing(
                text(&failure["reason"]).map_or_else(|| "ReplicaFailure".to_owned(), quoted),
                sentence,
            )
            .because([conditions::cause(ctx, target, failure)])
            .because(policies::quotas_in(ctx, target.namespace, message)),
        );
    }
    let (names, causes) = unready_pods(ctx, target);
    let waits = match (names.is_empty(), total.cmp(&desired)) {
        (false, _) => format!("not ready: {}", names.join(", ")),
        (true, std::cmp::Ordering::Greater) => {
            format!("{} to be deleted", plural(total.saturating_sub(desired), "pod"))
        }
        (true, std::cmp::Ordering::Less) => {
            format!("{} to be made", plural(desired.saturating_sub(total), "pod"))
        }
        (true, std::cmp::Ordering::Equal) => {
            let seconds = count(&target.spec()["minReadySeconds"]);
            format!(
                "its pods count as available once they have been ready for {} (minReadySeconds)",
                plural(seconds, "second")
            )
        }
    };
    let sentence = format!("{short} has {counted}; {waits}.");
    let own = Cause::of(ctx.reference_of(target)).field("status.readyReplicas").waits_for(waits);
    let causes = if causes.is_empty() { vec![own] } else { causes };
    Some(Reason::progressing(counted, sentence).because(causes))
}

/// Returns the pods of an owner that are not ready: the names of some with a count of the others,
/// and their causes.
fn unready_pods(ctx: &Context, target: Target) -> (Vec<String>, Vec<Cause>) {
    let list = ctx.list("pods", Some(target.namespace));
    let is_unready = |pod: &&Value| {
        let has_ended = ["Succeeded", "Failed"].contains(&text_or_empty(&pod["status"]["phase"]));
        is_owned_by(pod, target.uid()) && !has_ended && (is_terminating(pod) || !pods::is_ready(pod))
    };
    let unready: Vec<Target> =
        list.iter().filter(is_unready).map(|pod| Target::listed("pods", pod)).collect();
    let mut names: Vec<String> = unready.iter().take(MAX_PODS).map(|pod| ctx.short_of(*pod)).collect();
    let causes =
        unready.iter().take(MAX_PODS).flat_map(|pod| ctx.explain("pods", pod.namespace, pod.name)).collect();
    let more = unready.len().saturating_sub(MAX_PODS);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    (names, causes)
}

/// Explains why a DaemonSet does not run on all nodes that it should run on.
pub fn daemon_set(ctx: &Context, target: Target) -> Option<Reason> {
    if let Some(unobserved) = unobserved(ctx, target) {
        return Some(unobserved);
    }
    let short = ctx.short_of(target);
    let status = target.status();
    let [desired, scheduled, ready, available, misscheduled, updated] = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "numberAvailable",
        "numberMisscheduled",
        "updatedNumberScheduled",
    ]
    .map(|name| count(&status[name]));
    let on_delete = target.spec()["updateStrategy"]["type"] == "OnDelete";
    if desired == 0 && misscheduled == 0 {
        return no_node(ctx, target);
    }
    let is_updated = on_delete || updated >= desired;
    if ready >= desired && available >= desired && is_updated && misscheduled == 0 {
        return None;
    }
    let counted = format!("{ready} of {desired} pods ready");
    let (names, causes) = unready_pods(ctx, target);
    let event = ctx.last_event(target, &["FailedCreate", "FailedDaemonPod"]);
    let why = match event {
        Some(event) if scheduled < desired => format!(
            "{}, because a pod could not be made at {}: {}",
            missing_on(desired, scheduled),
            ctx.moment(event_time(&event)),
            quoted(text_or_empty(&event["message"]))
        ),
        _ if scheduled < desired => missing_on(desired, scheduled),
        _ if !names.is_empty() => format!("not ready: {}", names.join(", ")),
        _ if misscheduled > 0 => {
            format!("{} on nodes that it should not run on, and will be deleted", plural(misscheduled, "pod"))
        }
        _ => format!("{updated} of {desired} pods are of its newest template"),
    };
    let sentence = format!("{short} has {counted}; {why}.");
    let own = Cause::of(ctx.reference_of(target)).field("status.numberReady").waits_for(why);
    let causes = if causes.is_empty() { vec![own] } else { causes };
    Some(Reason::progressing(counted, sentence).because(causes))
}

fn missing_on(desired: i64, scheduled: i64) -> String {
    format!("{} without its pod", plural(desired.saturating_sub(scheduled), "node"))
}

/// Explains a DaemonSet that no node qualifies for.
fn no_node(ctx: &Context, target: Target) -> Option<Reason> {
    let nodes = ctx.list("nodes", None);
    let pod = &target.spec()["template"]["spec"];
    let tainted = nodes.iter().filter(|node| {
        items(&node["spec"]["taints"]).any(|taint| {
            ["NoSchedule", "NoExecute"].contains(&text_or_empty(&taint["effect"])) && !tolerates(pod, taint)
        })
    });
    let tainted = i64::try_from(tainted.count()).unwrap_or(i64::MAX);
    let total = i64::try_from(nodes.len()).unwrap_or(i64::MAX);
    let selects = pod["nodeSelector"].is_object() || pod["affinity"]["nodeAffinity"].is_object();
    let why = match () {
        () if total == 0 => "there is no node".to_owned(),
        () if tainted > 0 && tainted == total => {
            "every node has a taint that its pods do not tolerate (spec.template.spec.tolerations)".to_owned()
        }
        () if tainted > 0 => format!(
            "{tainted} of {total} nodes have a taint that its pods do not tolerate (spec.template.spec.tolerations), and the others \
             do not have the labels that it asks for"
        ),
        () if selects => {
            "no node has the labels that spec.template.spec.nodeSelector or its node affinity asks for"
                .to_owned()
        }
        () => return None,
    };
    let sentence = format!("{} runs on no node: {why}.", ctx.short_of(target));
    let cause = Cause::of(ctx.reference_of(target)).field("status.desiredNumberScheduled: 0").waits_for(why);
    Some(Reason::progressing("no node", sentence).because([cause]))
}

/// The taints of a node's state that all pods of DaemonSets tolerate, with their effects.
///
/// Source: `AddOrUpdateDaemonPodTolerations` of kube-controller-manager.
const ALWAYS_TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

fn tolerates(pod: &Value, taint: &Value) -> bool {
    let of_host =
        (pod["hostNetwork"] == true).then_some(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    let mut always = ALWAYS_TOLERATED.iter().copied().chain(of_host);
    if always.any(|(key, effect)| taint["key"] == key && taint["effect"] == effect) {
        return true;
    }
    items(&pod["tolerations"]).any(|toleration| {
        let key = text(&toleration["key"]);
        let is_key = key.is_none() || key == text(&taint["key"]);
        let is_effect = text(&toleration["effect"]).is_none_or(|effect| taint["effect"] == effect);
        let is_value = toleration["operator"] == "Exists"
            || text_or_empty(&toleration["value"]) == text_or_empty(&taint["value"]);
        is_key && is_effect && is_value
    })
}
