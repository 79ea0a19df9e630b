//! Pods without a node.

use crate::claims;
use crate::conditions::condition;
use crate::context::{Context, Target};
use crate::explanation::Cause;
use crate::reason::Reason;
use crate::simulation;
use crate::text::{enumerate, items, plural, quoted, text, text_or_empty, with_stop};

/// Texts in the message of the scheduler, and what can be done.
const REMEDIES: [(&str, &str); 18] = [
    ("Insufficient", "ask for less in spec.containers[].resources.requests, or add a node"),
    ("Too many pods", "delete pods, or add a node"),
    (
        "untolerated taint",
        "add a toleration in spec.tolerations, or remove the taint: kubectl taint nodes NODE KEY-",
    ),
    ("were unschedulable", "kubectl uncordon NODE"),
    ("PersistentVolume's node affinity", "its volume is on another node: make room there"),
    ("node affinity/selector", "change spec.nodeSelector or spec.affinity.nodeAffinity, or label a node"),
    ("free ports", "a pod on each node uses its host port already: use another"),
    ("anti-affinity", "change spec.affinity.podAntiAffinity, or add a node"),
    ("pod affinity terms conflict", "spec.affinity.nodeAffinity names no node: change its terms"),
    ("plugin(s) [NodeAffinity]", "spec.affinity.nodeAffinity names the only nodes that it may run on"),
    ("available volume zone", "its volume is in another zone: make room there"),
    ("available disk", "another pod of the node uses the disk, and only one may"),
    ("pod affinity", "no node has a pod that spec.affinity.podAffinity asks for"),
    ("topology spread", "change spec.topologySpreadConstraints, or add a node"),
    ("ReadWriteOncePod", "another pod uses the claim, and only one may at a time"),
    ("available persistent volumes to bind", "create a volume that its claim can use on such a node"),
    ("unbound immediate PersistentVolumeClaims", "its claim has to be bound first"),
    ("volume limits", "the driver of its volumes allows no more on a node"),
];

/// The reasons of nodes that are listed.
const MAX_PARTS: usize = 8;

/// Explains why a pod has no node.
pub fn reason(ctx: &Context, target: Target) -> Reason {
    let short = ctx.short_of(target);
    let gates: Vec<&str> =
        items(&target.spec()["schedulingGates"]).filter_map(|gate| text(&gate["name"])).collect();
    if !gates.is_empty() {
        let sentence = format!(
            "{short} is pending because of its scheduling gates: {}. The scheduler ignores it until whoever set them removes them \
             from spec.schedulingGates.",
            enumerate(&gates)
        );
        let gates = gates.iter().take(10).map(|gate| {
            Cause::of(ctx.reference_of(target))
                .field(format!("spec.schedulingGates: {}", quoted(gate)))
                .waits_for("its removal by the program that set it")
        });
        return Reason::progressing("SchedulingGated", sentence).because(gates);
    }
    let claims = claims(ctx, target);
    let condition =
        condition(target.object, "PodScheduled").filter(|condition| condition["status"] == "False");
    let Some(message) = condition.and_then(|condition| text(&condition["message"])) else {
        return unseen(ctx, target).because(claims);
    };
    let since = text_or_empty(&condition.unwrap_or(target.object)["lastTransitionTime"]);
    let (summary, parts) = parts(message);
    let sentence = format!("{short} is pending because the scheduler finds no node for it: {summary}.");
    let causes = parts.into_iter().map(|part| {
        let remedy = REMEDIES.iter().find(|(text, _)| part.contains(text)).map_or("", |(_, remedy)| remedy);
        Cause::of(ctx.reference_of(target))
            .field("status.conditions: PodScheduled=False")
            .since(since)
            .waits_for(part)
            .remedy(remedy)
    });
    let causes: Vec<Cause> = causes.collect();
    let hint = causes
        .iter()
        .map(|cause| cause.remedy.as_str())
        .find(|remedy| !remedy.is_empty() && claims.is_empty());
    let hint = hint.map_or_else(String::new, |remedy| format!(" To change that: {remedy}."));
    let named = claims.first().map(|claim| format!(" See {}: {}", claim.object, with_stop(&claim.waits_for)));
    let sentence = format!("{sentence}{hint}{}", named.unwrap_or_default());
    Reason::failing("Unschedulable", sentence).because(causes).because(claims)
}

/// Returns the claims of a pod that keep it from starting.
pub fn claims(ctx: &Context, target: Target) -> Vec<Cause> {
    let names = claims::of_pod(target.object).into_iter().map(|(name, _)| name);
    names.flat_map(|claim| claim_causes(ctx, target, &claim)).collect()
}

fn claim_causes(ctx: &Context, target: Target, claim: &str) -> Vec<Cause> {
    let reference = ctx.reference(claims::CLAIMS, target.namespace, claim);
    match ctx.get(claims::CLAIMS, target.namespace, claim) {
        Some(found) => {
            let explained = ctx.explain(claims::CLAIMS, target.namespace, claim);
            match explained.is_empty() && found["status"]["phase"] != "Bound" {
                true => vec![Cause::of(reference).waits_for("the claim is not bound")],
                false => explained,
            }
        }
        None => {
            let short = ctx.short(claims::CLAIMS, claim);
            let cause = Cause::of(reference).waits_for(format!("{short} does not exist"));
            let cause = cause.remedy("create the claim; the pod starts when it is bound");
            let deletion = ctx.explain_deletion(claims::CLAIMS, target.namespace, claim);
            std::iter::once(cause).chain(deletion).collect()
        }
    }
}

/// Explains a pod on which no scheduler has reported.
fn unseen(ctx: &Context, target: Target) -> Reason {
    let short = ctx.short_of(target);
    let scheduler = text(&target.spec()["schedulerName"]).unwrap_or("default-scheduler");
    let cause =
        Cause::of(ctx.reference_of(target)).field(format!("spec.schedulerName: {}", quoted(scheduler)));
    let sentence = match scheduler {
        _ if simulation::is_ignored(target) => format!(
            "{short} is pending because of its annotation sim.coracle.dev/ignore: the simulated scheduler and kubelets leave it alone."
        ),
        "default-scheduler" => format!("{short} is pending: the scheduler has not looked at it yet."),
        other => format!(
            "{short} is pending because it waits for the scheduler {}, which has not reported on it. It is not scheduled if no \
             program of that name runs.",
            quoted(other)
        ),
    };
    let waits_for = format!("a node from the scheduler {}", quoted(scheduler));
    Reason::progressing("not scheduled", sentence).because([cause.waits_for(waits_for)])
}

/// Splits the message of the scheduler: a summary, and a text for each reason.
fn parts(message: &str) -> (String, Vec<String>) {
    let message = crate::text::cut(message, 1000);
    let end = ["preemption:", "no new claims to deallocate", ". not found"]
        .iter()
        .filter_map(|end| message.find(end))
        .min();
    let message =
        message.get(..end.unwrap_or(message.len())).unwrap_or(&message).trim_end_matches([' ', '.', ',']);
    let Some((nodes, reasons)) = message.split_once(" nodes are available: ") else {
        return (quoted(message), vec![quoted(message)]);
    };
    let total =
        nodes.split_once('/').and_then(|(_, total)| total.trim().parse::<i64>().ok()).unwrap_or_default();
    let parts: Vec<String> = reasons.split(", ").take(MAX_PARTS).map(quoted).collect();
    let nodes = match total {
        0 => "there is no node".to_owned(),
        1 => "the only node cannot take it".to_owned(),
        total => format!("none of {} can take it", plural(total, "node")),
    };
    (format!("{nodes} ({})", quoted(reasons)), parts)
}
