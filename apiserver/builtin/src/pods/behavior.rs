//! The behavior of a simulated pod, with what it inherits from its owners and its namespace.

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::object_meta::ObjectMeta as _;
use coracle_behavior::inheritance::{Overrides, inherited, owners};
use coracle_behavior::{PodBehavior, Profile};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

/// Returns a pod and its behavior.
///
/// - `profile`: the behavior of pods without a specific one
///
/// # Errors
/// Its namespace cannot be read.
pub fn behavior_of(cluster: &dyn Cluster, pod: &Value, profile: Profile) -> Result<(Pod, PodBehavior)> {
    let overrides = inherited_overrides(cluster, pod)?;
    // The storage has no pod of another form.
    let pod = Pod::deserialize(pod).unwrap_or_default();
    let (behavior, _) = PodBehavior::of(&pod, &overrides, profile);
    Ok((pod, behavior))
}

/// Returns the overrides that a pod inherits from its owners and its namespace.
///
/// # Errors
/// Its namespace cannot be read.
pub fn inherited_overrides(cluster: &dyn Cluster, pod: &Value) -> Result<Vec<Overrides>> {
    let meta = |group: &str, resource: &str, namespace: &str, name: &str| -> Result<Option<ObjectMeta>> {
        let object = cluster.get(&GroupResource::new(group, resource), namespace, name)?;
        // The storage has no metadata of another form.
        Ok(object.and_then(|mut object| serde_json::from_value(object["metadata"].take()).ok()))
    };
    let namespace = meta("", "namespaces", "", pod.namespace())?;
    let pod_meta: ObjectMeta = serde_json::from_value(pod["metadata"].clone()).unwrap_or_default();
    let owners = owners(&pod_meta, |kind, name| {
        let (group, resource) = kind.resource();
        meta(group, resource, pod.namespace(), name).ok().flatten()
    });
    Ok(inherited(&owners, namespace.as_ref()))
}
