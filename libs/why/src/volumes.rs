//! PersistentVolumes: their protection, the deletion of their storage, and why one is not usable;
//! VolumeAttachments and classes.

use serde_json::{Value, json};

use crate::claims::CLAIMS;
use crate::context::{Context, Target, event_time};
use crate::explanation::Cause;
use crate::finalizers::Wait;
use crate::kubectl;
use crate::reason::Reason;
use crate::text::{enumerate, quoted, text, text_or_empty};

/// The resource of the volumes.
pub const VOLUMES: &str = "persistentvolumes";

/// Returns the claim of a volume: its namespace and name.
fn claim_of(volume: &Value) -> Option<(&str, &str)> {
    let claim = &volume["spec"]["claimRef"];
    Some((text_or_empty(&claim["namespace"]), text(&claim["name"])?))
}

fn policy(volume: Target<'_>) -> &str {
    text(&volume.spec()["persistentVolumeReclaimPolicy"]).unwrap_or("Retain")
}

fn phase(volume: Target<'_>) -> &str {
    text(&volume.status()["phase"]).unwrap_or("Pending")
}

fn set_policy(volume: Target, policy: &str) -> String {
    let patch = json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
    kubectl::merge(VOLUMES, "", volume.name, &patch)
}

/// Explains the finalizer `kubernetes.io/pv-protection`: the claim that the volume is bound to.
pub fn protection(ctx: &Context, target: Target) -> Wait {
    let claim = claim_of(target.object).filter(|_| phase(target) == "Bound");
    let Some((namespace, name)) = claim else {
        return Wait {
            clause: "once the volume is bound to no claim, as is the case".to_owned(),
            ..Wait::default()
        };
    };
    let claim = ctx.reference(CLAIMS, namespace, name);
    let remedy = kubectl::delete(CLAIMS, namespace, name);
    let clause = format!("once the volume is bound to no claim; it is bound to {claim}");
    let exists = ctx.get(CLAIMS, namespace, name);
    let is_terminating = exists.as_ref().is_some_and(crate::context::is_terminating);
    if is_terminating {
        let clause = format!("{clause}, which is being deleted");
        return Wait { clause, remedy: String::new(), causes: ctx.explain(CLAIMS, namespace, name) };
    }
    let cause = Cause::of(claim).field(format!("spec.volumeName: {}", target.name));
    let cause =
        cause.waits_for("the deletion of the claim, which is bound to the volume").remedy(remedy.clone());
    Wait { clause, remedy, causes: vec![cause] }
}

/// Explains the finalizers that keep a volume until its storage is deleted (KEP-2644).
pub fn storage_deletion(ctx: &Context, target: Target) -> Wait {
    const AFTER: &str = "after it has deleted the storage of the volume";
    let (phase, policy) = (phase(target), policy(target));
    let wait = |clause: String, remedy: String, causes: Vec<Cause>| Wait { clause, remedy, causes };
    if policy != "Delete" {
        let clause = format!("at once, as the reclaim policy is {} and the storage stays", quoted(policy));
        return wait(clause, String::new(), Vec::new());
    }
    if let ("Bound", Some((namespace, name))) = (phase, claim_of(target.object)) {
        let claim = ctx.reference(CLAIMS, namespace, name);
        let clause = format!("{AFTER}, which happens once {claim} is deleted, to which the volume is bound");
        return wait(clause, kubectl::delete(CLAIMS, namespace, name), ctx.explain(CLAIMS, namespace, name));
    }
    if !["Released", "Failed"].contains(&phase) {
        let clause = format!(
            "{AFTER}; it does so only after a claim was bound to the volume and deleted, and the volume is {}",
            quoted(phase)
        );
        return wait(clause, set_policy(target, "Retain"), Vec::new());
    }
    match deletion_failure(ctx, target) {
        Some((message, cause)) => {
            let clause = format!(
                "{AFTER}; the last attempt failed: {message}. It is tried again, and succeeds once that is repaired"
            );
            wait(clause, String::new(), vec![cause])
        }
        None => wait(format!("{AFTER}, which is under way"), String::new(), attached(ctx, target)),
    }
}

