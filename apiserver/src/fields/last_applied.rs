//! kubectl's annotation of client-side apply, by which objects move to server-side apply and back.

use serde_json::Value;

use super::FieldPathSet;
use super::conflict::Conflicts;
use super::typed::{self, Duplicates};
use super::walk::{self, fields};
use crate::codec::json::write_untyped;
use crate::object_meta::ObjectMeta;
use crate::schema::TypeRef;

/// The manager that kubectl applies as. Others do not share the annotation's history.
pub const KUBECTL: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The size of all annotations beyond which this one goes, in bytes.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// Returns the conflicts that remain when kubectl takes over the fields that it applied on the
/// client side before, and that have not changed since. None if there is nothing to take over.
pub fn remaining(conflicts: &Conflicts, live: &Value, type_ref: &TypeRef) -> Option<Conflicts> {
    let allowed = unchanged_since_last_apply(live, type_ref)?;
    let remaining = conflicts.iter().cloned().filter_map(|mut conflict| {
        conflict.fields.difference_with(&allowed);
        (!conflict.fields.is_empty()).then_some(conflict)
    });
    Some(remaining.collect())
}

fn unchanged_since_last_apply(live: &Value, type_ref: &TypeRef) -> Option<FieldPathSet> {
    let annotation = annotation(live)?;
    let last: Value = crate::codec::json::decode_value(annotation.as_bytes()).ok()?.value;
    if last.get("apiVersion") != live.get("apiVersion") {
        return None;
    }
    typed::check(&last, type_ref, Duplicates::Refused).ok()?;
    let comparison = walk::compare(Some(&last), live, type_ref);
    let mut unchanged = fields(&last, type_ref);
    unchanged.difference_with(&comparison.written);
    unchanged.difference_with(&comparison.removed);
    Some(unchanged)
}

fn annotation(object: &Value) -> Option<&str> {
    let annotation = object.meta("annotations")?.get(ANNOTATION)?.as_str()?;
    (!annotation.is_empty()).then_some(annotation)
}

/// Updates the last-applied annotation to the configuration, if there is one, and returns whether
/// that changes it.
pub fn update(object: &mut Value, configuration: &Value) -> bool {
    let Some(before) = annotation(object).map(str::to_owned) else { return false };
    let mut applied = configuration.clone();
    if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    let mut text = Vec::new();
    write_untyped(&applied, &mut text);
    text.push(b'\n');
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return false;
    };
    annotations.insert(ANNOTATION.to_owned(), String::from_utf8(text).unwrap_or_default().into());
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(ANNOTATION);
    }
    annotation(object) != Some(&before)
}
