//! Walking objects by their types: the fields of an object, and the difference between two objects.
//!
//! Each position in an object has a [`Shape`]. Those of built-in types come from the schema table, those of custom resources
//! from their structural schemas; a value without a type has the shape of its JSON. A struct of the table stands for a Go
//! struct: a member that Go always prints is present with its zero value or null even if it was not set, so that setting it
//! changes it rather than adds it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::set::{self, FieldPathSet, PathElement};
use crate::codec::limits::MAX_DEPTH;
use crate::names::Text;
use crate::schema::structural::object_meta;
use crate::schema::{Field, List, Struct, StructId, Structural, StructuralType, Type, TypeRef, schema};

/// Values below this depth are owned as a whole, so that their set of fields, which is nested a few levels deep in
/// `metadata.managedFields`, stays within the depth limit of documents.
const MAX_OWNED_DEPTH: usize = MAX_DEPTH - 10;

/// The fields in which a new object differs from an old one.
#[derive(Debug, Default, PartialEq)]
pub struct Comparison {
    /// Added or changed.
    pub written: FieldPathSet,
    /// Fields of the old object that the new one lacks.
    pub removed: FieldPathSet,
}

impl Comparison {
    /// Whether the objects are equal.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty() && self.removed.is_empty()
    }

    /// Applies the same change to both sets.
    pub fn each(&mut self, change: impl Fn(&mut FieldPathSet)) {
        change(&mut self.written);
        change(&mut self.removed);
    }

    fn insert(&mut self, element: impl Fn() -> PathElement, part: Comparison) {
        self.written.insert(&element, part.written);
        self.removed.insert(&element, part.removed);
    }
}

