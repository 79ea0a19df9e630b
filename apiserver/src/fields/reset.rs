//! The fields that an endpoint does not write: whatever the body contains, nobody gets ownership of them through it.
//!
//! Source: `GetResetFields` of each kind's storage in kube-apiserver. A Pod's `ephemeralcontainers` and `resize` have
//! none: there a client gets the ownership of fields that are ignored.

use super::walk::Comparison;
use crate::names::GroupKind;

type Path = &'static [&'static str];

const SPEC: Path = &["f:spec"];
const STATUS: Path = &["f:status"];
const METADATA: Path = &["f:metadata"];

/// Reduces a comparison to the fields that the endpoint writes.
pub fn reset(kind: &GroupKind, subresource: &str, has_status: bool, comparison: &mut Comparison) {
    for path in not_written(&kind.kind, subresource, has_status) {
        comparison.each(|set| set.prune(path));
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
