//! The question why an object is still there.

use crate::context::{Context, Target};
use crate::deletion;
use crate::explanation::Cause;
use crate::finalizers::{self, Blocker};
use crate::kept;
use crate::reason::Reason;
use crate::text::{capitalized, clock, enumerate, with_stop};

/// The finalizers that a sentence explains; the others are causes.
const MAX_EXPLAINED: usize = 3;

/// Explains why an object is still there: its deletion has not completed, or it outlives its owner.
/// None if neither is so.
pub fn reason(ctx: &Context, target: Target) -> Option<Reason> {
    match target.is_terminating() {
        true => Some(terminating(ctx, target)),
        false => kept::reason(ctx, target),
    }
}

fn terminating(ctx: &Context, target: Target) -> Reason {
    let blockers = finalizers::blockers(ctx, target);
    let grace = deletion::grace(ctx, target);
    let mut reasons: Vec<String> = grace.iter().map(|(_, cause)| cause.waits_for.clone()).collect();
    let names: Vec<&str> = blockers.iter().map(|blocker| blocker.finalizer.as_str()).collect();
    match (names.as_slice(), blockers.first()) {
        ([], _) => {}
        ([name], Some(blocker)) => {
            reasons.push(format!("its finalizer {name} is still set{}", set_by(ctx, blocker)))
        }
        _ => reasons.push(format!("its finalizers {} are still set", enumerate(&names))),
    }
    let because = match reasons.is_empty() {
        true => ". Nothing is known to hold it: it should disappear at once.".to_owned(),
        false => format!(" because {}.", reasons.join(", and ")),
    };
    let mut sentence = format!(
        "{} was marked for deletion{}, and is still there{because}",
        ctx.short_of(target),
        request(ctx, target)
    );
    if let Some((_, cause)) = grace.as_ref().filter(|(_, cause)| !cause.remedy.is_empty()) {
        sentence += &format!(" {}", with_stop(&capitalized(&cause.remedy)));
    }
    let explained = blockers.iter().take(MAX_EXPLAINED).map(|blocker| match names.len() {
        1 => capitalized(&blocker.sentence),
        _ => format!("{}: {}", blocker.finalizer, blocker.sentence),
    });
    let explained = explained.collect::<Vec<_>>().join("; ");
    if !explained.is_empty() {
        // A command ends without a full stop.
        sentence += if sentence.ends_with('.') { "" } else { ";" };
        sentence += &format!(" {}", with_stop(&explained));
    }
    let short = grace.as_ref().map_or_else(|| enumerate(&names), |(short, _)| short.clone());
    let blocked = blockers.into_iter().flat_map(|blocker| blocker.causes);
    Reason::terminating(short, sentence).because(grace.map(|(_, cause)| cause)).because(blocked)
}

/// Describes the request that deleted the object: ` at 10:02:00Z (3 minutes ago) by alice with
/// kubectl`.
fn request(ctx: &Context, target: Target) -> String {
    let versions = ctx.past(target.resource, target.namespace, target.name);
    let request = deletion::request(&versions, target.uid());
    let by = request.and_then(|version| version.writer.as_ref()).map(deletion::describe);
    let by = by.map_or_else(String::new, |writer| format!(" by {writer}"));
    let at = request.and_then(|version| version.time.clone()).or_else(|| deletion::requested_at(target));
    format!("{}{by}", at.map_or_else(String::new, |at| format!(" at {}", ctx.moment(&at))))
}

/// Describes who set the finalizer of an operator: ` (by my-operator since 10:02:00Z)`.
fn set_by(ctx: &Context, blocker: &Blocker) -> String {
    let cause = blocker.causes.first().filter(|cause| blocker.is_foreign && !cause.manager.is_empty());
    let Some(Cause { manager, since, .. }) = cause else { return String::new() };
    match since.as_str() {
        "" => format!(" (by {manager})"),
        since => format!(" (by {manager} since {})", clock(ctx.now, since)),
    }
}
