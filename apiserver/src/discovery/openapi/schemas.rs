//! The component schemas of a document, made from the schema table.
//!
//! Start at [`Schemas::of`]: it takes the types in a document's operations and follows their
//! references.

use serde_json::{Map, Value, json};

use crate::discovery::version;
use crate::schema::Descriptions;
use crate::schema::{FieldSchema, List, Schema, Struct, StructId, Type, UnionRole, schema};

pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const API_EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";
const REFERENCE: &str = "#/components/schemas/";

/// Returns a reference to a type.
pub(super) fn reference(openapi_name: &str) -> Value {
    json!({"$ref": format!("{REFERENCE}{openapi_name}")})
}

/// Returns the name of a kind's type in the documents.
pub(super) fn component(group: &str, version: &str, kind: &str) -> String {
    match schema().kind(group, version, kind) {
        Some(id) => schema().get(id).openapi_name(),
        None => {
            let reversed: Vec<&str> = group.rsplit('.').collect();
            format!("{}.{version}.{kind}", reversed.join("."))
        }
    }
}

/// Collects the schemas of one document.
pub(super) struct Schemas<'a> {
    table: &'static Schema,
    texts: &'a Descriptions,
    /// The group and version of the document: kinds that belong to all versions are listed for this
    /// one only.
    home: Option<(&'a str, &'a str)>,
    found: Map<String, Value>,
}

impl<'a> Schemas<'a> {
    /// Returns the schemas of everything that `document` refers to, transitively. `custom` are the
    /// schemas of custom resources.
    pub(super) fn of(
        document: &Value,
        custom: Map<String, Value>,
        home: Option<(&'a str, &'a str)>,
        texts: &'a Descriptions,
    ) -> Map<String, Value> {
        let mut schemas = Schemas { table: schema(), texts, home, found: custom };
        let mut negotiated = Vec::new();
        references(document, &mut negotiated);
        schemas.found.values().for_each(|schema| references(schema, &mut negotiated));
        while let Some(name) = negotiated.pop() {
            if !schemas.found.contains_key(&name)
                && let Some(schema) = schemas.component(&name)
            {
                references(&schema, &mut negotiated);
                schemas.found.insert(name, schema);
            }
        }
        schemas.found
    }

    fn component(&self, name: &str) -> Option<Value> {
        let mut schema = match self.table.named(name) {
            Some(id) => self.structure(id),
            None => special(name)?,
        };
        let text = self.texts.of_type(name).map(str::to_owned).or_else(|| text_of_list(name, None));
        if let (Some(text), Some(object)) = (text, schema.as_object_mut()) {
            object.insert("description".into(), text.into());
        }
        Some(schema)
    }

