//! The conditions in the status of an object.

use serde_json::Value;

use crate::context::{Context, Target};
use crate::explanation::Cause;
use crate::reason::Reason;
use crate::text::{count, items, quoted, reason_and_message, text, text_or_empty};

/// The conditions that are true of an object that is as it should be.
const WANTED: [&str; 6] = ["Ready", "Available", "Synced", "Healthy", "Established", "Accepted"];

/// The conditions that are true of an object that failed.
const UNWANTED: [&str; 5] = ["Stalled", "Degraded", "Failed", "Failure", "ReconcileError"];

/// Returns the condition with this type.
pub fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    items(&object["status"]["conditions"]).find(|condition| condition["type"] == name)
}

/// Returns the condition with this type, if it is true.
pub fn is_true<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    condition(object, name).filter(|condition| condition["status"] == "True")
}

/// Converts a condition to a cause.
pub fn cause(ctx: &Context, target: Target, condition: &Value) -> Cause {
    let name = quoted(text_or_empty(&condition["type"]));
    let status = quoted(text_or_empty(&condition["status"]));
    Cause::of(ctx.reference_of(target))
        .field(format!("status.conditions: {name}={status}"))
        .since(text_or_empty(&condition["lastTransitionTime"]))
        .waits_for(reason_and_message(condition))
}

/// Explains objects without a rule of their own: by the conditions that custom resources have by
/// convention, and by whether the controller has observed the newest generation.
pub fn any(ctx: &Context, target: Target) -> Option<Reason> {
    let bad = |condition: &&Value| {
        let name = text_or_empty(&condition["type"]);
        let is_true = condition["status"] == "True";
        WANTED.contains(&name) && !is_true || UNWANTED.contains(&name) && is_true
    };
    let failing: Vec<&Value> = items(&target.status()["conditions"]).filter(bad).collect();
    let Some(first) = failing.first() else { return unobserved(ctx, target) };
    let described: Vec<String> = failing.iter().take(3).map(|condition| describe(ctx, condition)).collect();
    let name = quoted(text_or_empty(&first["type"]));
    let status = quoted(text_or_empty(&first["status"]));
    let sentence = format!("{} is not ready: {}.", ctx.short_of(target), described.join("; "));
    let short = format!("{name}={status}");
    let has_failed = failing.iter().any(|condition| condition["status"] != "Unknown");
    let reason = match has_failed {
        true => Reason::failing(short, sentence),
        false => Reason::progressing(short, sentence),
    };
    let unobserved = unobserved(ctx, target).map(|reason| reason.causes).unwrap_or_default();
    Some(
        reason
            .because(failing.into_iter().map(|condition| cause(ctx, target, condition)))
            .because(unobserved),
    )
}

/// Describes a condition: `its condition Ready is False since 10:02:00Z (1 minute ago): Reason:
/// message`.
pub fn describe(ctx: &Context, condition: &Value) -> String {
    let name = quoted(text_or_empty(&condition["type"]));
    let status = quoted(text_or_empty(&condition["status"]));
    let since = text(&condition["lastTransitionTime"]).map(|at| format!(" since {}", ctx.moment(at)));
    let why = reason_and_message(condition);
    let why = if why.is_empty() { why } else { format!(": {why}") };
    format!("its condition {name} is {status}{}{why}", since.unwrap_or_default())
}

/// Explains an object whose newest generation its controller has not observed; None if the
/// controller does not report generations.
pub fn unobserved(ctx: &Context, target: Target) -> Option<Reason> {
    let generation = count(&target.object["metadata"]["generation"]);
    let observed =
        target.status()["observedGeneration"].as_i64().filter(|observed| *observed < generation)?;
    let sentence = format!(
        "{} was changed and its controller has not acted on that yet: metadata.generation is {generation}, \
         status.observedGeneration is {observed}. If that lasts, the controller does not run or fails.",
        ctx.short_of(target)
    );
    let cause = Cause::of(ctx.reference_of(target))
        .field(format!("status.observedGeneration: {observed}"))
        .waits_for(format!("its controller, which has to observe generation {generation}"));
    Some(Reason::progressing("not observed", sentence).because([cause]))
}
