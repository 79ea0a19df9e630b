//! Merging maps, and the lists in them; items of lists may be maps again.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::directives::{DELETE_FROM, DIRECTIVE, ORDER, RETAIN_KEYS, drop_directives, unknown_directive};
use super::fields::{ListField, find_field};
use super::list::{
    ElementType, MergeIdentity, check_order, element_type, order_after, order_items, unexpected_type,
};
use crate::go_value::go_type;
use crate::patch::drop_nulls;
use crate::schema::Type;
use crate::{Error, Result};

/// Merges a patch into a map.
pub fn merge(
    mut live: Map<String, Value>,
    patch: &mut Map<String, Value>,
    ty: &Type,
) -> Result<Map<String, Value>> {
    match patch.get(DIRECTIVE) {
        Some(directive) if directive == "replace" => {
            patch.remove(DIRECTIVE);
            return Ok(patch.clone());
        }
        Some(directive) if directive == "delete" => return Ok(Map::new()),
        Some(_) => return Err(unknown_directive(patch)),
        None => {}
    }
    retain_keys(&mut live, patch)?;
    let orders: Vec<String> = patch.keys().filter(|key| key.starts_with(ORDER)).cloned().collect();
    for key in orders {
        merge_ordered(&mut live, patch, &key, ty)?;
    }
    for (key, value) in patch {
        merge_member(&mut live, key, value, ty)?;
    }
    Ok(live)
}

fn retain_keys(live: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<()> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let malformed = || Error::bad_request("invalid patch format of retainKeys");
    let keys = directive.as_array().ok_or_else(malformed)?;
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let is_list_directive = |key: &str| key.starts_with(DELETE_FROM) || key.starts_with(ORDER);
    let stray = |(key, value): (&String, &Value)| {
        !value.is_null() && !is_list_directive(key) && !keys.contains(key.as_str())
    };
    if patch.iter().any(stray) {
        return Err(malformed());
    }
    live.retain(|key, _| keys.contains(key.as_str()));
    Ok(())
}

/// Merges the list of an order directive, together with its part of the patch.
fn merge_ordered(
    live: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    directive: &str,
    ty: &Type,
) -> Result<()> {
    let Some(order) = take_list(patch, directive)? else { return Ok(()) };
    let name = directive
        .strip_prefix(ORDER)
        .and_then(|rest| rest.strip_prefix('/'))
        .ok_or_else(|| Error::bad_request("invalid patch format of setElementOrder list"))?;
    let (live_list, patch_list) = (take_list(live, name)?, take_list(patch, name)?);
    let list = ListField::find(ty, name)?;
    if let Some(merged) = merge_lists_in_order(live_list, patch_list, &order, &list)? {
        live.insert(name.to_owned(), Value::Array(merged));
    }
    Ok(())
}

fn take_list(members: &mut Map<String, Value>, name: &str) -> Result<Option<Vec<Value>>> {
    match members.remove(name) {
        None => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(other) => Err(unexpected_type("[]interface {}", &other)),
    }
}

fn merge_member(live: &mut Map<String, Value>, key: &str, patch: &mut Value, ty: &Type) -> Result<()> {
    let (key, deletes) = match key.strip_prefix(DELETE_FROM) {
        None => (key, false),
        Some(rest) => match rest.strip_prefix('/') {
            Some(key) => (key, true),
            None => return Err(Error::bad_request("invalid patch format of primitive list")),
        },
    };
    if patch.is_null() {
        live.remove(key);
        return Ok(());
    }
    match (live.get_mut(key), patch) {
        (Some(Value::Object(live)), Value::Object(patch)) => {
            let field = find_field(ty, key)?;
            *live = match field.replaces() {
                true => patch.clone(),
                false => merge(std::mem::take(live), patch, &field.ty)?,
            };
        }
        (Some(Value::Array(live)), Value::Array(patch)) => {
            *live = merge_lists(std::mem::take(live), patch, &ListField::find(ty, key)?, deletes)?;
        }
        (None, _) if deletes => {}
        (Some(live), patch) if deletes && go_type(live) != go_type(patch) => {}
        (_, patch) => match new_value(patch) {
            Some(value) => _ = live.insert(key.to_owned(), value),
            None => _ = live.remove(key),
        },
    }
    Ok(())
}

