//! Values. Those of JSON are read lazily, by their declared types.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use base64::Engine;
use coracle_quantity::Quantity;
use serde_json::Value as Json;

use crate::decl::{DYN, DeclKind, DeclType, ListSemantics};
use crate::interpreter::EvalError;
use crate::library::{Cidr, NamedFormat, Url};
use crate::types::Type;

/// A text, of the object that is evaluated or made while evaluating.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// Of the object.
    Borrowed(&'a str),
    /// Made.
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Text::Shared(text.into())
    }
}

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
    Timestamp(jiff::Timestamp),
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
    /// What the caller provides.
    Host(Arc<dyn Host>),
}

/// A struct literal: its type and its fields.
#[derive(Debug)]
pub struct ObjectLiteral<'a> {
    /// The name of the type.
    pub name: Arc<str>,
    /// The fields that are set.
    pub fields: BTreeMap<Arc<str>, Value<'a>>,
}

/// A value with functions that the caller provides, such as an authorizer.
pub trait Host: fmt::Debug + Send + Sync {
    /// The name of its type.
    fn type_name(&self) -> &'static str;

    /// Calls a member function of it.
    ///
    /// # Errors
    /// What the evaluation ends with.
    fn call(&self, function: &str, args: &[Value<'_>]) -> Result<Value<'static>, EvalError>;
}

/// A list.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// Of the object.
    Json(&'a [Json], &'a DeclType, &'a ListSemantics),
    /// Made.
    Values(Arc<Vec<Value<'a>>>),
}

/// A map or object.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// Of the object.
    Json(&'a serde_json::Map<String, Json>, &'a DeclType),
    /// Made.
    Values(Arc<BTreeMap<Key, Value<'a>>>),
}

/// The key of a map that is made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A boolean.
    Bool(bool),
    /// A number, signed or not.
    Number(i128),
    /// A text.
    String(Arc<str>),
}

impl Key {
    /// The key that a value is, if it can be one.
    pub fn of(value: &Value<'_>) -> Option<Key> {
        Some(match value {
            Value::Bool(value) => Key::Bool(*value),
            Value::Int(value) => Key::Number((*value).into()),
            Value::Uint(value) => Key::Number((*value).into()),
            Value::Double(value) if value.fract() == 0.0 => Key::Number(*value as i128),
            Value::String(text) => Key::String(Arc::from(&**text)),
            _ => return None,
        })
    }

    /// The key as a value.
    pub fn value<'a>(&self) -> Value<'a> {
        match self {
            Key::Bool(value) => Value::Bool(*value),
            Key::Number(value) => match i64::try_from(*value) {
                Ok(value) => Value::Int(value),
                Err(_) => Value::Uint(u64::try_from(*value).unwrap_or(u64::MAX)),
            },
            Key::String(text) => Value::String(Text::Shared(text.clone())),
        }
    }
}

impl<'a> List<'a> {
    /// How many items there are.
    pub fn len(&self) -> usize {
        match self {
            List::Json(items, ..) => items.len(),
            List::Values(items) => items.len(),
        }
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One item.
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            List::Json(items, ty, _) => Some(Value::of_json(items.get(index)?, ty)),
            List::Values(items) => items.get(index).cloned(),
        }
    }

    /// All items.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Value<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<'a> Map<'a> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        match self {
            Map::Json(members, _) => members.len(),
            Map::Values(entries) => entries.len(),
        }
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a member or of a key that is a text.
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        match self {
            Map::Json(members, ty) => match &ty.kind {
                DeclKind::Object { fields, .. } => {
                    let field = fields.get(name)?;
                    let value = members.get(&*field.json_name).filter(|value| !value.is_null())?;
                    Some(Value::of_json(value, &field.ty))
                }
                DeclKind::Map(value) => Some(Value::of_json(members.get(name)?, value)),
                _ => Some(Value::of_json(members.get(name)?, &DYN)),
            },
            Map::Values(entries) => entries.get(&Key::String(name.into())).cloned(),
        }
    }

    /// The value of a key.
    pub fn at(&self, key: &Value<'_>) -> Option<Value<'a>> {
        match (self, key) {
            (_, Value::String(text)) => self.get(text),
            (Map::Json(..), _) => None,
            (Map::Values(entries), key) => entries.get(&Key::of(key)?).cloned(),
        }
    }

    /// The keys, in order.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Map::Json(members, ty) => {
                let visible = |name: &&String| match &ty.kind {
                    DeclKind::Object { fields, .. } => {
                        fields.values().any(|field| *field.json_name == ***name)
                    }
                    _ => true,
                };
                members.keys().filter(visible).map(|name| Value::String(Text::Borrowed(name))).collect()
            }
            Map::Values(entries) => entries.keys().map(Key::value).collect(),
        }
    }
}

