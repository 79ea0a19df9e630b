//! Features that a pod needs, and that its node has to declare in its status.
//!
//! Source: kube-scheduler's plugin NodeDeclaredFeatures, and
//! `k8s.io/component-helpers/nodedeclaredfeatures`.

use k8s_openapi::api::core::v1::{Node, PodSpec};

use super::candidate::{Candidate, Rejection};

/// The name of a feature, and whether a pod needs it.
type Feature = (&'static str, fn(&PodSpec) -> bool);

/// The features that Kubernetes 1.36 knows, as far as a pod can need them to be scheduled.
const FEATURES: [Feature; 2] = [
    ("RestartAllContainersOnContainerExits", restarts_all_containers),
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

fn restarts_all_containers(spec: &PodSpec) -> bool {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut rules = containers.flat_map(|container| container.restart_policy_rules.iter().flatten());
    rules.any(|rule| rule.action == "RestartAllContainers")
}

fn uses_host_network_in_user_namespace(spec: &PodSpec) -> bool {
    spec.host_network == Some(true) && spec.host_users == Some(false)
}
