//! The rules by which an object is not ready, has failed or is terminating.

use serde_json::Value;

use crate::resource::Resource;
use crate::text::{count, join, text, texts};

type Rule = fn(&Value) -> Option<String>;

/// The resources with rules of their own, by group and plural name, in the order of the report.
const RULES: [(&str, &str, Rule); 13] = [
    ("", "nodes", node),
    ("", "pods", pod),
    ("", "persistentvolumeclaims", claim),
    ("", "persistentvolumes", volume),
    ("apps", "statefulsets", stateful_set),
    ("apps", "deployments", deployment),
    ("apps", "daemonsets", daemon_set),
    ("apps", "replicasets", replica_set),
    ("", "replicationcontrollers", replica_set),
    ("batch", "jobs", job),
    ("", "namespaces", |_| None),
    ("apiextensions.k8s.io", "customresourcedefinitions", definition),
    ("apiregistration.k8s.io", "apiservices", |service| conditions(service, &["Available"], &[])),
];

/// The containers of a pod that are described.
const MAX_CONTAINERS: usize = 3;

/// Returns the position of a resource in the report: those with rules come first.
pub fn rank(resource: &Resource) -> usize {
    RULES
        .iter()
        .position(|(group, plural, _)| (*group, *plural) == (&resource.group, &resource.plural))
        .unwrap_or(RULES.len())
}

/// Returns `true` if a resource has its own rule.
pub fn has_rule(resource: &Resource) -> bool {
    rank(resource) < RULES.len()
}

/// Returns `true` if the content of the objects is read, and not only their metadata. Of the groups
/// without a domain these are only the resources with rules, so that Secrets and ConfigMaps are not
/// read.
pub fn needs_content(resource: &Resource) -> bool {
    has_rule(resource) || resource.group.contains('.')
}

/// Describes what is wrong with an object; None if it is ready, or has nothing to be ready for.
pub fn problem(resource: &Resource, object: &Value) -> Option<String> {
    let rule = RULES.get(rank(resource)).map_or(any as Rule, |(_, _, rule)| *rule);
    terminating(object).or_else(|| rule(object))
}

/// Returns the time since when a pod is ready; None if it is not, or if the object is no pod.
pub fn ready_since<'a>(resource: &Resource, object: &'a Value) -> Option<&'a str> {
    let is_pod = resource.group.is_empty() && resource.plural == "pods";
    let ready = condition(object, "Ready").filter(|ready| is_pod && ready["status"] == "True")?;
    text(&ready["lastTransitionTime"])
}

/// Describes a terminating object: its finalizers, and the conditions of a namespace.
fn terminating(object: &Value) -> Option<String> {
    let since = text(&object["metadata"]["deletionTimestamp"])?;
    let mut line = format!("Terminating: deletionTimestamp {since}");
    for (field, list) in [
        ("finalizers", &object["metadata"]["finalizers"]),
        ("spec.finalizers", &object["spec"]["finalizers"]),
    ] {
        let finalizers = texts(list);
        if !finalizers.is_empty() {
            line = format!("{line}, {field} {}", finalizers.join(", "));
        }
    }
    let remaining = all_conditions(object).filter(|condition| {
        condition["status"] == "True"
            && text(&condition["type"]).is_some_and(|name| name.starts_with("Namespace"))
    });
    for condition in remaining {
        line = format!("{line}: {}", describe(condition));
    }
    Some(line)
}

fn node(node: &Value) -> Option<String> {
    let unready = conditions(node, &["Ready"], &[]).map(|why| format!("NotReady: {why}"));
    let cordoned = (node["spec"]["unschedulable"] == true).then(|| "SchedulingDisabled".to_owned());
    unready.or(cordoned)
}

fn pod(pod: &Value) -> Option<String> {
    let status = &pod["status"];
    let phase = text(&status["phase"]).unwrap_or("Pending");
    let is_ready = condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True");
    if phase == "Succeeded" || phase == "Running" && is_ready {
        return None;
    }
    let own = join([text(&status["reason"]), text(&status["message"])]);
    let containers: Vec<String> = ["initContainerStatuses", "containerStatuses"]
        .iter()
        .flat_map(|list| status[list].as_array().into_iter().flatten())
        .filter_map(container)
        .take(MAX_CONTAINERS)
        .collect();
    let unscheduled =
        condition(pod, "PodScheduled").filter(|condition| condition["status"] == "False").map(describe_cause);
    let unready = || condition(pod, "Ready").map(describe_cause);
    let why = match (own.is_empty(), unscheduled) {
        (false, _) => Some(own),
        (true, Some(why)) => Some(why),
        (true, None) if containers.is_empty() => unready(),
        (true, None) => None,
    };
    let state = if phase == "Running" { "Running, not ready" } else { phase };
    Some(join([Some(state), why.as_deref(), Some(&containers.join("; "))]))
}