impl<'a> Value<'a> {
    /// A value of JSON, read as its declared type says; what does not fit is read as it is.
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

    /// A text.
    pub fn text(text: impl Into<String>) -> Value<'a> {
        Value::String(text.into().into())
    }

    /// A list of values.
    pub fn list(items: Vec<Value<'a>>) -> Value<'a> {
        Value::List(List::Values(Arc::new(items)))
    }

    /// The type of the value.
    pub fn type_of(&self) -> Type {
        match self {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Uint(_) => Type::Uint,
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Bytes(_) => Type::Bytes,
            Value::List(_) => Type::list(Type::Dyn),
            Value::Map(Map::Json(_, ty)) if matches!(ty.kind, DeclKind::Object { .. }) => ty.cel_type(),
            Value::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Value::Duration(_) => Type::Duration,
            Value::Timestamp(_) => Type::Timestamp,
            Value::Type(_) => Type::Type(Arc::new(Type::Dyn)),
            Value::Optional(_) => Type::optional(Type::Dyn),
            Value::Quantity(_) => Type::Opaque("kubernetes.Quantity".into()),
            Value::Ip(_) => Type::Opaque("net.IP".into()),
            Value::Cidr(_) => Type::Opaque("net.CIDR".into()),
            Value::Url(_) => Type::Opaque("kubernetes.URL".into()),
            Value::Semver(_) => Type::Opaque("kubernetes.Semver".into()),
            Value::Format(_) => Type::Opaque("kubernetes.NamedFormat".into()),
            Value::Object(object) => Type::Object(object.name.clone()),
            Value::Host(host) => Type::Opaque(host.type_name().into()),
        }
    }

    /// The size by which costs are computed.
    pub fn size(&self) -> u64 {
        let size = match self {
            Value::String(text) => text.chars().count(),
            Value::Bytes(bytes) => bytes.len(),
            Value::List(list) => list.len(),
            Value::Map(map) => map.len(),
            _ => 1,
        };
        size as u64
    }

    /// Whether two values are equal; numbers are compared across types.
    pub fn equals(&self, other: &Value<'_>) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::String(a), Value::String(b)) => **a == **b,
            (Value::Bytes(a), Value::Bytes(b)) => a == b,
            (Value::Duration(a), Value::Duration(b)) => a == b,
            (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
            (Value::Type(a), Value::Type(b)) => a.name() == b.name(),
            (Value::List(a), Value::List(b)) => lists_equal(a, b),
            (Value::Map(a), Value::Map(b)) => maps_equal(a, b),
            (Value::Optional(a), Value::Optional(b)) => match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => a.equals(b),
                _ => false,
            },
            (Value::Quantity(a), Value::Quantity(b)) => a == b,
            (Value::Ip(a), Value::Ip(b)) => a == b,
            (Value::Cidr(a), Value::Cidr(b)) => a == b,
            (Value::Url(a), Value::Url(b)) => a == b,
            (Value::Semver(a), Value::Semver(b)) => a.cmp_precedence(b) == Ordering::Equal,
            (Value::Format(a), Value::Format(b)) => a == b,
            (Value::Object(a), Value::Object(b)) => {
                a.name == b.name
                    && a.fields.len() == b.fields.len()
                    && a.fields
                        .iter()
                        .all(|(name, value)| b.fields.get(name).is_some_and(|b| value.equals(b)))
            }
            _ => self.compare_numbers(other) == Some(Ordering::Equal),
        }
    }

    /// The order of two numbers of any types; None if one is none, or is not a number.
    pub fn compare_numbers(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
            (Value::Double(a), _) => Some(compare_double(*a, other.whole()?)?),
            (_, Value::Double(b)) => Some(compare_double(*b, self.whole()?)?.reverse()),
            _ => Some(self.whole()?.cmp(&other.whole()?)),
        }
    }

    fn whole(&self) -> Option<i128> {
        match self {
            Value::Int(value) => Some((*value).into()),
            Value::Uint(value) => Some((*value).into()),
            _ => None,
        }
    }

    /// The order of two values of one ordered type.
    pub fn compare(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Value::String(a), Value::String(b)) => Some((**a).cmp(&**b)),
            (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
            (Value::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
            (Value::Timestamp(a), Value::Timestamp(b)) => Some(a.cmp(b)),
            (Value::Quantity(a), Value::Quantity(b)) => a.partial_cmp(b),
            (Value::Semver(a), Value::Semver(b)) => Some(a.cmp_precedence(b)),
            _ => self.compare_numbers(other),
        }
    }

    /// The value in JSON; None for what JSON has no value for.
    pub fn to_json(&self) -> Option<Json> {
        Some(match self {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(value) => (*value).into(),
            Value::Uint(value) => (*value).into(),
            Value::Double(value) => serde_json::Number::from_f64(*value)?.into(),
            Value::String(text) => Json::String(text.to_string()),
            Value::Bytes(bytes) => Json::String(base64::engine::general_purpose::STANDARD.encode(bytes)),
            Value::List(List::Json(items, ..)) => Json::Array(items.to_vec()),
            Value::List(list) => Json::Array(list.iter().map(|item| item.to_json()).collect::<Option<_>>()?),
            Value::Map(Map::Json(members, _)) => Json::Object((*members).clone()),
            Value::Map(Map::Values(entries)) => {
                let entry = |(key, value): (&Key, &Value<'_>)| match key {
                    Key::String(name) => Some((name.to_string(), value.to_json()?)),
                    _ => None,
                };
                Json::Object(entries.iter().map(entry).collect::<Option<_>>()?)
            }
            Value::Duration(nanos) => Json::String(crate::functions::duration_text(*nanos)),
            Value::Timestamp(time) => Json::String(time.to_string()),
            Value::Optional(value) => value.as_ref().map_or(Some(Json::Null), |value| value.to_json())?,
            Value::Quantity(quantity) => Json::String(quantity.to_string()),
            Value::Ip(address) => Json::String(address.to_string()),
            Value::Cidr(cidr) => Json::String(cidr.to_string()),
            Value::Object(object) => {
                let member =
                    |(name, value): (&Arc<str>, &Value<'_>)| Some((name.to_string(), value.to_json()?));
                Json::Object(object.fields.iter().map(member).collect::<Option<_>>()?)
            }
            Value::Type(_) | Value::Url(_) | Value::Semver(_) | Value::Format(_) | Value::Host(_) => {
                return None;
            }
        })
    }
}

