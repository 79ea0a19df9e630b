//! StatefulSets: the pod or the claim that one waits for, and the claims that one leaves behind.

use std::ops::Range;

use serde_json::Value;

use crate::claims::{self, CLAIMS};
use crate::conditions::unobserved;
use crate::context::{Context, Target, event_time, is_terminating};
use crate::explanation::Cause;
use crate::owners::is_owned_by;
use crate::pods;
use crate::reason::Reason;
use crate::text::{count, items, plural, quoted, seconds_since, text, text_or_empty};

/// The resource of the StatefulSets.
pub const SETS: &str = "statefulsets.apps";

/// The ordinals of a StatefulSet that are visited.
const MAX_ORDINALS: i64 = 1000;

/// Returns the first ordinal, and the one after the last.
pub fn ordinals(set: &Value) -> (i64, i64) {
    let start = count(&set["spec"]["ordinals"]["start"]).max(0);
    let replicas = set["spec"]["replicas"].as_i64().unwrap_or(1).max(0);
    (start, start.saturating_add(replicas))
}

/// Returns the ordinal of a set's pod by its name.
pub fn ordinal(set: &str, pod: &str) -> Option<i64> {
    let ordinal = pod.strip_prefix(set)?.strip_prefix('-')?;
    ordinal.bytes().all(|byte| byte.is_ascii_digit()).then(|| ordinal.parse().ok())?
}

/// Explains why a StatefulSet does not have its pods, or does not have them in the newest revision.
pub fn reason(ctx: &Context, target: Target) -> Option<Reason> {
    if let Some(unobserved) = unobserved(ctx, target) {
        return Some(unobserved);
    }
    let (start, end) = ordinals(target.object);
    let is_parallel = target.spec()["podManagementPolicy"] == "Parallel";
    let ready = count(&target.status()["readyReplicas"]);
    let desired = end.saturating_sub(start);
    let counted = format!("{} of {desired} pods ready", ready.min(desired));
    for ordinal in (start..end).take(usize::try_from(MAX_ORDINALS).unwrap_or(usize::MAX)) {
        let name = format!("{}-{ordinal}", target.name);
        let Some(pod) = ctx.get("pods", target.namespace, &name) else {
            return Some(missing_pod(ctx, target, &name, &counted, is_parallel));
        };
        if is_terminating(&pod) || !pods::is_ready(&pod) {
            return Some(unready_pod(ctx, target, &name, &pod, &counted, is_parallel));
        }
    }
    surplus(ctx, target).or_else(|| rollout(ctx, target))
}

/// Explains a pod that does not exist yet: its claim blocks it, its creation is refused, or it
/// waits for an earlier pod.
fn missing_pod(ctx: &Context, target: Target, pod: &str, counted: &str, is_parallel: bool) -> Reason {
    let short = ctx.short_of(target);
    let pod_name = ctx.short("pods", pod);
    for template in items(&target.spec()["volumeClaimTemplates"]).take(20) {
        let claim = format!("{}-{pod}", text_or_empty(&template["metadata"]["name"]));
        let Some(found) = ctx.get(CLAIMS, target.namespace, &claim) else { continue };
        let claim_name = ctx.short(CLAIMS, &claim);
        if !is_terminating(&found) && !claims::is_stale(&found, pod) {
            continue;
        }
        let why = match is_terminating(&found) {
            true => "is being deleted",
            false => "belongs to a former pod of that name, and the garbage collector deletes it",
        };
        let sentence = format!(
            "{short} has {counted}: it waits for the deletion of {claim_name} before it makes {pod_name}. That claim {why}; the \
             StatefulSet makes a new claim and the pod once it is deleted."
        );
        let cause = Cause::of(ctx.reference(CLAIMS, target.namespace, &claim))
            .field(if is_terminating(&found) {
                "metadata.deletionTimestamp"
            } else {
                "metadata.ownerReferences"
            })
            .since(text_or_empty(&found["metadata"]["deletionTimestamp"]))
            .waits_for(format!("its deletion, for which {short} waits"));
        let explained = ctx.explain(CLAIMS, target.namespace, &claim);
        let causes = if explained.is_empty() { vec![cause] } else { explained };
        return Reason::progressing(format!("waits for {claim_name}"), sentence).because(causes);
    }
    let cause = Cause::of(ctx.reference("pods", target.namespace, pod));
    if let Some(event) = ctx.last_event(target, &["FailedCreate"]) {
        let message = quoted(text_or_empty(&event["message"]));
        let at = ctx.moment(event_time(&event));
        let sentence = format!(
            "{short} has {counted}: the creation of a pod was refused at {at}: {message}. The StatefulSet controller tries it again."
        );
        return Reason::failing("FailedCreate", sentence)
            .because([cause.since(event_time(&event)).waits_for(message)])
            .because(crate::policies::quotas_in(ctx, target.namespace, text_or_empty(&event["message"])));
    }
    let (start, _) = ordinals(target.object);
    let before = if is_parallel { start..start } else { start..ordinal(target.name, pod).unwrap_or(start) };
    let order = match (before.is_empty(), unavailable(ctx, target, before.clone())) {
        (true, _) => String::new(),
        (false, Some(order)) => order,
        (false, None) => {
            " All pods before it are ready, so that it is next (podManagementPolicy: OrderedReady)."
                .to_owned()
        }
    };
    let sentence = format!(
        "{short} has {counted}: {pod_name} does not exist yet; the StatefulSet controller makes it.{order}"
    );
    Reason::progressing(counted, sentence)
        .because([cause.waits_for("its creation by the StatefulSet controller")])
}

