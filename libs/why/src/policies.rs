//! Quotas, disruption budgets and autoscalers.

use serde_json::Value;

use crate::conditions::{self, condition};
use crate::context::{Context, Target};
use crate::deletion;
use crate::explanation::Cause;
use crate::objects::Refusal;
use crate::reason::Reason;
use crate::text::{count, quoted, text, text_or_empty};

/// The budgets of a namespace that are visited.
const MAX_BUDGETS: usize = 100;

const BUDGETS: &str = "poddisruptionbudgets.policy";

/// Returns the quota that a refusal names as a cause. The message has the form `exceeded quota:
/// NAME, requested: ...`.
pub fn quotas_in(ctx: &Context, namespace: &str, message: &str) -> Vec<Cause> {
    let named = message.split_once("exceeded quota: ").and_then(|(_, rest)| rest.split(',').next());
    let Some(name) = named.map(str::trim).filter(|name| !name.is_empty()) else { return Vec::new() };
    let cause = Cause::of(ctx.reference("resourcequotas", namespace, name)).field("spec.hard");
    let used = ctx.get("resourcequotas", namespace, name).map(|quota| usage(&quota)).unwrap_or_default();
    let used = if used.is_empty() { quoted(message) } else { format!("used of allowed: {used}") };
    vec![cause.waits_for(used).remedy("raise spec.hard of the quota, or delete objects that it counts")]
}

/// Formats the use of a quota: `pods 2 of 2`.
fn usage(quota: &Value) -> String {
    let hard = quota["status"]["hard"].as_object().or_else(|| quota["spec"]["hard"].as_object());
    let lines = hard.into_iter().flatten().take(6).map(|(resource, hard)| {
        let used = text(&quota["status"]["used"][resource]).unwrap_or("0");
        format!("{resource} {} of {}", quoted(used), quoted(text_or_empty(hard)))
    });
    quoted(&lines.collect::<Vec<_>>().join(", "))
}

/// Explains a quota that is used up.
pub fn quota(ctx: &Context, target: Target) -> Option<Reason> {
    let hard = target.status()["hard"].as_object()?;
    let full: Vec<String> = hard
        .iter()
        .take(100)
        .filter(|(resource, hard)| {
            let used = &target.status()["used"][resource.as_str()];
            text(used).is_some() && used == *hard
        })
        .map(|(resource, hard)| {
            format!("{} ({} of {})", quoted(resource), text_or_empty(hard), text_or_empty(hard))
        })
        .collect();
    let first = full.first()?;
    let sentence = format!(
        "{} is used up: {}. Objects that need more of that are refused with 403. Raise spec.hard, or delete objects.",
        ctx.short_of(target),
        crate::text::enumerate(&full)
    );
    let cause = Cause::of(ctx.reference_of(target)).field(format!("status.used: {first}"));
    Some(Reason::ready("used up", sentence).because([cause]))
}

/// Explains a disruption budget that allows no eviction.
pub fn budget(ctx: &Context, target: Target) -> Option<Reason> {
    let status = target.status();
    if count(&status["expectedPods"]) == 0 || count(&status["disruptionsAllowed"]) > 0 {
        return None;
    }
    let sentence = format!("{} allows no eviction now: {}.", ctx.short_of(target), numbers(ctx, target));
    let cause = Cause::of(ctx.reference_of(target)).field("status.disruptionsAllowed: 0");
    Some(Reason::ready("no disruptions allowed", sentence).because([cause.waits_for(numbers(ctx, target))]))
}

