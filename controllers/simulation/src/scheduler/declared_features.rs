//! Features that a pod needs, and that its node has to declare in its status.
//!
//! Source: kube-scheduler's plugin NodeDeclaredFeatures, and
//! `k8s.io/component-helpers/nodedeclaredfeatures`.

use coracle_kinds::pods::may_restart_all;
use k8s_openapi::api::core::v1::{Node, PodSpec};

use super::candidate::{Candidate, Rejection};

/// The name of a feature, and whether a pod needs it.
type Feature = (&'static str, fn(&PodSpec) -> bool);

/// The features that Kubernetes 1.36 knows, as far as a pod can need them to be scheduled.
const FEATURES: [Feature; 2] = [
    ("RestartAllContainersOnContainerExits", may_restart_all),
    ("UserNamespacesHostNetworkSupport", uses_host_network_in_user_namespace),
];

/// Rejects a node that does not declare a feature that the pod needs.
pub fn undeclared_feature(candidate: &Candidate, node: &Node) -> Option<Rejection> {
    let declared = node.status.as_ref().and_then(|status| status.declared_features.as_deref());
    let declared = declared.unwrap_or_default();
    let is_missing =
        |(name, needs): &Feature| needs(candidate.spec) && !declared.iter().any(|feature| feature == name);
    match FEATURES.iter().any(is_missing) {
        true => Rejection::unresolvable("node(s) didn't match Pod's required features"),
        false => None,
    }
}

fn uses_host_network_in_user_namespace(spec: &PodSpec) -> bool {
    spec.host_network == Some(true) && spec.host_users == Some(false)
}
