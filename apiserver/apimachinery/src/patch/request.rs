//! The patch of a request: its type, its document, and its application to an object of a type.

use http::{HeaderMap, header};
use serde_json::{Value, json};

use super::identity::{self, IdentityCheck, Unidentified};
use super::{PatchType, json as json_patch, merge, printed, strategic, undecodable};
use crate::codec::json::Unchanged;
use crate::codec::{DecodeError, Decoded, TypeMeta, json as codec, structural, zero};
use crate::error::Status;
use crate::request::Warnings;
use crate::request::negotiate::media_type;
use crate::request::options::FieldValidation;
use crate::schema::{Type, TypeRef};
use crate::{Error, Result};

/// The media types of patches that custom resources take.
const CUSTOM_RESOURCE_PATCHES: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

/// Creates the error for a patch of a type that the resource does not accept.
fn unsupported(accepted: &[&str]) -> Error {
    let accepted = accepted.join(", ");
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {accepted}"
    );
    Error::plain(415, "UnsupportedMediaType", message)
}

/// A patch, read from a request.
#[derive(Clone, Debug)]
pub struct Patch {
    patch_type: PatchType,
    document: Value,
    /// The document as it was sent: errors print parts of it.
    text: Box<str>,
    /// The field validation errors in the document itself.
    strict: Vec<String>,
}

impl Patch {
    /// Returns the patch type of the Content-Type. Ignores parameters and letter case.
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

    /// Parses the body of a patch.
    ///
    /// # Errors
    /// 400 if the body is not JSON.
    pub fn parse(patch_type: PatchType, body: &[u8]) -> Result<Patch> {
        // The other patches are merged as text in Go, so that `1.0` is no integer.
        let document = match patch_type {
            PatchType::Strategic => codec::decode_value(body),
            PatchType::Json | PatchType::Merge => codec::decode_with_fractions(body),
        };
        let document = document.map_err(|error| patch_type.malformed(&error.to_string()))?;
        let mut strict = document.strict;
        if patch_type == PatchType::Json {
            strict.extend(json_patch::unknown_fields(&document.value));
            strict.iter_mut().for_each(|complaint| complaint.insert_str(0, "json patch "));
        }
        let text = String::from_utf8_lossy(body).into();
        Ok(Patch { patch_type, document: document.value, text, strict })
    }