/// Returns the last failure to delete the storage of a volume: the message, and the cause.
fn deletion_failure(ctx: &Context, target: Target) -> Option<(String, Cause)> {
    let cause = Cause::of(ctx.reference_of(target));
    if phase(target) == "Failed" {
        let message = text(&target.status()["message"]).or_else(|| text(&target.status()["reason"]));
        let message = quoted(message.unwrap_or("no message"));
        let cause = cause
            .field("status.phase: Failed")
            .waits_for(format!("the deletion of the storage, which failed: {message}"));
        return Some((message, with_simulation(target, cause)));
    }
    let event = ctx.last_event(target, &["VolumeFailedDelete", "VolumeFailedRecycle"])?;
    let message = quoted(text_or_empty(&event["message"]));
    let waits_for = format!("the deletion of the storage, which failed: {message}");
    Some((message, with_simulation(target, cause.since(event_time(&event)).waits_for(waits_for))))
}

/// Adds the annotation by which a simulated volume fails.
fn with_simulation(target: Target, cause: Cause) -> Cause {
    match target.annotation("sim.coracle.dev/delete-failures") {
        None => cause,
        Some(count) => {
            cause.field(format!("metadata.annotations: sim.coracle.dev/delete-failures={}", quoted(count)))
        }
    }
}

fn attached(ctx: &Context, target: Target) -> Vec<Cause> {
    let attachments = ctx.list("volumeattachments.storage.k8s.io", None);
    let of_volume =
        attachments.iter().filter(|one| one["spec"]["source"]["persistentVolumeName"] == target.name);
    let causes = of_volume.take(5).map(|attachment| {
        let attachment = Target::listed("volumeattachments.storage.k8s.io", attachment);
        let node = ctx.short("nodes", text_or_empty(&attachment.spec()["nodeName"]));
        Cause::of(ctx.reference_of(attachment)).waits_for(format!("the detachment of the volume from {node}"))
    });
    causes.collect()
}

/// Explains the finalizers of external-attacher on VolumeAttachments and volumes.
pub fn detachment(ctx: &Context, target: Target) -> Wait {
    let driver = quoted(text_or_empty(&target.spec()["attacher"]));
    let node = text(&target.spec()["nodeName"]).map(|node| ctx.short("nodes", node));
    let error = text(&target.status()["detachError"]["message"])
        .map(|error| format!("; the last attempt failed: {}", quoted(error)));
    let clause = match node {
        Some(node) => format!(
            "after the driver {driver} has detached the volume from {node}{}",
            error.unwrap_or_default()
        ),
        None => "once the volume is attached to no node".to_owned(),
    };
    Wait {
        clause,
        remedy: String::new(),
        causes: if target.resource == VOLUMES { attached(ctx, target) } else { Vec::new() },
    }
}

