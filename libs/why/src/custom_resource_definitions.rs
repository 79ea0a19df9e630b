//! CustomResourceDefinitions: their instances, and why one is not established.

use crate::conditions::{self, condition};
use crate::context::{Context, Target};
use crate::explanation::Cause;
use crate::finalizers::Wait;
use crate::reason::Reason;
use crate::text::{plural, text_or_empty};

/// The instances that are explained one by one.
const MAX_INSTANCES: usize = 10;

/// Explains the finalizer `customresourcecleanup.apiextensions.k8s.io`: the objects of the
/// definition.
pub fn instances(ctx: &Context, target: Target) -> Wait {
    let names = &target.spec()["names"];
    let kind = text_or_empty(&names["kind"]);
    let resource = format!("{}.{}", text_or_empty(&names["plural"]), text_or_empty(&target.spec()["group"]));
    let list = ctx.list(&resource, None);
    let clause = match list.len() {
        0 => "once it has deleted all objects of this kind; none is left".to_owned(),
        left => {
            let left = plural(i64::try_from(left).unwrap_or(i64::MAX), kind);
            format!("once it has deleted all objects of this kind; left: {left}")
        }
    };
    let causes = list.iter().take(MAX_INSTANCES).flat_map(|instance| {
        let instance = Target::listed(&resource, instance);
        match instance.is_terminating() {
            true => ctx.explain(&resource, instance.namespace, instance.name),
            false => vec![Cause::of(ctx.reference_of(instance)).waits_for("its deletion by the API server")],
        }
    });
    Wait { clause, remedy: String::new(), causes: causes.collect() }
}

/// Explains why a definition is not served.
pub fn reason(ctx: &Context, target: Target) -> Option<Reason> {
    let short = ctx.short_of(target);
    let failing = ["NamesAccepted", "Established"]
        .into_iter()
        .find_map(|name| condition(target.object, name).filter(|condition| condition["status"] != "True"));
    if let Some(failing) = failing {
        let hint = match failing["type"] == "NamesAccepted" {
            true => {
                "Another definition of its group has one of its names (plural, singular, short names or kind): choose others."
            }
            false => "Its objects can be created once it is established.",
        };
        let sentence =
            format!("{short} does not serve its resource: {}. {hint}", conditions::describe(ctx, failing));
        let short = crate::text::quoted(text_or_empty(&failing["type"]));
        return Some(Reason::failing(short, sentence).because([conditions::cause(ctx, target, failing)]));
    }
    let problem = conditions::is_true(target.object, "NonStructuralSchema").or_else(|| {
        condition(target.object, "KubernetesAPIApprovalPolicyConformant")
            .filter(|condition| condition["status"] == "False")
    });
    if let Some(problem) = problem {
        let sentence = format!("{short} has a problem: {}.", conditions::describe(ctx, problem));
        return Some(Reason::failing("invalid", sentence).because([conditions::cause(ctx, target, problem)]));
    }
    if condition(target.object, "Established").is_none() {
        let sentence = format!("{short} was not looked at yet: it has no condition Established.");
        return Some(
            Reason::progressing("not established", sentence).because([Cause::of(ctx.reference_of(target))]),
        );
    }
    None
}
