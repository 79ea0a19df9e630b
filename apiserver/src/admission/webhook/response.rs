//! The AdmissionReview in a webhook's response.
//!
//! Source: `VerifyAdmissionResponse` of `plugin/webhook/request`, `ToStatusErr` of
//! `plugin/webhook/errors`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::configuration::ReviewVersion;
use crate::codec::limits::Limits;
use crate::error::Status;
use crate::field::quote;
use crate::schema::schema;
use crate::webhook::excerpt;
use crate::{Error, codec};

/// The decision of a webhook.
#[derive(Debug, PartialEq)]
pub struct Response {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// `status`, or null.
    pub status: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// Key and value, without the webhook's name.
    pub audit_annotations: Vec<(String, String)>,
    /// The JSON patch; empty for none.
    pub patch: Vec<u8>,
}

/// The number of warnings, and of audit annotations, of one response that count.
const MAX_TEXTS: usize = 1000;
/// The number of bytes of a warning that are considered; the client gets at most 4,096 characters
/// of all warnings.
const MAX_WARNING: usize = 16 << 10;
/// The bytes of all keys and values of audit annotations that count.
const MAX_ANNOTATIONS: usize = 1 << 20;
/// The largest size of the message and of the reason of a denial that are sent to the client, in
/// bytes.
const MAX_MESSAGE: usize = 256 << 10;
/// The bytes of a wrong value that an error repeats.
const MAX_REPEATED: usize = 1 << 10;

/// Reads and checks a response. The request's review, which many webhooks return, is skipped.
///
/// # Errors
/// The error in the response.
pub fn read(
    bytes: &[u8],
    version: ReviewVersion,
    uid: &str,
    mutating: bool,
) -> Result<Response, ResponseError> {
    let mut review = decode(bytes)?;
    let invalid = |text: String| Err(ResponseError::Invalid(text));
    let Some(Value::Object(mut response)) = review.get_mut("response").map(Value::take) else {
        return invalid("webhook response was absent".to_owned());
    };
    let mut take = |name: &str| response.remove(name).unwrap_or_default();
    if version == ReviewVersion::V1 {
        let got = text(take("uid"));
        if got != uid {
            return invalid(format!(
                "expected response.uid={}, got {}",
                quote(uid),
                quote(excerpt(&got, MAX_REPEATED))
            ));
        }
        let (group_version, kind) = (text(review["apiVersion"].take()), text(review["kind"].take()));
        if (group_version.as_str(), kind.as_str()) != (version.api_version(), "AdmissionReview") {
            return invalid(format!(
                "expected webhook response of {}, got {}",
                printed(version.api_version(), "AdmissionReview"),
                printed(excerpt(&group_version, MAX_REPEATED), excerpt(&kind, MAX_REPEATED))
            ));
        }
    }
    let patch = STANDARD
        .decode(text(take("patch")))
        .map_err(|error| ResponseError::Undecodable(format!("illegal base64 data: {error}")))?;
    let patch_type = match take("patchType") {
        Value::String(patch_type) => Some(patch_type),
        _ => None,
    };
    check_patch(version, mutating, patch.is_empty(), patch_type.as_deref())?;
    Ok(Response {
        allowed: take("allowed") == true,
        status: take("status"),
        warnings: warnings(take("warnings")),
        audit_annotations: audit_annotations(take("auditAnnotations")),
        patch: if mutating { patch } else { Vec::new() },
    })
}

/// Decodes an AdmissionReview of either version, without its `request`.
fn decode(bytes: &[u8]) -> Result<Value, ResponseError> {
    let undecodable = |text: String| ResponseError::Undecodable(text);
    let review = schema().kind("admission.k8s.io", "v1", "AdmissionReview");
    let review = review.ok_or_else(|| undecodable("AdmissionReview has no type".to_owned()))?;
    codec::json::decode_response(bytes, review, &["request"], Limits::RESPONSE)
        .map_err(|error| undecodable(error.to_string()))
}

