//! Declared types: the types that an OpenAPI v3 schema declares for the values in expressions, with
//! bounds of their sizes.
//!
//! Source: `k8s.io/apiserver/pkg/cel/common/schemas.go`, `types.go` and `escaping.go`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::types::Type;

/// The greatest size of a request, in bytes: nothing has more elements than fit into it.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;

/// The declared type of a JSON value.
#[derive(Debug)]
pub struct DeclType {
    /// The kind of type.
    pub kind: DeclKind,
    /// The largest number of elements, members or bytes of a value.
    pub max_elements: u64,
    /// The smallest size of a value in JSON, in bytes.
    pub min_size: u64,
}

/// The kind of a declared type.
#[derive(Debug)]
pub enum DeclKind {
    /// Any type.
    Dyn,
    /// A boolean.
    Bool,
    /// An integer.
    Int,
    /// A number, which may be written without a fraction.
    Double,
    /// A text.
    String,
    /// Bytes in base64.
    Bytes,
    /// A text that is a duration.
    Duration,
    /// A text that is a time or, without a time of day, a date.
    Timestamp,
    /// A list.
    List(Arc<DeclType>, ListSemantics),
    /// A map from texts.
    Map(Arc<DeclType>),
    /// An object with fields.
    Object {
        /// The name of the type: the path to it.
        name: Arc<str>,
        /// The fields by their names in expressions.
        fields: BTreeMap<Arc<str>, DeclField>,
    },
}

/// The fields of an object, by their names in expressions.
type Fields = BTreeMap<Arc<str>, DeclField>;

/// A field of an object.
#[derive(Debug)]
pub struct DeclField {
    /// The name of the field in JSON.
    pub json_name: Arc<str>,
    /// The type of the field.
    pub ty: Arc<DeclType>,
}

/// The comparison of the items of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListSemantics {
    /// Items are compared in order.
    Atomic,
    /// Items are compared in any order.
    Set,
    /// Items are compared in any order, identified by these keys.
    Map(Vec<Arc<str>>),
}

/// The declared type of values without a schema.
pub static DYN: DeclType = DeclType { kind: DeclKind::Dyn, max_elements: u64::MAX, min_size: 1 };

impl DeclType {
    /// Returns the declared type of a structural schema, or `None` if the schema specifies no type.
    /// `name` is the name of the type; types within it are named by their paths below it. The root
    /// of a resource has `apiVersion`, `kind` and `metadata`.
    pub fn of_schema(schema: &Json, name: &str, is_resource_root: bool) -> Option<DeclType> {
        let flag = |name: &str| schema.get(name).is_some_and(|value| value == true);
        if flag("x-kubernetes-int-or-string") {
            let max = schema.get("maxLength").and_then(Json::as_i64).map(|n| n.max(0).unsigned_abs());
            let max_elements = max.map_or(MAX_REQUEST - 2, |max| max.saturating_mul(4));
            return Some(DeclType { kind: DeclKind::Dyn, max_elements, min_size: 1 });
        }
        let number = |name: &str| schema.get(name).and_then(Json::as_i64).map(|n| n.max(0).unsigned_abs());
        match schema.get("type")?.as_str()? {
            "boolean" => Some(sized(DeclKind::Bool, 0, 4)),
            "integer" => Some(sized(DeclKind::Int, 0, 1)),
            "number" => Some(sized(DeclKind::Double, 0, 1)),
            "string" => Some(string(schema, number("maxLength"))),
            "array" => {
                let item = DeclType::of_schema(schema.get("items")?, &format!("{name}.@idx"), false)?;
                let max = number("maxItems").unwrap_or((MAX_REQUEST - 2) / (item.min_size + 1));
                Some(sized(DeclKind::List(Arc::new(item), semantics(schema)), max, 2))
            }
            "object" => {
                if let Some(entry) = schema.get("additionalProperties").filter(|entry| entry.is_object()) {
                    let embedded =
                        entry.get("x-kubernetes-embedded-resource").is_some_and(|value| value == true);
                    let value = DeclType::of_schema(entry, &format!("{name}.@elem"), embedded)?;
                    let max = number("maxProperties").unwrap_or((MAX_REQUEST - 2) / (value.min_size + 6));
                    return Some(sized(DeclKind::Map(Arc::new(value)), max, 2));
                }
                Some(object(schema, name, is_resource_root))
            }
            _ => None,
        }
    }

