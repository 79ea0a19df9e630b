//! The patch of a request: which kind it is, its document, and what it makes of an object of a given type.

use http::{HeaderMap, header};
use serde_json::{Value, json};

use super::{Patched, json as json_patch, merge, strategic};
use crate::codec;
use crate::error::Status;
use crate::request::negotiate::media_type;
use crate::request::options::FieldValidation;
use crate::schema::StructId;
use crate::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Json,
    Merge,
    Strategic,
}

/// A patch, read from a request.
#[derive(Clone, Debug)]
pub struct Patch {
    kind: Kind,
    document: Value,
}

impl Patch {
    /// The kind that the Content-Type says. Parameters do not count, letter case does.
    pub fn kind_of(headers: &HeaderMap) -> Result<Kind> {
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
        match media_type(content_type) {
            "application/json-patch+json" => Ok(Kind::Json),
            "application/merge-patch+json" => Ok(Kind::Merge),
            "application/strategic-merge-patch+json" => Ok(Kind::Strategic),
            _ => Err(Error::Status(Box::new(Status {
                code: 415,
                reason: "UnsupportedMediaType",
                message: "415: Unsupported Media Type".to_owned(),
                details: Some(json!({})),
                continue_token: None,
            }))),
        }
    }

    /// # Errors
    /// 400 if the body is not JSON.
    pub fn parse(kind: Kind, body: &[u8]) -> Result<Patch> {
        let document = serde_json::from_slice(body)
            .map_err(|error| Error::bad_request(format!("error decoding patch: {error}")))?;
        Ok(Patch { kind, document })
    }

    /// What the patch makes of an object, not yet checked against its type.
    pub fn apply(&self, object: Value, type_id: StructId) -> Result<Patched> {
        match self.kind {
            Kind::Json => json_patch::apply(object, &self.document),
            Kind::Merge => merge::apply(object, self.document.clone()),
            Kind::Strategic => strategic::apply(object, self.document.clone(), type_id),
        }
    }

    /// The patched object as its type has it.
    pub fn decode(
        &self,
        patched: Patched,
        type_id: StructId,
        validation: FieldValidation,
        warnings: &mut Vec<String>,
    ) -> Result<Value> {
        let decoded = codec::json::normalize(&patched.object, type_id)
            .map_err(|e| patched.undecodable(&e.to_string()))?;
        let mut strict = match self.kind {
            Kind::Json => json_patch::unknown_fields(&self.document),
            Kind::Merge | Kind::Strategic => Vec::new(),
        };
        strict.extend(decoded.strict);
        match validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => warnings.extend(strict),
            FieldValidation::Strict if strict.is_empty() => {}
            FieldValidation::Strict => {
                return Err(patched.undecodable(&format!("strict decoding error: {}", strict.join(", "))));
            }
        }
        Ok(decoded.value)
    }
}
