//! Merging an applied configuration into an object.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value};

use super::set::PathElement;
use super::shape::{FieldType, Position, Shape, items, members};
use crate::names::Text;
use crate::schema::TypeRef;

/// Returns the object merged with the configuration; both conform to the type.
pub fn merge(live: &Value, configuration: &Value, kind: &TypeRef) -> Value {
    merge_values(Position::whole(kind), Some(live), Some(configuration)).unwrap_or_default()
}

/// Merges two values; returns None if nothing is left.
fn merge_values(place: Position<'_>, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    let shape = place.shape(live, applied);
    // Empty and null are values of their own.
    if shape_is_leaf(&shape) || is_empty(live) && is_empty(applied) {
        return applied.or(live).cloned();
    }
    match shape {
        Shape::Leaf => None,
        Shape::Struct(known) => merge_members(live, applied, |name| {
            known.field(name).map(|field| place.inner(FieldType::Member(field)))
        }),
        Shape::Map(entry) => merge_members(live, applied, |_| Some(place.inner(entry))),
        Shape::Object(object) => merge_members(live, applied, |name| Some(place.inner(object.member(name)))),
        Shape::Items { keys, item } => merge_items(keys, place.inner(item), items(live), items(applied)),
    }
}

fn shape_is_leaf(shape: &Shape<'_>) -> bool {
    matches!(shape, Shape::Leaf)
}

fn is_empty(value: Option<&Value>) -> bool {
    members(value).is_empty() && items(value).is_empty()
}

fn merge_members<'s>(
    live: Option<&Value>,
    applied: Option<&Value>,
    place_of: impl Fn(&str) -> Option<Position<'s>>,
) -> Option<Value> {
    let (live, applied) = (members(live), members(applied));
    let mut merged = Map::new();
    let names = live.keys().chain(applied.keys().filter(|name| !live.contains_key(*name)));
    for name in names {
        let (old, new) = (live.get(name), applied.get(name));
        let value = match place_of(name) {
            Some(place) => merge_values(place, old, new),
            None => new.or(old).cloned(),
        };
        merged.extend(value.map(|value| (name.clone(), value)));
    }
    Some(merged.into())
}

/// Merges items that are in both lists. Applied items come in the order in which they are applied;
/// others follow the same item as before.
fn merge_items(keys: &[Text], item: Position<'_>, live: &[Value], applied: &[Value]) -> Option<Value> {
    let with_elements = |list: &'_ [Value]| -> Vec<PathElement> {
        list.iter().map(|value| item.element(keys, value)).collect()
    };
    let (old, new) = (with_elements(live), with_elements(applied));
    let mut old_values: HashMap<&str, Option<&Value>> = HashMap::new();
    for (element, value) in old.iter().zip(live) {
        // With which of several items of one key it would have to be merged is not known.
        old_values.entry(element).and_modify(|first| *first = None).or_insert(Some(value));
    }
    let applied_elements: HashSet<&str> = new.iter().map(String::as_str).collect();
    let mut shared: VecDeque<&str> =
        new.iter().map(String::as_str).filter(|element| old_values.contains_key(element)).collect();
    let mut taken: HashSet<&str> = HashSet::new();
    let mut merged = Vec::with_capacity(old.len().max(new.len()));
    let (mut at, mut next) = (0, 0);
    while at < old.len() || next < new.len() {
        let was = old.get(at).map(String::as_str);
        let is = new.get(next).map(String::as_str);
        if let Some(was) = was {
            let comes_elsewhere = applied_elements.contains(was);
            if !comes_elsewhere {
                merged.extend(merge_values(item, live.get(at), None));
                at += 1;
                continue;
            }
            // One that is applied at another place is left out here.
            if is.is_some_and(|is| is != was) && shared.front().is_some_and(|next| *next != was) {
                at += 1;
                continue;
            }
            if is == Some(was) || taken.contains(was) {
                at += 1;
            }
        }
        let Some(is) = is else { continue };
        merged.extend(merge_values(item, old_values.get(is).copied().flatten(), applied.get(next)));
        taken.insert(is);
        if shared.front() == Some(&is) {
            shared.pop_front();
        }
        next += 1;
    }
    (!merged.is_empty()).then(|| merged.into())
}

#[cfg(test)]
mod tests;
