//! The patch of a request: which type it is, its document, and what it makes of an object of a given type.

use http::{HeaderMap, header};
use serde_json::{Value, json};

use super::{PatchType, Patched, json as json_patch, merge, strategic};
use crate::codec::json as codec;
use crate::error::Status;
use crate::request::negotiate::media_type;
use crate::request::options::FieldValidation;
use crate::schema::StructId;
use crate::{Error, Result};

/// A patch, read from a request.
#[derive(Clone, Debug)]
pub struct Patch {
    patch_type: PatchType,
    document: Value,
    /// What field validation complains of in the document itself.
    strict: Vec<String>,
}

impl Patch {
    /// The type that the Content-Type says. Parameters do not count, letter case does.
    pub fn type_of(headers: &HeaderMap) -> Result<PatchType> {
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
        PatchType::of_media_type(media_type(content_type)).ok_or_else(|| {
            Error::Status(Box::new(Status {
                code: 415,
                reason: "UnsupportedMediaType",
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

    /// What the patch makes of an object, not yet checked against its type.
    pub fn apply(&self, object: Value, type_id: StructId) -> Result<Patched> {
        match self.patch_type {
            PatchType::Json => json_patch::apply(object, &self.document),
            PatchType::Merge => merge::apply(object, self.document.clone()),
            PatchType::Strategic => strategic::apply(object, self.document.clone(), type_id),
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
        let decoded = codec::normalize(&patched.object, type_id)
            .map_err(|error| patched.undecodable(&error.to_string()))?;
        let complaints = self.strict.iter().chain(&decoded.strict);
        match validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => warnings.extend(complaints.cloned()),
            FieldValidation::Strict => {
                let complaints: Vec<&str> = complaints.map(String::as_str).collect();
                if !complaints.is_empty() {
                    return Err(
                        patched.undecodable(&format!("strict decoding error: {}", complaints.join(", ")))
                    );
                }
            }
        }
        Ok(decoded.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::schema;

    #[test]
    fn bodies_that_are_no_patch() {
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
    fn complaints_about_fields() {
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
            let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}});
            let patched = patch.apply(object, config_map).expect(body);
            let mut warnings = Vec::new();
            let strict = patch.decode(patched.clone(), config_map, FieldValidation::Strict, &mut warnings);
            let strict = strict.expect_err("there are complaints").to_string();
            assert!(strict.ends_with(&format!(": strict decoding error: {}", want.join(", "))), "{strict}");
            patch.decode(patched.clone(), config_map, FieldValidation::Ignore, &mut warnings).expect(body);
            assert!(warnings.is_empty());
            patch.decode(patched, config_map, FieldValidation::Warn, &mut warnings).expect(body);
            assert_eq!(warnings, want);
        }
    }
}
