//! Requests that were refused.

use crate::context::{Context, Target};
use crate::deletion::{self, Role};
use crate::explanation::Cause;
use crate::objects::Refusal;
use crate::policies;
use crate::reason::Reason;
use crate::text::quoted;

/// The refusals that are causes.
const MAX_REFUSALS: usize = 5;

/// The refusals that are visited.
const MAX_VISITED: usize = 100;

/// The time for which a refusal about an object that exists is worth an answer.
const LATELY_SECONDS: i64 = 3600;

/// Explains that the last request about an object that exists was refused lately; None if there was
/// none since its last write.
pub fn of_object(ctx: &Context, target: Target) -> Option<Reason> {
    let refusals = ctx.refusals(target.resource, target.namespace, target.name);
    let refusals: Vec<Refusal> = refusals.into_iter().take(MAX_VISITED).filter(is_telling).collect();
    let refusal = refusals.first()?;
    let time = crate::text::time(&refusal.time)?;
    let written = ctx.past(target.resource, target.namespace, target.name);
    let is_superseded = written.first().is_some_and(|version| version.revision > refusal.revision);
    if is_superseded || ctx.now.as_second().saturating_sub(time.as_second()) > LATELY_SECONDS {
        return None;
    }
    if target.resource == "pods" && refusal.code == 429 {
        return Some(policies::refused_eviction(ctx, target, refusal));
    }
    let sentence =
        format!("The last request about {} was refused: {}.", ctx.short_of(target), described(ctx, refusal));
    Some(reason(ctx, target.resource, target.namespace, target.name, &refusals, sentence))
}

/// Returns `true` unless a refusal is a conflict of a controller, which repeats its request by
/// itself.
fn is_telling(refusal: &Refusal) -> bool {
    refusal.code != 409 || deletion::role(&refusal.writer) == Role::Client
}

/// Explains that an object does not exist because its creation was refused.
pub fn of_creation(ctx: &Context, resource: &str, namespace: &str, name: &str) -> Option<Reason> {
    let refusals = ctx.refusals(resource, namespace, name);
    let refusal = refusals.first()?;
    let sentence = format!("{} does not exist: {}.", ctx.short(resource, name), described(ctx, refusal));
    Some(reason(ctx, resource, namespace, name, &refusals, sentence))
}

fn described(ctx: &Context, refusal: &Refusal) -> String {
    let verb = if refusal.writer.verb == "deletecollection" { "delete" } else { &refusal.writer.verb };
    format!(
        "{} tried to {} it at {}, and the response was {} {}: {}{}",
        deletion::describe(&refusal.writer),
        quoted(verb),
        ctx.moment(&refusal.time),
        refusal.code,
        quoted(&refusal.reason),
        quoted(&refusal.message),
        origin(&refusal.message).map(|origin| format!(" ({origin})")).unwrap_or_default()
    )
}

/// Returns the part of the API server that refused a request, by the message.
fn origin(message: &str) -> Option<&'static str> {
    const ORIGINS: [(&str, &str); 7] = [
        ("admission webhook", "an admission webhook refused it"),
        ("failed calling webhook", "an admission webhook could not be called, and its failurePolicy is Fail"),
        ("ValidatingAdmissionPolicy", "an admission policy refused it"),
        ("exceeded quota", "a ResourceQuota refused it"),
        ("disruption budget", "a PodDisruptionBudget refused it"),
        ("violates PodSecurity", "the Pod Security level of the namespace refused it"),
        (
            "the object has been modified",
            "it was based on an old version: read the object again and repeat the change",
        ),
    ];
    ORIGINS.iter().find(|(text, _)| message.contains(text)).map(|(_, origin)| *origin)
}

fn reason(
    ctx: &Context,
    resource: &str,
    namespace: &str,
    name: &str,
    refusals: &[Refusal],
    sentence: String,
) -> Reason {
    let causes = refusals.iter().take(MAX_REFUSALS).map(|refusal| {
        Cause::of(ctx.reference(resource, namespace, name))
            .manager(deletion::describe(&refusal.writer))
            .since(refusal.time.clone())
            .waits_for(format!("{} {}: {}", refusal.code, quoted(&refusal.reason), quoted(&refusal.message)))
            .remedy(origin(&refusal.message).unwrap_or_default())
    });
    let causes: Vec<Cause> = causes.collect();
    let quotas = refusals.first().map(|refusal| policies::quotas_in(ctx, namespace, &refusal.message));
    Reason::failing("refused", sentence).because(causes).because(quotas.unwrap_or_default())
}
