//! The loop that makes host-path volumes for the claims that the binder gave to this plugin.
//!
//! A claim is looked at when it changes, and judged as the binder judges it:
//! 1. one that is not this plugin's to provision (any more) is left alone;
//! 2. so is one whose volume `pvc-UID` is there: the binder goes on from it;
//! 3. what the plugin cannot do is told, and tried again;
//! 4. the directory is made, then the volume, which is meant for the claim from the start.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};

use super::super::claims::Look;
use super::super::claims::plan::{Plan, plan};
use super::super::{COMPONENT, NAME};
use super::HOST_PATH;
use super::host_path::HostPath;
use crate::runtime::cache::{Cache, NamespacedName};
use crate::runtime::events::Recorder;
use crate::runtime::{Context, Controller, Error, Next, Sources, Turn, unless};
use crate::volume::{
    BOUND_BY_CONTROLLER, Claim, DELETE, IN_TREE_PROTECTION, PROVISIONED_BY, SELECTED_NODE,
    STORAGE_PROVISIONER, annotate, annotation,
};

/// Says that the plugin made the directory.
const CREATED_BY: (&str, &str) = ("kubernetes.io/createdby", "hostpath-dynamic-provisioner");

pub struct Provision {
    client: Client,
    look: Look,
    volumes: Arc<Cache<PersistentVolume>>,
    nodes: Arc<Cache<Node>>,
    plugin: HostPath,
    recorder: Recorder,
}

impl Controller for Provision {
    const NAME: &'static str = NAME;
    const QUEUE: &'static str = "host_path_provision";
    type Key = NamespacedName;

    fn new(context: &Context) -> Provision {
        Provision {
            client: context.client.clone(),
            look: Look::new(context),
            volumes: context.cache(),
            nodes: context.cache(),
            plugin: HostPath::new(context.settings.host_path_root.clone()),
            recorder: context.recorder(COMPONENT),
        }
    }

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources
            .on(&self.look.claims, |change, queue| {
                if change.new.as_ref().is_some_and(|claim| is_ours(claim)) {
                    change.name().into_iter().for_each(|name| queue.add(name));
                }
            })
            .needs(&self.volumes)
            .needs(&self.look.classes)
            .needs(&self.nodes);
    }

    async fn reconcile(&self, name: &NamespacedName, turn: &mut Turn) -> Result<Next, Error> {
        let Some(claim) = self.look.claims.get(name).filter(|claim| is_ours(claim)) else {
            return Ok(Next::Change);
        };
        let Plan::Provision(class) = plan(&claim, &self.look.around(&claim)) else { return Ok(Next::Change) };
        let volume_name = format!("pvc-{}", claim.uid().unwrap_or_default());
        let api = Api::<PersistentVolume>::all(self.client.clone());
        if class.provisioner != HOST_PATH || unless(404, api.get(&volume_name).await)?.is_some() {
            return Ok(Next::Change);
        }
        if let Some(refusal) = self.refusal(&claim, &class) {
            self.recorder.warning(claim.as_ref(), "ProvisioningFailed", &refusal);
            return Err(Error::Unfinished(refusal));
        }
        let path = self.plugin.provision(&volume_name).await.map_err(|error| {
            let message =
                format!("Failed to provision volume with StorageClass {:?}: {error}", class.name_any());
            self.recorder.warning(claim.as_ref(), "ProvisioningFailed", &message);
            Error::Unfinished(message)
        })?;
        let volume = volume(&volume_name, &path.to_string_lossy(), &claim, &class);
        // One that is there was made by a try whose answer was lost.
        if let Some(answer) = unless(409, api.create(&PostParams::default(), &volume).await)? {
            turn.wrote(&self.volumes, &answer);
            let message = format!("Successfully provisioned volume {volume_name} using {HOST_PATH}");
            self.recorder.normal(claim.as_ref(), "ProvisioningSucceeded", message);
        }
        Ok(Next::Change)
    }
}

impl Provision {
    fn refusal(&self, claim: &PersistentVolumeClaim, class: &StorageClass) -> Option<String> {
        let name = class.name_any();
        let options = class.mount_options.as_deref().unwrap_or_default();
        if !options.is_empty() {
            let options = options.join(" ");
            return Some(format!(
                "Mount options are not supported by the provisioner but StorageClass {name:?} has mount options [{options}]"
            ));
        }
        let node = annotation(&claim.metadata, SELECTED_NODE);
        if let Some(node) = node.filter(|node| self.nodes.get(&NamespacedName::new("", *node)).is_none()) {
            return Some(format!("Failed to get target node: node {node:?} not found"));
        }
        (claim.volume_mode() == "Block").then(|| {
            format!("Failed to provision volume with StorageClass {name:?}: {HOST_PATH} does not support block volume provisioning")
        })
    }
}

fn is_ours(claim: &PersistentVolumeClaim) -> bool {
    annotation(&claim.metadata, STORAGE_PROVISIONER) == Some(HOST_PATH) && claim.volume_name().is_empty()
}

fn volume(name: &str, path: &str, claim: &PersistentVolumeClaim, class: &StorageClass) -> PersistentVolume {
    let mut volume = PersistentVolume::default();
    volume.metadata.name = Some(name.to_owned());
    annotate(&mut volume.metadata, CREATED_BY.0, CREATED_BY.1);
    annotate(&mut volume.metadata, BOUND_BY_CONTROLLER, "yes");
    annotate(&mut volume.metadata, PROVISIONED_BY, HOST_PATH);
    let policy = class.reclaim_policy.clone().unwrap_or_else(|| DELETE.to_owned());
    if policy == DELETE {
        volume.metadata.finalizers = Some(vec![IN_TREE_PROTECTION.to_owned()]);
    }
    let spec = claim.spec.as_ref();
    let requests = spec.and_then(|spec| spec.resources.as_ref()?.requests.clone()).unwrap_or_default();
    volume.spec = Some(PersistentVolumeSpec {
        access_modes: spec.and_then(|spec| spec.access_modes.clone()),
        capacity: Some(requests.into_iter().filter(|(resource, _)| resource == "storage").collect()),
        claim_ref: Some(claim.reference()),
        host_path: Some(HostPathVolumeSource { path: path.to_owned(), type_: Some(String::new()) }),
        persistent_volume_reclaim_policy: Some(policy),
        storage_class_name: Some(claim.class().to_owned()),
        ..PersistentVolumeSpec::default()
    });
    volume
}
