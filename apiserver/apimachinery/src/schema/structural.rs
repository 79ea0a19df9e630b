//! Structural schemas: the types of custom resources.
//!
//! A structural schema specifies the type of each value of an object, as required by pruning,
//! defaulting, field ownership and validation. It is read once from the OpenAPI v3 schema of a
//! CustomResourceDefinition's version; the text of that schema is kept for OpenAPI documents.
//!
//! Source: "Specifying a structural schema"; KEP-1693, KEP-2885 for ownership markers.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::embedded::schema;
use super::rules::texts;
pub use super::rules::{Bound, Rules, Size};
use super::types::{List, StructId};
use crate::names::Text;
pub use coracle_pattern::{Pattern, PatternError};

/// Schemas may be nested so deep, as deep as documents may be.
const MAX_DEPTH: usize = 100;

/// The type of a custom resource in one version.
#[derive(Debug)]
pub struct StructuralSchema {
    root: Structural,
    has_defaults: bool,
    has_embedded_resources: bool,
    document: Arc<str>,
}

/// The type of a value of a custom resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Structural {
    /// The type of the value; None if `int_or_string` or `preserve_unknown_fields` replaces it.
    pub ty: Option<StructuralType>,
    /// Members of an object that have a type of their own.
    pub properties: BTreeMap<String, Structural>,
    /// The type of all members of an object, which is a map then.
    pub additional_properties: Option<Box<Structural>>,
    /// Members that are not specified are refused: `additionalProperties: false`.
    pub closed: bool,
    /// Whether the value is not specified, so that members of objects are pruned: the values under
    /// `additionalProperties: true` and the items of arrays without `items`.
    pub unspecified: bool,
    /// The type of the items of an array.
    pub items: Option<Box<Structural>>,
    /// Null is a value.
    pub nullable: bool,
    /// An integer or a string: `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// Whether members without a type of their own are kept:
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown_fields: bool,
    /// Apply accepts members without a type: this type or one around it preserves unknown fields,
    /// or nothing is specified.
    pub accepts_unknown_fields: bool,
    /// A whole object with `apiVersion`, `kind` and `metadata`: `x-kubernetes-embedded-resource`.
    pub embedded_resource: bool,
    /// The list type of an array in server-side apply: `x-kubernetes-list-type`.
    pub list: List,
    /// Apply takes the object for one value: `x-kubernetes-map-type: atomic`.
    pub atomic: bool,
    /// The value of a member that a client leaves out.
    pub default: Option<DefaultValue>,
    /// The rules for values.
    pub rules: Rules,
    /// Further schemas that must, or must not, accept the value.
    pub composition: Option<Box<Composition>>,
}

/// Schemas that are combined: `allOf`, `anyOf`, `oneOf` and `not`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Composition {
    /// All of them accept the value.
    pub all_of: Vec<Structural>,
    /// At least one of them must accept the value.
    pub any_of: Vec<Structural>,
    /// Exactly one of them accepts it.
    pub one_of: Vec<Structural>,
    /// It must not accept the value.
    pub not: Option<Structural>,
}

/// A default.
#[derive(Clone, Debug, PartialEq)]
pub struct DefaultValue {
    /// The value.
    pub value: Value,
    /// The length of its JSON, in bytes.
    pub bytes: usize,
}

impl DefaultValue {
    fn new(value: &Value) -> DefaultValue {
        DefaultValue { value: value.clone(), bytes: value.to_string().len() }
    }
}

/// The type of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StructuralType {
    /// `object`
    Object,
    /// `array`
    Array,
    /// `string`
    String,
    /// `integer`
    Integer,
    /// `number`
    Number,
    /// `boolean`
    Boolean,
}

/// The reasons for which a schema is not structural.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StructuralError {
    /// It is not an object.
    #[error("a schema must be an object")]
    NotAnObject,
    /// It is nested too deeply.
    #[error("schemas must not be nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    /// The type does not exist.
    #[error("unknown type {0:?}")]
    UnknownType(String),
}

impl StructuralSchema {
    /// Reads the `openAPIV3Schema` of a version.
    ///
    /// # Errors
    /// [`StructuralError`] if the schema is not structural.
    pub fn read(document: Value) -> Result<StructuralSchema, StructuralError> {
        let mut root = Structural::read(&document, 0)?;
        root.inherit(false);
        // Each object has an envelope, so that something is specified.
        root.accepts_unknown_fields &= root.preserve_unknown_fields
            || !root.properties.is_empty()
            || root.additional_properties.is_some();
        Ok(StructuralSchema {
            has_defaults: root.any(&|inner| inner.default.is_some()),
            has_embedded_resources: root.any(&|inner| inner.embedded_resource),
            root,
            document: document.to_string().into(),
        })
    }

