//! Strategic merge patch: a merge patch that uses the object's type to merge lists.
//!
//! A list with a patch strategy is merged item by item, by the field's merge key or, for lists of
//! primitives, by value. Members that start with `$` are directives for the map that contains them:
//! Members that start with `$` are directives, to the map they stand in:
//!
//! - `$patch: replace` or `delete`: take the patch's map instead, or none; in an item of a list:
//!   for that item, or the list;
//! - `$retainKeys: [..]`: drop every other member of the map;
//! - `$deleteFromPrimitiveList/FIELD: [..]`: remove these values from the list;
//! - `$setElementOrder/FIELD: [..]`: the order of the merged list, see [`list`].
//!
//! The patch is consumed during the merge: applied directives and lists are removed from it, and
//! errors show the rest.
//!
//! Source: API conventions, "PATCH operations", and the design "preserve order in strategic merge
//! patch".

mod directives;
mod fields;
mod list;
mod merge;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use super::{PatchType, undecodable};
use crate::codec::unstructured;
use crate::go_value::{GoValue, cannot_unmarshal};
use crate::schema::{StructId, Type};
use crate::{Error, Result};

/// A merged object that still has to be decoded.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The merged object.
    pub object: Value,
    /// The patch, without the parts that merging has consumed.
    patch: Value,
}

impl Merged {
    /// Creates the error for a merged object that does not decode: `error` is the decoder's
    /// message.
    pub fn undecodable(&self, error: &str) -> Error {
        undecodable(GoValue(&self.patch).to_string(), error)
    }
}

/// Merges `patch` into `target`, an object of type `kind`.
///
/// 400 and 422 for violations of the patch format, 500 without a reason for a patch that does not
/// match the object's type, and 422 if the merged object cannot be of that type.
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
    let merged = merge::merge(target, &mut patch, &ty)?;
    let mut merged = Merged { object: Value::Object(merged), patch: Value::Object(patch) };
    match unstructured::restore_object(&mut merged.object, kind) {
        Ok(()) => Ok(merged),
        Err(reason) => Err(merged.undecodable(&reason)),
    }
}
