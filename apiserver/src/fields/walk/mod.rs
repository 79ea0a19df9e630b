//! Walking objects by their types: the fields of an object, and the difference between two objects.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::set::{self, FieldPathSet, PathElement};
use super::shape::{EMPTY, FieldType, Position, Shape, items, members, present};
use crate::names::Text;
use crate::schema::{Struct, TypeRef};

/// The fields in which a new object differs from an old one.
#[derive(Debug, Default, PartialEq)]
pub struct Comparison {
    /// Added or changed.
    pub written: FieldPathSet,
    /// Fields of the old object that the new one lacks.
    pub removed: FieldPathSet,
    /// Whether a list of one of the objects has an item without an identity, so that its fields
    /// cannot be identified.
    pub is_malformed: bool,
}

impl Comparison {
    /// Returns `true` if there is no difference between the objects.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty() && self.removed.is_empty() && !self.is_malformed
    }

    /// Applies the same change to both sets.
    pub fn each(&mut self, change: impl Fn(&mut FieldPathSet)) {
        change(&mut self.written);
        change(&mut self.removed);
    }

    fn insert(&mut self, element: impl Fn() -> PathElement, part: Comparison) {
        self.written.insert(&element, part.written);
        self.removed.insert(&element, part.removed);
        self.is_malformed |= part.is_malformed;
    }
}

/// Compares two objects of a kind; without an old one, with the empty Go object.
pub fn compare(old: Option<&Value>, new: &Value, kind: &TypeRef) -> Comparison {
    let mut comparison = Comparison::default();
    compare_values(Position::whole(kind), Some(old.unwrap_or(&EMPTY)), Some(new), &mut comparison);
    comparison
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
        let is = match next_named(&mut news, field.name) {
            // A configuration may apply null.
            null @ Some(Value::Null) => null,
            is => present(field, new, is),
        };
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

/// Compares items by their elements. Items with the same element are not tracked separately: they
/// change together.
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
    comparison.is_malformed |= old.iter().chain(new).any(|value| !item.is_item(keys, value));
    let mut pairs: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for value in old {
        pairs.entry(item.element(keys, value)).or_default().0.push(value);
    }
    for value in new {
        pairs.entry(item.element(keys, value)).or_default().1.push(value);
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

/// Returns the fields that an object sets, as apply counts them: the leaves, and whole items.
pub fn fields(object: &Value, kind: &TypeRef) -> FieldPathSet {
    let mut set = FieldPathSet::default();
    collect(Position::whole(kind), object, &mut set);
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
                part(set::field(name), object.member(name), value, !object.declares(name));
            }
        }
        Shape::Items { keys, item } => {
            for value in items(Some(value)) {
                part(place.inner(item).element(keys, value), item, value, true);
            }
        }
    }
}

#[cfg(test)]
mod tests;