/// The type of a position in an object.
#[derive(Clone, Copy)]
enum FieldType<'s> {
    /// A member of a struct.
    Member(&'s Field),
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
enum Shape<'s> {
    /// One value, owned as a whole.
    Leaf,
    Struct(&'s Struct),
    Map(FieldType<'s>),
    /// An object of a custom resource, each member of which has a type of its own.
    Object(FieldType<'s>),
    /// Items with keys, or identified by their values if there are no keys.
    Items {
        keys: &'s [Text],
        item: FieldType<'s>,
    },
}

impl<'s> FieldType<'s> {
    /// The type of a whole object.
    fn whole(kind: &'s TypeRef) -> FieldType<'s> {
        match kind {
            TypeRef::Struct(id) => FieldType::Struct(*id),
            TypeRef::Structural(schema) => FieldType::CustomResource(schema.root()),
        }
    }

    /// The type of a member of an object of a custom resource.
    fn member(self, name: &str) -> FieldType<'s> {
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

    /// The values matter only at positions without a type.
    fn shape(self, old: Option<&Value>, new: Option<&Value>) -> Shape<'s> {
        let ty = match self {
            FieldType::Member(Field { ty: Type::List(item) | Type::ListMessage(item), list, .. }) => {
                return match list {
                    List::Atomic => Shape::Leaf,
                    List::Set => Shape::Items { keys: &[], item: FieldType::Type(item) },
                    List::Map(keys) => Shape::Items { keys, item: FieldType::Type(item) },
                };
            }
            FieldType::Member(field) if schema().is_atomic(field) => return Shape::Leaf,
            // The member states itself whether it is atomic, whatever its type.
            FieldType::Member(Field { ty: Type::Struct(id), .. }) => return Shape::Struct(schema().get(*id)),
            FieldType::Member(Field { ty, .. }) | FieldType::Type(ty) => ty,
            FieldType::Struct(id) => return Shape::of_struct(id),
            FieldType::Structural(structural) | FieldType::CustomResource(structural) => {
                return match self.structural_shape(structural) {
                    Shape::Object(_) if ![old, new].into_iter().flatten().all(Value::is_object) => {
                        Shape::Leaf
                    }
                    shape => shape,
                };
            }
            FieldType::Untyped => &Type::RawExtension,
        };
        match ty {
            Type::Struct(id) => Shape::of_struct(*id),
            Type::Map(entry) => Shape::Map(FieldType::Type(entry)),
            Type::RawExtension if [old, new].into_iter().flatten().all(Value::is_object) => {
                Shape::Map(FieldType::Untyped)
            }
            _ => Shape::Leaf,
        }
    }
}

/// Compares two objects of a kind; without an old one, with the empty Go object.
pub fn compare(old: Option<&Value>, new: &Value, kind: &TypeRef) -> Comparison {
    let mut comparison = Comparison::default();
    let field_type = Position { field_type: FieldType::whole(kind), depth: 0 };
    compare_values(field_type, Some(old.unwrap_or(&EMPTY)), Some(new), &mut comparison);
    comparison
}

/// A position: its type and its depth in the object.
#[derive(Clone, Copy)]
struct Position<'s> {
    field_type: FieldType<'s>,
    depth: usize,
}

impl<'s> Position<'s> {
    fn shape(self, old: Option<&Value>, new: Option<&Value>) -> Shape<'s> {
        if self.depth >= MAX_OWNED_DEPTH { Shape::Leaf } else { self.field_type.shape(old, new) }
    }

    fn inner(self, field_type: FieldType<'s>) -> Position<'s> {
        Position { field_type, depth: self.depth + 1 }
    }
}

fn compare_values(
    field_type: Position<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    comparison: &mut Comparison,
) {
    let shape = field_type.shape(old, new);
    if shape.has_no_children(old) && shape.has_no_children(new) {
        match (old, new) {
            (None, Some(_)) => comparison.written.insert_self(),
            (Some(_), None) => comparison.removed.insert_self(),
            (old, new) if old != new => comparison.written.insert_self(),
            _ => {}
        }
        return;
    }
    match shape {
        Shape::Leaf => {}
        Shape::Struct(known) => compare_members(field_type, known, old, new, comparison),
        Shape::Map(entry) => compare_entries(|_| field_type.inner(entry), old, new, comparison),
        Shape::Object(object) => {
            compare_entries(|name| field_type.inner(object.member(name)), old, new, comparison);
        }
        Shape::Items { keys, item } => {
            compare_items(keys, field_type.inner(item), items(old), items(new), comparison);
        }
    }
    match (old, new) {
        (None, _) => comparison.written.insert_self(),
        (_, None) => comparison.removed.insert_self(),
        _ => {}
    }
}

impl Shape<'_> {
    fn of_struct(id: StructId) -> Shape<'static> {
        match schema().get(id) {
            known if known.atomic => Shape::Leaf,
            known => Shape::Struct(known),
        }
    }

    /// Whether nothing inside of the value can be owned separately.
    fn has_no_children(&self, value: Option<&Value>) -> bool {
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

fn compare_members(
    owner: Position<'_>,
    known: &Struct,
    old: Option<&Value>,
    new: Option<&Value>,
    comparison: &mut Comparison,
) {
    // All three are sorted by name.
    let (mut olds, mut news) = (members(old).iter().peekable(), members(new).iter().peekable());
    for (_, field) in known.members_by_name() {
        let was = present(field, old, next_named(&mut olds, field.name));
        let is = present(field, new, next_named(&mut news, field.name));
        if was.is_some() || is.is_some() {
            let mut inner = Comparison::default();
            compare_values(owner.inner(FieldType::Member(field)), was, is, &mut inner);
            comparison.insert(|| set::field(field.name), inner);
        }
    }
}

type Members<'v> = std::iter::Peekable<serde_json::map::Iter<'v>>;

fn next_named<'v>(members: &mut Members<'v>, name: &str) -> Option<&'v Value> {
    while members.next_if(|(other, _)| other.as_str() < name).is_some() {}
    members.next_if(|(other, _)| *other == name).map(|(_, value)| value)
}

fn compare_entries<'s>(
    entry: impl Fn(&str) -> Position<'s>,
    old: Option<&Value>,
    new: Option<&Value>,
    comparison: &mut Comparison,
) {
    let (old, new) = (members(old), members(new));
    let mut compare_entry = |name: &str, was: Option<&Value>, is: Option<&Value>| {
        let mut inner = Comparison::default();
        compare_values(entry(name), was, is, &mut inner);
        comparison.insert(|| set::field(name), inner);
    };
    for (name, was) in old {
        compare_entry(name, Some(was), new.get(name));
    }
    for (name, is) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
        compare_entry(name, None, Some(is));
    }
}

