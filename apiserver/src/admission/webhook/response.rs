//! The AdmissionReview that a webhook responds with.
//!
//! Source: `VerifyAdmissionResponse` of `plugin/webhook/request`, `ToStatusErr` of `plugin/webhook/errors`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::configuration::ReviewVersion;
use crate::Error;
use crate::error::Status;
use crate::field::quote;

/// What a webhook decided.
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

/// Reads and checks a response.
///
/// # Errors
/// What is wrong with it: before it is understood, or afterwards.
pub fn read(bytes: &[u8], version: ReviewVersion, uid: &str, mutating: bool) -> Result<Response, Mistake> {
    let review: Value =
        serde_json::from_slice(bytes).map_err(|error| Mistake::Undecodable(error.to_string()))?;
    if !review.is_object() {
        return Err(Mistake::Undecodable("json: cannot unmarshal into an AdmissionReview".to_owned()));
    }
    check_type(&review)?;
    let invalid = |text: String| Err(Mistake::Invalid(text));
    let response = &review["response"];
    if !response.is_object() {
        return invalid("webhook response was absent".to_owned());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if version == ReviewVersion::V1 {
        let got = text(&response["uid"]);
        if got != uid {
            return invalid(format!("expected response.uid={}, got {}", quote(uid), quote(&got)));
        }
        let (group_version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
        if (group_version.as_str(), kind.as_str()) != (version.api_version(), "AdmissionReview") {
            return invalid(format!(
                "expected webhook response of {}, got {}",
                printed(version.api_version(), "AdmissionReview"),
                printed(&group_version, &kind)
            ));
        }
    }
    let patch = STANDARD
        .decode(response["patch"].as_str().unwrap_or_default())
        .map_err(|error| Mistake::Undecodable(format!("illegal base64 data: {error}")))?;
    let patch_type = response.get("patchType").and_then(Value::as_str);
    match (version, mutating) {
        (ReviewVersion::V1, true) => match (patch.is_empty(), patch_type) {
            (false, None) => {
                return invalid("webhook returned response.patch but not response.patchType".into());
            }
            (true, Some(_)) => {
                return invalid("webhook returned response.patchType but not response.patch".into());
            }
            (false, Some("")) => {
                return invalid("webhook returned invalid response.patchType of \"\"".into());
            }
            _ => {}
        },
        (ReviewVersion::V1, false) if !patch.is_empty() => {
            return invalid("validating webhook may not return response.patch".into());
        }
        (ReviewVersion::V1, false) if patch_type.is_some() => {
            return invalid("validating webhook may not return response.patchType".into());
        }
        _ => {}
    }
    if let Some(other) = patch_type.filter(|name| !patch.is_empty() && !matches!(*name, "JSONPatch" | "")) {
        return Err(Mistake::PatchType(other.to_owned()));
    }
    let annotations = response["auditAnnotations"].as_object().into_iter().flatten();
    let warnings = response["warnings"].as_array().into_iter().flatten();
    Ok(Response {
        allowed: response["allowed"] == true,
        status: response["status"].clone(),
        warnings: warnings.filter_map(Value::as_str).map(str::to_owned).collect(),
        audit_annotations: annotations.map(|(key, value)| (key.clone(), text(value))).collect(),
        patch: if mutating { patch } else { Vec::new() },
    })
}

/// The types of the members; another type is no AdmissionReview.
fn check_type(review: &Value) -> Result<(), Mistake> {
    let response = &review["response"];
    let is = |value: &Value, fits: fn(&Value) -> bool| value.is_null() || fits(value);
    let fits = is(response, Value::is_object)
        && is(&response["allowed"], Value::is_boolean)
        && ["uid", "patch", "patchType"].iter().all(|name| is(&response[*name], Value::is_string))
        && is(&response["status"], Value::is_object)
        && is(&response["status"]["message"], Value::is_string)
        && is(&response["status"]["code"], Value::is_i64)
        && is(&response["warnings"], Value::is_array)
        && is(&response["auditAnnotations"], Value::is_object);
    if fits {
        Ok(())
    } else {
        Err(Mistake::Undecodable("json: cannot unmarshal into an AdmissionReview".to_owned()))
    }
}

/// What is wrong with a response.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Mistake {
    /// It is no AdmissionReview.
    #[error("failed to call webhook: {0}")]
    Undecodable(String),
    /// It is not the one that was expected.
    #[error("received invalid webhook response: {0}")]
    Invalid(String),
    /// Its patch is none that the server knows.
    #[error("unsupported patch type {}", quote(.0))]
    PatchType(String),
}

/// As Go prints a group, version and kind.
fn printed(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={kind}")
}

/// The error of a request that a webhook denied.
pub fn denial(webhook: &str, status: &Value) -> Error {
    let text = |name: &str| status[name].as_str().unwrap_or_default();
    let denied = format!("admission webhook {} denied the request", quote(webhook));
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
    Error::Status(Box::new(Status {
        // A denial is no success, whatever the webhook says.
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
            assert_eq!(got.err().map(|mistake| mistake.to_string()).unwrap_or_default(), want, "{case}");
        }
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
