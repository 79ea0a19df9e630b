//! Objects that outlive what made them: their owner was deleted, or a policy keeps them.

use serde_json::Value;

use crate::claims::CLAIMS;
use crate::context::{Context, Target};
use crate::deletion::{self, Role, role};
use crate::explanation::Cause;
use crate::kubectl;
use crate::objects::Version;
use crate::owners::{self, Lookup, Owner, look_up, owners};
use crate::reason::Reason;
use crate::stateful_sets::{self, ClaimOrigin, Retention};
use crate::text::{enumerate, quoted, text, text_or_empty};
use crate::volumes::VOLUMES;

/// The versions of an object that are searched for a former owner.
const MAX_VERSIONS: usize = 50;

/// Explains why an object without a request for its deletion is there though its owner or its claim
/// is gone.
pub fn reason(ctx: &Context, target: Target) -> Option<Reason> {
    match target.resource {
        VOLUMES => volume(ctx, target),
        CLAIMS => owned(ctx, target).or_else(|| claim(ctx, target)).or_else(|| orphan(ctx, target)),
        _ => owned(ctx, target).or_else(|| orphan(ctx, target)),
    }
}

/// Explains an object with references to owners that do not exist.
fn owned(ctx: &Context, target: Target) -> Option<Reason> {
    let all: Vec<Owner> = owners(target.object).collect();
    let looked_up: Vec<(&Owner, Lookup)> =
        all.iter().map(|owner| (owner, look_up(ctx, target.namespace, owner))).collect();
    let lost: Vec<&(&Owner, Lookup)> =
        looked_up.iter().filter(|(_, found)| !matches!(found, Lookup::Found(_))).collect();
    let (owner, found) = lost.first()?;
    let short = ctx.short_of(target);
    let reference = owner.reference(ctx, target.namespace);
    let field = format!("metadata.ownerReferences: {reference} (uid {})", owner.uid);
    let cause = Cause::of(ctx.reference_of(target)).field(field);
    if *found == Lookup::Unserved {
        let waits_for =
            format!("the API to serve {} {} again", quoted(&owner.api_version), quoted(&owner.kind));
        let sentence = format!(
            "{short} is still there because the garbage collector leaves it alone: its owner is of the kind {} of {}, which the API does not \
             serve, so that nobody can tell whether {} exists. Serve that kind again (its CustomResourceDefinition or APIService), \
             or: {}",
            quoted(&owner.kind),
            quoted(&owner.api_version),
            owner.short(),
            kubectl::delete(target.resource, target.namespace, target.name)
        );
        return Some(Reason::failing("owner not served", sentence).because([cause.waits_for(waits_for)]));
    }
    let is_namespaced =
        ctx.resource_of(&owner.api_version, &owner.kind).is_some_and(|resource| resource.namespaced);
    if target.namespace.is_empty() && is_namespaced {
        let delete = kubectl::delete(target.resource, "", target.name);
        let sentence = format!(
            "{short} is still there because the garbage collector leaves it alone: it is in no namespace, and its owner {} is of a \
             kind that is in namespaces, so that the owner cannot be found. To delete it: {delete}",
            owner.short()
        );
        return Some(Reason::failing("owner in a namespace", sentence).because([cause.remedy(delete)]));
    }
    let living: Vec<String> = looked_up
        .iter()
        .filter(|(_, found)| matches!(found, Lookup::Found(_)))
        .map(|(owner, _)| owner.short())
        .collect();
    let resource = ctx.resource_of(&owner.api_version, &owner.kind)?;
    let namespace = if resource.namespaced { target.namespace } else { "" };
    let is_replaced = ctx.get(&resource.name, namespace, &owner.name).is_some();
    let how = match is_replaced {
        true => "was replaced by another object of its name (its uid differs)",
        false => "does not exist",
    };
    let deletion = ctx.explain_deletion(&resource.name, namespace, &owner.name);
    let sentence = match living.is_empty() {
        false => format!(
            "{short} is still there though its owner {} {how}, because it has other owners: {}. It is deleted when none of its \
             owners exists.",
            owner.short(),
            enumerate(&living)
        ),
        true => format!(
            "{short} is still there though its owner {} {how}: the garbage collector deletes it as soon as it has noticed.",
            owner.short()
        ),
    };
    let waits_for = "the garbage collector, which deletes dependents without an owner";
    Some(Reason::progressing("owner gone", sentence).because([cause.waits_for(waits_for)]).because(deletion))
}