/// Explains that one of these pods, which are ready, has to stay so for the set's `minReadySeconds`.
fn unavailable(ctx: &Context, target: Target, mut ordinals: Range<i64>) -> Option<String> {
    let needed = count(&target.spec()["minReadySeconds"]);
    if needed <= 0 {
        return None;
    }
    let (pod, left) = ordinals.find_map(|ordinal| {
        let name = format!("{}-{ordinal}", target.name);
        let pod = ctx.get("pods", target.namespace, &name)?;
        let ready = items(&pod["status"]["conditions"]).find(|condition| condition["type"] == "Ready")?;
        let passed = seconds_since(ctx.now, &ready["lastTransitionTime"])?.max(0);
        (passed < needed).then(|| (name, needed.saturating_sub(passed)))
    })?;
    Some(format!(
        " Before that, {} has to be ready for {} (minReadySeconds), {} more.",
        ctx.short("pods", &pod),
        plural(needed, "second"),
        plural(left, "second")
    ))
}

fn unready_pod(
    ctx: &Context,
    target: Target,
    pod: &str,
    object: &Value,
    counted: &str,
    is_parallel: bool,
) -> Reason {
    let short = ctx.short_of(target);
    let pod_name = ctx.short("pods", pod);
    let (_, end) = ordinals(target.object);
    let is_last = ordinal(target.name, pod).is_some_and(|ordinal| ordinal.saturating_add(1) >= end);
    let state = match is_terminating(object) {
        true => "is being deleted, and is made anew afterwards",
        false => "is not ready",
    };
    let rule = match is_parallel || is_last {
        true => String::new(),
        false => format!(
            " With podManagementPolicy OrderedReady it makes no pod after {pod_name}, and updates and deletes none, until that pod \
             is ready."
        ),
    };
    let outdated = stuck_rollout(target, object).map(|hint| format!(" {hint}")).unwrap_or_default();
    let sentence = format!("{short} has {counted}: {pod_name} {state}.{rule}{outdated}");
    let explained = ctx.explain("pods", target.namespace, pod);
    let cause =
        Cause::of(ctx.reference("pods", target.namespace, pod)).waits_for(format!("{pod_name} {state}"));
    let causes = if explained.is_empty() { vec![cause] } else { explained };
    Reason::progressing(counted.to_owned(), sentence).because(causes)
}

/// Explains a pod of an outdated revision, which a StatefulSet does not replace while the pod is
/// not ready.
fn stuck_rollout(target: Target, pod: &Value) -> Option<String> {
    let update = text(&target.status()["updateRevision"])?;
    let own = text(&pod["metadata"]["labels"]["controller-revision-hash"]).filter(|own| *own != update)?;
    let is_ordered = target.spec()["podManagementPolicy"] != "Parallel";
    (is_ordered && !is_terminating(pod)).then(|| {
        format!(
            "The pod is of revision {}, not of the newest one, {}: if it never becomes ready, it has to be deleted by hand.",
            quoted(own),
            quoted(update)
        )
    })
}

/// Explains pods beyond the last ordinal.
fn surplus(ctx: &Context, target: Target) -> Option<Reason> {
    let (start, end) = ordinals(target.object);
    let list = ctx.list("pods", Some(target.namespace));
    let surplus =
        list.iter().filter(|pod| is_owned_by(pod, target.uid())).map(|pod| Target::listed("pods", pod));
    let surplus: Vec<Target> = surplus
        .filter(|pod| ordinal(target.name, pod.name).is_some_and(|ordinal| ordinal < start || ordinal >= end))
        .collect();
    let last = surplus.iter().max_by_key(|pod| ordinal(target.name, pod.name))?;
    let sentence = format!(
        "{} is being scaled down to {}: {} is deleted before the others.",
        ctx.short_of(target),
        plural(end.saturating_sub(start), "replica"),
        ctx.short_of(*last)
    );
    let explained = ctx.explain("pods", target.namespace, last.name);
    let cause = Cause::of(ctx.reference_of(*last)).waits_for("its deletion by the StatefulSet controller");
    let causes = if explained.is_empty() { vec![cause] } else { explained };
    Some(Reason::progressing("scaling down", sentence).because(causes))
}

