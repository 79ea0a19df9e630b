//! The patch of a request: its type, its document, and its application to an object of a type.

use http::{HeaderMap, header};
use serde_json::{Value, json};

use super::identity::{self, Identity, IdentityCheck};
use super::{PatchType, Patched, json as json_patch, merge, strategic};
use crate::codec::{DecodeError, Decoded, json as codec, structural};
use crate::error::Status;
use crate::request::Warnings;
use crate::request::negotiate::media_type;
use crate::request::options::FieldValidation;
use crate::schema::TypeRef;
use crate::{Error, Result};

/// The media types of patches that custom resources take.
const CUSTOM_RESOURCE_PATCHES: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

/// The error for a patch of a type that the resource does not take.
fn unsupported(accepted: &[&str]) -> Error {
    let accepted = accepted.join(", ");
    Error::Status(Box::new(Status {
        code: 415,
        reason: "UnsupportedMediaType".into(),
        message: format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        ),
        details: None,
        continue_token: None,
    }))
}

/// A patch, read from a request.
#[derive(Clone, Debug)]
pub struct Patch {
    patch_type: PatchType,
    document: Value,
    /// The field validation errors in the document itself.
    strict: Vec<String>,
}

impl Patch {
    /// The patch type of the Content-Type, if objects of the type take it. Parameters and letter case are ignored.
    ///
    /// # Errors
    /// 415.
    pub fn type_of(headers: &HeaderMap, type_ref: &TypeRef) -> Result<PatchType> {
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
        let patch_type = PatchType::of_media_type(media_type(content_type));
        if let TypeRef::Structural(_) = type_ref {
            let taken = patch_type.filter(|patch_type| *patch_type != PatchType::Strategic);
            return taken.ok_or_else(|| unsupported(&CUSTOM_RESOURCE_PATCHES));
        }
        patch_type.ok_or_else(|| {
            Error::Status(Box::new(Status {
                code: 415,
                reason: "UnsupportedMediaType".into(),
                message: "415: Unsupported Media Type".to_owned(),
                details: Some(json!({})),
                continue_token: None,
            }))
        })
    }

    /// # Errors
    /// 400 if the body is not JSON.
    pub fn parse(patch_type: PatchType, body: &[u8]) -> Result<Patch> {
        let document = codec::decode_value(body).map_err(|error| patch_type.malformed(&error.to_string()))?;
        let mut strict = document.strict;
        if patch_type == PatchType::Json {
            strict.extend(json_patch::unknown_fields(&document.value));
            strict.iter_mut().for_each(|complaint| complaint.insert_str(0, "json patch "));
        }
        Ok(Patch { patch_type, document: document.value, strict })
    }