/// Explains the finalizer `kubernetes.io/vac-protection`: the claims and volumes of a
/// VolumeAttributesClass.
pub fn class_protection(ctx: &Context, target: Target) -> Wait {
    let mut users = Vec::new();
    for resource in [CLAIMS, VOLUMES] {
        let list = ctx.list(resource, None);
        for user in list.iter().map(|user| Target::listed(resource, user)) {
            let names = [
                &user.spec()["volumeAttributesClassName"],
                &user.status()["currentVolumeAttributesClassName"],
                &user.status()["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
            ];
            if names.into_iter().any(|name| *name == target.name) {
                users.push(ctx.reference_of(user));
            }
        }
    }
    let clause = match users.is_empty() {
        true => "once no claim and no volume uses the class; none does any more".to_owned(),
        false => format!("once no claim and no volume uses the class; used by {}", enumerate(&users)),
    };
    let causes = users.into_iter().take(10).map(|user| {
        Cause::of(user)
            .field("spec.volumeAttributesClassName")
            .waits_for("another class in the object, or its deletion")
    });
    Wait { clause, remedy: String::new(), causes: causes.collect() }
}

/// Explains a volume that no claim can use: released, failed, or reserved for a claim that does not
/// use it yet.
pub fn reason(ctx: &Context, target: Target) -> Option<Reason> {
    let short = ctx.short_of(target);
    let cause = Cause::of(ctx.reference_of(target)).field(format!("status.phase: {}", quoted(phase(target))));
    match phase(target) {
        "Failed" => {
            let message = text(&target.status()["message"]).unwrap_or("no message");
            let message = quoted(message);
            let sentence = format!(
                "{short} has failed: its claim was deleted, and the attempt to reclaim it by its policy {} ended with: {message}. \
                 It is tried again; or set another policy: {}",
                quoted(policy(target)),
                set_policy(target, "Retain")
            );
            Some(
                Reason::failing("Failed", sentence)
                    .because([with_simulation(target, cause.waits_for(message))]),
            )
        }
        "Released" => Some(released(ctx, target, cause)),
        "Available" => available(ctx, target),
        "Pending" => {
            let sentence = format!(
                "{short} is pending: the persistentvolume-binder-controller has not looked at it yet."
            );
            Some(Reason::progressing("Pending", sentence).because([cause]))
        }
        _ => None,
    }
}

fn released(ctx: &Context, target: Target, cause: Cause) -> Reason {
    let short = ctx.short_of(target);
    let claim = claim_of(target.object)
        .map_or_else(|| "its claim".to_owned(), |(namespace, name)| ctx.reference(CLAIMS, namespace, name));
    if policy(target) == "Delete" {
        let (state, causes) = match deletion_failure(ctx, target) {
            Some((message, cause)) => (
                format!("The last attempt to delete its storage failed: {message}. It is tried again"),
                vec![cause],
            ),
            None => ("The deletion of its storage is under way".to_owned(), attached(ctx, target)),
        };
        let failed = state.contains("failed");
        let sentence = format!(
            "{short} is released: {claim} was deleted, and the volume is deleted by its reclaim policy Delete. {state}."
        );
        let reason = if failed {
            Reason::failing("Released", sentence)
        } else {
            Reason::progressing("Released", sentence)
        };
        return reason.because([cause.waits_for("the deletion of its storage")]).because(causes);
    }
    let remedy = kubectl::merge(VOLUMES, "", target.name, &json!({"spec": {"claimRef": null}}));
    let sentence = format!(
        "{short} is released: {claim} was deleted, and no other claim can use the volume while spec.claimRef names that claim. \
         To offer it with its data again: {remedy}"
    );
    Reason::progressing("Released", sentence)
        .because([cause.waits_for("a person who decides about its data").remedy(remedy)])
}

/// Explains a volume that waits for the claim it is reserved for.
fn available(ctx: &Context, target: Target) -> Option<Reason> {
    let short = ctx.short_of(target);
    let (namespace, name) = claim_of(target.object)?;
    let claim = ctx.reference(CLAIMS, namespace, name);
    let cause = Cause::of(ctx.reference_of(target)).field(format!("spec.claimRef: {claim}"));
    match ctx.get(CLAIMS, namespace, name) {
        None => {
            let sentence = format!(
                "{short} waits for its claim: spec.claimRef reserves it for {claim}, which does not exist. It is bound when that \
                 claim is created with a class, size and access modes that the volume offers."
            );
            Some(
                Reason::progressing("waits for its claim", sentence)
                    .because([cause.waits_for(format!("{claim}, which does not exist"))]),
            )
        }
        Some(found) => {
            let other = text(&found["spec"]["volumeName"]).filter(|other| *other != target.name);
            let why = match other {
                Some(other) => format!("is bound to {} instead", ctx.short(VOLUMES, other)),
                None => "is not bound to it yet".to_owned(),
            };
            let sentence =
                format!("{short} waits for its claim: spec.claimRef reserves it for {claim}, which {why}.");
            let explained = ctx.explain(CLAIMS, namespace, name);
            Some(
                Reason::progressing("waits for its claim", sentence)
                    .because([cause.waits_for(format!("{claim}, which {why}"))])
                    .because(explained),
            )
        }
    }
}