    fn structure(&self, id: StructId) -> Value {
        let structure = self.table.get(id);
        let name = structure.openapi_name();
        let mut schema = Map::new();
        schema.insert("type".into(), "object".into());
        let members = structure.members();
        if !members.is_empty() {
            let properties: Map<String, Value> =
                members.iter().map(|field| (field.name.to_owned(), self.member(&name, field))).collect();
            schema.insert("properties".into(), properties.into());
        }
        let required: Vec<&str> =
            members.iter().filter(|field| field.required).map(|field| field.name).collect();
        if !required.is_empty() {
            schema.insert("required".into(), required.into());
        }
        if structure.atomic {
            schema.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
        if let Some(union) = union(structure) {
            schema.insert("x-kubernetes-unions".into(), union);
        }
        let kinds = self.kinds(id);
        if !kinds.is_empty() {
            schema.insert("x-kubernetes-group-version-kind".into(), kinds.into());
        }
        schema.into()
    }

    /// Returns the kinds of a type. Kinds of every group version are listed with that of the
    /// document.
    fn kinds(&self, id: StructId) -> Vec<Value> {
        let known = self.table.kinds().filter(|(_, type_id)| *type_id == id);
        let mut kinds: Vec<(&str, &str, &str)> = Vec::new();
        for ((group, version, kind), _) in known {
            if group == "*" {
                kinds.push(("", "v1", kind));
                kinds.extend(self.home.map(|(group, version)| (group, version, kind)));
            } else {
                kinds.push((group, version, kind));
            }
        }
        kinds.sort_unstable();
        kinds.dedup();
        let entries = kinds.into_iter();
        entries
            .map(|(group, version, kind)| json!({"group": group, "kind": kind, "version": version}))
            .collect()
    }

    fn member(&self, owner: &str, field: &FieldSchema) -> Value {
        let enumeration = self.table.enumeration(field);
        let mut schema = self.value(&field.ty, enumeration);
        let mut more = Map::new();
        let default = match field.default {
            Some(json) => serde_json::from_str(json).ok(),
            None if field.pointer => None,
            None => zero(&field.ty).filter(|zero| field.keep || zero.is_object()),
        };
        more.extend(default.map(|default| ("default".to_owned(), default)));
        let text = self.texts.of_field(owner, field.name).map(str::to_owned);
        let mut text = text.or_else(|| text_of_list(owner, Some(field.name))).unwrap_or_default();
        if field.ty == Type::String && !enumeration.is_empty() {
            text.push_str(if text.is_empty() { "" } else { "\n\n" });
            text.push_str("Possible enum values:");
            text.extend(enumeration.iter().map(|value| format!("\n - `\"{value}\"`")));
        }
        if !text.is_empty() {
            more.insert("description".into(), text.into());
        }
        if field.ty.item().is_some() && field.list_declared {
            let (kind, keys) = match &field.list {
                List::Atomic => ("atomic", None),
                List::Set => ("set", None),
                List::Map(keys) => ("map", Some(keys)),
            };
            more.insert("x-kubernetes-list-type".into(), kind.into());
            more.extend(keys.map(|keys| ("x-kubernetes-list-map-keys".to_owned(), keys.clone().into())));
        }
        if field.atomic || field.granular {
            // Bytes are a list in Go.
            let what = if field.ty == Type::Bytes { "list" } else { "map" };
            let kind = if field.atomic { "atomic" } else { "granular" };
            more.insert(format!("x-kubernetes-{what}-type"), kind.into());
        }
        for (name, value) in [
            ("x-kubernetes-patch-strategy", field.patch_strategy),
            ("x-kubernetes-patch-merge-key", field.merge_key),
        ] {
            more.extend(value.map(|value| (name.to_owned(), value.into())));
        }
        extend(&mut schema, more);
        schema
    }

    /// Returns the schema of a value. An enumeration applies to the innermost items.
    fn value(&self, ty: &Type, enumeration: &[&'static str]) -> Value {
        let integer = |format: &str| json!({"type": "integer", "format": format});
        match ty {
            Type::Struct(id) => reference(&self.table.get(*id).openapi_name()),
            Type::List(item) | Type::ListMessage(item) => {
                json!({"type": "array", "items": self.item(item, enumeration)})
            }
            Type::Map(value) => {
                json!({"type": "object", "additionalProperties": self.item(value, enumeration)})
            }
            Type::String if !enumeration.is_empty() => json!({"type": "string", "enum": enumeration}),
            Type::String => json!({"type": "string"}),
            Type::Bool => json!({"type": "boolean"}),
            Type::Int32 => integer("int32"),
            Type::Int64 => integer("int64"),
            Type::Double => json!({"type": "number", "format": "double"}),
            Type::Bytes => json!({"type": "string", "format": "byte"}),
            Type::Quantity => reference("io.k8s.apimachinery.pkg.api.resource.Quantity"),
            Type::IntOrString => reference("io.k8s.apimachinery.pkg.util.intstr.IntOrString"),
            Type::Time => reference(&format!("{META}.Time")),
            Type::MicroTime => reference(&format!("{META}.MicroTime")),
            Type::Duration => reference(&format!("{META}.Duration")),
            Type::RawExtension => reference("io.k8s.apimachinery.pkg.runtime.RawExtension"),
            Type::FieldsV1 => reference(&format!("{META}.FieldsV1")),
            Type::Json => reference(&format!("{API_EXTENSIONS}.JSON")),
            Type::SchemaOrBool => reference(&format!("{API_EXTENSIONS}.JSONSchemaPropsOrBool")),
            Type::SchemaOrArray => reference(&format!("{API_EXTENSIONS}.JSONSchemaPropsOrArray")),
            Type::SchemaOrStrings => reference(&format!("{API_EXTENSIONS}.JSONSchemaPropsOrStringArray")),
            Type::Any => json!({}),
        }
    }

    /// Returns the schema of an item of a list or map, with its zero value as the default.
    fn item(&self, ty: &Type, enumeration: &[&'static str]) -> Value {
        let mut schema = self.value(ty, enumeration);
        extend(&mut schema, zero(ty).map(|zero| ("default".to_owned(), zero)).into_iter().collect());
        schema
    }
}

/// Adds members to a schema. A reference cannot have siblings, so it is moved into `allOf`.
fn extend(schema: &mut Value, more: Map<String, Value>) {
    if more.is_empty() {
        return;
    }
    if schema.get("$ref").is_some() {
        *schema = json!({"allOf": [schema.take()]});
    }
    if let Some(object) = schema.as_object_mut() {
        object.extend(more);
    }
}

/// Returns the value that Go prints for an unset member; None if that is nothing, or null.
fn zero(ty: &Type) -> Option<Value> {
    match ty {
        Type::Struct(_) => Some(json!({})),
        Type::String => Some("".into()),
        Type::Bool => Some(false.into()),
        Type::Int32 | Type::Int64 | Type::Double => Some(0.into()),
        _ => None,
    }
}

fn union(structure: &Struct) -> Option<Value> {
    let with_role = |role| structure.members().iter().filter(move |field| field.union == Some(role));
    let fields: Map<String, Value> = with_role(UnionRole::Alternative)
        .map(|field| {
            (field.name.to_owned(), format!("{}{}", field.name[..1].to_uppercase(), &field.name[1..]).into())
        })
        .collect();
    if fields.is_empty() {
        return None;
    }
    let mut union = json!({"fields-to-discriminateBy": fields});
    if let Some(discriminator) = with_role(UnionRole::Discriminator).next() {
        union["discriminator"] = discriminator.name.into();
    }
    Some(json!([union]))
}

/// Returns the description of the type of a list, or of a field of it. The source of the other
/// descriptions has one type for the lists of all kinds.
fn text_of_list(owner: &str, field: Option<&str>) -> Option<String> {
    let kind = owner.rsplit('.').next()?.strip_suffix("List").filter(|kind| !kind.is_empty())?;
    match field {
        None => Some(format!("{kind}List is a list of {kind} objects.")),
        Some("items") => Some(format!("The {kind} objects of the list.")),
        Some("metadata") => Some("The metadata of the list.".to_owned()),
        Some(_) => None,
    }
}

/// Returns the schema of a type with a JSON encoding of its own; None for other types.
fn special(name: &str) -> Option<Value> {
    let (package, name) = name.rsplit_once('.')?;
    Some(match (package, name) {
        ("io.k8s.apimachinery.pkg.api.resource", "Quantity") => {
            json!({"oneOf": [{"type": "string"}, {"type": "number"}]})
        }
        ("io.k8s.apimachinery.pkg.util.intstr", "IntOrString") => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        (META, "Time" | "MicroTime") => json!({"type": "string", "format": "date-time"}),
        (META, "Duration") => json!({"type": "string"}),
        (META, "FieldsV1" | "Patch") | ("io.k8s.apimachinery.pkg.runtime", "RawExtension") => {
            json!({"type": "object"})
        }
        ("io.k8s.apimachinery.pkg.version", "Info") => {
            let mut schema = json!({"type": "object", "required": [], "properties": {}});
            for field in version::FIELDS {
                schema["properties"][field.name] = match field.required {
                    true => json!({"type": "string", "default": ""}),
                    false => json!({"type": "string"}),
                };
            }
            let required = version::FIELDS.iter().filter(|field| field.required);
            schema["required"] = required.map(|field| field.name).collect();
            schema
        }
        (API_EXTENSIONS, _) => json!({}),
        _ => return None,
    })
}

/// Collects the names of the types that a document refers to.
fn references(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                match value.as_str().and_then(|target| target.strip_prefix(REFERENCE)) {
                    Some(name) if key == "$ref" => names.push(name.to_owned()),
                    _ => references(value, names),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, names)),
        _ => {}
    }
}
