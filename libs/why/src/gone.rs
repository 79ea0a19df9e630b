//! The question why an object is gone.

use serde_json::Value;

use crate::claims::CLAIMS;
use crate::conditions::is_true;
use crate::context::{Context, Target, is_terminating};
use crate::deletion::{self, Role, describe, role};
use crate::deployments::REPLICA_SETS;
use crate::explanation::Cause;
use crate::jobs::JOBS;
use crate::objects::Version;
use crate::owners::{self, Lookup, Owner, is_gone, look_up, owners};
use crate::reason::Reason;
use crate::stateful_sets;
use crate::text::{count, plural, quoted, text, text_or_empty, texts};
use crate::volumes::VOLUMES;

/// The reason for a deletion: the rest of a sentence after "because", and its causes.
struct Why {
    clause: String,
    causes: Vec<Cause>,
    /// Whether the owner of the object wants fewer objects of its kind, or others in its place.
    is_intended: bool,
}

impl Why {
    fn of(clause: impl Into<String>) -> Why {
        Why { clause: clause.into(), causes: Vec::new(), is_intended: false }
    }

    fn by(self, causes: Vec<Cause>) -> Why {
        Why { causes, ..self }
    }
}

/// Explains why an object does not exist any more, or what became of the former object of its name.
/// None if no deletion is known.
pub fn reason(ctx: &Context, resource: &str, namespace: &str, name: &str) -> Option<Reason> {
    let versions = ctx.past(resource, namespace, name);
    let short = ctx.short(resource, name);
    let exists = ctx.get(resource, namespace, name).is_some();
    let Some(index) = versions.iter().position(|version| version.is_deletion) else {
        let last = versions.first().filter(|_| !exists)?;
        let at = last.time.as_deref().map_or_else(|| "an unknown time".to_owned(), |at| ctx.moment(at));
        let sentence = format!(
            "{short} is gone: its last known version was written at {at}, and its deletion was not recorded."
        );
        return Some(Reason::failing("gone", sentence));
    };
    let versions = versions.get(index..)?;
    let removal = versions.first()?;
    let object = versions
        .iter()
        .map(|version| &version.object)
        .find(|object| object.is_object())
        .unwrap_or(&Value::Null);
    let target = Target { resource, namespace, name, object };
    let request = deletion::request(versions, target.uid()).unwrap_or(removal);
    let at = request.time.as_deref().map(|at| format!(" at {}", ctx.moment(at))).unwrap_or_default();
    let deleter = request.writer.as_ref();
    let who = deleter.map(describe).unwrap_or_default();
    let by = if who.is_empty() { String::new() } else { format!(" by {who}") };
    let by_collection = match deleter.is_some_and(|writer| writer.verb == "deletecollection") {
        true => ", by a request that deletes all objects of a list",
        false => "",
    };
    let why = why(ctx, target, deleter.map(role), request);
    let because = why.as_ref().map(|why| format!(", because {}", why.clause)).unwrap_or_default();
    let former = if exists {
        "was replaced: the former object of its name was deleted"
    } else {
        "is gone: it was deleted"
    };
    let is_intended = why.as_ref().is_some_and(|why| why.is_intended);
    let again = if exists || is_intended { String::new() } else { again(ctx, target) };
    let sentence = format!(
        "{short} {former}{by}{at}{by_collection}{because}.{}{}",
        delay(ctx, resource, request, removal),
        again
    );
    let cause = Cause::of(ctx.reference(resource, namespace, name))
        .field(deleter.map_or_else(String::new, |writer| format!("request: {}", quoted(&writer.verb))))
        .manager(who)
        .since(request.time.clone().unwrap_or_default());
    Some(
        Reason::failing("gone", sentence)
            .because(deleter.map(|_| cause))
            .because(why.map(|why| why.causes).unwrap_or_default()),
    )
}

/// Describes the time between the request and the removal, and the cause of the removal.
fn delay(ctx: &Context, resource: &str, request: &Version, removal: &Version) -> String {
    let at =
        removal.time.as_deref().filter(|_| request.revision != removal.revision).map(|at| ctx.moment(at));
    let Some(at) = at else { return String::new() };
    let finalizers: Vec<&str> = texts(&removal.object["metadata"]["finalizers"]).collect();
    let by = removal.writer.as_ref().map_or_else(|| "somebody".to_owned(), describe);
    let by_client = removal.writer.as_ref().is_none_or(|writer| role(writer) == Role::Client);
    let is_stopped = resource == "pods" && !by_client;
    match finalizers.first() {
        Some(finalizer) => {
            format!(" It was removed at {at}, when {by} removed its last finalizer, {}.", quoted(finalizer))
        }
        None if is_stopped => format!(" It was removed at {at}, after its containers had stopped."),
        None => format!(" It was removed at {at} by {by}."),
    }
}

