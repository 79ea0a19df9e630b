//! Patches: what a JSON patch, a merge patch or a strategic merge patch makes of an object.
//!
//! Pure functions over JSON values. Each takes the object in the form of its version and the decoded document of the
//! request, and gives a [`Patched`]: the new object, not yet decoded against its type, and the words for the case that
//! it cannot be. Reading bytes is the codec's work, field ownership and apply have their own module.
//!
//! Start at [`Patch`], which a request brings; then [`json::apply`], [`merge::apply`] and [`strategic::apply`].
//!
//! Source: RFC 6902, RFC 7386, API conventions, "PATCH operations"; where the real server deviates, so does this.

mod identity;
pub mod json;
pub mod merge;
mod request;
pub mod strategic;

pub use request::Patch;

use serde_json::Value;

use crate::Error;
use crate::field::{Errors, Field, Path};
use crate::go_value::GoValue;
use crate::names::GroupKind;

/// The forms of a patch, apply left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
}

impl PatchType {
    pub fn of_media_type(media_type: &str) -> Option<PatchType> {
        match media_type {
            "application/json-patch+json" => Some(PatchType::Json),
            "application/merge-patch+json" => Some(PatchType::Merge),
            "application/strategic-merge-patch+json" => Some(PatchType::Strategic),
            _ => None,
        }
    }

    /// The answer to a body that is no JSON, or no document of this form: `error` is the decoder's text.
    pub fn malformed(self, error: &str) -> Error {
        match self {
            PatchType::Json | PatchType::Merge => {
                Error::bad_request(format!("error decoding patch: {error}"))
            }
            PatchType::Strategic => Error::bad_request(error),
        }
    }
}

/// A patched object that still has to be decoded.
#[derive(Clone, Debug)]
pub struct Patched {
    pub object: Value,
    shown: Shown,
}

/// What a decoding error shows as the invalid value.
#[derive(Clone, Debug)]
enum Shown {
    /// The whole patched object.
    Object,
    /// The patch, less what merging has consumed of it.
    Patch(Value),
}

impl Patched {
    fn of(object: Value) -> Patched {
        Patched { object, shown: Shown::Object }
    }

    /// The answer when the patched object does not decode: `error` is the decoder's text.
    pub fn undecodable(&self, error: &str) -> Error {
        let shown = match &self.shown {
            Shown::Object => self.object.to_string(),
            Shown::Patch(patch) => GoValue(patch).to_string(),
        };
        let mut errors = Errors::new();
        errors.push(Field::at(None, Path::of("patch")).invalid_value(shown, error));
        Error::invalid(&GroupKind::new("", ""), "", errors)
    }
}

/// The complaint about a document of the wrong shape, worded as Go's JSON decoder does.
fn cannot_unmarshal(value: &Value, into: &str) -> String {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {kind} into Go {into}")
}

/// A null in a patch removes; where nothing is to be removed it must not stay. List elements are no members.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(elements) => elements.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod arbitrary {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    /// Any JSON, with a taste for the words that mean something in a patch.
    pub fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-2..3i64).prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            word().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                members(inner).prop_map(Value::from),
            ]
        })
    }

    pub fn object() -> impl Strategy<Value = Value> {
        members(json()).prop_map(Value::from)
    }

    fn members(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
        prop::collection::vec((word(), value), 0..4).prop_map(Map::from_iter)
    }

    fn word() -> impl Strategy<Value = String> {
        const KNOWN: &[&str] = &[
            "a",
            "b",
            "name",
            "spec",
            "template",
            "containers",
            "metadata",
            "finalizers",
            "labels",
            "$patch",
            "delete",
            "replace",
            "merge",
            "$retainKeys",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
        ];
        prop_oneof![4 => prop::sample::select(KNOWN).prop_map(str::to_owned), 1 => "[a-z/~]{0,3}"]
    }

    /// JSON patches whose operations often apply.
    pub fn operations() -> impl Strategy<Value = Value> {
        let pointer = || {
            prop::collection::vec(prop_oneof![word(), "-?[0-3]"], 0..4)
                .prop_map(|p| format!("/{}", p.join("/")))
        };
        let name = prop::sample::select(&["add", "remove", "replace", "move", "copy", "test", "x"][..]);
        let operation = (name, pointer(), pointer(), json()).prop_map(
            |(op, from, path, value)| json!({"op": op, "from": from, "path": path, "value": value}),
        );
        prop::collection::vec(prop_oneof![8 => operation, 1 => json()], 0..5).prop_map(Value::from)
    }
}
