//! The fields that an endpoint does not write: whatever a body says of them, they are nobody's through it.
//!
//! Source: what each kind's storage in kube-apiserver says that it resets. Those of a Pod's `ephemeralcontainers` and `resize`
//! say nothing: there, a client comes to own what it sent in vain.

use super::walk::Delta;
use crate::names::GroupKind;

type Path = &'static [&'static str];

const SPEC: Path = &["f:spec"];
const STATUS: Path = &["f:status"];
const METADATA: Path = &["f:metadata"];

/// Leaves in a change only what the endpoint writes.
pub fn reset(kind: &GroupKind, subresource: &str, has_status: bool, delta: &mut Delta) {
    for path in not_written(&kind.kind, subresource, has_status) {
        delta.each(|set| set.prune(path));
    }
}

fn not_written(kind: &str, subresource: &str, has_status: bool) -> &'static [Path] {
    match (kind, subresource) {
        ("CertificateSigningRequest", "") => &[SPEC, STATUS],
        ("CertificateSigningRequest", "status") => &[SPEC, &["f:status", "f:conditions"]],
        ("CertificateSigningRequest", "approval") => &[SPEC, &["f:status", "f:certificate"]],
        ("Pod", "status") => {
            &[SPEC, &["f:metadata", "f:deletionTimestamp"], &["f:metadata", "f:ownerReferences"]]
        }
        ("Deployment", "status") => &[SPEC, &["f:metadata", "f:labels"]],
        (
            "APIService"
            | "DeviceTaintRule"
            | "FlowSchema"
            | "PriorityLevelConfiguration"
            | "ResourceClaim"
            | "ServiceCIDR"
            | "ValidatingAdmissionPolicy"
            | "VolumeAttachment",
            "status",
        ) => &[METADATA, SPEC],
        (_, "status") => &[SPEC],
        (_, "" | "finalize") if has_status => &[STATUS],
        _ => &[],
    }
}
