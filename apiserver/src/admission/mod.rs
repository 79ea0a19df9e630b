//! Admission: the chain of plugins between a decoded object and its validation.
//!
//! First each plugin may mutate the object (`admit`); after the object has been prepared, named and validated, each plugin may
//! reject it (`validate`). The order of the chain is kube-apiserver's, and so are the
//! plugins' names and texts; each is a small module here.
//!
//! Plugins read other objects through [`Cluster`](crate::cluster::Cluster) and know neither store nor HTTP. They run on every
//! write: each checks the resource first, and none lists anything for a resource that it does not handle. Most decide without
//! waiting ([`AdmissionPlugin`]); those that wait implement [`AsyncAdmissionPlugin`]. The chain runs without any lock.
//!
//! Start at [`AdmissionChain::new`].

mod attributes;
mod certificates;
mod chain;
mod default_ingress_class;
mod default_storage_class;
mod default_toleration_seconds;
mod escalation;
pub mod generic;
mod limit_ranger;
mod metrics;
mod namespace_lifecycle;
mod persistent_volume_claim_resize;
mod plugin;
mod pod;
mod pod_limit;
mod pod_resize_validator;
mod pod_security;
mod pod_topology_labels;
mod policy;
mod priority;
pub mod resource_quota;
mod runtime_class;
mod selection;
mod service_account;
mod storage_object_in_use_protection;
mod taint_nodes_by_condition;
#[cfg(test)]
pub(crate) mod testing;
pub mod webhook;

use serde_json::{Map, Value};

use crate::field::quote;
use crate::validation::content;

pub use attributes::{AdmissionAttributes, GroupVersionKind, Operation, OperationOptions};
pub use chain::AdmissionChain;
pub use metrics::AdmissionMetrics;
pub use plugin::{AdmissionPlugin, AsyncAdmissionPlugin};
pub use selection::{PluginError, PluginSelection};

/// A member that is an object, created if it is missing; None if it has another type.
fn object_at<'v>(value: &'v mut Value, name: &str) -> Option<&'v mut Value> {
    let member = value.as_object_mut()?.entry(name).or_insert_with(|| Map::new().into());
    member.is_object().then_some(member)
}

/// A member that is a list, created if it is missing; None if it has another type.
fn list_at<'v>(value: &'v mut Value, name: &str) -> Option<&'v mut Vec<Value>> {
    value.as_object_mut()?.entry(name).or_insert_with(|| Value::Array(Vec::new())).as_array_mut()
}

/// The elements of a list; none if there is no list.
fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// The string, or `""`.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// Why kube-apiserver's own client asks for no object of that name: nothing is sent.
fn refused_name(name: &str) -> Option<String> {
    let found = content::path_segment(name);
    match found.as_slice() {
        _ if name.is_empty() => Some("resource name may not be empty".to_owned()),
        [] => None,
        found => Some(format!("invalid resource name {}: [{}]", quote(name), found.join(" "))),
    }
}

/// The newest object that one of the annotations marks as the default; of equally old ones the first by name.
fn newest_default(objects: Vec<Value>, annotations: &[&str]) -> Option<Value> {
    let is_default =
        |object: &Value| annotations.iter().any(|a| text(&object["metadata"]["annotations"][a]) == "true");
    let age = |object: &Value, field: &str| text(&object["metadata"][field]).to_owned();
    objects.into_iter().filter(is_default).min_by(|a, b| {
        age(b, "creationTimestamp")
            .cmp(&age(a, "creationTimestamp"))
            .then_with(|| age(a, "name").cmp(&age(b, "name")))
    })
}
