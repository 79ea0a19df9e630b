//! The shape of a position in an object: the parts below it that can be owned.
//!
//! Each position in an object has a [`Shape`]. Those of built-in types come from the schema table,
//! those of custom resources from their structural schemas; a value without a type has the shape of
//! its JSON. A struct of the table corresponds to a Go struct: a member that Go always prints is
//! present with its zero value or null even if it was not set, so that setting it changes it rather
//! than adds it.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::set::{self, PathElement};
use crate::codec::limits::MAX_DEPTH;
use crate::names::Text;
use crate::schema::structural::{ENVELOPE, object_meta};
use crate::schema::{FieldSchema, List, Struct, StructId, Structural, StructuralType, Type, TypeRef, schema};

/// Values below this depth are owned as a whole, so that their set of fields, which is nested a few
/// levels deep in `metadata.managedFields`, stays within the depth limit of documents.
const MAX_OWNED_DEPTH: usize = MAX_DEPTH - 10;

/// The type of a position in an object.
#[derive(Clone, Copy)]
pub(super) enum FieldType<'s> {
    /// A member of a struct.
    Member(&'s FieldSchema),
    /// An item, the value of a map, or a whole object.
    Type(&'s Type),
    /// A struct, as a whole object is one.
    Struct(StructId),
    /// A position in a custom resource.
    Structural(&'s Structural),
    /// The whole of a custom resource.
    CustomResource(&'s Structural),
    /// A position below an untyped object.
    Untyped,
}

/// The structure of a position for ownership.
pub(super) enum Shape<'s> {
    /// A value that is owned as a whole.
    Leaf,
    Struct(&'s Struct),
    Map(FieldType<'s>),
    /// An object of a custom resource, whose members have types of their own.
    Object(FieldType<'s>),
    /// Items with keys, or identified by their values if there are no keys.
    Items {
        keys: &'s [Text],
        item: FieldType<'s>,
    },
}

impl<'s> FieldType<'s> {
    /// Returns the type of a whole object.
    fn whole(kind: &'s TypeRef) -> FieldType<'s> {
        match kind {
            TypeRef::Struct(id) => FieldType::Struct(*id),
            TypeRef::Structural(schema) => FieldType::CustomResource(schema.root()),
        }
    }

    /// Returns the type of a member of an object of a custom resource.
    pub fn member(self, name: &str) -> FieldType<'s> {
        let (structural, has_metadata) = match self {
            FieldType::Structural(structural) => (structural, structural.embedded_resource),
            FieldType::CustomResource(structural) => (structural, true),
            _ => return FieldType::Untyped,
        };
        if has_metadata && name == "metadata" {
            return FieldType::Struct(object_meta());
        }
        structural.member(name).map_or(FieldType::Untyped, FieldType::Structural)
    }

    /// Returns whether a custom resource's type declares a member by name, rather than by
    /// `additionalProperties`.
    pub fn declares(self, name: &str) -> bool {
        match self {
            FieldType::Structural(structural) => {
                structural.embedded_resource && ENVELOPE.contains(&name)
                    || structural.properties.contains_key(name)
            }
            FieldType::CustomResource(structural) => {
                ENVELOPE.contains(&name) || structural.properties.contains_key(name)
            }
            _ => false,
        }
    }

    /// Returns whether a list or an object of this type is atomic, so that it is owned as a whole.
    /// A value without a type is not atomic.
    pub fn is_atomic(self) -> bool {
        match self {
            FieldType::Member(FieldSchema { ty: Type::List(_) | Type::ListMessage(_), list, .. }) => {
                *list == List::Atomic
            }
            FieldType::Member(field) => schema().is_atomic(field),
            FieldType::Type(Type::List(_) | Type::ListMessage(_)) => true,
            FieldType::Type(&Type::Struct(id)) | FieldType::Struct(id) => schema().get(id).atomic,
            FieldType::Type(_) | FieldType::Untyped => false,
            FieldType::Structural(structural) | FieldType::CustomResource(structural) => {
                match structural.ty {
                    Some(StructuralType::Object) => {
                        let is_free = structural.properties.is_empty()
                            && structural.additional_properties.as_ref().is_none_or(|any| any.unspecified);
                        structural.atomic && !is_free
                    }
                    Some(StructuralType::Array) => structural.list == List::Atomic,
                    _ => false,
                }
            }
        }
    }

    fn structural_shape(self, structural: &'s Structural) -> Shape<'s> {
        match structural.ty {
            Some(StructuralType::Object) if structural.atomic => Shape::Leaf,
            Some(StructuralType::Object) => Shape::Object(self),
            Some(StructuralType::Array) => match (&structural.list, &structural.items) {
                (List::Set, Some(item)) => Shape::Items { keys: &[], item: FieldType::Structural(item) },
                (List::Map(keys), Some(item)) => Shape::Items { keys, item: FieldType::Structural(item) },
                _ => Shape::Leaf,
            },
            None if structural.preserve_unknown_fields => Shape::Object(self),
            _ => Shape::Leaf,
        }
    }

    /// Returns the shape of the type. The values are used only if there is no type.
    fn shape(self, old: Option<&Value>, new: Option<&Value>) -> Shape<'s> {
        let ty = match self {
            FieldType::Member(FieldSchema {
                ty: Type::List(item) | Type::ListMessage(item), list, ..
            }) => {
                return match list {
                    List::Atomic => Shape::Leaf,
                    List::Set => Shape::Items { keys: &[], item: FieldType::Type(item) },
                    List::Map(keys) => Shape::Items { keys, item: FieldType::Type(item) },
                };
            }
            FieldType::Member(field) if schema().is_atomic(field) => return Shape::Leaf,
            // The member states itself whether it is atomic, independent of its type.
            FieldType::Member(FieldSchema { ty: Type::Struct(id), .. }) => {
                return Shape::Struct(schema().get(*id));
            }
            FieldType::Member(FieldSchema { ty, .. }) | FieldType::Type(ty) => ty,
            FieldType::Struct(id) => return Shape::of_struct(id),
            FieldType::Structural(structural) | FieldType::CustomResource(structural) => {
                return match self.structural_shape(structural) {
                    // Null counts as any value: it remains of an object after all its members are
                    // removed.
                    Shape::Object(_)
                        if ![old, new].into_iter().flatten().all(|v| v.is_object() || v.is_null()) =>
                    {
                        Shape::Leaf
                    }
                    shape => shape,
                };
            }
            FieldType::Untyped if [old, new].into_iter().flatten().all(Value::is_object) => {
                return Shape::Map(FieldType::Untyped);
            }
            FieldType::Untyped => return Shape::Leaf,
        };
        match ty {
            Type::Struct(id) => Shape::of_struct(*id),
            Type::Map(entry) => Shape::Map(FieldType::Type(entry)),
            _ => Shape::Leaf,
        }
    }
}

/// A position: its type and its depth in the object.
#[derive(Clone, Copy)]
pub(super) struct Position<'s> {
    /// The type of the value.
    pub field_type: FieldType<'s>,
    depth: usize,
}

impl<'s> Position<'s> {
    /// Returns the position of a whole object.
    pub fn whole(kind: &'s TypeRef) -> Position<'s> {
        Position { field_type: FieldType::whole(kind), depth: 0 }
    }

    /// Returns the shape at this position. The values are used only if there is no type.
    pub fn shape(self, old: Option<&Value>, new: Option<&Value>) -> Shape<'s> {
        if self.depth >= MAX_OWNED_DEPTH { Shape::Leaf } else { self.field_type.shape(old, new) }
    }

    /// Returns the position of a value inside of this one.
    pub fn inner(self, field_type: FieldType<'s>) -> Position<'s> {
        Position { field_type, depth: self.depth + 1 }
    }

    /// Returns whether a value can be an item of a list at this position. `keys` are the keys of
    /// the list's items; they are empty if the items are compared by value.
    pub fn is_item(self, keys: &[Text], value: &Value) -> bool {
        match keys {
            [] => !matches!(value, Value::Null | Value::Array(_) | Value::Object(_)),
            keys => value.is_object() && keys.iter().any(|name| key(name, self.field_type, value).is_some()),
        }
    }

    /// Returns the path element of a list's item at this position. A missing key has its default,
    /// if there is one.
    pub fn element(self, keys: &[Text], value: &Value) -> PathElement {
        if keys.is_empty() {
            return set::value(value);
        }
        let mut names: Vec<&str> = keys.iter().map(|key| &**key).collect();
        names.sort_unstable();
        set::keys(names.into_iter().filter_map(|name| Some((name, key(name, self.field_type, value)?))))
    }
}

impl Shape<'_> {
    fn of_struct(id: StructId) -> Shape<'static> {
        match schema().get(id) {
            known if known.atomic => Shape::Leaf,
            known => Shape::Struct(known),
        }
    }

    /// Returns whether nothing inside of the value can be owned separately.
    pub fn has_no_children(&self, value: Option<&Value>) -> bool {
        match self {
            Shape::Leaf => true,
            Shape::Struct(known) => match value {
                Some(Value::Object(members)) => {
                    members.is_empty() && !known.members().iter().any(|field| field.keep)
                }
                _ => true,
            },
            Shape::Map(_) | Shape::Object(_) => members(value).is_empty(),
            Shape::Items { .. } => items(value).is_empty(),
        }
    }
}

/// Returns the value of a key of an item, or the key's default.
pub(super) fn key<'v>(name: &str, item: FieldType<'_>, value: &'v Value) -> Option<Cow<'v, Value>> {
    let member = value.get(name);
    if let FieldType::Structural(item) = item {
        let default = || Some(item.properties.get(name)?.default.as_ref()?.value.clone());
        return member.map(Cow::Borrowed).or_else(|| default().map(Cow::Owned));
    }
    let FieldType::Type(Type::Struct(id)) = item else { return member.map(Cow::Borrowed) };
    let field = schema().get(*id).field(name)?;
    let default = || serde_json::from_str(field.default?).ok();
    present(field, Some(value), member).map(Cow::Borrowed).or_else(|| default().map(Cow::Owned))
}

/// Returns the member as Go would print it; `parent` is the struct that contains it. Null counts as
/// a value, because a configuration may have it.
pub(super) fn present<'v>(
    field: &FieldSchema,
    parent: Option<&Value>,
    member: Option<&'v Value>,
) -> Option<&'v Value> {
    match member {
        None if field.keep && parent.is_some_and(Value::is_object) => Some(zero(field)),
        member => member,
    }
}

/// Returns the value that Go prints for a member that is not set.
fn zero(field: &FieldSchema) -> &'static Value {
    match field.ty {
        _ if field.pointer => &Value::Null,
        Type::Struct(_) => &EMPTY,
        Type::String => &TEXT,
        Type::Bool => &Value::Bool(false),
        Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString => &NUMBER,
        Type::Quantity => &QUANTITY,
        _ => &Value::Null,
    }
}

/// The empty object.
pub(super) static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
static TEXT: Value = Value::String(String::new());
static NUMBER: LazyLock<Value> = LazyLock::new(|| 0.into());
static QUANTITY: LazyLock<Value> = LazyLock::new(|| "0".into());

/// Returns the members of an object; none if the value is not an object.
pub(super) fn members(value: Option<&Value>) -> &Map<String, Value> {
    static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    value.and_then(Value::as_object).unwrap_or(&NONE)
}

/// Returns the items of a list; none if the value is not a list.
pub(super) fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
