//! Server-side apply: applying a configuration twice equals applying it once, and all owned fields
//! exist.

use std::sync::{Arc, LazyLock};

use coracle_apimachinery::codec::{Decoded, json, structural};
use coracle_apimachinery::schema::{StructuralSchema, TypeRef};
use coracle_apiserver::fields::apply::{Applied, ApplyTo};
use coracle_apiserver::fields::entry::{self, Entry};
use coracle_apiserver::fields::manage::FieldManager;
use coracle_apiserver::fields::{FieldPathSet, walk};
use serde_json::{Value, json};

use crate::{assert_within_limits, document, parts, type_of};

/// A custom type with every kind of list and map.
static WIDGET: LazyLock<TypeRef> = LazyLock::new(|| {
    let ports = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
        "items": {"type": "object", "required": ["port"], "properties": {
            "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": {"type": "string"},
        }},
    });
    let document = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "ports": ports,
        "whole": {"type": "array", "items": {"type": "integer"}},
        "one": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "integer"}}},
        "loose": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}}});
    TypeRef::Structural(Arc::new(StructuralSchema::read(document).expect("a structural schema")))
});

/// Takes two configurations of one kind: the first manager applies the first, the second one the
/// other, by force. Applying that once more changes nothing and causes no conflict, and each owned
/// field exists. (A configuration of empty lists owns nothing.)
///
/// The property holds for configurations in the form of their types. As sent by a client they are
/// only applied: a Service's port without a number, for example, would become another item when it
/// is stored, so that the object is rejected.
pub fn server_side_apply(data: &[u8]) -> bool {
    let Some([first, second]) = parts(data) else { return false };
    let (Some(mut first), Some(second)) = (document(first), document(second)) else { return false };
    // Entries of unknown versions are dropped.
    for member in ["kind", "apiVersion"] {
        match (first.as_object_mut(), second.get(member).filter(|text| text.is_string())) {
            (Some(first), Some(text)) => drop(first.insert(member.to_owned(), text.clone())),
            _ => return false,
        }
    }
    let type_ref = type_of(&second).map_or_else(|| WIDGET.clone(), TypeRef::from);
    if let Some(live) = apply("one", &json!({}), &[], &first, &type_ref, false)
        && let Some(applied) = apply("two", &live.object, &live.entries, &second, &type_ref, true)
    {
        assert_within_limits(&applied.object);
    }
    let (first, second) = (decoded(&first, &type_ref), decoded(&second, &type_ref));
    let (Some(first), Some(second)) = (first, second) else { return false };
    let (live, entries) = match apply("one", &json!({}), &[], &first, &type_ref, false) {
        Some(applied) => (applied.object, applied.entries),
        None => (json!({"kind": second["kind"], "apiVersion": second["apiVersion"]}), Vec::new()),
    };
    let Some(once) = apply("two", &live, &entries, &second, &type_ref, true) else { return false };
    assert_within_limits(&once.object);
    let there = walk::fields(&once.object, &type_ref);
    for Entry { manager, fields, .. } in &once.entries {
        assert!(covers(&there, fields), "{manager} owns {:?} of {}", fields.paths(), once.object);
    }
    let twice = apply("two", &once.object, &once.entries, &second, &type_ref, false);
    let twice = twice.expect("no conflict with itself");
    assert_eq!(twice.object, once.object, "after applying once more");
    // If no field has an owner, the next manager treats the object as one that existed before the
    // first apply.
    if !once.entries.is_empty() {
        assert_eq!(entry::write(twice.entries), entry::write(once.entries), "after applying once more");
    }
    true
}

/// Applies a manager's configuration to an object, in the form in which the result would be stored.
fn apply(
    manager: &str,
    live: &Value,
    entries: &[Entry],
    configuration: &Value,
    type_ref: &TypeRef,
    force: bool,
) -> Option<Applied> {
    let text = |member: &str| configuration.get(member).and_then(Value::as_str).unwrap_or_default();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    let to = ApplyTo { type_ref, kind, versions: None };
    let applier = FieldManager { manager, api_version, subresource: "", now: "2026-01-01T00:00:00Z" };
    let mut applied = to.apply(live, entries, configuration, applier, force).ok()?;
    applied.object = decoded(&applied.object, type_ref)?;
    Some(applied)
}

/// Returns `true` if a field exists at each of the owned paths. An object that was owned while it
/// was empty may have members since.
fn covers(there: &FieldPathSet, owned: &FieldPathSet) -> bool {
    owned.children().all(|(element, inner)| there.child(element).is_some_and(|there| covers(there, inner)))
}

/// Returns the object as it would be stored, or `None` if it is not valid.
fn decoded(object: &Value, type_ref: &TypeRef) -> Option<Value> {
    let decoded = match type_ref {
        TypeRef::Struct(id) => json::normalize(object, *id),
        TypeRef::Structural(schema) => {
            structural::conform(Decoded { value: object.clone(), strict: Vec::new() }, schema)
        }
    };
    decoded.ok().map(|decoded| decoded.value)
}

/// Tests `metadata.managedFields`, and a `fieldsV1` on its own: decoding what was encoded yields
/// the same value.
pub fn managed_fields(data: &[u8]) -> bool {
    let Some(value) = document(data) else { return false };
    if let Ok(set) = FieldPathSet::parse(&value) {
        let written = set.clone().into_value();
        assert_eq!(FieldPathSet::parse(&written).ok().as_ref(), Some(&set), "{written}");
        let mut nothing = set.clone();
        nothing.difference_with(&set);
        assert!(nothing.is_empty(), "{:?} is left of {written}", nothing.paths());
        let mut both = set.clone();
        both.union_with(set.clone());
        assert!(both == set && set.intersection(&set) == set, "{written} and itself are something else");
    }
    let Some(entries) = entry::read(&value) else { return value.is_object() };
    let written = entry::write(entries);
    let again = entry::read(&written).map(entry::write);
    assert_eq!(again.as_ref(), Some(&written));
    true
}
