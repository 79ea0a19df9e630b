//! The decision whether a request is signed, and for how long the certificate is valid. Pure.

use std::time::Duration;

use coracle_kinds::certificate_request::{
    KUBE_APISERVER_CLIENT, KUBE_APISERVER_CLIENT_KUBELET, KUBELET_SERVING, LEGACY_UNKNOWN, condition,
    is_issued, validate_kubelet_client, validate_kubelet_serving,
};
use coracle_pki::CertificateRequest;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::settings::CertificateTemplate;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
/// kube-controller-manager's `--cluster-signing-duration`.
const MAX_SECONDS: u64 = 365 * 24 * HOUR;
const MIN_SECONDS: u64 = 10 * MINUTE;
/// The time by which certificates are backdated, since clocks differ. From [`SHORT`] on, their end
/// is earlier by the same time.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
const SHORT: u64 = 8 * HOUR;

pub enum Plan<'a> {
    /// The request breaks a rule of its signer.
    Fail(CertificateSigningRequestCondition),
    Sign(CertificateTemplate<'a>),
}

/// Returns `true` if a request waits for one of the signers.
pub fn is_to_be_signed(request: &CertificateSigningRequest) -> bool {
    let is_ours = matches!(
        request.spec.signer_name.as_str(),
        KUBE_APISERVER_CLIENT | KUBE_APISERVER_CLIENT_KUBELET | KUBELET_SERVING | LEGACY_UNKNOWN
    );
    is_ours
        && !is_issued(request)
        && condition(request, "Approved").is_some()
        && condition(request, "Denied").is_none()
        && condition(request, "Failed").is_none()
}

/// Plans what is done about a request.
///
/// - `machine_now`: the machine's time, by which certificates are valid in TLS, and which a clock
///   that was advanced is ahead of
///
/// # Errors
/// The request cannot be parsed.
pub fn plan(
    request: &CertificateSigningRequest,
    now: Timestamp,
    machine_now: Timestamp,
) -> Result<Plan<'_>, coracle_pki::Error> {
    let begins = now.min(machine_now);
    let spec = &request.spec;
    let parsed = CertificateRequest::parse(&spec.request.0)?;
    if let Err(message) = validate(spec, &parsed) {
        return Ok(Plan::Fail(CertificateSigningRequestCondition {
            type_: "Failed".to_owned(),
            status: "True".to_owned(),
            reason: Some("SignerValidationFailure".to_owned()),
            message: Some(message),
            last_update_time: Some(Time(now)),
            ..CertificateSigningRequestCondition::default()
        }));
    }
    let asked = spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let seconds = asked.unwrap_or(MAX_SECONDS).clamp(MIN_SECONDS, MAX_SECONDS);
    let duration = SignedDuration::try_from(Duration::from_secs(seconds)).unwrap_or(SignedDuration::ZERO);
    let duration = if seconds < SHORT { duration } else { duration - BACKDATE };
    Ok(Plan::Sign(CertificateTemplate {
        request: parsed,
        usages: spec.usages.as_deref().unwrap_or_default(),
        not_before: begins.saturating_sub(BACKDATE).unwrap_or(begins),
        not_after: now.saturating_add(duration).unwrap_or(now),
    }))
}

/// Validates a request by the rules of its signer.
fn validate(spec: &CertificateSigningRequestSpec, parsed: &CertificateRequest) -> Result<(), String> {
    let usages = spec.usages.as_deref().unwrap_or_default();
    match spec.signer_name.as_str() {
        KUBELET_SERVING => validate_kubelet_serving(parsed, usages),
        KUBE_APISERVER_CLIENT_KUBELET => validate_kubelet_client(parsed, usages),
        KUBE_APISERVER_CLIENT => validate_client_usages(usages),
        _ => Ok(()),
    }
}

