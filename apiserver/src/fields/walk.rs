//! Walking objects by their types: which fields there are, and in which two objects differ.
//!
//! What the walk asks of a type is a [`Shape`] for each place. Built-in types answer from the schema table; a value without
//! a type has the shape that it shows. A struct of the table stands for a Go struct: a member that Go always prints is there
//! even if nothing was said, as its zero value or null, so that setting it changes it rather than adds it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::set::{self, Element, Set};
use crate::codec::limits::MAX_DEPTH;
use crate::schema::{Field, List, Struct, StructId, Type, schema};

/// Below so many levels a value is owned as a whole, so that its set of fields, which stands a few levels deep in
/// `metadata.managedFields`, is never nested deeper than a document may be.
const DEEPEST: usize = MAX_DEPTH - 10;

/// In which fields a new object differs from an old one.
#[derive(Debug, Default, PartialEq)]
pub struct Delta {
    /// Added or changed.
    pub written: Set,
    pub removed: Set,
}

impl Delta {
    pub fn is_empty(&self) -> bool {
        self.written.is_empty() && self.removed.is_empty()
    }

    /// Does the same to both sets.
    pub fn each(&mut self, change: impl Fn(&mut Set)) {
        change(&mut self.written);
        change(&mut self.removed);
    }

    fn insert(&mut self, element: impl Fn() -> Element, part: Delta) {
        self.written.insert(&element, part.written);
        self.removed.insert(&element, part.removed);
    }
}

/// A place in an object, as far as types know it.
#[derive(Clone, Copy)]
enum Site<'s> {
    /// A member of a struct.
    Member(&'s Field),
    /// An item, the value of a map, or a whole object.
    Type(&'s Type),
    /// Below an object that is kept as it came.
    Untyped,
}

/// How ownership sees a place.
enum Shape<'s> {
    /// One value, whatever is inside.
    Leaf,
    Struct(&'s Struct),
    Map(Site<'s>),
    /// Items told apart by keys, or by their values where there are none.
    Items {
        keys: &'s [&'static str],
        item: Site<'s>,
    },
}

impl<'s> Site<'s> {
    /// Typed values need not be looked at.
    fn shape(self, old: Option<&Value>, new: Option<&Value>) -> Shape<'s> {
        let ty = match self {
            Site::Member(Field { ty: Type::List(item) | Type::ListMessage(item), list, .. }) => {
                return match list {
                    List::Atomic => Shape::Leaf,
                    List::Set => Shape::Items { keys: &[], item: Site::Type(item) },
                    List::Map(keys) => Shape::Items { keys, item: Site::Type(item) },
                };
            }
            Site::Member(field) if schema().is_atomic(field) => return Shape::Leaf,
            // It says itself whether it is atomic, whatever its type says.
            Site::Member(Field { ty: Type::Struct(id), .. }) => return Shape::Struct(schema().get(*id)),
            Site::Member(Field { ty, .. }) | Site::Type(ty) => ty,
            Site::Untyped => &Type::RawExtension,
        };
        match ty {
            Type::Struct(id) => match schema().get(*id) {
                known if known.atomic => Shape::Leaf,
                known => Shape::Struct(known),
            },
            Type::Map(entry) => Shape::Map(Site::Type(entry)),
            Type::RawExtension if [old, new].into_iter().flatten().all(Value::is_object) => {
                Shape::Map(Site::Untyped)
            }
            _ => Shape::Leaf,
        }
    }
}

/// Compares two objects of a kind; where there is no old one, with the empty Go object.
pub fn compare(old: Option<&Value>, new: &Value, kind: StructId) -> Delta {
    let mut delta = Delta::default();
    let site = Place { site: Site::Type(&Type::Struct(kind)), depth: 0 };
    compare_values(site, Some(old.unwrap_or(&EMPTY)), Some(new), &mut delta);
    delta
}

/// A site, and how deep in its object it is.
#[derive(Clone, Copy)]
struct Place<'s> {
    site: Site<'s>,
    depth: usize,
}

impl<'s> Place<'s> {
    fn shape(self, old: Option<&Value>, new: Option<&Value>) -> Shape<'s> {
        if self.depth >= DEEPEST { Shape::Leaf } else { self.site.shape(old, new) }
    }

    fn inner(self, site: Site<'s>) -> Place<'s> {
        Place { site, depth: self.depth + 1 }
    }
}

fn compare_values(site: Place<'_>, old: Option<&Value>, new: Option<&Value>, delta: &mut Delta) {
    let shape = site.shape(old, new);
    if shape.is_hollow(old) && shape.is_hollow(new) {
        match (old, new) {
            (None, Some(_)) => delta.written.own(),
            (Some(_), None) => delta.removed.own(),
            (old, new) if old != new => delta.written.own(),
            _ => {}
        }
        return;
    }
    match shape {
        Shape::Leaf => {}
        Shape::Struct(known) => compare_members(site, known, old, new, delta),
        Shape::Map(entry) => compare_entries(site.inner(entry), old, new, delta),
        Shape::Items { keys, item } => {
            compare_items(keys, site.inner(item), items(old), items(new), delta);
        }
    }
    match (old, new) {
        (None, _) => delta.written.own(),
        (_, None) => delta.removed.own(),
        _ => {}
    }
}

impl Shape<'_> {
    /// Nothing inside can be owned apart from the value.
    fn is_hollow(&self, value: Option<&Value>) -> bool {
        match self {
            Shape::Leaf => true,
            Shape::Struct(known) => match value {
                Some(Value::Object(members)) => {
                    members.is_empty() && !known.members().iter().any(|field| field.keep)
                }
                _ => true,
            },
            Shape::Map(_) => members(value).is_empty(),
            Shape::Items { .. } => items(value).is_empty(),
        }
    }
}