fn check_patch(
    version: ReviewVersion,
    mutating: bool,
    is_empty: bool,
    patch_type: Option<&str>,
) -> Result<(), ResponseError> {
    let invalid = |text: &str| Err(ResponseError::Invalid(text.to_owned()));
    match (version, mutating) {
        (ReviewVersion::V1, true) => match (is_empty, patch_type) {
            (false, None) => {
                return invalid("webhook returned response.patch but not response.patchType");
            }
            (true, Some(_)) => {
                return invalid("webhook returned response.patchType but not response.patch");
            }
            (false, Some("")) => {
                return invalid("webhook returned invalid response.patchType of \"\"");
            }
            _ => {}
        },
        (ReviewVersion::V1, false) if !is_empty => {
            return invalid("validating webhook may not return response.patch");
        }
        (ReviewVersion::V1, false) if patch_type.is_some() => {
            return invalid("validating webhook may not return response.patchType");
        }
        _ => {}
    }
    match patch_type.filter(|name| !is_empty && !matches!(*name, "JSONPatch" | "")) {
        Some(other) => Err(ResponseError::PatchType(excerpt(other, MAX_REPEATED).to_owned())),
        None => Ok(()),
    }
}

fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        _ => String::new(),
    }
}

fn warnings(listed: Value) -> Vec<String> {
    let Value::Array(listed) = listed else { return Vec::new() };
    let warnings = listed.into_iter().take(MAX_TEXTS).map(text);
    warnings.map(|warning| excerpt(&warning, MAX_WARNING).to_owned()).collect()
}

fn audit_annotations(listed: Value) -> Vec<(String, String)> {
    let Value::Object(listed) = listed else { return Vec::new() };
    let mut left = MAX_ANNOTATIONS;
    let annotations = listed.into_iter().take(MAX_TEXTS).map(|(key, value)| (key, text(value)));
    let fitting = annotations.take_while(|(key, value)| {
        let fits = key.len() + value.len() <= left;
        left = left.saturating_sub(key.len() + value.len());
        fits
    });
    fitting.collect()
}

/// An error in a response.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ResponseError {
    /// The response is not an AdmissionReview.
    #[error("failed to call webhook: {0}")]
    Undecodable(String),
    /// The response does not match the request.
    #[error("received invalid webhook response: {0}")]
    Invalid(String),
    /// Its patch type is not supported.
    #[error("unsupported patch type {}", quote(.0))]
    PatchType(String),
}

/// Formats a group, version and kind as Go does.
fn printed(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={kind}")
}

