//! Owners and dependents: the finalizers of the garbage collector, and references to owners.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::context::{Context, Target, group_of_version, is_terminating, reference};
use crate::explanation::Cause;
use crate::finalizers::Wait;
use crate::kubectl;
use crate::text::{enumerate, items, plural, text, text_or_empty};

/// The dependents that are explained one by one.
const MAX_DEPENDENTS: usize = 10;

/// An owner as an owner reference names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub is_controller: bool,
}

impl Owner {
    pub fn group(&self) -> &str {
        group_of_version(&self.api_version)
    }

    /// Returns the full name of the owner, in the namespace of the dependent.
    pub fn reference(&self, ctx: &Context, namespace: &str) -> String {
        let is_cluster_scoped =
            ctx.resource_of(&self.api_version, &self.kind).is_some_and(|owner| !owner.namespaced);
        let namespace = if is_cluster_scoped { "" } else { namespace };
        reference(&self.kind, self.group(), namespace, &self.name)
    }

    /// Returns the name of the owner in a sentence.
    pub fn short(&self) -> String {
        let is_custom = self.group().contains('.') && !self.group().ends_with(".k8s.io");
        reference(&self.kind, if is_custom { self.group() } else { "" }, "", &self.name)
    }
}

/// Returns the owners of an object.
pub fn owners(object: &Value) -> impl Iterator<Item = Owner> {
    items(&object["metadata"]["ownerReferences"]).take(100).filter_map(|owner| {
        Some(Owner {
            api_version: text_or_empty(&owner["apiVersion"]).to_owned(),
            kind: text(&owner["kind"])?.to_owned(),
            name: text(&owner["name"])?.to_owned(),
            uid: text_or_empty(&owner["uid"]).to_owned(),
            is_controller: owner["controller"] == true,
        })
    })
}

/// Returns the owner that controls an object.
pub fn controller(object: &Value) -> Option<Owner> {
    owners(object).find(|owner| owner.is_controller)
}

/// Returns `true` if an object is owned by the object with this uid.
pub fn is_owned_by(object: &Value, uid: &str) -> bool {
    !uid.is_empty() && items(&object["metadata"]["ownerReferences"]).any(|owner| owner["uid"] == uid)
}

/// The state of an owner.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup {
    Found(Value),
    /// There is no object of that name, or one with another uid.
    Missing,
    /// The kind of the owner is not served.
    Unserved,
}

/// Looks up the owner of an object in the namespace of the object, as the garbage collector does.
pub fn look_up(ctx: &Context, namespace: &str, owner: &Owner) -> Lookup {
    let Some(resource) = ctx.resource_of(&owner.api_version, &owner.kind) else { return Lookup::Unserved };
    let namespace = if resource.namespaced { namespace } else { "" };
    let found = ctx.get(&resource.name, namespace, &owner.name);
    let is_meant = |found: &Value| {
        let uid = text_or_empty(&found["metadata"]["uid"]);
        uid.is_empty() || owner.uid.is_empty() || uid == owner.uid
    };
    found.filter(is_meant).map_or(Lookup::Missing, Lookup::Found)
}

/// Explains the finalizer `foregroundDeletion`: dependents that block the deletion of their owner.
pub fn foreground(ctx: &Context, target: Target) -> Wait {
    let blocks = |object: &Value| {
        let mut references = items(&object["metadata"]["ownerReferences"]);
        references.any(|owner| owner["uid"] == target.uid() && owner["blockOwnerDeletion"] == true)
    };
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    let mut causes = Vec::new();
    let namespace = Some(target.namespace).filter(|namespace| !namespace.is_empty());
    let resources = ctx
        .resources()
        .iter()
        .filter(|resource| !resource.is_event() && (namespace.is_none() || resource.namespaced));
    for resource in resources.filter(|_| !target.uid().is_empty()) {
        let list = ctx.list(&resource.name, namespace.filter(|_| resource.namespaced));
        for dependent in list.iter().filter(|object| blocks(object)) {
            *counts.entry(resource.kind.clone()).or_default() += 1;
            let dependent = Target::listed(&resource.name, dependent);
            if causes.len() < MAX_DEPENDENTS {
                causes.extend(blocking_dependent(ctx, target, dependent));
            }
        }
    }
    let counted: Vec<String> = counts.iter().map(|(kind, count)| plural(*count, kind)).collect();
    let clause = match counted.is_empty() {
        true => "once no dependent blocks the deletion; none is left".to_owned(),
        false => format!(
            "once the dependents that block the deletion (ownerReferences with blockOwnerDeletion: true) are deleted; \
             left: {}",
            enumerate(&counted)
        ),
    };
    let is_own = |cause: &&Cause| cause.object == ctx.reference_of(target);
    let remedy = causes.iter().find(is_own).map(|cause| cause.remedy.clone()).unwrap_or_default();
    Wait { clause, remedy, causes }
}

fn blocking_dependent(ctx: &Context, owner: Target, dependent: Target) -> Vec<Cause> {
    let Target { resource, namespace, name, .. } = dependent;
    if dependent.uid() == owner.uid() {
        let waits_for = "the object is its own owner with blockOwnerDeletion: true, so that its deletion waits for itself";
        let patch = serde_json::json!({"metadata": {"ownerReferences": null}});
        let remedy = kubectl::merge(resource, namespace, name, &patch);
        return vec![
            Cause::of(ctx.reference_of(dependent))
                .field("metadata.ownerReferences")
                .waits_for(waits_for)
                .remedy(remedy),
        ];
    }
    let explained = match dependent.is_terminating() {
        true => ctx.explain(resource, namespace, name),
        false => Vec::new(),
    };
    if !explained.is_empty() {
        return explained;
    }
    let field = "metadata.ownerReferences: blockOwnerDeletion=true";
    let waits_for = "the garbage collector, which deletes it before its owner";
    vec![Cause::of(ctx.reference_of(dependent)).field(field).waits_for(waits_for)]
}

/// Explains the finalizer `orphan`: dependents that still refer to the owner.
pub fn orphaning(ctx: &Context, target: Target) -> Wait {
    let namespace = Some(target.namespace).filter(|namespace| !namespace.is_empty());
    let mut causes = Vec::new();
    let mut left: i64 = 0;
    for resource in ctx.resources().iter().filter(|resource| !resource.is_event()) {
        let list = ctx.list(&resource.name, namespace.filter(|_| resource.namespaced));
        for dependent in list.iter().filter(|object| is_owned_by(object, target.uid())) {
            left += 1;
            let dependent = Target::listed(&resource.name, dependent);
            let cause = Cause::of(ctx.reference_of(dependent)).field("metadata.ownerReferences");
            causes.push(cause.waits_for("the garbage collector, which removes the reference to the owner"));
        }
    }
    causes.truncate(MAX_DEPENDENTS);
    let clause = match left {
        0 => "after it has removed the references of the dependents to their owner, which stay; none is left"
            .to_owned(),
        _ => format!(
            "after it has removed the references of the dependents to their owner, which stay; {} still {} one",
            plural(left, "dependent"),
            if left == 1 { "has" } else { "have" }
        ),
    };
    Wait { clause, remedy: String::new(), causes }
}

/// Returns `true` if an owner is deleted or terminating.
pub fn is_gone(lookup: &Lookup) -> bool {
    match lookup {
        Lookup::Found(object) => is_terminating(object),
        Lookup::Missing => true,
        Lookup::Unserved => false,
    }
}