fn compare_members(
    owner: Place<'_>,
    known: &Struct,
    old: Option<&Value>,
    new: Option<&Value>,
    delta: &mut Delta,
) {
    // All three run in the order of the names.
    let (mut olds, mut news) = (members(old).iter().peekable(), members(new).iter().peekable());
    for (_, field) in known.members_by_name() {
        let was = present(field, old, next_named(&mut olds, field.name));
        let is = present(field, new, next_named(&mut news, field.name));
        if was.is_some() || is.is_some() {
            let mut inner = Delta::default();
            compare_values(owner.inner(Site::Member(field)), was, is, &mut inner);
            delta.insert(|| set::field(field.name), inner);
        }
    }
}

type Members<'v> = std::iter::Peekable<serde_json::map::Iter<'v>>;

fn next_named<'v>(members: &mut Members<'v>, name: &str) -> Option<&'v Value> {
    while members.next_if(|(other, _)| other.as_str() < name).is_some() {}
    members.next_if(|(other, _)| *other == name).map(|(_, value)| value)
}

fn compare_entries(entry: Place<'_>, old: Option<&Value>, new: Option<&Value>, delta: &mut Delta) {
    let (old, new) = (members(old), members(new));
    let mut compare_entry = |name: &str, was: Option<&Value>, is: Option<&Value>| {
        let mut inner = Delta::default();
        compare_values(entry, was, is, &mut inner);
        delta.insert(|| set::field(name), inner);
    };
    for (name, was) in old {
        compare_entry(name, Some(was), new.get(name));
    }
    for (name, is) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
        compare_entry(name, None, Some(is));
    }
}

/// Items of the same element are no items of their own: they change together.
fn compare_items(keys: &[&'static str], item: Place<'_>, old: &[Value], new: &[Value], delta: &mut Delta) {
    if old == new {
        return;
    }
    let mut pairs: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for value in old {
        pairs.entry(element(keys, item.site, value)).or_default().0.push(value);
    }
    for value in new {
        pairs.entry(element(keys, item.site, value)).or_default().1.push(value);
    }
    for (element, (was, is)) in pairs {
        let mut inner = Delta::default();
        match (was.as_slice(), is.as_slice()) {
            ([] | [_], [] | [_]) => {
                compare_values(item, was.first().copied(), is.first().copied(), &mut inner);
            }
            ([_, _, ..], [_, _, ..]) if was == is => {}
            ([_, _, ..], [_, _, ..]) => inner.written.own(),
            ([_, _, ..], _) => {
                is.first().into_iter().for_each(|is| compare_values(item, None, Some(is), &mut inner));
                inner.removed.own();
            }
            (_, _) => {
                was.first().into_iter().for_each(|was| compare_values(item, Some(was), None, &mut inner));
                inner.written.own();
            }
        }
        delta.insert(|| element.clone(), inner);
    }
}

/// The fields that an object says, as apply counts them: the leaves, and items as a whole.
pub fn fields(object: &Value, kind: StructId) -> Set {
    let mut set = Set::default();
    collect(Place { site: Site::Type(&Type::Struct(kind)), depth: 0 }, object, &mut set);
    set
}

fn collect(place: Place<'_>, value: &Value, set: &mut Set) {
    let mut part = |element: Element, site: Site<'_>, value: &Value, whole: bool| {
        let mut inner = Set::default();
        collect(place.inner(site), value, &mut inner);
        if whole || value.is_null() || value.as_object().is_some_and(Map::is_empty) {
            inner.own();
        }
        set.insert(|| element, inner);
    };
    match place.shape(None, Some(value)) {
        Shape::Leaf => set.own(),
        Shape::Struct(known) => {
            for (name, value) in members(Some(value)) {
                if let Some(field) = known.field(name) {
                    part(set::field(name), Site::Member(field), value, false);
                }
            }
        }
        Shape::Map(entry) => {
            for (name, value) in members(Some(value)) {
                part(set::field(name), entry, value, true);
            }
        }
        Shape::Items { keys, item } => {
            for value in items(Some(value)) {
                part(element(keys, item, value), item, value, true);
            }
        }
    }
}

/// The element of a list's item. Keys that are left out have their defaults, if they have any.
fn element(keys: &[&'static str], item: Site<'_>, value: &Value) -> Element {
    if keys.is_empty() {
        return set::value(value);
    }
    let mut names = keys.to_vec();
    names.sort_unstable();
    set::keys(names.into_iter().filter_map(|name| Some((name, key(name, item, value)?))))
}

fn key<'v>(name: &'static str, item: Site<'_>, value: &'v Value) -> Option<Cow<'v, Value>> {
    let said = value.get(name);
    let Site::Type(Type::Struct(id)) = item else { return said.map(Cow::Borrowed) };
    let field = schema().get(*id).field(name)?;
    let default = || serde_json::from_str(field.default?).ok();
    present(field, Some(value), said).map(Cow::Borrowed).or_else(|| default().map(Cow::Owned))
}

/// The member as Go would print it; `parent` is the struct in which it was looked for.
fn present<'v>(field: &Field, parent: Option<&Value>, said: Option<&'v Value>) -> Option<&'v Value> {
    match said {
        Some(value) if !value.is_null() => said,
        _ if field.keep && parent.is_some_and(Value::is_object) => Some(zero(field)),
        _ => None,
    }
}

/// What Go prints of a member that was never set.
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
