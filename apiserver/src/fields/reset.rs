//! The fields that an endpoint does not write: whatever a body says of them, they are nobody's through it.
//!
//! Source: what each kind's storage in kube-apiserver says that it resets.

use super::walk::Delta;
use crate::names::GroupKind;

type Path = &'static [&'static str];

const SPEC: Path = &["f:spec"];
const STATUS: Path = &["f:status"];
const METADATA: Path = &["f:metadata"];

/// Leaves in a change only what the endpoint writes.
pub fn reset(kind: &GroupKind, subresource: &str, has_status: bool, delta: &mut Delta) {
    if let Some(written) = written(subresource) {
        delta.each(|set| set.retain(written));
    }
    for path in not_written(&kind.kind, subresource, has_status) {
        delta.each(|set| set.prune(path));
    }
}

/// All that an endpoint writes, where it is less than what it does not write.
fn written(subresource: &str) -> Option<&'static [Path]> {
    match subresource {
        "ephemeralcontainers" => Some(&[&["f:spec", "f:ephemeralContainers"]]),
        "resize" => Some(&[
            &["f:spec", "f:containers", "*", "f:resources"],
            &["f:spec", "f:containers", "*", "f:resizePolicy"],
            &["f:spec", "f:initContainers", "*", "f:resources"],
            &["f:spec", "f:initContainers", "*", "f:resizePolicy"],
        ]),
        _ => None,
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