/// Formats the numbers by which a budget allows no eviction.
fn numbers(ctx: &Context, budget: Target) -> String {
    let status = budget.status();
    let [healthy, desired, expected] =
        ["currentHealthy", "desiredHealthy", "expectedPods"].map(|name| count(&status[name]));
    let rule = ["minAvailable", "maxUnavailable"].iter().find_map(|name| match &budget.spec()[*name] {
        Value::String(text) => Some(format!("{name} {}", quoted(text))),
        Value::Number(number) => Some(format!("{name} {number}")),
        _ => None,
    });
    let failed = condition(budget.object, "DisruptionAllowed").filter(|one| one["reason"] == "SyncFailed");
    if let Some(failed) = failed {
        return conditions::describe(ctx, failed);
    }
    let rule = rule.unwrap_or_else(|| "no rule".to_owned());
    let needed = desired.saturating_add(1);
    let until = match needed > expected {
        true => format!("an eviction needs {needed}, more than there are"),
        false => format!("an eviction needs {needed}"),
    };
    format!("{healthy} of {expected} pods are healthy, and {desired} have to be ({rule}); {until}")
}

/// Explains that the eviction of a pod was refused, by the budgets that select it.
pub fn refused_eviction(ctx: &Context, target: Target, refusal: &Refusal) -> Reason {
    let budgets = ctx.list(BUDGETS, Some(target.namespace));
    let selecting = budgets.iter().take(MAX_BUDGETS).filter(|budget| selects(budget, target.object));
    let causes: Vec<Cause> = selecting
        .map(|budget| Target::listed(BUDGETS, budget))
        .map(|budget| {
            Cause::of(ctx.reference_of(budget))
                .field(format!(
                    "status.disruptionsAllowed: {}",
                    count(&budget.status()["disruptionsAllowed"])
                ))
                .waits_for(numbers(ctx, budget))
                .remedy("change spec.minAvailable or spec.maxUnavailable, or make more of its pods ready")
        })
        .collect();
    let why = causes.first().map_or_else(
        || quoted(&refusal.message),
        |cause| format!("{} allows none: {}", cause.object, cause.waits_for),
    );
    let sentence = format!(
        "The eviction of {} that {} asked for was refused at {}: {why}.",
        ctx.short_of(target),
        deletion::describe(&refusal.writer),
        ctx.moment(&refusal.time)
    );
    Reason::ready("eviction refused", sentence).because(causes)
}

/// Returns `true` if a budget selects a pod by labels. Expressions count as matching.
fn selects(budget: &Value, pod: &Value) -> bool {
    let selector = &budget["spec"]["selector"];
    let labels = selector["matchLabels"].as_object();
    selector.is_object()
        && labels.into_iter().flatten().all(|(key, value)| pod["metadata"]["labels"][key] == *value)
}

/// Explains an autoscaler that cannot scale, or is at its limit.
pub fn autoscaler(ctx: &Context, target: Target) -> Option<Reason> {
    let short = ctx.short_of(target);
    let scaled = &target.spec()["scaleTargetRef"];
    let scaled = format!(
        "{}/{}",
        quoted(text_or_empty(&scaled["kind"])).to_lowercase(),
        quoted(text_or_empty(&scaled["name"]))
    );
    let inactive = ["AbleToScale", "ScalingActive"]
        .into_iter()
        .find_map(|name| condition(target.object, name).filter(|condition| condition["status"] == "False"));
    if let Some(inactive) = inactive {
        let sentence = format!("{short} does not scale {scaled}: {}.", conditions::describe(ctx, inactive));
        let word = text(&inactive["reason"]).map_or_else(|| "not scaling".to_owned(), quoted);
        return Some(Reason::failing(word, sentence).because([conditions::cause(ctx, target, inactive)]));
    }
    let limited = conditions::is_true(target.object, "ScalingLimited").filter(|limited| {
        ["TooManyReplicas", "TooFewReplicas"].contains(&text_or_empty(&limited["reason"]))
    })?;
    let sentence = format!(
        "{short} keeps {scaled} within its limits of {} to {} replicas, though its metrics ask for another number: {}.",
        target.spec()["minReplicas"].as_i64().unwrap_or(1),
        count(&target.spec()["maxReplicas"]),
        conditions::describe(ctx, limited)
    );
    Some(Reason::ready("at its limit", sentence).because([conditions::cause(ctx, target, limited)]))
}