/// Returns a sentence if the owner will create such an object again, and an empty text otherwise.
fn again(ctx: &Context, target: Target) -> String {
    let owner = owners::controller(target.object);
    let living = owner.filter(|owner| match look_up(ctx, target.namespace, owner) {
        Lookup::Found(found) => !is_terminating(&found),
        _ => false,
    });
    match living {
        Some(owner) if ["ReplicaSet", "ReplicationController", "Job"].contains(&owner.kind.as_str()) => {
            format!(" If it is still needed, {} makes another one under a new name.", owner.short())
        }
        Some(owner) if ["StatefulSet", "DaemonSet"].contains(&owner.kind.as_str()) => {
            format!(" If it is still needed, {} makes it again.", owner.short())
        }
        _ => String::new(),
    }
}

/// Returns the reason for a deletion. Without the role of its author, only a reason that the
/// objects prove.
fn why(ctx: &Context, target: Target, role: Option<Role>, request: &Version) -> Option<Why> {
    let is_eviction =
        request.writer.as_ref().is_some_and(|writer| ["create", "evict"].contains(&writer.verb.as_str()));
    if let Some(why) = disrupted(ctx, target) {
        return Some(why);
    }
    if target.resource == "pods" && is_eviction {
        return Some(Why::of("it was evicted"));
    }
    if let Some(why) = reclaimed(ctx, target) {
        return Some(why);
    }
    if role == Some(Role::Client) {
        return None;
    }
    namespace(ctx, target, role.as_ref(), request)
        .or_else(|| cascade(ctx, target, role.as_ref(), request))
        .or_else(|| by_owner(ctx, target, role.is_some()))
        .or_else(|| expired(target).filter(|_| role.is_some()))
}

/// Returns `true` if the deletion of an object was requested before another request.
fn is_earlier(ctx: &Context, resource: &str, namespace: &str, name: &str, request: &Version) -> bool {
    let versions = ctx.past(resource, namespace, name);
    let uid = versions.first().map(|version| &version.object["metadata"]["uid"]);
    versions
        .iter()
        .filter(|version| Some(&version.object["metadata"]["uid"]) == uid)
        .filter(|version| version.is_deletion || is_terminating(&version.object))
        .any(|version| version.revision <= request.revision)
}

/// Explains the deletion of a pod that was disrupted.
fn disrupted(ctx: &Context, target: Target) -> Option<Why> {
    let status = target.status();
    if status["reason"] == "Evicted" {
        return Some(Why::of(format!("it was evicted: {}", quoted(text_or_empty(&status["message"])))));
    }
    let disruption = is_true(target.object, "DisruptionTarget")?;
    let message = quoted(text_or_empty(&disruption["message"]));
    let node = ctx.short("nodes", text_or_empty(&target.spec()["nodeName"]));
    let clause = match text_or_empty(&disruption["reason"]) {
        "EvictionByEvictionAPI" => {
            "it was evicted by a request for its eviction (such as kubectl drain)".to_owned()
        }
        "PreemptionByScheduler" => {
            format!("the scheduler needed its place on {node} for a pod of higher priority: {message}")
        }
        "DeletionByTaintManager" => {
            format!("{node} has a taint with the effect NoExecute that it does not tolerate (any longer)")
        }
        "DeletionByPodGC" => format!("its {node} does not exist any more, or is out of service: {message}"),
        "TerminationByKubelet" => format!("the kubelet of {node} ended it: {message}"),
        other => format!("it was disrupted: {}: {message}", quoted(other)),
    };
    Some(Why::of(clause).by(ctx.explain_deletion("nodes", "", text_or_empty(&target.spec()["nodeName"]))))
}

/// Explains the deletion of a volume by its reclaim policy.
fn reclaimed(ctx: &Context, target: Target) -> Option<Why> {
    let (spec, status) = (target.spec(), target.status());
    let is_released =
        target.resource == VOLUMES && ["Released", "Failed"].contains(&text_or_empty(&status["phase"]));
    if !is_released || spec["persistentVolumeReclaimPolicy"] != "Delete" {
        return None;
    }
    let claim = &spec["claimRef"];
    let (namespace, name) = (text_or_empty(&claim["namespace"]), text_or_empty(&claim["name"]));
    let claim = ctx.reference(CLAIMS, namespace, name);
    let why = Why::of(format!("its claim {claim} was deleted, and its reclaim policy is Delete"));
    Some(why.by(ctx.explain_deletion(CLAIMS, namespace, name)))
}

