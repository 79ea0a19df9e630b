//! The type check of an applied configuration.
//!
//! The messages are those of structured-merge-diff's typed values, which print values as Go's `fmt`
//! does.

use std::collections::HashSet;
use std::fmt::Write;

use serde_json::Value;

use super::set;
use super::shape::{FieldType, Position, key};
use crate::field::quote;
use crate::go_value::{GoValue, go_syntax, go_type};
use crate::names::Text;
use crate::schema::{FieldSchema, List, Struct, Structural, StructuralType, Type, TypeRef, schema};

/// Whether keys of lists and items of sets may occur twice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Duplicates {
    /// For stored objects: other writes permit duplicates.
    Allowed,
    /// For an applied configuration.
    Refused,
}

/// Checks an object against its type.
///
/// # Errors
/// kube-apiserver's message, with one line for each violation if there are several.
pub fn check(object: &Value, kind: &TypeRef, duplicates: Duplicates) -> Result<(), String> {
    let mut checker = Checker { duplicates, path: String::new(), errors: Vec::new() };
    checker.check(Position::whole(kind), object);
    match checker.errors.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        several => Err(format!("errors:\n  {}", several.join("\n  "))),
    }
}

/// The largest number of violations that are listed.
const MAX_ERRORS: usize = 100;

struct Checker {
    duplicates: Duplicates,
    /// The path of the current value, in the format of errors.
    path: String,
    errors: Vec<String>,
}

/// The permitted kinds of a value.
enum Atom<'s> {
    Scalar(Scalar),
    /// An object: the type of a member, if it may have it.
    Members(Members<'s>),
    List(&'s List, Option<FieldType<'s>>),
    Any,
}

enum Members<'s> {
    Struct(&'s Struct),
    Map(FieldType<'s>),
    CustomResource(FieldType<'s>, &'s Structural),
}

#[derive(Clone, Copy)]
enum Scalar {
    String,
    Numeric,
    Boolean,
    /// Any of these.
    Untyped,
}

impl Checker {
    fn check(&mut self, place: Position<'_>, value: &Value) {
        if self.errors.len() >= MAX_ERRORS {
            return;
        }
        match (Atom::of(place.field_type), value) {
            (Atom::Any, _) | (_, Value::Null) => {}
            (Atom::Scalar(scalar), value) => self.errors.extend(scalar.refuses(value).map(|e| self.at(&e))),
            (Atom::Members(known), Value::Object(members)) => {
                for (name, value) in members {
                    let length = self.path.len();
                    _ = write!(self.path, ".{name}");
                    match known.member(name) {
                        Some(field_type) => self.check(place.inner(field_type), value),
                        None => self.errors.push(self.at("field not declared in schema")),
                    }
                    self.path.truncate(length);
                }
            }
            (Atom::Members(_), other) => {
                self.errors.push(self.at(&format!("expected map, got &{{{}}}", GoValue(other))))
            }
            (Atom::List(list, item), Value::Array(items)) => {
                if let Some(item) = item {
                    self.check_items(list, place.inner(item), items);
                }
            }
            (Atom::List(..), other) => {
                self.errors.push(self.at(&format!("expected list, got &{{{}}}", GoValue(other))))
            }
        }
    }

    fn check_items(&mut self, list: &List, item: Position<'_>, items: &[Value]) {
        let keys: &[Text] = match list {
            List::Map(keys) => keys,
            List::Atomic | List::Set => &[],
        };
        let mut seen = HashSet::new();
        for (index, value) in items.iter().enumerate() {
            let element = match list {
                List::Atomic => format!("[{index}]"),
                List::Set | List::Map(_) => match refuse_item(list, item, value) {
                    Some(refusal) => {
                        self.errors.push(self.at(&format!("element {index}: {refusal}")));
                        continue;
                    }
                    None => set::print(&item.element(keys, value)),
                },
            };
            if !seen.insert(element.clone()) && self.duplicates == Duplicates::Refused {
                self.errors.push(self.at(&format!("duplicate entries for key {element}")));
            }
            let length = self.path.len();
            self.path.push_str(&element);
            self.check(item, value);
            self.path.truncate(length);
        }
    }

    fn at(&self, message: &str) -> String {
        if self.path.is_empty() { message.to_owned() } else { format!("{}: {message}", self.path) }
    }
}

/// Returns the error if a value cannot be an item of an associative list.
fn refuse_item(list: &List, item: Position<'_>, value: &Value) -> Option<String> {
    let text = match (list, value) {
        (List::Map(_), Value::Null) => "associative list with keys may not have a null element",
        (List::Map(keys), Value::Object(_)) => {
            // Some of several keys identify an item too.
            if keys.iter().any(|key| self::key(key, item.field_type, value).is_some()) {
                return None;
            }
            let names: Vec<String> = keys.iter().map(|key| quote(key)).collect();
            return Some(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                names.join(" ")
            ));
        }
        (List::Map(_), _) => "associative list with keys may not have non-map elements",
        (_, Value::Object(_)) => "associative list without keys has an element that's a map type",
        (_, Value::Array(_)) => "not supported: associative list with lists as elements",
        (_, Value::Null) => "associative list without keys has an element that's an explicit null",
        _ => return None,
    };
    Some(text.to_owned())
}