    /// Returns the field with this name. A field with a keyword as its name is found by its escaped
    /// name.
    pub(crate) fn field<'d>(fields: &'d Fields, name: &str) -> Option<&'d DeclField> {
        fields.get(name).or_else(|| fields.get(&*escape(name).filter(|_| is_keyword(name))?))
    }

    /// Returns the type that the checker uses for this declaration.
    pub fn cel_type(&self) -> Type {
        match &self.kind {
            DeclKind::Dyn => Type::Dyn,
            DeclKind::Bool => Type::Bool,
            DeclKind::Int => Type::Int,
            DeclKind::Double => Type::Double,
            DeclKind::String => Type::String,
            DeclKind::Bytes => Type::Bytes,
            DeclKind::Duration => Type::Duration,
            DeclKind::Timestamp => Type::Timestamp,
            DeclKind::List(item, _) => Type::list(item.cel_type()),
            DeclKind::Map(value) => Type::map(Type::String, value.cel_type()),
            DeclKind::Object { name, .. } => Type::Object(name.clone()),
        }
    }

    /// Returns the largest number of values of this type that fit into a request.
    pub fn max_cardinality(&self) -> u64 {
        MAX_REQUEST / (self.min_size + 1)
    }

    /// Calls `visit` for all object types within this one.
    pub fn visit_objects(&self, visit: &mut dyn FnMut(&Arc<str>, &Fields)) {
        match &self.kind {
            DeclKind::List(inner, _) | DeclKind::Map(inner) => inner.visit_objects(visit),
            DeclKind::Object { name, fields } => {
                visit(name, fields);
                fields.values().for_each(|field| field.ty.visit_objects(visit));
            }
            _ => {}
        }
    }
}

fn sized(kind: DeclKind, max_elements: u64, min_size: u64) -> DeclType {
    DeclType { kind, max_elements, min_size }
}

fn string(schema: &Json, max_length: Option<u64>) -> DeclType {
    let longest = MAX_REQUEST - 2;
    match schema.get("format").and_then(Json::as_str) {
        Some("byte") => sized(DeclKind::Bytes, max_length.unwrap_or(longest), 2),
        Some("duration") => sized(DeclKind::Duration, 32, 3),
        Some("date") => sized(DeclKind::Timestamp, 12, 12),
        Some("date-time") => sized(DeclKind::Timestamp, 32, 21),
        _ => {
            let of_enum = schema.get("enum").and_then(Json::as_array).filter(|values| !values.is_empty());
            // A character has at most four bytes.
            let max = max_length.map(|length| length.saturating_mul(4)).unwrap_or_else(|| {
                let lengths = of_enum.into_iter().flatten().filter_map(|value| Some(value.as_str()?.len()));
                lengths.max().map_or(longest, |length| length as u64)
            });
            sized(DeclKind::String, max, 2)
        }
    }
}

fn semantics(schema: &Json) -> ListSemantics {
    match schema.get("x-kubernetes-list-type").and_then(Json::as_str) {
        Some("set") => ListSemantics::Set,
        Some("map") => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Json::as_array);
            ListSemantics::Map(
                keys.into_iter().flatten().filter_map(|key| key.as_str().map(Arc::from)).collect(),
            )
        }
        _ => ListSemantics::Atomic,
    }
}

/// Objects have no number of elements, so that a comparison of two costs only the access to them,
/// as upstream estimates it.
const OBJECT_SIZE: u64 = 0;