/// Explains a deletion by that of the namespace.
fn namespace(ctx: &Context, target: Target, role: Option<&Role>, request: &Version) -> Option<Why> {
    if target.namespace.is_empty() {
        return None;
    }
    let namespace = ctx.get("namespaces", "", target.namespace);
    let has_past = || !ctx.past("namespaces", "", target.namespace).is_empty();
    let is_deleted = match &namespace {
        Some(namespace) => is_terminating(namespace),
        None => has_past(),
    };
    let is_it = match role {
        Some(Role::NamespaceController) => true,
        Some(Role::ControllerManager) => is_deleted,
        Some(_) => false,
        None => is_deleted && is_earlier(ctx, "namespaces", "", target.namespace, request),
    };
    is_it.then(|| {
        let causes = match namespace {
            Some(_) => ctx.explain("namespaces", "", target.namespace),
            None => ctx.explain_deletion("namespaces", "", target.namespace),
        };
        Why::of(format!("its namespace {} was deleted", quoted(target.namespace))).by(causes)
    })
}

/// Explains a deletion by that of an owner.
fn cascade(ctx: &Context, target: Target, role: Option<&Role>, request: &Version) -> Option<Why> {
    let by_collector = role == Some(&Role::GarbageCollector);
    let looked_up: Vec<(Owner, Lookup)> = owners(target.object)
        .map(|owner| {
            let found = look_up(ctx, target.namespace, &owner);
            (owner, found)
        })
        .collect();
    let gone =
        looked_up.iter().find(|(_, found)| is_gone(found)).or(looked_up.first().filter(|_| by_collector));
    let Some((owner, found)) = gone.filter(|(_, found)| by_collector || is_gone(found)) else {
        return by_collector.then(|| Why::of("its owner was deleted"));
    };
    let policy = match (target.resource, owner.kind.as_str()) {
        (CLAIMS, "StatefulSet") => " and its persistentVolumeClaimRetentionPolicy.whenDeleted is Delete",
        (CLAIMS, "Pod") if target.name.ends_with(&format!("-{}", owner.name)) => {
            " and persistentVolumeClaimRetentionPolicy.whenScaled of its StatefulSet is Delete"
        }
        _ => "",
    };
    let resource = ctx.resource_of(&owner.api_version, &owner.kind)?;
    let namespace = if resource.namespaced { target.namespace } else { "" };
    if role.is_none() && !is_earlier(ctx, &resource.name, namespace, &owner.name, request) {
        return None;
    }
    let causes = match found {
        Lookup::Found(_) => ctx.explain(&resource.name, namespace, &owner.name),
        _ => ctx.explain_deletion(&resource.name, namespace, &owner.name),
    };
    let state = match found {
        Lookup::Found(found) if !is_terminating(found) => "no longer counts as an owner of it",
        Lookup::Found(_) => "is being deleted",
        _ if ctx.past(&resource.name, namespace, &owner.name).is_empty() => "does not exist",
        _ => "was deleted",
    };
    Some(Why::of(format!("its owner {} {state}{policy}", owner.short())).by(causes))
}