/// Describes a container that waits, has failed, or runs without being ready.
fn container(status: &Value) -> Option<String> {
    let name = text(&status["name"])?;
    let (state, last) = (&status["state"], &status["lastState"]["terminated"]);
    let line = if let Some(waiting) = state.get("waiting") {
        // Others of the pod are the reason.
        let reason = text(&waiting["reason"]).filter(|reason| *reason != "PodInitializing")?;
        let exit = last["exitCode"].as_i64().map(|code| format!("last exit code {code}"));
        join([Some(reason), text(&waiting["message"]), exit.as_deref()])
    } else if let Some(ended) = state.get("terminated") {
        let code = ended["exitCode"].as_i64().filter(|code| *code != 0)?;
        join([text(&ended["reason"]), Some(&format!("exit code {code}")), text(&ended["message"])])
    } else if status["ready"] == false && state.get("running").is_some() {
        "running, not ready".to_owned()
    } else {
        return None;
    };
    let restarts = match count(&status["restartCount"]) {
        0 => String::new(),
        1 => " (1 restart)".to_owned(),
        restarts => format!(" ({restarts} restarts)"),
    };
    Some(format!("container {name}: {line}{restarts}"))
}

fn claim(claim: &Value) -> Option<String> {
    let phase = text(&claim["status"]["phase"]).unwrap_or("Pending");
    let class = text(&claim["spec"]["storageClassName"]).map(|class| format!("storage class {class}"));
    let volume = text(&claim["spec"]["volumeName"]).map(|volume| format!("volume {volume}"));
    (phase != "Bound").then(|| join([Some(phase), class.as_deref(), volume.as_deref()]))
}

fn volume(volume: &Value) -> Option<String> {
    let (spec, status) = (&volume["spec"], &volume["status"]);
    let phase = text(&status["phase"]).filter(|phase| ["Failed", "Released"].contains(phase))?;
    let policy =
        text(&spec["persistentVolumeReclaimPolicy"]).map(|policy| format!("reclaim policy {policy}"));
    let claim = &spec["claimRef"];
    let claim = text(&claim["name"])
        .map(|name| format!("claim {}/{name}", text(&claim["namespace"]).unwrap_or_default()));
    let why = [text(&status["reason"]), text(&status["message"]), policy.as_deref(), claim.as_deref()];
    Some(join([Some(phase)].into_iter().chain(why)))
}

fn deployment(deployment: &Value) -> Option<String> {
    let counts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
    // While it is paused, Progressing is Unknown.
    let wanted: &[&str] = match deployment["spec"]["paused"] == true {
        true => &["Available"],
        false => &["Progressing", "Available"],
    };
    let failing = conditions(deployment, wanted, &["ReplicaFailure"]);
    let desired = desired(deployment);
    let surplus = count(&deployment["status"]["replicas"]) > desired;
    workload(deployment, desired, &counts, surplus, failing)
}

fn stateful_set(set: &Value) -> Option<String> {
    let desired = desired(set);
    let strategy = &set["spec"]["updateStrategy"];
    let partition = count(&strategy["rollingUpdate"]["partition"]);
    let status = &set["status"];
    // With a partition, and with the strategy OnDelete, a rollout that is not finished is intended.
    let is_outdated = strategy["type"] == "RollingUpdate"
        && status["currentRevision"] != status["updateRevision"]
        && count(&status["updatedReplicas"]) < (desired - partition).max(0);
    let surplus = count(&status["replicas"]) > desired || is_outdated;
    workload(set, desired, &["readyReplicas", "availableReplicas"], surplus, None)
}