    /// Returns the type of the whole object. Its `apiVersion`, `kind` and `metadata` have the types
    /// of every object.
    pub fn root(&self) -> &Structural {
        &self.root
    }

    /// Returns `true` if the schema neither adds anything to objects nor removes anything from
    /// them.
    pub fn is_open(&self) -> bool {
        self.root.preserve_unknown_fields && self.root.properties.is_empty()
    }

    /// Returns whether any part of the schema has a default.
    pub fn has_defaults(&self) -> bool {
        self.has_defaults
    }

    /// Returns whether the objects contain embedded resources anywhere.
    pub fn has_embedded_resources(&self) -> bool {
        self.has_embedded_resources
    }

    /// Returns the schema as it was read, for OpenAPI documents. It is kept as text, which takes a
    /// tenth of the memory of a parsed document.
    pub fn document(&self) -> Value {
        serde_json::from_str(&self.document).unwrap_or_default()
    }
}

impl PartialEq for StructuralSchema {
    fn eq(&self, other: &StructuralSchema) -> bool {
        self.document == other.document
    }
}

impl Structural {
    fn read(schema: &Value, depth: usize) -> Result<Structural, StructuralError> {
        if depth > MAX_DEPTH {
            return Err(StructuralError::TooDeep);
        }
        let Some(members) = schema.as_object() else { return Err(StructuralError::NotAnObject) };
        let flag = |name: &str| members.get(name) == Some(&Value::Bool(true));
        let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default();
        let inner = |name: &str| -> Result<Option<Box<Structural>>, StructuralError> {
            match members.get(name) {
                Some(inner @ Value::Object(_)) => Structural::read(inner, depth + 1).map(Box::new).map(Some),
                _ => Ok(None),
            }
        };
        let properties = members.get("properties").and_then(Value::as_object).into_iter().flatten();
        Ok(Structural {
            ty: match text("type") {
                "" => None,
                name => Some(StructuralType::named(name)?),
            },
            properties: properties
                .map(|(name, schema)| Ok((name.clone(), Structural::read(schema, depth + 1)?)))
                .collect::<Result<_, StructuralError>>()?,
            additional_properties: match members.get("additionalProperties") {
                Some(Value::Bool(_)) => Some(Box::new(Structural::unspecified())),
                _ => inner("additionalProperties")?,
            },
            closed: members.get("additionalProperties") == Some(&Value::Bool(false)),
            unspecified: false,
            items: inner("items")?,
            nullable: flag("nullable"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserve_unknown_fields: flag("x-kubernetes-preserve-unknown-fields"),
            accepts_unknown_fields: false,
            embedded_resource: flag("x-kubernetes-embedded-resource"),
            list: match text("x-kubernetes-list-type") {
                "set" => List::Set,
                "map" => {
                    List::Map(texts(members.get("x-kubernetes-list-map-keys")).map(Text::from).collect())
                }
                _ => List::Atomic,
            },
            atomic: text("x-kubernetes-map-type") == "atomic",
            default: members.get("default").filter(|value| !value.is_null()).map(DefaultValue::new),
            rules: Rules::read(members),
            composition: Composition::read(members, depth)?,
        })
    }

    /// Determines for this type and those inside of it whether apply accepts unknown fields.
    /// `preserves`: whether an enclosing type preserves them.
    ///
    /// Source: kube-openapi's `schemaconv`, where preserving is inherited.
    fn inherit(&mut self, preserves: bool) {
        let preserves = preserves || self.preserve_unknown_fields;
        let is_free = self.properties.is_empty() && !self.embedded_resource;
        self.accepts_unknown_fields = match self.additional_properties {
            Some(_) => !self.closed,
            None => preserves || is_free,
        };
        let inner = self.properties.values_mut().chain(self.additional_properties.as_deref_mut());
        inner.chain(self.items.as_deref_mut()).for_each(|inner| inner.inherit(preserves));
    }

    /// Returns `true` if `is` holds for this type or for one inside of it.
    fn any(&self, is: &impl Fn(&Structural) -> bool) -> bool {
        let inner = self.properties.values().chain(self.additional_properties.as_deref());
        is(self) || inner.chain(self.items.as_deref()).any(|inner| inner.any(is))
    }

    /// Returns the type of unspecified values.
    fn unspecified() -> Structural {
        Structural { preserve_unknown_fields: true, unspecified: true, ..Structural::default() }
    }

    /// Returns the type; None if it is not specified.
    pub fn specified(&self) -> Option<&Structural> {
        (!self.unspecified).then_some(self)
    }

    /// Returns the type of a member like [`Structural::member`], but None if it is not specified.
    pub fn specified_member(&self, name: &str) -> Option<&Structural> {
        self.member(name).and_then(Structural::specified)
    }

    /// Returns the type of a member, from `properties` or else `additionalProperties`; None if
    /// neither has it.
    pub fn member(&self, name: &str) -> Option<&Structural> {
        self.properties.get(name).or(self.additional_properties.as_deref())
    }
}

impl Composition {
    /// Reads the compositions of a schema; None if there are none.
    fn read(schema: &Map<String, Value>, depth: usize) -> Result<Option<Box<Composition>>, StructuralError> {
        if depth > MAX_DEPTH {
            return Err(StructuralError::TooDeep);
        }
        let list = |name: &str| -> Result<Vec<Structural>, StructuralError> {
            let schemas = schema.get(name).and_then(Value::as_array).into_iter().flatten();
            schemas.map(|schema| Structural::read(schema, depth + 1)).collect()
        };
        let not = schema.get("not").filter(|not| !not.is_null());
        let composition = Composition {
            all_of: list("allOf")?,
            any_of: list("anyOf")?,
            one_of: list("oneOf")?,
            not: not.map(|not| Structural::read(not, depth + 1)).transpose()?,
        };
        Ok((composition != Composition::default()).then(|| Box::new(composition)))
    }
}

impl StructuralType {
    fn named(name: &str) -> Result<StructuralType, StructuralError> {
        Ok(match name {
            "object" => StructuralType::Object,
            "array" => StructuralType::Array,
            "string" => StructuralType::String,
            "integer" => StructuralType::Integer,
            "number" => StructuralType::Number,
            "boolean" => StructuralType::Boolean,
            other => return Err(StructuralError::UnknownType(other.to_owned())),
        })
    }

