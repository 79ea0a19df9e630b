//! The items of lists that are merged: what identifies them, and the order of the result.
//!
//! The order of a merged list: the items in the patch are in the patch's order (or that of
//! `$setElementOrder`), the others in the live order, and the two are interleaved: another item
//! precedes a patched one only if both are live and it preceded it already. So new items come
//! first.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};

use super::directives::{DIRECTIVE, ORDER};
use crate::go_value::{GoValue, go_type};
use crate::{Error, Result};

/// Returns the live order for a patch without an order of its own: without the items that the patch
/// deletes, and with new items in the places of deleted ones, as far as there are any.
pub fn order_after(live: &[Value], patch: &[Value], identity: MergeIdentity) -> Vec<String> {
    let ids =
        |items: &[Value]| -> Vec<String> { items.iter().filter_map(|item| identity.of(item).ok()).collect() };
    let (directives, changes): (Vec<_>, Vec<_>) =
        patch.iter().partition(|item| item.get(DIRECTIVE).is_some());
    let deleted: HashSet<String> = directives
        .into_iter()
        .filter(|item| item.get(DIRECTIVE).is_some_and(|directive| directive == "delete"))
        .filter_map(|item| identity.of(item).ok())
        .collect();
    let mut order = ids(live);
    let all = order.len();
    order.retain(|id| !deleted.contains(id));
    let mut present: HashSet<String> = order.iter().cloned().collect();
    for id in changes.into_iter().filter_map(|item| identity.of(item).ok()) {
        if order.len() == all {
            break;
        }
        if present.insert(id.clone()) {
            order.push(id);
        }
    }
    order
}

/// Validates that the items of the patch are in the given order. Deleted items do not count.
pub fn check_order(patch: &[Value], order: &[Value], identity: MergeIdentity) -> Result<()> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let is_deleted = |item: &Value| item.get(DIRECTIVE).is_some_and(|directive| directive == "delete");
    let mut expected = patch.iter().filter(|item| !is_deleted(item)).peekable();
    for id in identity.of_all(order)? {
        while expected.next_if(|item| item.get(DIRECTIVE).is_some()).is_some() {}
        match expected.peek() {
            None => break,
            Some(item) if identity.of(item)? == id => _ = expected.next(),
            Some(_) => {}
        }
    }
    if expected.peek().is_none() {
        return Ok(());
    }
    let (patch, order) = (Value::from(patch), Value::from(order));
    Err(Error::Unclassified(format!(
        "The order in patch list:\n{}\n doesn't match {ORDER} list:\n{}\n",
        GoValue(&patch),
        GoValue(&order)
    )))
}

/// Orders the items of a merged list: see the module's documentation.
pub fn order_items(
    items: Vec<Value>,
    identity: MergeIdentity,
    order: &[String],
    live: &[String],
) -> Result<Vec<Value>> {
    let (order, live) = (ranks(order), ranks(live));
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for item in items {
        let id = identity.of(&item)?;
        match order.get(&id) {
            Some(rank) => named.push((*rank, live.get(&id).copied(), item)),
            None => others.push((live.get(&id).copied(), item)),
        }
    }
    named.sort_by_key(|(rank, ..)| *rank);
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let mut others = order_by_live_position(others).into_iter().peekable();
    for (_, named_place, item) in named {
        while let Some((_, other)) =
            others.next_if(|(place, _)| matches!((place, named_place), (Some(a), Some(b)) if *a < b))
        {
            arranged.push(other);
        }
        arranged.push(item);
    }
    arranged.extend(others.map(|(_, item)| item));
    Ok(arranged)
}

/// Sorts by live position. Items without one exist only under an empty `$setElementOrder`; each is
/// moved to the front, and one with a position then precedes those.
fn order_by_live_position(mut items: Vec<(Option<usize>, Value)>) -> Vec<(Option<usize>, Value)> {
    if items.iter().all(|(place, _)| place.is_some()) {
        items.sort_by_key(|(place, _)| *place);
        return items;
    }
    // A linked list of the items. Those with a position are in the order of their positions.
    let mut following: Vec<Option<usize>> = Vec::with_capacity(items.len());
    let mut first = None;
    let mut placed: BTreeSet<(usize, usize)> = BTreeSet::new();
    for (i, (place, _)) in items.iter().enumerate() {
        let before = place.and_then(|place| placed.range(..=(place, i)).next_back().copied());
        let link = match before {
            Some((_, before)) => &mut following[before],
            None => &mut first,
        };
        let after = link.replace(i);
        following.push(after);
        placed.extend(place.map(|place| (place, i)));
    }
    let mut settled = Vec::with_capacity(items.len());
    let mut next = first;
    while let Some(i) = next {
        settled.push(std::mem::take(&mut items[i]));
        next = following[i];
    }
    settled
}