/// Explains a deletion by the decision of an owner that exists.
///
/// - `is_known`: whether a controller is known to have deleted the object
fn by_owner(ctx: &Context, target: Target, is_known: bool) -> Option<Why> {
    let owner = owners::controller(target.object)?;
    let Lookup::Found(found) = look_up(ctx, target.namespace, &owner) else { return None };
    let short = owner.short();
    let desired = found["spec"]["replicas"].as_i64().unwrap_or(1);
    let phase = text_or_empty(&target.status()["phase"]);
    let has_ended = ["Failed", "Succeeded"].contains(&phase);
    let clause = match owner.kind.as_str() {
        "StatefulSet" => {
            let (start, end) = stateful_sets::ordinals(&found);
            let is_wanted = stateful_sets::ordinal(&owner.name, target.name)
                .is_none_or(|ordinal| (start..end).contains(&ordinal));
            let update = text(&found["status"]["updateRevision"]);
            let own = text(&target.object["metadata"]["labels"]["controller-revision-hash"]);
            match () {
                () if !is_wanted && start >= end => {
                    format!("{short} was scaled to {}", plural(desired, "replica"))
                }
                () if !is_wanted => format!(
                    "{short} was scaled to {}, the ordinals {start} to {}",
                    plural(desired, "replica"),
                    end.saturating_sub(1)
                ),
                () if has_ended => format!("it had ended ({phase}), and {short} replaces such pods"),
                () if update.is_some() && own != update => {
                    format!(
                        "{short} was updated to revision {}, and replaces the pods of older ones",
                        quoted(update.unwrap_or_default())
                    )
                }
                () if is_known => format!("{short} replaces it"),
                () => return None,
            }
        }
        "ReplicaSet" => of_replica_set(ctx, target, &owner, &found, is_known.then_some(desired))?,
        "ReplicationController" if is_known => {
            format!("{short} was scaled to {}", plural(desired, "replica"))
        }
        "DaemonSet" => {
            let node = text_or_empty(&target.spec()["nodeName"]);
            match () {
                () if has_ended => format!("it had ended ({phase}), and {short} replaces such pods"),
                () if ctx.get("nodes", "", node).is_none() => {
                    format!("its {} does not exist any more", ctx.short("nodes", node))
                }
                () if !is_known => return None,
                () => {
                    format!("{short} was updated, or is not meant for {} any more", ctx.short("nodes", node))
                }
            }
        }
        "Job" if target.resource == "pods" => match () {
            () if found["spec"]["suspend"] == true => format!("{short} was suspended"),
            () if is_true(&found, "Failed").or_else(|| is_true(&found, "FailureTarget")).is_some() => {
                format!("{short} has failed, and ends its other pods")
            }
            () if is_true(&found, "Complete").or_else(|| is_true(&found, "SuccessCriteriaMet")).is_some() => {
                format!("{short} is complete, and ends its other pods")
            }
            () if !is_known => return None,
            () => format!("{short} needs fewer pods (spec.parallelism, spec.completions)"),
        },
        "CronJob" if is_known => {
            let (limit, default, state) = match is_true(target.object, "Failed") {
                Some(_) => ("failedJobsHistoryLimit", 1, "failed"),
                None => ("successfulJobsHistoryLimit", 3, "successful"),
            };
            let kept = found["spec"][limit].as_i64().unwrap_or(default);
            format!("{short} keeps {} ({limit})", plural(kept, &format!("{state} Job")))
        }
        "Deployment" if target.resource == REPLICA_SETS && is_known => {
            let kept = found["spec"]["revisionHistoryLimit"].as_i64().unwrap_or(10);
            format!("{short} keeps {} (revisionHistoryLimit)", plural(kept, "old ReplicaSet"))
        }
        _ => return expired(target).filter(|_| is_known),
    };
    Some(Why { is_intended: true, ..Why::of(clause) })
}

/// Explains the deletion of a pod by its ReplicaSet.
///
/// - `desired`: the replicas that a ReplicaSet was scaled to; None if it is not known to have
///   deleted the pod
fn of_replica_set(
    ctx: &Context,
    target: Target,
    owner: &Owner,
    set: &Value,
    desired: Option<i64>,
) -> Option<String> {
    let short = owner.short();
    let scaled = desired.map(|desired| format!("{short} was scaled to {}", plural(desired, "replica")));
    let Some(deployment) = owners::controller(set) else { return scaled };
    let revision = |set: &Value| {
        let revision = text(&set["metadata"]["annotations"]["deployment.kubernetes.io/revision"]);
        revision.and_then(|revision| revision.parse::<i64>().ok()).unwrap_or_default()
    };
    let list = ctx.list(REPLICA_SETS, Some(target.namespace));
    let newest =
        list.iter().filter(|one| owners::is_owned_by(one, &deployment.uid)).max_by_key(|one| revision(one));
    match newest.filter(|newest| revision(newest) > revision(set)) {
        Some(newest) => Some(format!(
            "{} replaced it in a rollout: pods of {} take the place of those of {short}",
            deployment.short(),
            ctx.short(REPLICA_SETS, text_or_empty(&newest["metadata"]["name"]))
        )),
        None => scaled,
    }
}

/// Explains the deletion of a Job with an expired time to live.
fn expired(target: Target) -> Option<Why> {
    let seconds = target.spec()["ttlSecondsAfterFinished"].as_i64().filter(|_| target.resource == JOBS)?;
    let finished = is_true(target.object, "Complete").or_else(|| is_true(target.object, "Failed"))?;
    let state = text_or_empty(&finished["type"]).to_lowercase();
    let seconds = plural(count(&seconds.into()), "second");
    Some(Why::of(format!(
        "it was {state}, and Jobs like it are deleted {seconds} later (spec.ttlSecondsAfterFinished)"
    )))
}