/// Explains an object that had an owner and has none now.
fn orphan(ctx: &Context, target: Target) -> Option<Reason> {
    if owners(target.object).next().is_some() {
        return None;
    }
    let versions = ctx.past(target.resource, target.namespace, target.name);
    let is_same = |version: &&Version| text_or_empty(&version.object["metadata"]["uid"]) == target.uid();
    let own: Vec<&Version> = versions.iter().take(MAX_VERSIONS).filter(is_same).collect();
    let index = own.iter().position(|version| owners(&version.object).next().is_some())?;
    let owner = own
        .get(index)
        .and_then(|version| owners::controller(&version.object).or_else(|| owners(&version.object).next()))?;
    let release = index.checked_sub(1).and_then(|index| own.get(index));
    let at = release.and_then(|version| version.time.as_deref());
    let at_text = at.map_or_else(String::new, |at| format!(" at {}", ctx.moment(at)));
    let by = release.and_then(|version| version.writer.as_ref()).map(deletion::describe);
    let short = ctx.short_of(target);
    let cause = Cause::of(ctx.reference_of(target))
        .field(format!("metadata.ownerReferences: {} (removed)", owner.reference(ctx, target.namespace)))
        .manager(by.clone().unwrap_or_default())
        .since(at.unwrap_or_default());
    let by = by.map_or_else(String::new, |by| format!(" by {by}"));
    let delete = kubectl::delete(target.resource, target.namespace, target.name);
    let writer = release.and_then(|version| version.writer.as_ref());
    if writer.is_none_or(|writer| role(writer) == Role::Client) {
        let sentence = format!(
            "{short} has no owner any more: the reference to {} was removed from it{at_text}{by}. Nothing deletes it with that \
             owner; to delete it: {delete}",
            owner.short()
        );
        return Some(Reason::progressing("owner removed", sentence).because([cause.remedy(delete)]));
    }
    if let Lookup::Found(_) = look_up(ctx, target.namespace, &owner) {
        let sentence = format!(
            "{short} was released by {}{at_text}: its labels no longer match the selector of that owner, so that nothing deletes it \
             with it. Change its labels back to have it adopted, or: {delete}",
            owner.short()
        );
        return Some(Reason::progressing("released", sentence).because([cause.remedy(delete)]));
    }
    let sentence = format!(
        "{short} is still there because it was orphaned: its owner {} was deleted with propagationPolicy: Orphan (kubectl delete \
         --cascade=orphan), and the reference to it was removed{at_text}{by}. Nothing deletes it now but a request: {delete}",
        owner.short()
    );
    let deletion = ctx
        .resource_of(&owner.api_version, &owner.kind)
        .map(|resource| ctx.explain_deletion(&resource.name, target.namespace, &owner.name));
    Some(
        Reason::progressing("orphaned", sentence)
            .because([cause.remedy(delete)])
            .because(deletion.unwrap_or_default()),
    )
}

/// Explains a claim that its StatefulSet retained.
fn claim(ctx: &Context, target: Target) -> Option<Reason> {
    let ClaimOrigin { set, ordinal, retention } = stateful_sets::origin_of_claim(ctx, target)?;
    let short = ctx.short_of(target);
    let set_name = ctx.short(stateful_sets::SETS, &set);
    let delete = kubectl::delete(CLAIMS, target.namespace, target.name);
    let cause = Cause::of(ctx.reference(stateful_sets::SETS, target.namespace, &set));
    let (field, sentence) = match retention {
        Retention::SetDeleted(false) => (
            "spec.persistentVolumeClaimRetentionPolicy.whenDeleted: Retain",
            format!(
                "{short} is still there though {set_name} was deleted, because that StatefulSet had \
                 persistentVolumeClaimRetentionPolicy.whenDeleted: Retain. A new StatefulSet of that name uses it again; \
                 if nobody needs its data: {delete}"
            ),
        ),
        Retention::SetDeleted(true) => return None,
        Retention::ScaledDown(false) => (
            "spec.persistentVolumeClaimRetentionPolicy.whenScaled: Retain",
            format!(
                "{short} is still there though {set_name} has no pod {ordinal} any more, because \
                 persistentVolumeClaimRetentionPolicy.whenScaled is Retain. The pod uses it again when the StatefulSet is scaled up; \
                 if nobody needs its data: {delete}"
            ),
        ),
        Retention::ScaledDown(true) => (
            "spec.persistentVolumeClaimRetentionPolicy.whenScaled: Delete",
            format!(
                "{short} is still there though {set_name} has no pod {ordinal} any more and whenScaled is Delete: the policy takes \
                 effect only on claims of pods that exist while the StatefulSet is scaled down. To delete it: {delete}"
            ),
        ),
    };
    let deletion = ctx.explain_deletion(stateful_sets::SETS, target.namespace, &set);
    let cause = cause.field(field).remedy(delete);
    Some(Reason::progressing("retained", sentence).because([cause]).because(deletion))
}

/// Explains a volume that its reclaim policy keeps after the deletion of its claim.
fn volume(ctx: &Context, target: Target) -> Option<Reason> {
    let phase = text(&target.status()["phase"])?;
    let policy = text(&target.spec()["persistentVolumeReclaimPolicy"]).unwrap_or("Retain");
    if !["Released", "Failed"].contains(&phase) || policy != "Retain" {
        return None;
    }
    let claim: &Value = &target.spec()["claimRef"];
    let (namespace, name) = (text_or_empty(&claim["namespace"]), text_or_empty(&claim["name"]));
    let delete = kubectl::delete(VOLUMES, "", target.name);
    let sentence = format!(
        "{} is still there though {} was deleted, because its reclaim policy is Retain: nothing deletes the volume or its \
         storage. If nobody needs its data: {delete} (the storage itself has to be deleted at its provider)",
        ctx.short_of(target),
        ctx.reference(CLAIMS, namespace, name)
    );
    let cause = Cause::of(ctx.reference_of(target))
        .field("spec.persistentVolumeReclaimPolicy: Retain")
        .remedy(delete);
    let deletion = ctx.explain_deletion(CLAIMS, namespace, name);
    Some(Reason::progressing("Retain", sentence).because([cause]).because(deletion))
}