fn ranks(ids: &[String]) -> HashMap<&String, usize> {
    let mut ranks = HashMap::with_capacity(ids.len());
    for (rank, id) in ids.iter().enumerate() {
        ranks.entry(id).or_insert(rank);
    }
    ranks
}

/// The identity of a list's items: the value of the merge key, or the item itself, as JSON text.
#[derive(Clone, Copy)]
pub struct MergeIdentity(pub Option<&'static str>);

impl MergeIdentity {
    /// Returns the identity of an item.
    pub fn of(self, item: &Value) -> Result<String> {
        match (self.0, item) {
            (None, item) => Ok(item.to_string()),
            (Some(_), Value::Object(item)) => self.of_map(item),
            (Some(_), other) => Err(unexpected_type("map[string]interface {}", other)),
        }
    }

    /// Returns the identity of an item that is a map.
    pub fn of_map(self, item: &Map<String, Value>) -> Result<String> {
        let key = self.0.unwrap_or_default();
        item.get(key).map(Value::to_string).ok_or_else(|| no_merge_key(item, key))
    }

    /// Returns the identities of all items.
    pub fn of_all(self, items: &[Value]) -> Result<Vec<String>> {
        items.iter().map(|item| self.of(item)).collect()
    }
}

/// The type of the items of a list.
#[derive(PartialEq, Eq)]
pub enum ElementType {
    /// Items are maps.
    Map,
    /// Items are strings, numbers or booleans.
    Scalar,
}

/// Returns the common type of all elements.
pub fn element_type(lists: &[&[Value]]) -> Result<ElementType> {
    let mut elements = lists.iter().copied().flatten();
    let Some(first) = elements.next() else {
        return Err(Error::Unclassified("no elements in any of the given slices".into()));
    };
    if first.is_array() {
        return Err(Error::Unprocessable);
    }
    if first.is_null() || elements.any(|element| go_type(element) != go_type(first)) {
        let lists = Value::from(lists.iter().map(|list| Value::from(*list)).collect::<Vec<_>>());
        return Err(Error::Unclassified(format!(
            "list element types are not identical: {}",
            GoValue(&lists)
        )));
    }
    Ok(if first.is_object() { ElementType::Map } else { ElementType::Scalar })
}

/// Creates the error for a value of an unexpected type.
pub fn unexpected_type(expected: &str, actual: &Value) -> Error {
    Error::Unclassified(format!("expected a {expected}, but received a {}", go_type(actual)))
}

fn no_merge_key(item: &Map<String, Value>, key: &str) -> Error {
    let item = Value::Object(item.clone());
    Error::Unclassified(format!("map: {} does not contain declared merge key: {key}", GoValue(&item)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the result of [`order_by_live_position`], item by item.
    fn one_by_one(items: &[(Option<usize>, Value)]) -> Vec<(Option<usize>, Value)> {
        let mut settled: Vec<(Option<usize>, Value)> = Vec::new();
        for (place, item) in items {
            let before =
                |(other, _): &(Option<usize>, Value)| other.is_some() && place.is_some() && other <= place;
            let at = settled.iter().rposition(before).map_or(0, |last| last + 1);
            settled.insert(at, (*place, item.clone()));
        }
        settled
    }

    proptest! {
        #[test]
        fn items_are_ordered_as_if_inserted_one_by_one(places in prop::collection::vec(prop::option::of(0..6usize), 0..12)) {
            let items: Vec<_> = places.into_iter().enumerate().map(|(i, place)| (place, Value::from(i))).collect();
            prop_assume!(items.iter().any(|(place, _)| place.is_none()));
            prop_assert_eq!(order_by_live_position(items.clone()), one_by_one(&items));
        }
    }
}