fn validate_client_usages(usages: &[String]) -> Result<(), String> {
    const CLIENT_AUTH: &str = "client auth";
    let is_valid =
        |usage: &&String| matches!(usage.as_str(), "digital signature" | "key encipherment" | CLIENT_AUTH);
    if let Some(usage) = usages.iter().find(|usage| !is_valid(usage)) {
        return Err(format!("invalid usage for client certificate: {usage}"));
    }
    match usages.iter().any(|usage| usage == CLIENT_AUTH) {
        true => Ok(()),
        false => Err(format!("missing required usage for client certificate: {CLIENT_AUTH}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A request of the user `jane`, as the API has it: in PEM, in base64.
    const REQUEST: &str = "\
        LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlISk1IRUNBUUF3RHpFTk1Bc0dBMVVFQXd3RWFtRnVaVEJaTUJN\
        R0J5cUdTTTQ5QWdFR0NDcUdTTTQ5QXdFSApBMElBQkR3K2tPdTRhVlF5TmhJZ2U5NjlnRFMvY3B2dWl6SnE2b0R1cTg3TzB4ellm\
        eXBmcjFENGMzZEg1UC81CnJnMzlHTHpWU013dGZXNWx2bEpHZzJLMzF4YWdBREFLQmdncWhrak9QUVFEQWdOSUFEQkZBaUJxUDlE\
        WjhNUy8KelowVUE0c1ZtRGE5bk9DL2J3TXp0dG9NQSsxVmtlMFpkUUloQVBZN2dncW1sc3ZCemdyck5ZaXp1SjJNVlVjNApFY29v\
        KzlvQ25jbjJVaVFyCi0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";

    fn request(
        signer: &str,
        conditions: &[&str],
        usages: &[&str],
        seconds: Option<i32>,
    ) -> CertificateSigningRequest {
        let conditions: Vec<_> =
            conditions.iter().map(|r#type| json!({"type": r#type, "status": "True"})).collect();
        serde_json::from_value(json!({
            "metadata": {"name": "c"},
            "spec": {"signerName": signer, "request": REQUEST, "usages": usages, "expirationSeconds": seconds},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn approved_requests_of_known_signers_are_signed() {
        for (signer, conditions, want) in [
            (KUBE_APISERVER_CLIENT, vec!["Approved"], true),
            (LEGACY_UNKNOWN, vec!["Approved"], true),
            ("example.com/mine", vec!["Approved"], false),
            (KUBE_APISERVER_CLIENT, vec![], false),
            (KUBE_APISERVER_CLIENT, vec!["Approved", "Denied"], false),
            (KUBE_APISERVER_CLIENT, vec!["Approved", "Failed"], false),
        ] {
            assert_eq!(
                is_to_be_signed(&request(signer, &conditions, &[], None)),
                want,
                "{signer} {conditions:?}"
            );
        }
    }

    #[test]
    fn signers_have_rules() {
        for (signer, usages, want) in [
            (KUBE_APISERVER_CLIENT, vec!["client auth"], ""),
            (
                KUBE_APISERVER_CLIENT,
                vec!["client auth", "server auth"],
                "invalid usage for client certificate: server auth",
            ),
            (
                KUBE_APISERVER_CLIENT,
                vec!["digital signature"],
                "missing required usage for client certificate: client auth",
            ),
            (LEGACY_UNKNOWN, vec!["server auth"], ""),
            (KUBELET_SERVING, vec![], "subject organization is not system:nodes"),
        ] {
            let request = request(signer, &["Approved"], &usages, None);
            let message = match plan(&request, Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH).unwrap() {
                Plan::Fail(condition) => condition.message.unwrap_or_default(),
                Plan::Sign(_) => String::new(),
            };
            assert_eq!(message, want, "{signer} {usages:?}");
        }
    }

    #[test]
    fn durations_have_bounds() {
        let now = Timestamp::from_second(1_000_000_000).unwrap();
        for (asked, want) in [
            (None, MAX_SECONDS - 300),
            (Some(600), 600),
            (Some(1), 600),
            (Some(8 * 3600 - 1), 8 * 3600 - 1),
            (Some(8 * 3600), 8 * 3600 - 300),
            (Some(i32::MAX), MAX_SECONDS - 300),
        ] {
            let request = request(LEGACY_UNKNOWN, &["Approved"], &[], asked);
            let Plan::Sign(template) = plan(&request, now, now).unwrap() else { panic!("it is refused") };
            let Plan::Sign(advanced) = plan(&request, now, Timestamp::UNIX_EPOCH).unwrap() else {
                panic!("it is refused")
            };
            assert_eq!(advanced.not_after, template.not_after);
            assert_eq!(advanced.not_before, Timestamp::UNIX_EPOCH - BACKDATE, "it is valid at once");
            assert_eq!(
                template.not_after.duration_since(now).as_secs(),
                i64::try_from(want).unwrap(),
                "{asked:?}"
            );
            assert_eq!(now.duration_since(template.not_before).as_secs(), 300);
        }
    }
}