    /// Applies the patch to an object of a type.
    ///
    /// - `original`: makes the object; once more if the patched one does not decode.
    pub fn apply(
        &self,
        original: &dyn Fn() -> Value,
        type_ref: &TypeRef,
        validation: FieldValidation,
        warnings: &Warnings,
    ) -> Result<Value> {
        let mut object = original();
        let identity = TypeMeta::of(&object);
        let unchanged = match type_ref {
            TypeRef::Struct(_) => Unchanged::take(&mut object, |path, _| self.leaves(path)),
            // The schema may have changed since the object was decoded.
            TypeRef::Structural(_) => Unchanged::default(),
        };
        let mut merged = None;
        let patched = match self.patch_type {
            PatchType::Json => json_patch::apply(with_printed_nulls(object, type_ref), &self.document)?,
            PatchType::Merge => merge::apply(object, self.document.clone())?,
            PatchType::Strategic => match type_ref {
                TypeRef::Struct(id) => {
                    let merged = merged.insert(strategic::apply(object, self.document.clone(), *id)?);
                    std::mem::take(&mut merged.object)
                }
                TypeRef::Structural(_) => return Err(unsupported(&CUSTOM_RESOURCE_PATCHES)),
            },
        };
        let printed = || self.printed(&original(), type_ref);
        let refuse = |error: &str| match &merged {
            Some(merged) => merged.undecodable(error),
            None => undecodable(printed(), error),
        };
        let identity_now = match type_ref {
            TypeRef::Struct(_) => identity.clone(),
            TypeRef::Structural(_) => TypeMeta::of_patched(&patched).map_err(|reason| match reason {
                Unidentified::Undecodable(error) => refuse(&error),
                Unidentified::WithoutKind => refuse(&format!("Object 'Kind' is missing in '{}'", printed())),
                Unidentified::WithoutVersion => Error::Internal(
                    "Object 'apiVersion' is missing in 'object has no apiVersion field'".to_owned(),
                ),
            })?,
        };
        let (mut object, complaints) =
            self.decode(patched, type_ref, &identity).map_err(|error| refuse(&error))?;
        unchanged.restore(&mut object);
        identity_now.restore(&mut object);
        let mut complaints = self.strict.iter().cloned().chain(complaints).peekable();
        match validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => warnings.extend(complaints),
            FieldValidation::Strict if complaints.peek().is_none() => {}
            FieldValidation::Strict => {
                let complaints: Vec<String> = complaints.collect();
                return Err(refuse(&format!("strict decoding error: {}", complaints.join(", "))));
            }
        }
        Ok(object)
    }

    /// Returns the error if the object that the patch makes of `original` cannot be converted to
    /// kube-apiserver's internal version.
    pub fn conversion_error(&self, original: &Value, type_ref: &TypeRef, error: &str) -> Error {
        match self.patch_type {
            PatchType::Strategic => Error::Unclassified(error.to_owned()),
            PatchType::Json | PatchType::Merge => undecodable(self.printed(original, type_ref), error),
        }
    }

    /// Formats the patched object as errors print it.
    fn printed(&self, original: &Value, type_ref: &TypeRef) -> String {
        let mut text = Vec::new();
        codec::write(original, type_ref, &mut text);
        let text = String::from_utf8_lossy(&text);
        let printed = match self.patch_type {
            PatchType::Json => printed::json_patched(&text, &self.text),
            PatchType::Merge | PatchType::Strategic => printed::merge_patched(&text, &self.text),
        };
        printed.unwrap_or_else(|| text.into_owned())
    }

    /// Returns `true` if a merge certainly leaves a member of the object as it is.
    fn leaves(&self, path: &[&str]) -> bool {
        // The operations of a JSON patch may refer to any member.
        let document = self.document.as_object().filter(|_| self.patch_type != PatchType::Json);
        let Some(mut members) = document else { return false };
        // An object that may be of another type is decoded as a whole.
        if members.contains_key("kind") || members.contains_key("apiVersion") {
            return false;
        }
        for name in path {
            // Directives are for all members beside them.
            if members.keys().any(|member| member.starts_with('$')) {
                return false;
            }
            match members.get(*name) {
                None => return true,
                Some(Value::Object(inner)) => members = inner,
                Some(_) => return false,
            }
        }
        false
    }

    /// Decodes the patched object by its type, with the field validation errors.
    fn decode(
        &self,
        mut object: Value,
        type_ref: &TypeRef,
        was: &TypeMeta,
    ) -> Result<(Value, Vec<String>), String> {
        let decoded = match type_ref {
            TypeRef::Struct(id) => codec::normalize(&object, *id),
            TypeRef::Structural(schema) => {
                let mut untyped = Decoded { value: std::mem::take(&mut object), strict: Vec::new() };
                codec::whole_numbers(&mut untyped.value);
                structural::conform(untyped, schema)
            }
        };
        // Kind and version in a strategic merge patch are ignored. A custom resource of another type
        // is read, and found to be invalid.
        let unreadable = matches!(decoded, Err(DecodeError::Unreadable(_)));
        if self.patch_type != PatchType::Strategic && !unreadable && type_ref.built_in().is_some() {
            match was.check(&object)? {
                IdentityCheck::Unchanged => {}
                IdentityCheck::Versionless => return Ok(identity::unknown_members_of(&object)),
            }
        }
        decoded.map(|decoded| (decoded.value, decoded.strict)).map_err(|error| error.to_string())
    }
}

