//! Pods that are not ready.

use serde_json::Value;

use crate::conditions::{self, condition, describe, is_true};
use crate::containers;
use crate::context::{Context, Target};
use crate::explanation::Cause;
use crate::kubectl;
use crate::reason::{Reason, State};
use crate::scheduling;
use crate::simulation;
use crate::text::{items, quoted, reason_and_message, text, text_or_empty};

/// Returns `true` if a pod is running and ready.
pub fn is_ready(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running" && is_true(pod, "Ready").is_some()
}

/// Explains why a pod is not ready, or is not resized; None if it is as it should be.
pub fn reason(ctx: &Context, target: Target) -> Option<Reason> {
    let phase = text(&target.status()["phase"]).unwrap_or("Pending");
    if phase == "Succeeded" {
        return None;
    }
    if is_ready(target.object) {
        return resize(ctx, target);
    }
    if phase == "Failed" {
        return Some(failed(ctx, target));
    }
    if text(&target.spec()["nodeName"]).is_none() {
        return Some(scheduling::reason(ctx, target));
    }
    let node = node(ctx, target);
    if let Some(reason) = node {
        return Some(reason);
    }
    let starting = || starting(ctx, target).filter(|_| phase == "Pending");
    Some(
        containers(ctx, target, phase)
            .or_else(starting)
            .or_else(|| gates(ctx, target))
            .unwrap_or_else(|| unknown(ctx, target, phase)),
    )
}

/// Explains a pod that has failed: evicted, refused by its kubelet, or a container ended with an
/// error.
fn failed(ctx: &Context, target: Target) -> Reason {
    let short = ctx.short_of(target);
    let cause = Cause::of(ctx.reference_of(target)).field("status.phase: Failed");
    let own = reason_and_message(target.status());
    if let Some(disruption) = is_true(target.object, "DisruptionTarget").filter(|_| own.is_empty()) {
        let why = reason_and_message(disruption);
        let sentence = format!(
            "{short} has failed because it was disrupted: {why}. Its owner makes another one, if it has an owner."
        );
        return Reason::failing("disrupted", sentence).because([cause.waits_for(why)]);
    }
    let findings = containers::findings(ctx, target);
    if let Some(first) = findings.first().filter(|_| own.is_empty()) {
        let sentence = format!(
            "{short} has failed: {}. A pod that has failed is not started again{}{}",
            first.clause,
            if first.cause.remedy.is_empty() { "." } else { "; see " },
            first.cause.remedy
        );
        let short = first.short.clone();
        return Reason::failing(short, sentence).because(findings.into_iter().map(|finding| finding.cause));
    }
    let own = if own.is_empty() { "for no reason that its status gives".to_owned() } else { own };
    let sentence = format!("{short} has failed: {own}. A pod that has failed is not started again.");
    let word = text(&target.status()["reason"]).unwrap_or("Failed");
    Reason::failing(quoted(word), sentence)
        .because([cause.waits_for(own)])
        .because(findings.into_iter().map(|finding| finding.cause))
}

/// Explains the node of a pod, if it does not exist or is not ready.
fn node(ctx: &Context, target: Target) -> Option<Reason> {
    let name = text(&target.spec()["nodeName"])?;
    let short = ctx.short_of(target);
    let node_short = ctx.short("nodes", name);
    let cause = Cause::of(ctx.reference_of(target)).field(format!("spec.nodeName: {}", quoted(name)));
    let Some(node) = ctx.get("nodes", "", name) else {
        let sentence = format!(
            "{short} is not ready because its node {node_short} does not exist: no kubelet runs it. The pod garbage collector \
             deletes it, or: {}",
            kubectl::delete("pods", target.namespace, target.name)
        );
        return Some(
            Reason::failing("node not found", sentence)
                .because([cause.waits_for(format!("{node_short}, which does not exist"))]),
        );
    };
    let ready = condition(&node, "Ready").filter(|ready| ready["status"] != "True")?;
    let sentence = format!(
        "{short} is not ready because its node {node_short} is not ready: {}. It is ready again when the node is.",
        describe(ctx, ready)
    );
    let explained = ctx.explain("nodes", "", name);
    Some(
        Reason::failing("node not ready", sentence)
            .because([cause.waits_for(format!("{node_short} to be ready"))])
            .because(explained),
    )
}