/// Explains a rollout in which all pods are ready, and some are of an older revision.
fn rollout(ctx: &Context, target: Target) -> Option<Reason> {
    let (spec, status) = (target.spec(), target.status());
    let update = text(&status["updateRevision"]).filter(|update| status["currentRevision"] != **update)?;
    let (start, end) = ordinals(target.object);
    let desired = end.saturating_sub(start);
    let updated = count(&status["updatedReplicas"]);
    let strategy = &spec["updateStrategy"];
    let partition = count(&strategy["rollingUpdate"]["partition"]).clamp(0, desired);
    let short = ctx.short_of(target);
    let cause = Cause::of(ctx.reference_of(target));
    if strategy["type"] == "OnDelete" {
        if updated >= desired {
            return None;
        }
        let sentence = format!(
            "{short} has {updated} of {} in its newest revision {}, because its updateStrategy is OnDelete: a pod is replaced only \
             when somebody deletes it.",
            plural(desired, "pod"),
            quoted(update)
        );
        return Some(
            Reason::ready("OnDelete", sentence).because([cause.field("spec.updateStrategy.type: OnDelete")]),
        );
    }
    if updated >= desired.saturating_sub(partition) {
        if partition == 0 {
            return None;
        }
        let sentence = format!(
            "{short} is updated as far as its partition allows: the pods with an ordinal below {} stay at revision {}. Lower \
             spec.updateStrategy.rollingUpdate.partition to update them.",
            start.saturating_add(partition),
            quoted(text_or_empty(&status["currentRevision"]))
        );
        let field = format!("spec.updateStrategy.rollingUpdate.partition: {partition}");
        return Some(Reason::ready("partition", sentence).because([cause.field(field)]));
    }
    let sentence = format!(
        "{short} is being updated to revision {}: {updated} of {} are of that revision. The controller replaces one pod at a time, \
         from the last ordinal to the first.",
        quoted(update),
        plural(desired, "pod")
    );
    Some(Reason::progressing("updating", sentence).because([cause.field("status.updatedReplicas")]))
}

/// The origin of a claim of a pod that is no longer wanted.
pub struct ClaimOrigin {
    pub set: String,
    pub ordinal: i64,
    pub retention: Retention,
}

/// The part of a retention policy that applies, and whether it says Delete.
pub enum Retention {
    SetDeleted(bool),
    ScaledDown(bool),
}

/// Finds the StatefulSet that a claim was made for, by the name TEMPLATE-SET-ORDINAL, if the set or
/// the ordinal is gone.
pub fn origin_of_claim(ctx: &Context, claim: Target) -> Option<ClaimOrigin> {
    let (rest, digits) = claim.name.rsplit_once('-')?;
    let ordinal: i64 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    for (at, _) in rest.match_indices('-').take(20) {
        let (Some(template), Some(set)) = (rest.get(..at), rest.get(at.saturating_add(1)..)) else {
            continue;
        };
        let has_template = |object: &Value| {
            let mut templates = items(&object["spec"]["volumeClaimTemplates"]);
            templates.any(|one| one["metadata"]["name"] == template)
        };
        let policy = |object: &Value, half: &str| {
            object["spec"]["persistentVolumeClaimRetentionPolicy"][half] == "Delete"
        };
        let origin = |retention| Some(ClaimOrigin { set: set.to_owned(), ordinal, retention });
        if let Some(found) = ctx.get(SETS, claim.namespace, set) {
            let (start, end) = ordinals(&found);
            let is_wanted = (start..end).contains(&ordinal);
            let pod = format!("{set}-{ordinal}");
            if has_template(&found) && !is_wanted && ctx.get("pods", claim.namespace, &pod).is_none() {
                return origin(Retention::ScaledDown(policy(&found, "whenScaled")));
            }
        } else if let Some(last) =
            ctx.past(SETS, claim.namespace, set).first().filter(|last| has_template(&last.object))
        {
            return origin(Retention::SetDeleted(policy(&last.object, "whenDeleted")));
        }
    }
    None
}