fn typed_text<'a>(text: &'a str, kind: &DeclKind) -> Value<'a> {
    let read = match kind {
        DeclKind::Bytes => base64::engine::general_purpose::STANDARD
            .decode(text)
            .ok()
            .map(|bytes| Value::Bytes(bytes.into())),
        DeclKind::Duration => crate::functions::parse_duration(text).map(Value::Duration),
        DeclKind::Timestamp => crate::functions::parse_time(text).map(Value::Timestamp),
        _ => None,
    };
    read.unwrap_or(Value::String(Text::Borrowed(text)))
}

fn compare_double(a: f64, b: i128) -> Option<Ordering> {
    if a.is_nan() {
        return None;
    }
    // Beyond the range of integers a number is greater or less than all of them.
    if a >= 2e19 {
        return Some(Ordering::Greater);
    }
    if a <= -2e19 {
        return Some(Ordering::Less);
    }
    let whole = a.trunc() as i128;
    Some(whole.cmp(&b).then_with(|| a.fract().partial_cmp(&0.0).unwrap_or(Ordering::Equal)))
}

fn lists_equal(a: &List<'_>, b: &List<'_>) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let in_any_order = match (a, b) {
        (List::Json(_, _, semantics), _) | (_, List::Json(_, _, semantics)) => {
            **semantics != ListSemantics::Atomic
        }
        _ => false,
    };
    if !in_any_order {
        return a.iter().zip(b.iter()).all(|(a, b)| a.equals(&b));
    }
    if a.len() > 32 {
        let sorted = |list: &List<'_>| {
            let mut texts: Vec<String> =
                list.iter().filter_map(|item| Some(item.to_json()?.to_string())).collect();
            texts.sort();
            texts.dedup();
            texts
        };
        return sorted(a) == sorted(b);
    }
    let found = |list: &List<'_>, item: &Value<'_>| list.iter().any(|other| item.equals(&other));
    a.iter().all(|item| found(b, &item)) && b.iter().all(|item| found(a, &item))
}

fn maps_equal(a: &Map<'_>, b: &Map<'_>) -> bool {
    a.len() == b.len()
        && a.keys().iter().all(|key| match (a.at(key), b.at(key)) {
            (Some(a), Some(b)) => a.equals(&b),
            (None, None) => true,
            _ => false,
        })
}