    /// Returns the name in OpenAPI.
    pub fn name(self) -> &'static str {
        match self {
            StructuralType::Object => "object",
            StructuralType::Array => "array",
            StructuralType::String => "string",
            StructuralType::Integer => "integer",
            StructuralType::Number => "number",
            StructuralType::Boolean => "boolean",
        }
    }
}

/// The members of every object, independent of its schema.
pub const ENVELOPE: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Returns the struct of `metadata`, which custom resources share with all others.
pub fn object_meta() -> StructId {
    static ID: OnceLock<StructId> = OnceLock::new();
    *ID.get_or_init(|| {
        schema().named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").expect("the table has it")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_read_with_its_markers() {
        let schema = StructuralSchema::read(json!({"type": "object", "properties": {
            "spec": {"type": "object", "required": ["size"], "properties": {
                "size": {"type": "integer", "default": 3, "enum": [1, 2, 3]},
                "port": {"x-kubernetes-int-or-string": true},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "rules": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "x-kubernetes-map-type": "atomic"},
                },
            }},
        }}))
        .expect("structural");
        let spec = schema.root().member("spec").expect("spec");
        assert_eq!(spec.rules.required, ["size"]);
        let size = spec.member("size").expect("size");
        assert_eq!(size.ty, Some(StructuralType::Integer));
        assert_eq!(size.default, Some(DefaultValue { value: json!(3), bytes: 1 }));
        assert!(schema.has_defaults());
        assert_eq!(size.rules.enumeration, [json!(1), json!(2), json!(3)]);
        assert!(spec.member("port").is_some_and(|port| port.int_or_string && port.ty.is_none()));
        let entry = spec.member("labels").and_then(|labels| labels.member("any"));
        assert_eq!(entry.and_then(|entry| entry.ty), Some(StructuralType::String));
        let rules = spec.member("rules").expect("rules");
        assert_eq!(rules.list, List::Map(vec!["name".into()]));
        assert!(rules.items.as_ref().is_some_and(|item| item.atomic));
        assert!(spec.member("other").is_none());
    }

    #[test]
    fn what_is_no_structural_schema_is_refused() {
        let mut deep = json!({"type": "object"});
        for _ in 0..=MAX_DEPTH {
            deep = json!({"type": "object", "properties": {"a": deep}});
        }
        for (schema, want) in [
            (json!([]), StructuralError::NotAnObject),
            (json!({"properties": {"a": 1}}), StructuralError::NotAnObject),
            (json!({"items": {"type": "null"}}), StructuralError::UnknownType("null".to_owned())),
            (deep, StructuralError::TooDeep),
        ] {
            assert_eq!(StructuralSchema::read(schema).err(), Some(want));
        }
    }
}