fn object(schema: &Json, name: &str, is_resource_root: bool) -> DeclType {
    let mut fields = BTreeMap::new();
    let required = schema.get("required").and_then(Json::as_array);
    let mut min_size = 2;
    for (property, schema) in schema.get("properties").and_then(Json::as_object).into_iter().flatten() {
        let embedded = schema.get("x-kubernetes-embedded-resource").is_some_and(|value| value == true);
        let Some(ty) = DeclType::of_schema(schema, &format!("{name}.{property}"), embedded) else { continue };
        let is_required = required.is_some_and(|names| names.iter().any(|name| name == property));
        if is_required && schema.get("default").is_none() {
            min_size += property.len() as u64 + ty.min_size + 4;
        }
        let Some(escaped) = escape(property) else { continue };
        fields.insert(
            escaped.as_str().into(),
            DeclField { json_name: property.as_str().into(), ty: Arc::new(ty) },
        );
    }
    if is_resource_root && !has_type_and_metadata(schema) {
        let text = || Arc::new(sized(DeclKind::String, MAX_REQUEST - 2, 2));
        let field =
            |name: &str, ty: Arc<DeclType>| (Arc::from(name), DeclField { json_name: name.into(), ty });
        let metadata: BTreeMap<Arc<str>, DeclField> =
            [field("name", text()), field("generateName", text())].into();
        let kind = DeclKind::Object { name: format!("{name}.metadata").into(), fields: metadata };
        fields.extend([
            field("apiVersion", text()),
            field("kind", text()),
            field("metadata", Arc::new(sized(kind, OBJECT_SIZE, 2))),
        ]);
    }
    sized(DeclKind::Object { name: name.into(), fields }, OBJECT_SIZE, min_size)
}

/// Returns `true` if the schema of a resource itself declares the types of kind, version and name.
fn has_type_and_metadata(schema: &Json) -> bool {
    let is = |pointer: &str, ty: &str| schema.pointer(pointer).is_some_and(|found| found == ty);
    is("/properties/kind/type", "string")
        && is("/properties/apiVersion/type", "string")
        && is("/properties/metadata/type", "object")
        && is("/properties/metadata/properties/name/type", "string")
        && is("/properties/metadata/properties/generateName/type", "string")
}

const ESCAPES: [(&str, &str); 4] =
    [("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")];
const KEYWORDS: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Returns `true` if a name is a keyword of the language.
pub(crate) fn is_keyword(name: &str) -> bool {
    KEYWORDS.contains(&name)
}

/// Returns the name of a property in expressions, or `None` if expressions cannot refer to it.
pub fn escape(property: &str) -> Option<String> {
    if KEYWORDS.contains(&property) {
        return Some(format!("__{property}__"));
    }
    let (mut escaped, mut rest) = (String::new(), property);
    while let Some(c) = rest.chars().next() {
        if let Some((plain, code)) = ESCAPES.iter().find(|(plain, _)| rest.starts_with(plain)) {
            escaped.push_str(code);
            rest = rest.get(plain.len()..)?;
        } else if c == '_' || c.is_ascii_alphabetic() || c.is_ascii_digit() && !escaped.is_empty() {
            escaped.push(c);
            rest = rest.get(1..)?;
        } else {
            return None;
        }
    }
    (!escaped.is_empty()).then_some(escaped)
}

/// Returns the name of the property to which a name in expressions refers.
pub fn unescape(name: &str) -> String {
    if let Some(keyword) = name.strip_prefix("__").and_then(|name| name.strip_suffix("__"))
        && KEYWORDS.contains(&keyword)
    {
        return keyword.to_owned();
    }
    let (mut plain, mut rest) = (String::new(), name);
    while let Some(c) = rest.chars().next() {
        let (text, length) = match ESCAPES.iter().find(|(_, code)| rest.starts_with(code)) {
            Some((text, code)) => ((*text).to_owned(), code.len()),
            None => (c.to_string(), c.len_utf8()),
        };
        plain.push_str(&text);
        rest = rest.get(length..).unwrap_or("");
    }
    plain
}