/// Explains a pod that its kubelet cannot start: because of claims, or of volumes that cannot be
/// mounted.
fn starting(ctx: &Context, target: Target) -> Option<Reason> {
    let short = ctx.short_of(target);
    let claims = scheduling::claims(ctx, target);
    let event = ctx.last_event(target, &["FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"]);
    let message = event.as_ref().and_then(|event| text(&event["message"])).map(quoted);
    let message = message.or_else(|| claims.first().map(|claim| quoted(&claim.waits_for)))?;
    let node = ctx.short("nodes", text_or_empty(&target.spec()["nodeName"]));
    let sentence = format!(
        "{short} is pending because the kubelet of {node} cannot start it: {message}. It starts when that is repaired."
    );
    let cause = Cause::of(ctx.reference_of(target)).field("spec.volumes").waits_for(message);
    Some(Reason::failing("FailedMount", sentence).because([cause]).because(claims))
}

fn containers(ctx: &Context, target: Target, phase: &str) -> Option<Reason> {
    let findings = containers::findings(ctx, target);
    let is_creating = findings.iter().all(|finding| finding.short == "ContainerCreating");
    if is_creating && let Some(starting) = starting(ctx, target).filter(|_| phase == "Pending") {
        return Some(starting);
    }
    let first = findings.iter().find(|finding| finding.state == State::Failing).or(findings.first())?;
    let state = if phase == "Running" { "is running and not ready" } else { "is pending" };
    let hint = match first.cause.remedy.as_str() {
        "" => String::new(),
        remedy => format!(" To find out more or to change that: {remedy}"),
    };
    let sentence = format!("{} {state} because {}.{hint}", ctx.short_of(target), first.clause);
    let reason = match first.state {
        State::Failing => Reason::failing(first.short.clone(), sentence),
        _ => Reason::progressing(first.short.clone(), sentence),
    };
    Some(reason.because(findings.into_iter().map(|finding| finding.cause)))
}

/// Explains a ready pod that does not have the resources of its spec yet (KEP-1287).
fn resize(ctx: &Context, target: Target) -> Option<Reason> {
    let pending = is_true(target.object, "PodResizePending")?;
    let node = ctx.short("nodes", text_or_empty(&target.spec()["nodeName"]));
    let outlook = match text_or_empty(&pending["reason"]) {
        "Infeasible" => format!(
            "{node} can never give it that much: ask for less in spec.containers[].resources.requests"
        ),
        _ => format!("It is resized once other pods of {node} end or ask for less"),
    };
    let sentence = format!(
        "{} is ready, and has not been resized: {}. {outlook}.",
        ctx.short_of(target),
        describe(ctx, pending)
    );
    Some(Reason::ready("resize pending", sentence).because([conditions::cause(ctx, target, pending)]))
}

/// Explains the readiness gates that are not true.
fn gates(ctx: &Context, target: Target) -> Option<Reason> {
    let is_open = |name: &str| is_true(target.object, name).is_some();
    let closed: Vec<&str> = items(&target.spec()["readinessGates"])
        .filter_map(|gate| text(&gate["conditionType"]))
        .filter(|name| !is_open(name))
        .collect();
    let first = closed.first()?;
    let sentence = format!(
        "{} runs, and is not ready because of its readiness gate {}: that condition in its status is not True. It is ready when the \
         program that the gate belongs to sets it.",
        ctx.short_of(target),
        quoted(first)
    );
    let causes = closed.iter().take(10).map(|name| {
        Cause::of(ctx.reference_of(target))
            .field(format!("spec.readinessGates: {}", quoted(name)))
            .waits_for(format!("the condition {} to be True", quoted(name)))
    });
    let causes: Vec<Cause> = causes.collect();
    Some(Reason::progressing("readiness gate", sentence).because(causes))
}

fn unknown(ctx: &Context, target: Target, phase: &str) -> Reason {
    let short = ctx.short_of(target);
    let node = ctx.short("nodes", text_or_empty(&target.spec()["nodeName"]));
    let cause = Cause::of(ctx.reference_of(target)).field(format!("status.phase: {}", quoted(phase)));
    let said = condition(target.object, "Ready").filter(|ready| !reason_and_message(ready).is_empty());
    let sentence = match said {
        Some(ready) => format!("{short} is not ready: {}.", describe(ctx, ready)),
        None if simulation::is_ignored(target) => {
            format!(
                "{short} is not ready because of its annotation sim.coracle.dev/ignore: the simulated kubelets leave it alone."
            )
        }
        None => format!("{short} is not ready: the kubelet of {node} has not reported on it yet."),
    };
    Reason::progressing(quoted(phase), sentence).because([cause.waits_for(format!("the kubelet of {node}"))])
}
