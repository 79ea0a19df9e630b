//! A provisioner of volumes, in what it does its own way.

use std::sync::Arc;

use coracle_controller_runtime::Context;
use coracle_controller_runtime::events::Recorder;
use coracle_kinds::storage::{ClaimExt, DELETE};
use coracle_object_meta::set_annotation;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec};
use k8s_openapi::api::storage::v1::StorageClass;

use super::operations;
use crate::settings::VolumeSettings;

/// A provisioner, in what it does its own way.
pub trait ProvisionerPlugin: Sized + Send + Sync + 'static {
    /// The controller that it is a part of.
    const CONTROLLER: &'static str;
    /// The name of its queue of claims.
    const QUEUE_NAME: &'static str;
    /// Its name in the annotations of the claims that it is to provision.
    const PROVISIONER: &'static str;
    /// The settings of the program that it is a part of.
    type Settings: AsRef<VolumeSettings> + Clone + Send + Sync + 'static;

    /// Makes the provisioner, with the caches that it needs.
    fn new(context: &Context<Self::Settings>) -> Self;

    /// Returns the recorder of the component that emits the events.
    fn recorder(&self) -> &Recorder;

    /// Returns the class with which to provision a claim, or `None` if the claim is not to be
    /// provisioned now.
    fn class(&self, claim: &PersistentVolumeClaim) -> Option<Arc<StorageClass>>;

    /// Returns the error if the plugin cannot provision a claim.
    fn unsupported(&self, request: &ProvisionRequest) -> Option<ProvisionError>;

    /// Completes a volume: sets its source, and the component that has to delete it.
    fn complete(&self, volume: &mut PersistentVolume, request: &ProvisionRequest);

    /// Handles the start of an attempt.
    fn begun(&self, _: &PersistentVolumeClaim) {}

    /// Returns the message of the event for a provisioned volume.
    fn success(&self, volume: &str) -> String;

    /// Returns the message of the event for a volume that could not be provisioned.
    fn failure(&self, class: &StorageClass, error: &str) -> String;

    /// Handles the end of an attempt, which took so many seconds.
    fn observe(&self, _: &StorageClass, _seconds: f64, _is_success: bool) {}
}

/// A claim to provision a volume for.
pub struct ProvisionRequest<'a> {
    /// The claim.
    pub claim: &'a PersistentVolumeClaim,
    /// Its class.
    pub class: &'a StorageClass,
    /// The node that the scheduler chose, by its name, and whether there is one.
    pub node: Option<(&'a str, Option<Arc<Node>>)>,
}

impl ProvisionRequest<'_> {
    /// Returns the message if the selected node does not exist.
    pub fn missing_node(&self) -> Option<String> {
        let (name, node) = self.node.as_ref()?;
        node.is_none().then(|| format!("node {name:?} not found"))
    }

    /// Builds the volume for a claim and its class, with a reference to the claim.
    pub(super) fn volume(&self, name: &str) -> PersistentVolume {
        let ProvisionRequest { claim, class, .. } = self;
        let mut volume = PersistentVolume::default();
        volume.metadata.name = Some(name.to_owned());
        for (key, value) in operations::inherited(class) {
            set_annotation(&mut volume.metadata, key, value);
        }
        let spec = claim.spec.as_ref();
        let requests = spec.and_then(|spec| spec.resources.as_ref()?.requests.clone()).unwrap_or_default();
        let policy = class.reclaim_policy.clone().unwrap_or_else(|| DELETE.to_owned());
        volume.spec = Some(PersistentVolumeSpec {
            access_modes: spec.and_then(|spec| spec.access_modes.clone()),
            capacity: Some(requests.into_iter().filter(|(resource, _)| resource == "storage").collect()),
            claim_ref: Some(claim.reference()),
            mount_options: class.mount_options.clone(),
            persistent_volume_reclaim_policy: Some(policy),
            storage_class_name: Some(claim.class().to_owned()),
            ..PersistentVolumeSpec::default()
        });
        volume
    }
}

/// An error about a claim that cannot be provisioned.
pub struct ProvisionError {
    /// The message of the event.
    pub message: String,
    /// Whether the scheduler has to choose another node for the pod.
    pub reschedules: bool,
}

impl ProvisionError {
    /// Creates an error that another node would not avoid.
    pub fn new(message: impl Into<String>) -> ProvisionError {
        ProvisionError { message: message.into(), reschedules: false }
    }
}
