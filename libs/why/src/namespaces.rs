//! The content of terminating namespaces.

use std::collections::BTreeMap;

use crate::conditions;
use crate::context::{Context, Target};
use crate::explanation::Cause;
use crate::finalizers::Wait;
use crate::text::{items, plural, text, text_or_empty, texts};

/// The kinds that a sentence counts.
const MAX_KINDS: usize = 5;

/// The objects of each kind that are explained.
const MAX_OBJECTS: usize = 3;

/// Explains the finalizer `kubernetes` of a namespace: the objects that are left in it.
pub fn content(ctx: &Context, target: Target) -> Wait {
    let mut counts: Vec<String> = Vec::new();
    let mut finalizers: BTreeMap<String, i64> = BTreeMap::new();
    let mut objects = Vec::new();
    for resource in ctx.resources().iter().filter(|resource| resource.namespaced) {
        // Events are deleted without being waited for, and their two resources are one.
        if resource.is_event() {
            continue;
        }
        let list = ctx.list(&resource.name, Some(target.name));
        if list.is_empty() {
            continue;
        }
        counts.push(plural(i64::try_from(list.len()).unwrap_or(i64::MAX), &resource.kind));
        for finalizer in list.iter().flat_map(|object| texts(&object["metadata"]["finalizers"])).take(1000) {
            *finalizers.entry(crate::text::quoted(finalizer)).or_default() += 1;
        }
        // Objects with finalizers come first.
        let mut held: Vec<_> = list.iter().collect();
        held.sort_by_key(|object| texts(&object["metadata"]["finalizers"]).next().is_none());
        for object in held.into_iter().take(MAX_OBJECTS) {
            objects.extend(remaining(
                ctx,
                Target { namespace: target.name, ..Target::listed(&resource.name, object) },
            ));
        }
    }
    let failing: Vec<_> = items(&target.status()["conditions"])
        .filter(|condition| condition["status"] == "True")
        .filter(|condition| {
            text(&condition["type"]).is_some_and(|name| name.starts_with("NamespaceDeletion"))
        })
        .collect();
    let mut clause = "once the namespace is empty".to_owned();
    clause += &match counts.is_empty() {
        true => "; nothing is left in it".to_owned(),
        false => format!("; left: {}", listed(&counts)),
    };
    if !finalizers.is_empty() {
        let held: Vec<String> = finalizers
            .iter()
            .map(|(name, count)| format!("{name} on {}", plural(*count, "object")))
            .collect();
        clause += &format!(", with the finalizers {}", listed(&held));
    }
    for condition in &failing {
        clause += &format!("; {}", conditions::describe(ctx, condition));
    }
    let is_discovery =
        failing.iter().any(|condition| text_or_empty(&condition["type"]).ends_with("DiscoveryFailure"));
    let remedy = match is_discovery {
        true => "repair or delete the APIService that is not available: kubectl get apiservices".to_owned(),
        false => String::new(),
    };
    let causes =
        failing.into_iter().map(|condition| conditions::cause(ctx, target, condition)).chain(objects);
    Wait { clause, remedy, causes: causes.collect() }
}

fn listed(counts: &[String]) -> String {
    let shown = counts.iter().take(MAX_KINDS).cloned().collect::<Vec<_>>().join(", ");
    match counts.len().saturating_sub(MAX_KINDS) {
        0 => shown,
        more => format!("{shown} and {more} more kinds"),
    }
}

fn remaining(ctx: &Context, object: Target) -> Vec<Cause> {
    let explained = match object.is_terminating() {
        true => ctx.explain(object.resource, object.namespace, object.name),
        false => Vec::new(),
    };
    match explained.is_empty() {
        false => explained,
        true => {
            vec![Cause::of(ctx.reference_of(object)).waits_for("its deletion by the namespace controller")]
        }
    }
}
