//! Transformed responses: Table and PartialObjectMetadata.
//!
//! Pure functions from JSON to JSON; the requested transformation comes from `request::negotiate`, and the time of the
//! request is a parameter. Start at [`table::table`] and [`partial_metadata`].

mod age;
mod columns;
mod custom;
mod json_path;
mod kinds;
pub mod table;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::request::negotiate::MetaVersion;

/// An annotation that a DaemonSet has in the real server's versioned form only.
pub const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// An object's metadata alone.
pub fn partial_metadata(object: &Value, version: MetaVersion) -> Value {
    let mut metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
        && object["kind"] == "DaemonSet"
        && annotations.remove(TEMPLATE_GENERATION).is_some()
        && annotations.is_empty()
        && let Some(metadata) = metadata.as_object_mut()
    {
        metadata.remove("annotations");
    }
    json!({"kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": metadata})
}

/// The metadata of every object of a list; `metadata` is the list's own.
pub fn partial_metadata_list<'a>(
    objects: impl IntoIterator<Item = &'a Value>,
    metadata: Value,
    version: MetaVersion,
) -> Value {
    let items: Vec<Value> = objects.into_iter().map(|object| partial_metadata(object, version)).collect();
    // The real server does not allocate a list without items.
    let items = if items.is_empty() { Value::Null } else { items.into() };
    json!({
        "kind": "PartialObjectMetadataList", "apiVersion": version.api_version(),
        "metadata": metadata, "items": items,
    })
}