/// Returns the error of a request that a webhook denied.
pub fn denial(webhook: &str, status: &Value) -> Error {
    let text = |name: &str| excerpt(status[name].as_str().unwrap_or_default(), MAX_MESSAGE);
    let denied = format!("admission webhook {} denied the request", quote(webhook));
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
    Error::Status(Box::new(Status {
        // A denial has an error code, even if the webhook sends another one.
        code: if (400..600).contains(&code) { code } else { 400 },
        reason: text("reason").to_owned().into(),
        message,
        details: status.get("details").filter(|details| details.is_object()).cloned(),
        continue_token: None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn responses_are_checked() {
        let review = |response: Value| json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        let patch = STANDARD.encode("[]");
        for (case, document, mutating, want) in [
            ("allowed", review(json!({"uid": "u", "allowed": true})), false, ""),
            (
                "absent",
                review(json!(null)),
                false,
                "received invalid webhook response: webhook response was absent",
            ),
            (
                "another uid",
                review(json!({"uid": "x", "allowed": true})),
                false,
                r#"received invalid webhook response: expected response.uid="u", got "x""#,
            ),
            (
                "no kind",
                json!({"response": {"uid": "u"}}),
                false,
                "received invalid webhook response: expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
            ),
            (
                "a patch of one that validates",
                review(json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch"})),
                false,
                "received invalid webhook response: validating webhook may not return response.patch",
            ),
            (
                "a patch without its type",
                review(json!({"uid": "u", "allowed": true, "patch": patch})),
                true,
                "received invalid webhook response: webhook returned response.patch but not response.patchType",
            ),
            (
                "another patch",
                review(json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "Other"})),
                true,
                r#"unsupported patch type "Other""#,
            ),
            ("a patch", review(json!({"uid": "u", "patch": patch, "patchType": "JSONPatch"})), true, ""),
        ] {
            let got = read(document.to_string().as_bytes(), ReviewVersion::V1, "u", mutating);
            assert_eq!(got.err().map(|error| error.to_string()).unwrap_or_default(), want, "{case}");
        }
    }

    #[test]
    fn responses_that_are_no_review_have_gos_texts() {
        let review = |response: &str| {
            format!(
                r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{response}}}"#
            )
        };
        for (document, want) in [
            (
                "I am no review".to_owned(),
                "couldn't get version/kind; json parse error: invalid character 'I' looking for beginning of value",
            ),
            (
                review(r#"{"uid":"u","allowed":"yes"}"#),
                "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool",
            ),
            (
                review(r#"{"uid":"u","status":{"code":"403"}}"#),
                "json: cannot unmarshal string into Go struct field Status.response.status.code of type int32",
            ),
            (review(r#"{"uid":"u","patch":"!"}"#), "illegal base64 data at input byte 0"),
        ] {
            let got = read(document.as_bytes(), ReviewVersion::V1, "u", true);
            assert_eq!(got, Err(ResponseError::Undecodable(want.to_owned())), "{document}");
        }
    }

    #[test]
    fn the_request_that_is_sent_back_does_not_count() {
        let objects = vec![r#"{"":0}"#; 2 * Limits::RESPONSE.collections].join(",");
        let review = format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"object":[{objects}]}},
                "unknown":[{objects}],"response":{{"uid":"u","allowed":true,"unknown":[{objects}]}}}}"#
        );
        let got = read(review.as_bytes(), ReviewVersion::V1, "u", true);
        assert_eq!(got.map(|response| response.allowed), Ok(true));
    }

    #[test]
    fn hostile_responses_are_bounded() {
        let review = |member: &str| {
            format!(
                r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{{"uid":"u",{member}}}}}"#
            )
        };
        let many = |one: &str| vec![one; 100_000].join(",");
        for member in [
            format!(r#""status":{{"details":{{"causes":[{}]}}}}"#, many(r#"{"field":"f"}"#)),
            format!(r#""warnings":[{}]"#, many(r#""w""#)),
        ] {
            let got = read(review(&member).as_bytes(), ReviewVersion::V1, "u", false);
            let error = got.expect_err("too many").to_string();
            assert!(error.contains("exceeded max number of"), "{error}");
        }
        let long = "é".repeat(1 << 20);
        let many: Vec<String> = (0..2000).map(|i| format!(r#""{i}":"{}""#, &long[..1000])).collect();
        let member = format!(r#""warnings":["{long}"],"auditAnnotations":{{{}}}"#, many.join(","));
        let got = read(review(&member).as_bytes(), ReviewVersion::V1, "u", false).expect("a response");
        assert_eq!(got.warnings.iter().map(String::len).sum::<usize>(), MAX_WARNING);
        let bytes: usize = got.audit_annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(bytes <= MAX_ANNOTATIONS && got.audit_annotations.len() == MAX_TEXTS, "{bytes}");
        let message = denial("w", &json!({"message": long})).status().message;
        assert!(message.len() < MAX_MESSAGE + 100, "{}", message.len());
    }

    #[test]
    fn denials_have_the_status_of_the_webhook() {
        for (status, code, reason, message) in [
            (json!(null), 400, "", r#"admission webhook "w" denied the request without explanation"#),
            (json!({"message": "no"}), 400, "", r#"admission webhook "w" denied the request: no"#),
            (
                json!({"reason": "Bad", "code": 200}),
                400,
                "Bad",
                r#"admission webhook "w" denied the request: Bad"#,
            ),
            (
                json!({"message": "no", "code": 403, "reason": "Forbidden"}),
                403,
                "Forbidden",
                r#"admission webhook "w" denied the request: no"#,
            ),
        ] {
            let got = denial("w", &status).status();
            assert_eq!((got.code, got.reason.as_ref(), got.message.as_str()), (code, reason, message));
        }
    }
}
