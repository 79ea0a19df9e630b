//! The desired number of pods of all owners together.
//!
//! A Deployment counts for the pods of its ReplicaSets. For owners of any other kind the `scale`
//! subresource is read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use coracle_controller_runtime::ignore_not_found;
use coracle_object_meta::controller_of;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::{Api, discovery};

use super::DisruptionController;
use super::plan::CountError;
use crate::workload::owners::referred_owner;

pub(super) struct Scale {
    pub wanted: i32,
    /// Whether there are pods without a controller.
    pub unmanaged: bool,
}

impl DisruptionController {
    pub(super) async fn scale(&self, pods: &[Arc<Pod>]) -> Result<Scale, CountError> {
        let mut unmanaged = false;
        // Keyed by the owner of the pods, so that each is read once, and by the object with the
        // scale, so that each counts once.
        let (mut owners, mut scales) = (HashSet::new(), HashMap::new());
        for pod in pods {
            let Some(owner) = controller_of(&pod.metadata) else {
                unmanaged = true;
                continue;
            };
            if !owners.insert(&owner.uid) {
                continue;
            }
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let (uid, wanted) = self.find(owner, namespace).await?.ok_or_else(|| {
                format!("found no controllers for pod {:?}", pod.metadata.name.as_deref().unwrap_or_default())
            })?;
            scales.insert(uid, wanted);
        }
        let wanted = scales.into_values().fold(0i32, i32::saturating_add);
        Ok(Scale { wanted, unmanaged })
    }

    /// Returns the uid of the object that determines the scale of an owner, and its number of
    /// replicas.
    async fn find(
        &self,
        owner: &OwnerReference,
        namespace: &str,
    ) -> Result<Option<(String, i32)>, CountError> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let known = match (group, owner.kind.as_str()) {
            ("", "ReplicationController") => {
                let found = referred_owner(owner, namespace, &self.replication_controllers);
                found.map(|c| c.spec.as_ref().and_then(|spec| spec.replicas))
            }
            ("apps", "StatefulSet") => {
                let found = referred_owner(owner, namespace, &self.stateful_sets);
                found.map(|set| set.spec.as_ref().and_then(|spec| spec.replicas))
            }
            ("apps" | "extensions", "ReplicaSet") => {
                let Some(set) = referred_owner(owner, namespace, &self.replica_sets) else {
                    return self.ask(owner, namespace).await;
                };
                let above = controller_of(&set.metadata).filter(|above| above.kind == "Deployment");
                if let Some(above) = above
                    && let Some(deployment) = referred_owner(above, namespace, &self.deployments)
                {
                    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
                    return Ok(Some((above.uid.clone(), wanted.unwrap_or(1))));
                }
                Some(set.spec.as_ref().and_then(|spec| spec.replicas))
            }
            _ => None,
        };
        match known {
            Some(wanted) => Ok(Some((owner.uid.clone(), wanted.unwrap_or(1)))),
            None => self.ask(owner, namespace).await,
        }
    }

    /// Reads the scale subresource of an owner. Returns `None` if the owner does not exist, or if
    /// another object has its name now.
    async fn ask(
        &self,
        owner: &OwnerReference,
        namespace: &str,
    ) -> Result<Option<(String, i32)>, CountError> {
        let kind = GroupVersionKind::try_from(owner_type(owner)).map_err(|error| error.to_string())?;
        let (resource, capabilities) =
            discovery::pinned_kind(&self.reader, &kind).await.map_err(|error| match error {
                kube::Error::Discovery(_) => no_match(owner),
                kube::Error::Api(status) if status.code == 404 => no_match(owner),
                error => message(error),
            })?;
        let scales = Api::<DynamicObject>::namespaced_with(self.reader.clone(), namespace, &resource);
        let Some(scale) = ignore_not_found(scales.get_scale(&owner.name).await).map_err(message)? else {
            if capabilities.subresources.iter().any(|(of, _)| of.plural == "scale" && of.kind == "Scale") {
                return Ok(None);
            }
            let name = match resource.group.is_empty() {
                true => resource.plural,
                false => format!("{}.{}", resource.plural, resource.group),
            };
            return Err(format!("{name} does not implement the scale subresource"));
        };
        let wanted = scale.spec.and_then(|spec| spec.replicas).unwrap_or(0);
        Ok(scale.metadata.uid.filter(|uid| *uid == owner.uid).map(|uid| (uid, wanted)))
    }
}

fn owner_type(owner: &OwnerReference) -> kube::core::TypeMeta {
    kube::core::TypeMeta { api_version: owner.api_version.clone(), kind: owner.kind.clone() }
}

fn no_match(owner: &OwnerReference) -> CountError {
    format!("no matches for kind {:?} in version {:?}", owner.kind, owner.api_version)
}

/// Returns the server's message, or that of the error if there was no response.
fn message(error: kube::Error) -> CountError {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}