/// Items with the same element are not tracked separately: they change together.
fn compare_items(
    keys: &[Text],
    item: Position<'_>,
    old: &[Value],
    new: &[Value],
    comparison: &mut Comparison,
) {
    if old == new {
        return;
    }
    let mut pairs: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for value in old {
        pairs.entry(element(keys, item.field_type, value)).or_default().0.push(value);
    }
    for value in new {
        pairs.entry(element(keys, item.field_type, value)).or_default().1.push(value);
    }
    for (element, (was, is)) in pairs {
        let mut inner = Comparison::default();
        match (was.as_slice(), is.as_slice()) {
            ([] | [_], [] | [_]) => {
                compare_values(item, was.first().copied(), is.first().copied(), &mut inner);
            }
            ([_, _, ..], [_, _, ..]) if was == is => {}
            ([_, _, ..], [_, _, ..]) => inner.written.insert_self(),
            ([_, _, ..], _) => {
                is.first().into_iter().for_each(|is| compare_values(item, None, Some(is), &mut inner));
                inner.removed.insert_self();
            }
            (_, _) => {
                was.first().into_iter().for_each(|was| compare_values(item, Some(was), None, &mut inner));
                inner.written.insert_self();
            }
        }
        comparison.insert(|| element.clone(), inner);
    }
}

/// The fields that an object sets, as apply counts them: the leaves, and items as a whole.
pub fn fields(object: &Value, kind: &TypeRef) -> FieldPathSet {
    let mut set = FieldPathSet::default();
    collect(Position { field_type: FieldType::whole(kind), depth: 0 }, object, &mut set);
    set
}

fn collect(place: Position<'_>, value: &Value, set: &mut FieldPathSet) {
    let mut part = |element: PathElement, field_type: FieldType<'_>, value: &Value, whole: bool| {
        let mut inner = FieldPathSet::default();
        collect(place.inner(field_type), value, &mut inner);
        if whole || value.is_null() || value.as_object().is_some_and(Map::is_empty) {
            inner.insert_self();
        }
        set.insert(|| element, inner);
    };
    match place.shape(None, Some(value)) {
        Shape::Leaf => set.insert_self(),
        Shape::Struct(known) => {
            for (name, value) in members(Some(value)) {
                if let Some(field) = known.field(name) {
                    part(set::field(name), FieldType::Member(field), value, false);
                }
            }
        }
        Shape::Map(entry) => {
            for (name, value) in members(Some(value)) {
                part(set::field(name), entry, value, true);
            }
        }
        Shape::Object(object) => {
            for (name, value) in members(Some(value)) {
                part(set::field(name), object.member(name), value, false);
            }
        }
        Shape::Items { keys, item } => {
            for value in items(Some(value)) {
                part(element(keys, item, value), item, value, true);
            }
        }
    }
}

/// The element of a list's item. Missing keys have their defaults, if they have any.
fn element(keys: &[Text], item: FieldType<'_>, value: &Value) -> PathElement {
    if keys.is_empty() {
        return set::value(value);
    }
    let mut names: Vec<&str> = keys.iter().map(|key| &**key).collect();
    names.sort_unstable();
    set::keys(names.into_iter().filter_map(|name| Some((name, key(name, item, value)?))))
}

fn key<'v>(name: &str, item: FieldType<'_>, value: &'v Value) -> Option<Cow<'v, Value>> {
    let member = value.get(name);
    if let FieldType::Structural(item) = item {
        let default = || item.properties.get(name)?.default.clone();
        return member.map(Cow::Borrowed).or_else(|| default().map(Cow::Owned));
    }
    let FieldType::Type(Type::Struct(id)) = item else { return member.map(Cow::Borrowed) };
    let field = schema().get(*id).field(name)?;
    let default = || serde_json::from_str(field.default?).ok();
    present(field, Some(value), member).map(Cow::Borrowed).or_else(|| default().map(Cow::Owned))
}

/// The member as Go would print it; `parent` is the struct that contains it.
fn present<'v>(field: &Field, parent: Option<&Value>, member: Option<&'v Value>) -> Option<&'v Value> {
    match member {
        Some(value) if !value.is_null() => member,
        _ if field.keep && parent.is_some_and(Value::is_object) => Some(zero(field)),
        _ => None,
    }
}

/// The value that Go prints for a member that was never set.
fn zero(field: &Field) -> &'static Value {
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

static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
static TEXT: Value = Value::String(String::new());
static NUMBER: LazyLock<Value> = LazyLock::new(|| 0.into());
static QUANTITY: LazyLock<Value> = LazyLock::new(|| "0".into());

fn members(value: Option<&Value>) -> &Map<String, Value> {
    static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    value.and_then(Value::as_object).unwrap_or(&NONE)
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
