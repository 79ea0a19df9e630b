//! The question why an object is still there.

use crate::context::{Context, Target};
use crate::deletion;
use crate::explanation::Cause;
use crate::finalizers::{self, Blocker};
use crate::kept;
use crate::reason::Reason;
use crate::text::{enumerate, text, time};

/// The finalizers that a sentence explains; the others are causes.
const MAX_EXPLAINED: usize = 3;

/// Explains why an object is still there: its deletion has not completed, or it outlives its owner. None if neither is so.
pub fn reason(ctx: &Context, target: Target) -> Option<Reason> {
    match target.is_terminating() {
        true => Some(terminating(ctx, target)),
        false => kept::reason(ctx, target),
    }
}

fn terminating(ctx: &Context, target: Target) -> Reason {
    let blockers = finalizers::blockers(ctx, target);
    let grace = deletion::grace(ctx, target);
    let mut reasons: Vec<String> = Vec::new();
    if let Some((_, grace)) = &grace {
        reasons.push(grace.waits_for.clone());
    }
    let names: Vec<&str> = blockers.iter().map(|blocker| blocker.finalizer.as_str()).collect();
    match (names.as_slice(), blockers.first()) {
        ([], _) => {}
        ([name], Some(blocker)) => {
            reasons.push(format!("its finalizer {name}{} is still set", set_by(ctx, blocker)))
        }
        _ => reasons.push(format!("its finalizers {} are still set", enumerate(&names))),
    }
    let mut sentence =
        format!("{} was deleted{} and is still there", ctx.short_of(target), request(ctx, target));
    sentence += &match reasons.is_empty() {
        true => ". Nothing is known to hold it: it should disappear at once.".to_owned(),
        false => format!(" because {}.", reasons.join(", and ")),
    };
    if let Some((_, grace)) = grace.as_ref().filter(|(_, grace)| !grace.remedy.is_empty()) {
        sentence += &format!(" {}.", grace.remedy);
    }
    for blocker in blockers.iter().take(MAX_EXPLAINED) {
        let subject = if names.len() > 1 { format!("{}: ", blocker.finalizer) } else { String::new() };
        sentence += &format!(" {subject}{}", blocker.sentence);
    }
    let short = grace.as_ref().map(|(short, _)| short.clone());
    let short = short.unwrap_or_else(|| enumerate(&names));
    let blocked = blockers.into_iter().flat_map(|blocker| blocker.causes);
    Reason::terminating(short, sentence).because(grace.map(|(_, grace)| grace)).because(blocked)
}

/// Describes the request that deleted the object: ` at 10:02:00Z (3 minutes ago) by alice with kubectl`.
fn request(ctx: &Context, target: Target) -> String {
    let versions = ctx.past(target.resource, target.namespace, target.name);
    let request = deletion::request(&versions, target.uid());
    let by = request.and_then(|version| version.writer.as_ref()).map(deletion::describe);
    let by = by.map_or_else(String::new, |writer| format!(" by {writer}"));
    let at = request.and_then(|version| version.time.clone()).or_else(|| requested_at(target));
    format!("{}{by}", at.map_or_else(String::new, |at| format!(" at {}", ctx.moment(&at))))
}

/// The time of the request: the deletion timestamp is later by the grace period.
fn requested_at(target: Target) -> Option<String> {
    let metadata = &target.object["metadata"];
    let at = text(&metadata["deletionTimestamp"])?;
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    let second = time(at).and_then(|time| time.as_second().checked_sub(grace));
    let time = second.and_then(|second| jiff::Timestamp::from_second(second).ok());
    Some(time.map_or_else(|| at.to_owned(), |time| time.to_string()))
}

fn set_by(ctx: &Context, blocker: &Blocker) -> String {
    let cause = blocker.causes.first();
    let Some(Cause { manager, since, .. }) =
        cause.filter(|cause| blocker.is_foreign && !cause.manager.is_empty())
    else {
        return String::new();
    };
    match since.as_str() {
        "" => format!(" (set by {manager})"),
        since => format!(" (set by {manager} at {})", ctx.moment(since)),
    }
}