impl Scalar {
    fn refuses(self, value: &Value) -> Option<String> {
        Some(match (self, value) {
            (Scalar::String, Value::String(_))
            | (Scalar::Numeric, Value::Number(_))
            | (Scalar::Boolean, Value::Bool(_))
            | (Scalar::Untyped, Value::String(_) | Value::Number(_) | Value::Bool(_)) => return None,
            (Scalar::String, other) => {
                format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(other))
            }
            (Scalar::Numeric, other) => {
                format!("expected numeric (int or float), got {}", go_type(other))
            }
            (Scalar::Boolean, other) => format!("expected boolean, got &{{{}}}", GoValue(other)),
            (Scalar::Untyped, other) => format!("expected any scalar, got &{{{}}}", GoValue(other)),
        })
    }
}

impl<'s> Members<'s> {
    /// Returns the type of a member; None if there is no such member.
    fn member(&self, name: &str) -> Option<FieldType<'s>> {
        match self {
            Members::Struct(known) => known.field(name).map(FieldType::Member),
            Members::Map(entry) => Some(*entry),
            Members::CustomResource(object, structural) => {
                (structural.accepts_unknown_fields || object.declares(name)).then(|| object.member(name))
            }
        }
    }
}

impl<'s> Atom<'s> {
    fn of(field_type: FieldType<'s>) -> Atom<'s> {
        match field_type {
            FieldType::Member(FieldSchema {
                ty: Type::List(item) | Type::ListMessage(item), list, ..
            }) => Atom::List(list, Some(FieldType::Type(item))),
            FieldType::Member(FieldSchema { ty, .. }) | FieldType::Type(ty) => Atom::of_type(ty),
            FieldType::Struct(id) => Atom::Members(Members::Struct(schema().get(id))),
            FieldType::Structural(structural) => Atom::of_structural(field_type, structural),
            FieldType::CustomResource(structural) => {
                Atom::Members(Members::CustomResource(field_type, structural))
            }
            FieldType::Untyped => Atom::Any,
        }
    }

    fn of_type(ty: &'s Type) -> Atom<'s> {
        Atom::Scalar(match ty {
            Type::Struct(id) => return Atom::Members(Members::Struct(schema().get(*id))),
            Type::List(item) | Type::ListMessage(item) => {
                return Atom::List(&List::Atomic, Some(FieldType::Type(item)));
            }
            Type::Map(entry) => return Atom::Members(Members::Map(FieldType::Type(entry))),
            Type::String | Type::Bytes | Type::Duration => Scalar::String,
            Type::Bool => Scalar::Boolean,
            Type::Int32 | Type::Int64 | Type::Double => Scalar::Numeric,
            Type::Quantity | Type::Time | Type::MicroTime => Scalar::Untyped,
            // An alternative of types has none for kube-apiserver.
            Type::IntOrString
            | Type::RawExtension
            | Type::FieldsV1
            | Type::Json
            | Type::SchemaOrBool
            | Type::SchemaOrArray
            | Type::SchemaOrStrings
            | Type::Any => return Atom::Any,
        })
    }

    fn of_structural(field_type: FieldType<'s>, structural: &'s Structural) -> Atom<'s> {
        Atom::Scalar(match structural.ty {
            Some(StructuralType::Object) => {
                return Atom::Members(Members::CustomResource(field_type, structural));
            }
            Some(StructuralType::Array) => {
                return Atom::List(&structural.list, structural.items.as_deref().map(FieldType::Structural));
            }
            // Values of other formats may have several types.
            Some(StructuralType::String) => match structural.rules.format.as_deref() {
                None | Some("byte") => Scalar::String,
                Some(_) => Scalar::Untyped,
            },
            Some(StructuralType::Integer | StructuralType::Number) => Scalar::Numeric,
            Some(StructuralType::Boolean) => Scalar::Boolean,
            None => return Atom::Any,
        })
    }
}