/// Adds the members that Go prints as null to an object: a JSON patch can remove and test them.
fn with_printed_nulls(mut object: Value, type_ref: &TypeRef) -> Value {
    if let Some(id) = type_ref.built_in() {
        zero::add_nulls(&mut object, &Type::Struct(id));
    }
    object
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
                patch.apply(&|| object.clone(), &config_map.into(), validation, &warnings)
            };
            let strict = apply(FieldValidation::Strict).expect_err("there are complaints").to_string();
            assert!(strict.ends_with(&format!(": strict decoding error: {}", want.join(", "))), "{strict}");
            apply(FieldValidation::Ignore).expect(body);
            apply(FieldValidation::Warn).expect(body);
            assert_eq!(warnings.into_texts(), want);
        }
    }

    /// Members that a merge leaves are not decoded again; the result is that of decoding all.
    #[test]
    fn members_that_a_merge_names_are_decoded() {
        let pod = schema().kind("", "v1", "Pod").expect("a kind of the table");
        let object = json!({
            "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "labels": {"b": "c"}},
            "spec": {"containers": [{"name": "a", "image": "b"}]}, "status": {"phase": "Running"},
        });
        let decoded = codec::normalize(&object, pod).expect("a Pod").value;
        let object = || decoded.clone();
        for (body, left) in [
            (r#"{"metadata":{"labels":{"x":"y"}}}"#, vec!["metadata.name", "spec", "status"]),
            (r#"{"metadata":null}"#, vec!["spec", "status"]),
            (r#"{"spec":{"nodeName":"n"}}"#, vec!["metadata.name", "metadata.labels", "status"]),
            (r#"{"spec":null}"#, vec!["metadata.name", "metadata.labels", "status"]),
            (r#"{"kind":"Pod","spec":{}}"#, vec![]),
            (r#"{"$patch":"replace","spec":{}}"#, vec![]),
            (r#"{"metadata":{"$retainKeys":["name"],"name":"a"}}"#, vec!["spec", "status"]),
            ("{}", vec!["metadata.name", "metadata.labels", "spec", "status"]),
            ("null", vec![]),
        ] {
            let patch = Patch::parse(PatchType::Strategic, body.as_bytes()).expect(body);
            let paths = ["metadata.name", "metadata.labels", "spec", "status"];
            let leaves = |path: &&str| patch.leaves(&path.split('.').collect::<Vec<_>>());
            assert_eq!(paths.into_iter().filter(leaves).collect::<Vec<_>>(), left, "{body}");
            let applied = patch.apply(&object, &pod.into(), FieldValidation::Strict, &Warnings::default());
            let merged = strategic::apply(object(), patch.document.clone(), pod).expect(body).object;
            let mut whole = codec::normalize(&merged, pod).expect("a Pod").value;
            TypeMeta::of(&object()).restore(&mut whole);
            assert_eq!(applied.expect(body), whole, "{body}");
        }
        let patch = Patch::parse(PatchType::Json, b"[]").expect("a patch");
        assert!(!patch.leaves(&["spec"]));
    }

    #[test]
    fn a_fraction_makes_no_integer_but_in_a_strategic_merge_patch() {
        let deployment = schema().kind("apps", "v1", "Deployment").expect("a kind of the table");
        let object = || {
            json!({
                "kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "a"}, "spec": {"replicas": 1},
            })
        };
        const MERGE: &str = r#"{"spec":{"replicas":3.0}}"#;
        let refusal = Some(
            "cannot unmarshal number 3.0 into Go struct field DeploymentSpec.spec.replicas of type int32",
        );
        for (patch_type, body, refusal) in [
            (PatchType::Strategic, MERGE, None),
            (PatchType::Merge, MERGE, refusal),
            (PatchType::Json, r#"[{"op":"replace","path":"/spec/replicas","value":3.0}]"#, refusal),
        ] {
            let patch = Patch::parse(patch_type, body.as_bytes()).expect(body);
            let got = patch.apply(&object, &deployment.into(), FieldValidation::Strict, &Warnings::default());
            match (got, refusal) {
                (Ok(object), None) => assert_eq!(object["spec"]["replicas"], 3),
                (Err(error), Some(refusal)) => assert!(error.to_string().ends_with(refusal), "{error}"),
                (got, _) => panic!("{patch_type:?}: {got:?}"),
            }
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
            let got = patch.apply(
                &|| object.clone(),
                &config_map.into(),
                FieldValidation::Warn,
                &Warnings::default(),
            );
            assert_eq!(got.expect(body), want, "{body}");
        }
        let patch = Patch::parse(PatchType::Merge, br#"{"kind":"Nope"}"#).expect("a patch");
        let error = patch
            .apply(&|| object.clone(), &config_map.into(), FieldValidation::Warn, &Warnings::default())
            .expect_err("no such kind");
        assert_eq!(error.code(), 422);
    }
}
