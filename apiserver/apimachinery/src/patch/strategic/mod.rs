//! Strategic merge patch: a merge patch that uses the object's type to merge lists.
//!
//! A list with a patch strategy is merged item by item, by the field's merge key or, for lists of primitives, by
//! value. Members that start with `$` are directives for the map that contains them:
//! Members that start with `$` are directives, to the map they stand in:
//!
//! - `$patch: replace` or `delete`: take the patch's map instead, or none; in an item of a list: for that item, or the
//!   list;
//! - `$retainKeys: [..]`: drop every other member of the map;
//! - `$deleteFromPrimitiveList/FIELD: [..]`: remove these values from the list;
//! - `$setElementOrder/FIELD: [..]`: the order of the merged list, see [`list`].
//!
//! The patch is consumed during the merge: applied directives and lists are removed from it, and errors show the rest.
//!
//! Source: API conventions, "PATCH operations", and the design "preserve order in strategic merge patch".

mod list;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{PatchType, drop_nulls, undecodable};
use crate::codec::unstructured;
use crate::go_value::{GoString, GoValue, cannot_unmarshal, go_type};
use crate::schema::{Field, StructId, Type, schema};
use crate::{Error, Result};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";

/// A merged object that still has to be decoded.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The merged object.
    pub object: Value,
    /// The patch, without the parts that merging has consumed.
    patch: Value,
}

impl Merged {
    /// The error if the merged object does not decode: `error` is the decoder's message.
    pub fn undecodable(&self, error: &str) -> Error {
        undecodable(GoValue(&self.patch).to_string(), error)
    }
}

/// Merges `patch` into `target`, an object of type `kind`.
///
/// 400 and 422 for violations of the patch format, 500 without a reason for a patch that does not match the object's
/// type, and 422 if the merged object cannot be of that type.
pub fn apply(target: Value, patch: Value, kind: StructId) -> Result<Merged> {
    let mut patch = match patch {
        Value::Null => Map::new(),
        Value::Object(patch) => patch,
        other => {
            let reason = cannot_unmarshal(&other, "value of type map[string]interface {}");
            return Err(PatchType::Strategic.malformed(&reason));
        }
    };
    let target = if let Value::Object(target) = target { target } else { Map::new() };
    let ty = Type::Struct(kind);
    let merged = merge(target, &mut patch, &ty)?;
    let mut merged = Merged { object: Value::Object(merged), patch: Value::Object(patch) };
    match unstructured::restore_object(&mut merged.object, kind) {
        Ok(()) => Ok(merged),
        Err(reason) => Err(merged.undecodable(&reason)),
    }
}

fn merge(
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
    if let Some(merged) = list::merge_ordered(live_list, patch_list, &order, &list)? {
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
            *live = list::merge(std::mem::take(live), patch, &ListField::find(ty, key)?, deletes)?;
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

/// The value of a member that the live object does not have: the patch's, without nulls and directives. None if it is
/// only a directive.
fn new_value(patch: &mut Value) -> Option<Value> {
    drop_nulls(patch);
    drop_directives(patch).then(|| patch.clone())
}

/// False if the value itself is a directive.
fn drop_directives(value: &mut Value) -> bool {
    match value {
        Value::Object(members) if members.contains_key(DIRECTIVE) => return false,
        Value::Object(members) => members.retain(|_, member| drop_directives(member)),
        Value::Array(elements) => elements.retain_mut(drop_directives),
        _ => {}
    }
    true
}

/// A field that holds a list, and the type of its items.
struct ListField {
    field: &'static Field,
    item: Type,
}

impl ListField {
    fn find(ty: &Type, name: &str) -> Result<ListField> {
        let field = find_field(ty, name)?;
        let item = match field.ty.item() {
            Some(item) if item.item().is_some() => {
                return Err(Error::Unclassified("unexpected slice of slice".into()));
            }
            Some(item) => item,
            None if field.pointer => &field.ty,
            None => return Err(Error::Unclassified("expected slice or array type, but got: struct".into())),
        };
        Ok(ListField { field, item: item.clone() })
    }

    fn merge_key(&self) -> Option<&'static str> {
        self.field.merge_key
    }
}

fn find_field(ty: &Type, name: &str) -> Result<&'static Field> {
    let type_name = match ty {
        Type::Struct(id) => {
            let found = schema().get(*id);
            match found.field(name) {
                Some(field) => return Ok(field),
                None => found.name,
            }
        }
        Type::RawExtension => "RawExtension",
        Type::FieldsV1 => "FieldsV1",
        Type::Json => "JSON",
        Type::SchemaOrBool => "JSONSchemaPropsOrBool",
        Type::SchemaOrArray => "JSONSchemaPropsOrArray",
        Type::SchemaOrStrings => "JSONSchemaPropsOrStringArray",
        _ => {
            let message = "merging an object in json but data type is not struct, instead is: map";
            return Err(Error::Unclassified(message.into()));
        }
    };
    Err(Error::Unclassified(format!(
        "unable to find api field in struct {type_name} for the json field {}",
        crate::field::quote(name)
    )))
}

fn unexpected_type(expected: &str, actual: &Value) -> Error {
    Error::Unclassified(format!("expected a {expected}, but received a {}", go_type(actual)))
}

fn no_merge_key(item: &Map<String, Value>, key: &str) -> Error {
    let item = Value::Object(item.clone());
    Error::Unclassified(format!("map: {} does not contain declared merge key: {key}", GoValue(&item)))
}

fn unknown_directive(patch: &Map<String, Value>) -> Error {
    let directive = patch.get(DIRECTIVE).unwrap_or(&Value::Null);
    let patch = Value::Object(patch.clone());
    Error::Unclassified(format!("unknown patch type: {} in map: {}", GoString(directive), GoValue(&patch)))
}
