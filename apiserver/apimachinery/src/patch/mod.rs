//! Patches: JSON patch, merge patch and strategic merge patch.
//!
//! Pure functions over JSON values. Each takes the object in the version of the request and the decoded patch
//! document, and returns a [`Patched`]: the new object, which is not yet decoded against its type, and the value to
//! report if it cannot be. Parsing bytes is the codec's work; field ownership and apply have their own module.
//!
//! Start at [`Patch`], the patch of a request; then [`json::apply`], [`merge::apply`] and [`strategic::apply`].
//!
//! Source: RFC 6902, RFC 7386, API conventions, "PATCH operations"; where the real server deviates, so does this.

#[cfg(test)]
pub(crate) mod arbitrary;
mod configuration;
mod identity;
pub mod json;
pub mod merge;
mod request;
pub mod strategic;

pub use configuration::{APPLY, Configuration};
pub use identity::{Identity, IdentityCheck};
pub use request::Patch;

use serde_json::Value;

use crate::Error;
use crate::field::{Errors, Field, Path};
use crate::go_value::GoValue;
use crate::names::GroupKind;

/// The patch types, without apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// JSON patch.
    Json,
    /// JSON merge patch.
    Merge,
    /// Strategic merge patch.
    Strategic,
}

impl PatchType {
    /// The patch type of a media type.
    pub fn of_media_type(media_type: &str) -> Option<PatchType> {
        match media_type {
            "application/json-patch+json" => Some(PatchType::Json),
            "application/merge-patch+json" => Some(PatchType::Merge),
            "application/strategic-merge-patch+json" => Some(PatchType::Strategic),
            _ => None,
        }
    }

    /// The error for a body that is not JSON, or not a document of this type: `error` is the decoder's message.
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
    /// The patched object.
    pub object: Value,
    reported: ReportedValue,
}

/// The invalid value that a decoding error reports.
#[derive(Clone, Debug)]
enum ReportedValue {
    /// The whole patched object.
    Object,
    /// The patch, without the parts that merging has consumed.
    Patch(Value),
}

impl Patched {
    fn of(object: Value) -> Patched {
        Patched { object, reported: ReportedValue::Object }
    }

    /// The error if the patched object does not decode: `error` is the decoder's message.
    pub fn undecodable(&self, error: &str) -> Error {
        let reported = match &self.reported {
            ReportedValue::Object => self.object.to_string(),
            ReportedValue::Patch(patch) => GoValue(patch).to_string(),
        };
        let mut errors = Errors::new();
        errors.push(Field::at(None, Path::of("patch")).invalid_value(reported, error));
        Error::invalid(&GroupKind::new("", ""), "", errors)
    }
}

/// The error about a document of the wrong shape, with the message of Go's JSON decoder.
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

/// A null in a patch removes a member; where there is none to remove, the null is dropped. List elements are not
/// members.
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
