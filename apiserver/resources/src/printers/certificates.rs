//! Certificate signing requests.

use coracle_apimachinery::render::age;
use coracle_apimachinery::render::columns::Text::{Field as Described, Literal};
use coracle_apimachinery::render::columns::{AGE, Column, NAME, Row, string};
use serde_json::Value;

/// The columns of CertificateSigningRequest.
pub const CERTIFICATE_SIGNING_REQUEST: &[Column] = &[
    NAME,
    AGE,
    string("SignerName", Literal(SIGNER_NAME), |row| row.text_or("spec.signerName", "<none>")),
    string("Requestor", Literal("Base64-encoded PKCS#10 CSR data"), |row| row.text("spec.username")),
    string(
        "RequestedDuration",
        Described("certificates.v1.CertificateSigningRequestSpec.expirationSeconds"),
        |row| {
            let seconds = row.get("spec.expirationSeconds").int();
            seconds.map_or_else(|| "<none>".into(), age::human_duration).into()
        },
    ),
    string("Condition", Literal("Conditions applied to the request, such as approval or denial."), condition),
];

const SIGNER_NAME: &str = "Requested signer for the request. It is a qualified name in the form: `scope-hostname.io/name`. If empty, it will be defaulted:\n 1. If it's a kubelet client certificate, it is assigned\n    \"kubernetes.io/kube-apiserver-client-kubelet\".\n 2. If it's a kubelet serving certificate, it is assigned\n    \"kubernetes.io/kubelet-serving\".\n 3. Otherwise, it is assigned \"kubernetes.io/legacy-unknown\".\nDistribution of trust for signers happens out of band. You can select on this field using `spec.signerName`.";

fn condition(row: &Row<'_>) -> Value {
    let conditions = row.get("status.conditions");
    let has = |wanted: &str| conditions.items().any(|c| c.get("type").str() == wanted);
    let mut state = String::from(match () {
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    });
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !row.get("status.certificate").is_empty() {
        state.push_str(",Issued");
    }
    state.into()
}
