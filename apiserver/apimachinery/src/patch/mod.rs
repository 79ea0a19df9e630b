//! Patches: JSON patch, merge patch and strategic merge patch.
//!
//! Pure functions over JSON values. Each takes the object in the version of the request and the
//! decoded patch document, and returns the new object, which is not yet decoded against its type.
//! Parsing bytes is the codec's work; field ownership and apply have their own module.
//!
//! Start at [`Patch`], the patch of a request; then [`json::apply`], [`merge::apply`] and
//! [`strategic::apply`].
//!
//! Source: RFC 6902, RFC 7386, API conventions, "PATCH operations"; where kube-apiserver deviates,
//! so does this.

#[cfg(test)]
pub(crate) mod arbitrary;
mod configuration;
mod identity;
pub mod json;
pub mod merge;
mod printed;
mod request;
pub mod strategic;

pub use configuration::{APPLY, Configuration};
pub use identity::IdentityCheck;
pub use request::Patch;

use serde_json::Value;

use crate::Error;
use crate::field::{Errors, Field, Path};
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
    /// Returns the patch type of a media type.
    pub fn of_media_type(media_type: &str) -> Option<PatchType> {
        match media_type {
            "application/json-patch+json" => Some(PatchType::Json),
            "application/merge-patch+json" => Some(PatchType::Merge),
            "application/strategic-merge-patch+json" => Some(PatchType::Strategic),
            _ => None,
        }
    }

    /// Creates the error for a body that is not JSON, or not a document of this type: `error` is
    /// the decoder's message.
    pub fn malformed(self, error: &str) -> Error {
        match self {
            PatchType::Json | PatchType::Merge => {
                Error::bad_request(format!("error decoding patch: {error}"))
            }
            PatchType::Strategic => Error::bad_request(error),
        }
    }
}

/// Creates the error for a patched object that does not decode.
///
/// - `value`: the patched object or the patch, as kube-apiserver prints it.
/// - `error`: the decoder's message.
fn undecodable(value: String, error: &str) -> Error {
    let mut errors = Errors::new();
    errors.push(Field::at(None, Path::of("patch")).invalid_value(value, error));
    Error::invalid(&GroupKind::new("", ""), "", errors)
}

/// Drops the nulls of a patch for a value that does not exist: there are no members to remove.
/// Items of lists that are null are kept.
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
