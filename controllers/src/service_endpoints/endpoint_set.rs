//! Endpoints by what makes them the same.

use std::collections::BTreeMap;

use k8s_openapi::api::discovery::v1::Endpoint;

/// The addresses, the hostname, and the namespace and name of the pod: a pod that was created again
/// under its name and address has the same endpoint.
pub type Identity = (Vec<String>, Option<String>, Option<(Option<String>, Option<String>)>);

/// Endpoints by their identity.
pub type EndpointSet = BTreeMap<Identity, Endpoint>;

/// Returns the identity of an endpoint.
pub fn identity(endpoint: &Endpoint) -> Identity {
    let target = endpoint.target_ref.as_ref().map(|target| (target.namespace.clone(), target.name.clone()));
    (endpoint.addresses.clone(), endpoint.hostname.clone(), target)
}

/// Returns `true` if two endpoints of the same identity are equal. Hints are not compared, since
/// they are set afterwards.
pub fn is_same(a: &Endpoint, b: &Endpoint) -> bool {
    let uid = |endpoint: &Endpoint| endpoint.target_ref.as_ref().and_then(|target| target.uid.clone());
    a.node_name == b.node_name && a.zone == b.zone && a.conditions == b.conditions && uid(a) == uid(b)
}
