//! Values. Those of JSON are read lazily, by their declared types.

mod equality;
mod json;
mod key;
mod order;
mod text;
mod types;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use base64::Engine;
use coracle_quantity::Quantity;
use serde_json::Value as Json;

pub use key::Key;
pub use text::Text;

use crate::addresses::Cidr;
use crate::decl::{DYN, DeclField, DeclKind, DeclType, ListSemantics, escape};
use crate::error::EvalError;
use crate::library::{NamedFormat, Url};
use crate::time::{Time, parse_duration, parse_time};
use crate::types::Type;

/// The result of an expression.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// null
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A number.
    Double(f64),
    /// A text.
    String(Text<'a>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A list.
    List(List<'a>),
    /// A map or an object.
    Map(Map<'a>),
    /// A duration in nanoseconds.
    Duration(i64),
    /// A time.
    Timestamp(Time),
    /// A type.
    Type(Type),
    /// A value that may be absent.
    Optional(Option<Arc<Value<'a>>>),
    /// A quantity.
    Quantity(Quantity),
    /// An IP address.
    Ip(IpAddr),
    /// A range of IP addresses.
    Cidr(Cidr),
    /// A URL.
    Url(Arc<Url>),
    /// A semantic version.
    Semver(Arc<semver::Version>),
    /// A named format of texts.
    Format(NamedFormat),
    /// A struct literal.
    Object(Arc<ObjectLiteral<'a>>),
    /// A value provided by the caller.
    Host(Arc<dyn Host>),
}

/// A struct literal: its type and its fields.
#[derive(Debug)]
pub struct ObjectLiteral<'a> {
    /// The name of the type.
    pub name: Arc<str>,
    /// The fields that are set.
    pub fields: BTreeMap<Arc<str>, Value<'a>>,
    depth: u32,
}

/// A value with functions that the caller provides, such as an authorizer.
pub trait Host: fmt::Debug + Send + Sync {
    /// Returns the name of the value's type.
    fn type_name(&self) -> &'static str;

    /// Returns the approximate size of the value in bytes.
    fn size(&self) -> usize;

    /// Calls a member function of the value.
    ///
    /// # Errors
    /// The error that ends the evaluation.
    fn call(&self, function: &str, args: &[Value<'_>]) -> Result<Value<'static>, EvalError>;
}

/// A list.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// Items of the evaluated object.
    Json(&'a [Json], &'a DeclType, &'a ListSemantics),
    /// Items made by the evaluation.
    Values(Arc<Nested<Vec<Value<'a>>>>),
    /// The union of a list of the evaluated object, whose semantics it keeps, and another list.
    Union(Arc<Nested<Vec<Value<'a>>>>, &'a ListSemantics),
}

/// A map or object.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// Members of the evaluated object.
    Json(&'a serde_json::Map<String, Json>, &'a DeclType),
    /// Entries made by the evaluation.
    Values(Arc<Nested<BTreeMap<Key, Value<'a>>>>),
}

/// Items or entries made by the evaluation, with their nesting depth, so that it is known before a
/// recursion into them.
#[derive(Clone, Debug)]
pub struct Nested<T> {
    depth: u32,
    within: T,
}

impl<T> Deref for Nested<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.within
    }
}

impl<'a> Nested<Vec<Value<'a>>> {
    /// Appends an item.
    pub(crate) fn push(&mut self, item: Value<'a>) {
        self.depth = self.depth.max(1 + item.depth());
        self.within.push(item);
    }
}

/// Returns the depth of the most deeply nested value.
fn deepest<'v, 'a: 'v>(values: impl Iterator<Item = &'v Value<'a>>) -> u32 {
    values.map(Value::depth).max().unwrap_or(0)
}

impl<'a> List<'a> {
    /// Returns the number of items.
    pub fn len(&self) -> usize {
        match self {
            List::Json(items, ..) => items.len(),
            List::Values(items) | List::Union(items, _) => items.len(),
        }
    }

    /// Returns `true` if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the item at an index.
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            List::Json(items, ty, _) => Some(Value::of_json(items.get(index)?, ty)),
            List::Values(items) | List::Union(items, _) => items.get(index).cloned(),
        }
    }

    /// Returns `true` if the items have a declared type.
    pub(crate) fn is_typed(&self) -> bool {
        matches!(self, List::Json(_, ty, _) if !std::ptr::eq(*ty, &DYN))
    }

    /// Iterates over all items.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Value<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<'a> Map<'a> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        match self {
            Map::Json(members, _) => members.len(),
            Map::Values(entries) => entries.len(),
        }
    }

    /// Returns `true` if the map is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of a member, or of a string key.
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        match self {
            Map::Json(members, ty) => match &ty.kind {
                DeclKind::Object { fields, .. } => {
                    let field = DeclType::field(fields, name)?;
                    let value = members.get(&*field.json_name).filter(|value| !value.is_null())?;
                    Some(Value::of_json(value, &field.ty))
                }
                DeclKind::Map(value) => Some(Value::of_json(members.get(name)?, value)),
                _ => Some(Value::of_json(members.get(name)?, &DYN)),
            },
            Map::Values(entries) => entries.get(&Key::String(name.into())).cloned(),
        }
    }

    /// Returns the value for a key.
    pub fn at(&self, key: &Value<'_>) -> Option<Value<'a>> {
        match (self, key) {
            (_, Value::String(text)) => self.get(text),
            (Map::Json(..), _) => None,
            (Map::Values(entries), key) => {
                Key::of(key)?.alternatives().find_map(|key| entries.get(&key).cloned())
            }
        }
    }

    /// Returns `true` if the map has a declared type.
    pub(crate) fn is_typed(&self) -> bool {
        matches!(self, Map::Json(_, ty) if !std::ptr::eq(*ty, &DYN))
    }

    /// Returns the keys, in order.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Map::Json(members, ty) => {
                let key = |name: &'a String| match &ty.kind {
                    DeclKind::Object { fields, .. } => field_name(fields, name),
                    _ => Some(Text::Borrowed(name)),
                };
                members.keys().filter_map(key).map(Value::String).collect()
            }
            Map::Values(entries) => entries.keys().map(Key::value).collect(),
        }
    }
}

