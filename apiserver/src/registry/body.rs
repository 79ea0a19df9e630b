//! A request's body, as an object of the kind that its endpoint takes.

use bytes::Bytes;
use serde_json::Value;

use crate::codec::body::{self, Expected};
use crate::request::options::FieldValidation;
use crate::request::{Format, Warnings};
use crate::resource_info::ResourceInfo;
use crate::schema::TypeRef;
use crate::{Error, Result};

/// A request's body, and the format in its `Content-Type`.
pub struct RequestBody {
    /// The bytes, decompressed.
    pub bytes: Bytes,
    /// The media type that the request says they have.
    pub format: Format,
}

impl RequestBody {
    /// Decodes the body as an object of the expected kind.
    ///
    /// # Errors
    /// 400 for a malformed body or one of another kind, and for unknown fields under `Strict`.
    pub fn decode(
        &self,
        expected: Expected<'_>,
        validation: FieldValidation,
        warnings: &Warnings,
    ) -> Result<Value> {
        let body = body::decode(self.format, &self.bytes, expected)?;
        self.accepted(body, expected, validation, warnings)
    }

    fn accepted(
        &self,
        body: body::DecodedBody,
        expected: Expected<'_>,
        validation: FieldValidation,
        warnings: &Warnings,
    ) -> Result<Value> {
        if !expected.accepts(&body.group, &body.version) {
            return Err(body::version_mismatch(&body.group, &body.version, expected));
        }
        match validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => warnings.extend(body::warnings(&body.strict)),
            FieldValidation::Strict if body.strict.is_empty() => {}
            FieldValidation::Strict => {
                return Err(Error::bad_request(format!(
                    "{kind} in version {version} cannot be handled as a {kind}: strict decoding error: {}",
                    body.strict.join(", "),
                    kind = expected.kind,
                    version = crate::field::quote(&body.version),
                )));
            }
        }
        Ok(body.value)
    }

    /// Decodes the body as an object of a resource.
    ///
    /// # Errors
    /// As [`RequestBody::decode`].
    pub fn decode_object(
        &self,
        info: &ResourceInfo,
        validation: FieldValidation,
        warnings: &Warnings,
    ) -> Result<Value> {
        let expected = Expected { group: &info.group, version: &info.version, kind: &info.kind };
        let body = match &info.type_ref {
            TypeRef::Struct(_) => body::decode(self.format, &self.bytes, expected)?,
            TypeRef::Structural(schema) => body::decode_custom(self.format, &self.bytes, expected, schema)?,
        };
        self.accepted(body, expected, validation, warnings)
    }

    /// Returns `true` if the body has the expected kind and version, or they cannot be read.
    pub fn is_of(&self, expected: Expected<'_>) -> bool {
        body::type_meta(self.format, &self.bytes).is_none_or(|meta| {
            meta.kind == expected.kind
                && meta.api_version == format!("{}/{}", expected.group, expected.version)
        })
    }

    /// Decodes options.
    ///
    /// # Errors
    /// 400 if they are invalid.
    pub fn decode_options(&self, kind: &str) -> Result<Value> {
        body::decode_options(self.format, &self.bytes, kind)
    }
}
