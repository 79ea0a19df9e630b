//! Explanations of Kubernetes objects: why one is still there, why it is not ready, why it is gone;
//! and the tree of owners around it.
//!
//! [`explain`], [`tree()`] and [`Survey`] read through the trait [`Objects`]; nothing here reads a
//! cluster, a clock or a file. Each question has a module: `present.rs`, `not_ready.rs`, `gone.rs`.
//! Two tables lead from a resource and from a finalizer to a rule: `not_ready::RULES` and
//! `finalizers::RULES`. The rules are in a module for each area.
//!
//! Always true here:
//! - An explanation ends: the depth of causes, the objects that are visited and the lengths of
//!   texts are bounded, and each object is explained once, so that circles of owners or claims do
//!   not matter.
//! - Objects may have any shape. A member of a wrong type counts as absent.

#![warn(missing_docs)]

mod claims;
mod cluster;
mod conditions;
mod containers;
mod context;
mod custom_resource_definitions;
mod deletion;
mod deployments;
mod explanation;
mod finalizers;
mod gone;
mod jobs;
mod kept;
mod kubectl;
mod managed_fields;
mod namespaces;
mod network;
mod not_ready;
mod objects;
mod owners;
mod pods;
mod policies;
mod present;
mod reason;
mod refused;
mod render;
mod scheduling;
mod simulation;
mod stateful_sets;
mod survey;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod volumes;

use jiff::Timestamp;

pub use explanation::{Answer, Cause, Explanation, Question};
pub use objects::{Objects, Refusal, Resource, Version, Writer};
use reason::Reason;
pub use reason::State;
pub use survey::{Finding, Survey};
pub use tree::{Tree, TreeNode, tree};

use context::{Context, Target};

/// Explains an object: why it is still there, why it is not ready, or why it is gone, as far as
/// these questions apply.
///
/// - `resource`: the plural name with its group, such as `pods` or `statefulsets.apps`
/// - `namespace`: empty for cluster-scoped resources
/// - `now`: the current time, by which ages and deadlines are stated
///
/// Returns None if neither the object, nor its past, nor a refused request for it is known. An
/// explanation without answers means that the object exists, is not being deleted, and nothing
/// about it is known to be wrong.
pub fn explain(
    objects: &dyn Objects,
    resource: &str,
    namespace: &str,
    name: &str,
    now: Timestamp,
) -> Option<Explanation> {
    let ctx = Context::new(objects, now);
    ctx.visit(resource, namespace, name);
    let mut answers = Vec::new();
    if let Some(object) = ctx.get(resource, namespace, name) {
        let target = Target { resource, namespace, name, object: &object };
        let refused = refused::of_object(&ctx, target);
        let present = present::reason(&ctx, target);
        let (present, not_ready) = match target.is_terminating() {
            true => (Reason::joined(present, refused), None),
            false => (present, Reason::joined(not_ready::reason(&ctx, target), refused)),
        };
        answers.extend(present.map(|reason| reason.answer(Question::Present)));
        answers.extend(not_ready.map(|reason| reason.answer(Question::NotReady)));
    } else if let Some(reason) = gone::reason(&ctx, resource, namespace, name) {
        answers.push(reason.answer(Question::Gone));
    } else {
        answers.push(refused::of_creation(&ctx, resource, namespace, name)?.answer(Question::NotReady));
    }
    Some(Explanation { object: ctx.reference(resource, namespace, name), answers })
}