impl<'a> Value<'a> {
    /// Interprets a JSON value by its declared type. A value of another type is kept as it is.
    pub fn of_json(value: &'a Json, ty: &'a DeclType) -> Value<'a> {
        match (value, &ty.kind) {
            (Json::Null, _) => Value::Null,
            (Json::Bool(value), _) => Value::Bool(*value),
            (Json::Number(number), DeclKind::Double) => Value::Double(number.as_f64().unwrap_or(0.0)),
            (Json::Number(number), kind) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => Value::Int(value),
                (None, Some(value)) => Value::Uint(value),
                (None, None) => {
                    let value = number.as_f64().unwrap_or(0.0);
                    let whole = matches!(kind, DeclKind::Int) && value.fract() == 0.0;
                    if whole { Value::Int(value as i64) } else { Value::Double(value) }
                }
            },
            (Json::String(text), kind) => typed_text(text, kind),
            (Json::Array(items), DeclKind::List(item, semantics)) => {
                Value::List(List::Json(items, item, semantics))
            }
            (Json::Array(items), _) => Value::List(List::Json(items, &DYN, &ListSemantics::Atomic)),
            (Json::Object(members), DeclKind::Map(_) | DeclKind::Object { .. }) => {
                Value::Map(Map::Json(members, ty))
            }
            (Json::Object(members), _) => Value::Map(Map::Json(members, &DYN)),
        }
    }

    /// Creates a string.
    pub fn text(text: impl Into<String>) -> Value<'a> {
        Value::String(text.into().into())
    }

    /// Creates a list of values.
    pub fn list(items: Vec<Value<'a>>) -> Value<'a> {
        let depth = 1 + deepest(items.iter());
        Value::List(List::Values(Arc::new(Nested { depth, within: items })))
    }

    /// Creates the union of a list with these semantics and another one.
    pub(crate) fn union(items: Vec<Value<'a>>, semantics: &'a ListSemantics) -> Value<'a> {
        let depth = 1 + deepest(items.iter());
        Value::List(List::Union(Arc::new(Nested { depth, within: items }), semantics))
    }

    /// Creates a map of values.
    pub fn map(entries: BTreeMap<Key, Value<'a>>) -> Value<'a> {
        let depth = 1 + deepest(entries.values());
        Value::Map(Map::Values(Arc::new(Nested { depth, within: entries })))
    }

    /// Creates the value of a struct literal.
    pub fn object(name: Arc<str>, fields: BTreeMap<Arc<str>, Value<'a>>) -> Value<'a> {
        let depth = 1 + deepest(fields.values());
        Value::Object(Arc::new(ObjectLiteral { name, fields, depth }))
    }

    /// Returns the nesting depth of values that the evaluation created. Values of the object have
    /// depth 0.
    pub(crate) fn depth(&self) -> u32 {
        match self {
            Value::List(List::Values(items) | List::Union(items, _)) => items.depth,
            Value::Map(Map::Values(entries)) => entries.depth,
            Value::Object(object) => object.depth,
            Value::Optional(Some(value)) => 1 + value.depth(),
            _ => 0,
        }
    }

    /// Returns the size by which costs are computed.
    pub fn size(&self) -> u64 {
        let size = match self {
            Value::Optional(Some(value)) => return value.size(),
            Value::Cidr(cidr) => usize::from(cidr.prefix).div_ceil(8),
            Value::String(text) => text.chars().count(),
            Value::Bytes(bytes) => bytes.len(),
            Value::List(list) => list.len(),
            Value::Map(map) => map.len(),
            _ => 1,
        };
        size as u64
    }

    /// Returns the lesser of the sizes of two values. It does not count the characters of a string
    /// that is certainly longer.
    pub(crate) fn lesser_size(&self, other: &Value<'_>) -> u64 {
        let (short, long) = match (self, other) {
            (Value::String(a), Value::String(b)) if a.len() <= b.len() => (self, b),
            (Value::String(a), Value::String(_)) => (other, a),
            _ => return self.size().min(other.size()),
        };
        let size = short.size();
        // A character has at most four bytes.
        if long.len() as u64 / 4 >= size { size } else { size.min(long.chars().count() as u64) }
    }
}

impl Key {
    /// Converts a value to a key, or returns `None` if it cannot be a key.
    pub fn of(value: &Value<'_>) -> Option<Key> {
        Some(match value {
            Value::Bool(value) => Key::Bool(*value),
            Value::Int(value) => Key::Int(*value),
            Value::Uint(value) => Key::Uint(*value),
            // Positive and negative zero are the same key.
            Value::Double(value) => Key::Double((value + 0.0).to_bits()),
            Value::String(text) => Key::String(Arc::from(&**text)),
            Value::Null => Key::Null,
            _ => return None,
        })
    }

    /// Converts the key to a value.
    pub fn value<'a>(&self) -> Value<'a> {
        match self {
            Key::Bool(value) => Value::Bool(*value),
            Key::Int(value) => Value::Int(*value),
            Key::Uint(value) => Value::Uint(*value),
            Key::Double(bits) => Value::Double(f64::from_bits(*bits)),
            Key::Null => Value::Null,
            Key::String(text) => Value::String(Text::Shared(text.clone())),
        }
    }
}

/// Returns the name of the field for a member of an object. Most fields have the name of their
/// member.
fn field_name<'a>(fields: &BTreeMap<Arc<str>, DeclField>, member: &'a str) -> Option<Text<'a>> {
    let is_of = |name: &str| fields.get(name).is_some_and(|field| *field.json_name == *member);
    if is_of(member) {
        return Some(Text::Borrowed(member));
    }
    escape(member).filter(|name| is_of(name)).map(Text::from)
}

fn typed_text<'a>(text: &'a str, kind: &DeclKind) -> Value<'a> {
    let read = match kind {
        DeclKind::Bytes => base64::engine::general_purpose::STANDARD
            .decode(text)
            .ok()
            .map(|bytes| Value::Bytes(bytes.into())),
        DeclKind::Duration => parse_duration(text).map(Value::Duration),
        DeclKind::Timestamp => parse_time(text).map(Value::Timestamp),
        _ => None,
    };
    read.unwrap_or(Value::String(Text::Borrowed(text)))
}
