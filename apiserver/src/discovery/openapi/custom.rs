//! The component schemas of custom kinds: that of the CustomResourceDefinition, with the members of
//! every object.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::schemas::{META, component, reference};
use crate::resource_info::ResourceInfo;
use crate::schema::{Descriptions, TypeRef};

const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// The members that embedded objects must have, in the order in which they are added.
pub(super) const REQUIRED_OF_EMBEDDED: [&str; 2] = ["kind", "apiVersion"];

/// Returns the schemas of the kinds, and of their lists.
pub(super) fn schemas(
    group: &str,
    version: &str,
    resources: &[Arc<ResourceInfo>],
    texts: &Descriptions,
) -> Map<String, Value> {
    let mut schemas = Map::new();
    for resource in resources {
        let TypeRef::Structural(schema) = &resource.type_ref else { continue };
        let kind = component(group, version, &resource.kind);
        let list = component(group, version, &resource.list_kind);
        let gvk = |kind: &str| json!([{"group": group, "kind": kind, "version": version}]);
        let mut object = schema.document();
        both_forms(&mut object);
        let text = texts.of_field("io.k8s.api.core.v1.Pod", "metadata").unwrap_or_default();
        let reference_of_metadata = reference(&format!("{META}.ObjectMeta"));
        embedded_envelopes(&mut object, &json!({"allOf": [reference_of_metadata], "description": text}));
        envelope(&mut object, "ObjectMeta", text, texts);
        object["x-kubernetes-group-version-kind"] = gvk(&resource.kind);
        let selectable: Vec<Value> =
            resource.behavior.selectable_fields.custom().map(|field| json!({"fieldPath": field})).collect();
        let mut list_schema = json!({
            "type": "object",
            "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
            "required": ["items"],
            "properties": {"items": {
                "type": "array",
                "description": format!("List of {}. More info: {CONVENTIONS}", resource.plural),
                "items": reference(&kind),
            }},
            "x-kubernetes-group-version-kind": gvk(&resource.list_kind),
        });
        let text = format!("Standard list metadata. More info: {CONVENTIONS}#types-kinds");
        envelope(&mut list_schema, "ListMeta", &text, texts);
        if !selectable.is_empty() {
            for schema in [&mut object, &mut list_schema] {
                schema["x-kubernetes-selectable-fields"] = json!(selectable);
            }
        }
        schemas.insert(kind, object);
        schemas.insert(list, list_schema);
    }
    schemas
}

/// Adds the members of every object to a schema.
fn envelope(schema: &mut Value, metadata: &str, text: &str, texts: &Descriptions) {
    for name in ["apiVersion", "kind"] {
        let text = texts.of_field("io.k8s.api.core.v1.Pod", name).unwrap_or_default();
        schema["properties"][name] = json!({"type": "string", "description": text});
    }
    let reference = reference(&format!("{META}.{metadata}"));
    schema["properties"]["metadata"] = json!({"allOf": [reference], "description": text});
}

/// Adds the two types of each int-or-string, which definitions only mark.
fn both_forms(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.values_mut().for_each(both_forms);
            if members.get("x-kubernetes-int-or-string") == Some(&true.into()) {
                add_forms(members);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(both_forms),
        _ => {}
    }
}

fn add_forms(members: &mut Map<String, Value>) {
    let forms = json!([{"type": "integer"}, {"type": "string"}]);
    let all = members.get("allOf").and_then(Value::as_array);
    if all.and_then(|all| all.first()).is_some_and(|first| first["anyOf"] == forms) {
        return;
    }
    match members.get("anyOf") {
        None => _ = members.insert("anyOf".to_owned(), forms),
        Some(any) if *any == forms => {}
        Some(_) => {
            let mut all = all.cloned().unwrap_or_default();
            all.insert(0, json!({"anyOf": forms}));
            members.insert("allOf".to_owned(), all.into());
        }
    }
}

/// Adds the members of every object to the schemas of embedded objects.
fn embedded_envelopes(schema: &mut Value, metadata: &Value) {
    let Some(members) = schema.as_object_mut() else { return };
    if let Some(Value::Object(properties)) = members.get_mut("properties") {
        properties.values_mut().for_each(|property| embedded_envelopes(property, metadata));
    }
    for name in ["items", "additionalProperties"] {
        members.get_mut(name).into_iter().for_each(|inner| embedded_envelopes(inner, metadata));
    }
    if members.get("x-kubernetes-embedded-resource") != Some(&true.into()) {
        return;
    }
    schema["properties"]["apiVersion"] = json!({"type": "string", "description": format!(
        "apiVersion defines the versioned schema of this representation of an object. More info: {CONVENTIONS}#resources"
    )});
    schema["properties"]["kind"] = json!({"type": "string", "description": format!(
        "kind is a string value representing the type of this object. In CamelCase. More info: {CONVENTIONS}#types-kinds"
    )});
    schema["properties"]["metadata"] = metadata.clone();
    let mut required = schema["required"].as_array().cloned().unwrap_or_default();
    for name in REQUIRED_OF_EMBEDDED {
        if !required.contains(&name.into()) {
            required.push(name.into());
        }
    }
    schema["required"] = required.into();
}
