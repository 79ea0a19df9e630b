//! The parameters of operations: those of paths, and the members of the option types in queries.

use serde_json::{Value, json};

use crate::schema::{Type, schema};

/// The descriptions of options that need more than their name.
const TEXTS: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "Whether a watch may get BOOKMARK events, which say how far it has come."),
    ("continue", "The token of the last page, to go on with the list."),
    ("dryRun", "`All`: do everything but store the result."),
    ("fieldManager", "The name of who makes the change; at most 128 printable characters."),
    ("fieldSelector", "Selects objects by their fields."),
    (
        "fieldValidation",
        "What to do about unknown and duplicate fields: `Ignore`, `Warn` (the default) or `Strict`.",
    ),
    ("force", "Whether an apply takes over fields that others manage."),
    ("gracePeriodSeconds", "How long the object has to end; 0 deletes at once."),
    ("labelSelector", "Selects objects by their labels."),
    ("limit", "The number of objects on a page, at most."),
    ("orphanDependents", "Deprecated: use propagationPolicy. Whether dependents stay."),
    ("pretty", "Whether the answer is indented; browsers, curl and wget get it so unless this is `false`."),
    ("propagationPolicy", "What becomes of dependents: `Orphan`, `Background` or `Foreground`."),
    ("resourceVersion", "How new the answer must be, or where a watch begins."),
    ("resourceVersionMatch", "How resourceVersion is meant for a list: `Exact` or `NotOlderThan`."),
    ("sendInitialEvents", "Whether a watch begins with the objects there are, as ADDED events."),
    ("timeoutSeconds", "How long a list or watch may last."),
    ("watch", "Whether to watch for changes, rather than to list."),
];

/// Returns the members of an options type that a query can have: scalars, and lists of them.
pub(super) fn in_query(group: &str, version: &str, options: &str, skipped: &[&str]) -> Vec<Value> {
    let Some(id) = schema().kind(group, version, options) else { return Vec::new() };
    let members = schema().get(id).members().iter();
    members
        .filter(|field| !["kind", "apiVersion"].contains(&field.name) && !skipped.contains(&field.name))
        .filter_map(|field| Some(query(field.name, scalar(&field.ty)?)))
        .collect()
}

fn scalar(ty: &Type) -> Option<&'static str> {
    match ty {
        Type::String => Some("string"),
        Type::Bool => Some("boolean"),
        Type::Int32 | Type::Int64 => Some("integer"),
        Type::List(item) => scalar(item),
        _ => None,
    }
}

fn query(name: &str, ty: &str) -> Value {
    let mut parameter = json!({"name": name, "in": "query", "schema": {"type": ty, "uniqueItems": true}});
    if let Some((_, text)) = TEXTS.iter().find(|(known, _)| *known == name) {
        parameter["description"] = (*text).into();
    }
    parameter
}

pub(super) fn pretty() -> Value {
    query("pretty", "string")
}

/// Returns the parameters in braces of a path. `kind` is the kind of the object that the path
/// names.
pub(super) fn in_path(path: &str, kind: &str) -> Vec<Value> {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(name, _)| name));
    names
        .map(|name| {
            let description = match name {
                "name" => format!("name of the {kind}"),
                "namespace" => "the namespace of the object".to_owned(),
                _ => "path to the resource".to_owned(),
            };
            let schema = json!({"type": "string", "uniqueItems": true});
            json!({"name": name, "in": "path", "required": true, "description": description, "schema": schema})
        })
        .collect()
}

pub(super) fn sort(parameters: &mut [Value]) {
    let key = |parameter: &Value| {
        let text = |member: &str| parameter[member].as_str().unwrap_or_default().to_owned();
        (text("name"), text("in"))
    };
    parameters.sort_by_key(key);
}