fn daemon_set(set: &Value) -> Option<String> {
    let desired = count(&set["status"]["desiredNumberScheduled"]);
    let mut counts = vec!["numberReady", "numberAvailable"];
    if set["spec"]["updateStrategy"]["type"] != "OnDelete" {
        counts.insert(0, "updatedNumberScheduled");
    }
    workload(set, desired, &counts, count(&set["status"]["numberMisscheduled"]) > 0, None)
}

/// Describes a ReplicaSet or a ReplicationController. Its controller reports for it.
fn replica_set(set: &Value) -> Option<String> {
    let owners = set["metadata"]["ownerReferences"].as_array();
    if owners.into_iter().flatten().any(|owner| owner["controller"] == true) {
        return None;
    }
    let desired = desired(set);
    let surplus = count(&set["status"]["replicas"]) > desired;
    workload(
        set,
        desired,
        &["readyReplicas", "availableReplicas"],
        surplus,
        conditions(set, &[], &["ReplicaFailure"]),
    )
}

/// Returns the desired number of replicas; 1 by default.
fn desired(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or(1)
}

/// Describes a workload with fewer replicas than desired, with outdated or surplus ones, or with
/// failing conditions.
fn workload(
    object: &Value,
    desired: i64,
    counts: &[&str],
    surplus: bool,
    failing: Option<String>,
) -> Option<String> {
    let status = &object["status"];
    let observed = count(&status["observedGeneration"]);
    let is_observed = observed >= count(&object["metadata"]["generation"]);
    let is_complete = counts.iter().all(|name| count(&status[name]) >= desired);
    if is_observed && is_complete && !surplus && failing.is_none() {
        return None;
    }
    let counted: Vec<String> = counts.iter().map(|name| format!("{name} {}", count(&status[name]))).collect();
    let counted = format!("{desired} desired, {}", counted.join(", "));
    let pending = (!is_observed)
        .then(|| format!("generation {} is not observed", count(&object["metadata"]["generation"])));
    let paused = (object["spec"]["paused"] == true).then_some("paused");
    Some(join([Some(counted.as_str()), pending.as_deref(), paused, failing.as_deref()]))
}

fn job(job: &Value) -> Option<String> {
    if condition(job, "Complete").is_some_and(|complete| complete["status"] == "True") {
        return None;
    }
    if let Some(failed) = condition(job, "Failed").filter(|failed| failed["status"] == "True") {
        return Some(join([Some("Failed"), Some(&describe_cause(failed))]));
    }
    let status = &job["status"];
    let counted = format!(
        "not complete, {} active, {} succeeded, {} failed",
        count(&status["active"]),
        count(&status["succeeded"]),
        count(&status["failed"])
    );
    let set = conditions(job, &[], &["Suspended", "FailureTarget", "SuccessCriteriaMet"]);
    Some(join([Some(counted.as_str()), set.as_deref()]))
}

fn definition(definition: &Value) -> Option<String> {
    conditions(
        definition,
        &["NamesAccepted", "Established", "KubernetesAPIApprovalPolicyConformant"],
        &["NonStructuralSchema", "Terminating"],
    )
}

/// Describes an object without a rule: by the conditions that custom resources have by convention.
fn any(object: &Value) -> Option<String> {
    conditions(object, &["Ready", "Available"], &["Stalled", "Degraded", "Failed"])
}

/// Describes the existing conditions with an unexpected status: wanted ones that are not true, and
/// unwanted ones that are.
fn conditions(object: &Value, wanted: &[&str], unwanted: &[&str]) -> Option<String> {
    let failing: Vec<String> = all_conditions(object)
        .filter(|condition| {
            let name = text(&condition["type"]).unwrap_or_default();
            let is_true = condition["status"] == "True";
            wanted.contains(&name) && !is_true || unwanted.contains(&name) && is_true
        })
        .map(describe)
        .collect();
    (!failing.is_empty()).then(|| failing.join("; "))
}

fn all_conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}

fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    all_conditions(object).find(|condition| condition["type"] == name)
}

/// Describes a condition with its type and status.
fn describe(condition: &Value) -> String {
    let name = text(&condition["type"]).unwrap_or_default();
    let status = text(&condition["status"]).unwrap_or_default();
    join([Some(format!("{name}={status}").as_str()), Some(&describe_cause(condition))])
}

/// Describes the reason and the message of a condition.
fn describe_cause(condition: &Value) -> String {
    join([text(&condition["reason"]), text(&condition["message"])])
}
