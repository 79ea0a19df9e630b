//! Transformed responses: Table and PartialObjectMetadata.
//!
//! Pure functions from JSON to JSON; the requested transformation comes from `request::negotiate`,
//! and the time of the request is a parameter. Start at [`table::table`] and [`partial_metadata`].

pub mod age;
pub mod columns;
mod custom;
mod json_path;
pub mod table;

use serde_json::{Value, json};

use crate::request::negotiate::MetaVersion;

use table::Printer;

/// Reduces an object to its metadata, as its kind shows it.
pub fn partial_metadata(object: &Value, printer: &Printer, version: MetaVersion) -> Value {
    let mut metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    if let Some(hidden) = printer.hidden_annotation()
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
        && annotations.remove(hidden).is_some()
        && annotations.is_empty()
        && let Some(metadata) = metadata.as_object_mut()
    {
        metadata.remove("annotations");
    }
    json!({"kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": metadata})
}

/// Reduces every object of a list to its metadata; `metadata` is that of the list itself.
pub fn partial_metadata_list<'a>(
    objects: impl IntoIterator<Item = &'a Value>,
    metadata: Value,
    printer: &Printer,
    version: MetaVersion,
) -> Value {
    let items: Vec<Value> =
        objects.into_iter().map(|object| partial_metadata(object, printer, version)).collect();
    // kube-apiserver does not allocate a list without items.
    let items = if items.is_empty() { Value::Null } else { items.into() };
    json!({
        "kind": "PartialObjectMetadataList", "apiVersion": version.api_version(),
        "metadata": metadata, "items": items,
    })
}