/// Returns the value of a member that the live object does not have: that of the patch, without
/// nulls and directives. None if it is only a directive.
fn new_value(patch: &mut Value) -> Option<Value> {
    drop_nulls(patch);
    drop_directives(patch).then(|| patch.clone())
}

/// Merges by the field's patch strategy; a list without one is replaced. With `deletes`, `patch`
/// lists the values to delete.
fn merge_lists(live: Vec<Value>, patch: &mut [Value], list: &ListField, deletes: bool) -> Result<Vec<Value>> {
    if !list.field.merges() && !deletes {
        return Ok(patch.to_vec());
    }
    if live.is_empty() && patch.is_empty() {
        return Ok(live);
    }
    if element_type(&[&live, patch])? == ElementType::Map {
        return match list.merge_key() {
            Some(key) => merge_maps(live, patch, list, key),
            None => Err(Error::Unclassified("cannot merge lists without merge key for struct".into())),
        };
    }
    if deletes {
        let deleted: HashSet<String> = patch.iter().map(Value::to_string).collect();
        return Ok(live.into_iter().filter(|item| !deleted.contains(&item.to_string())).collect());
    }
    let identity = MergeIdentity(list.merge_key());
    let (live_order, patch_order) = (identity.of_all(&live)?, identity.of_all(patch)?);
    let mut seen = HashSet::new();
    let mut merged = Vec::with_capacity(live.len() + patch.len());
    for (item, id) in live.iter().chain(patch.iter()).zip(live_order.iter().chain(&patch_order)) {
        if seen.insert(id) {
            merged.push(item.clone());
        }
    }
    order_items(merged, identity, &patch_order, &live_order)
}

/// Merges a list with the order that the patch gives; returns None if neither side has the list.
fn merge_lists_in_order(
    live: Option<Vec<Value>>,
    patch: Option<Vec<Value>>,
    order: &[Value],
    list: &ListField,
) -> Result<Option<Vec<Value>>> {
    let identity = MergeIdentity(list.merge_key());
    let (live_items, patch_items) =
        (live.as_deref().unwrap_or_default(), patch.as_deref().unwrap_or_default());
    check_order(patch_items, order, identity)?;
    if live.is_none() && patch.is_none() {
        return Ok(None);
    }
    element_type(&[live_items, patch_items])?;
    let live_order = order_after(live_items, patch_items, identity);
    let merged = match (live, patch) {
        (live, None) => live.unwrap_or_default(),
        (None, Some(mut patch)) => {
            patch.retain_mut(drop_directives);
            patch
        }
        (Some(live), Some(mut patch)) => merge_lists(live, &mut patch, list, false)?,
    };
    order_items(merged, identity, &identity.of_all(order)?, &live_order).map(Some)
}

fn merge_maps(
    mut live: Vec<Value>,
    patch: &mut [Value],
    list: &ListField,
    key: &'static str,
) -> Result<Vec<Value>> {
    let identity = MergeIdentity(Some(key));
    let mut replace = false;
    let mut deleted = HashSet::new();
    let mut changes: Vec<&mut Map<String, Value>> = Vec::with_capacity(patch.len());
    for item in patch.iter_mut().filter_map(Value::as_object_mut) {
        match item.get(DIRECTIVE).map(|directive| directive.as_str().unwrap_or_default()) {
            None => changes.push(item),
            Some("delete") => _ = deleted.insert(identity.of_map(item)?),
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(Error::Unclassified("merging lists cannot yet be specified in the patch".into()));
            }
            Some(_) => return Err(unknown_directive(item)),
        }
    }
    let patch_order = changes.iter().map(|item| identity.of_map(item)).collect::<Result<Vec<_>>>()?;
    if replace {
        return Ok(changes.into_iter().map(|item| Value::Object(item.clone())).collect());
    }
    live.retain(|item| identity.of(item).map_or(true, |id| !deleted.contains(&id)));
    let live_order = identity.of_all(&live)?;
    let mut places: HashMap<&String, usize> = HashMap::with_capacity(live.len());
    for (place, id) in live_order.iter().enumerate() {
        places.entry(id).or_insert(place);
    }
    for (change, id) in changes.into_iter().zip(&patch_order) {
        match places.get(id).and_then(|place| live.get_mut(*place)) {
            Some(Value::Object(item)) => *item = merge(std::mem::take(item), change, &list.item)?,
            _ => {
                places.insert(id, live.len());
                live.push(Value::Object(change.clone()));
            }
        }
    }
    order_items(live, identity, &patch_order, &live_order)
}