    /// Applies the patch to an object of a type.
    pub fn apply(
        &self,
        object: Value,
        type_ref: &TypeRef,
        validation: FieldValidation,
        warnings: &Warnings,
    ) -> Result<Value> {
        let identity = Identity::of(&object);
        let patched = match self.patch_type {
            PatchType::Json => json_patch::apply(object, &self.document)?,
            PatchType::Merge => merge::apply(object, self.document.clone())?,
            PatchType::Strategic => match type_ref {
                TypeRef::Struct(id) => strategic::apply(object, self.document.clone(), *id)?,
                TypeRef::Structural(_) => return Err(unsupported(&CUSTOM_RESOURCE_PATCHES)),
            },
        };
        let (mut object, complaints) =
            self.decode(&patched.object, type_ref, &identity).map_err(|error| patched.undecodable(&error))?;
        if !matches!(type_ref, TypeRef::Structural(_)) || identity.other_kind(&object).is_none() {
            identity.restore(&mut object);
        }
        let mut complaints = self.strict.iter().cloned().chain(complaints).peekable();
        match validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => warnings.extend(complaints),
            FieldValidation::Strict if complaints.peek().is_none() => {}
            FieldValidation::Strict => {
                let complaints: Vec<String> = complaints.collect();
                return Err(patched.undecodable(&format!("strict decoding error: {}", complaints.join(", "))));
            }
        }
        Ok(object)
    }

    /// The error if the patched object cannot be converted to the real server's internal version.
    pub fn conversion_error(&self, object: &Value, error: &str) -> Error {
        match self.patch_type {
            PatchType::Strategic => Error::Unclassified(error.to_owned()),
            PatchType::Json | PatchType::Merge => Patched::of(object.clone()).undecodable(error),
        }
    }

    /// Decodes the patched object by its type, with the field validation errors.
    fn decode(
        &self,
        object: &Value,
        type_ref: &TypeRef,
        was: &Identity,
    ) -> Result<(Value, Vec<String>), String> {
        let decoded = match type_ref {
            TypeRef::Struct(id) => codec::normalize(object, *id),
            TypeRef::Structural(schema) => {
                let untyped = Decoded { value: object.clone(), strict: Vec::new() };
                structural::conform(untyped, schema)
            }
        };
        // A custom resource of another kind is read, and found to be invalid.
        if matches!(type_ref, TypeRef::Structural(_))
            && let Some(kind) = was.other_kind(object)
        {
            let named = |mut value: Value| {
                value["kind"] = kind.into();
                value
            };
            return decoded
                .map(|decoded| (named(decoded.value), decoded.strict))
                .map_err(|error| error.to_string());
        }
        // Kind and version in a strategic merge patch are ignored.
        let unreadable = matches!(decoded, Err(DecodeError::Unreadable(_)));
        if self.patch_type != PatchType::Strategic && !unreadable {
            match was.check(object)? {
                IdentityCheck::Unchanged => {}
                IdentityCheck::Versionless => return Ok(identity::unknown_members_of(object)),
            }
        }
        decoded.map(|decoded| (decoded.value, decoded.strict)).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::schema;

    #[test]
    fn bodies_that_are_no_patch_are_rejected() {
        for (patch_type, body, want) in [
            (
                PatchType::Json,
                "not json",
                "error decoding patch: invalid character 'o' in literal null (expecting 'u')",
            ),
            (PatchType::Json, "", "error decoding patch: unexpected end of JSON input"),
            (
                PatchType::Json,
                "[{\"op\":\"add\"},]",
                "error decoding patch: invalid character ']' looking for beginning of value",
            ),
            (PatchType::Json, "[]x", "error decoding patch: invalid character 'x' after top-level value"),
            (PatchType::Merge, "{", "error decoding patch: unexpected end of JSON input"),
            (PatchType::Strategic, "{", "unexpected end of JSON input"),
        ] {
            let error = Patch::parse(patch_type, body.as_bytes()).expect_err(want);
            assert_eq!((error.code(), error.to_string().as_str()), (400, want));
        }
    }

    #[test]
    fn field_validation_reports_unknown_members() {
        let config_map = schema().kind("", "v1", "ConfigMap").expect("a kind of the table");
        for (patch_type, body, want) in [
            (
                PatchType::Json,
                r#"[{"op":"add","op":"add","path":"/x","value":1,"foo":1}]"#,
                vec![
                    "json patch duplicate field \"[0].op\"",
                    "json patch unknown field \"[0].foo\"",
                    "unknown field \"x\"",
                ],
            ),
            (PatchType::Merge, r#"{"data":{"k":"1","k":"2"}}"#, vec!["duplicate field \"data.k\""]),
            (
                PatchType::Strategic,
                r#"{"foo":1,"foo":2}"#,
                vec!["duplicate field \"foo\"", "unknown field \"foo\""],
            ),
        ] {
            let patch = Patch::parse(patch_type, body.as_bytes()).expect(body);
            let warnings = Warnings::default();
            let apply = |validation| {
                let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}});
                patch.apply(object, &config_map.into(), validation, &warnings)
            };
            let strict = apply(FieldValidation::Strict).expect_err("there are complaints").to_string();
            assert!(strict.ends_with(&format!(": strict decoding error: {}", want.join(", "))), "{strict}");
            apply(FieldValidation::Ignore).expect(body);
            apply(FieldValidation::Warn).expect(body);
            assert_eq!(warnings.into_texts(), want);
        }
    }

    #[test]
    fn kind_and_version_cannot_change() {
        let config_map = schema().kind("", "v1", "ConfigMap").expect("a kind of the table");
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}});
        for (patch_type, body, want) in [
            (PatchType::Merge, r#"{"kind":null}"#, object.clone()),
            (PatchType::Strategic, r#"{"kind":"Secret","apiVersion":"a/b/c"}"#, object.clone()),
            (
                PatchType::Merge,
                r#"{"apiVersion":null}"#,
                json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}}),
            ),
        ] {
            let patch = Patch::parse(patch_type, body.as_bytes()).expect(body);
            let got =
                patch.apply(object.clone(), &config_map.into(), FieldValidation::Warn, &Warnings::default());
            assert_eq!(got.expect(body), want, "{body}");
        }
        let patch = Patch::parse(PatchType::Merge, br#"{"kind":"Nope"}"#).expect("a patch");
        let error = patch
            .apply(object, &config_map.into(), FieldValidation::Warn, &Warnings::default())
            .expect_err("no such kind");
        assert_eq!(error.code(), 422);
    }
}
