//! `kubernetes.io/host-path` as a provisioner. Claims are judged as the binder judges them.

use std::sync::Arc;

use coracle_kinds::meta::{set_annotation, set_finalizer};
use coracle_kinds::storage::{
    BOUND_BY_CONTROLLER, ClaimExt, DELETE, IN_TREE_PROTECTION, PROVISIONED_BY, VolumeExt,
};
use k8s_openapi::api::core::v1::{HostPathVolumeSource, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;

use super::super::claims::ClaimLister;
use super::super::claims::plan::{Plan, plan};
use super::super::metrics::{Attempts, Operation};
use super::super::{COMPONENT, NAME};
use crate::Context;
use crate::persistentvolume_binder::csi_migration::{HOST_PATH, Migration, honors_policy};
use crate::runtime::Sources;
use crate::runtime::cache::NamespacedName;
use crate::runtime::events::Recorder;
use crate::simulation::provisioner::directories::Directories;
use crate::simulation::provisioner::{ProvisionError, ProvisionRequest, ProvisionerPlugin};

/// Says that the plugin made the directory.
const CREATED_BY: (&str, &str) = ("kubernetes.io/createdby", "hostpath-dynamic-provisioner");

pub struct HostPath {
    lister: ClaimLister,
    directories: Directories,
    migration: Migration,
    honors_policy: bool,
    recorder: Recorder,
    attempts: Attempts,
}

impl ProvisionerPlugin for HostPath {
    const CONTROLLER: &'static str = NAME;
    const QUEUE: &'static str = "host_path_provision";
    const PROVISIONER: &'static str = HOST_PATH;

    fn new(context: &Context) -> HostPath {
        HostPath {
            lister: ClaimLister::new(context),
            directories: Directories::new(&context.settings),
            migration: Migration::of(&context.settings),
            honors_policy: honors_policy(&context.settings),
            recorder: context.recorder(COMPONENT),
            attempts: Attempts::new(context, Operation::Provision, HOST_PATH),
        }
    }

    fn needs(&self, sources: &mut Sources<NamespacedName>) {
        sources.needs(&self.lister.classes);
    }

    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn class(&self, claim: &PersistentVolumeClaim) -> Option<Arc<StorageClass>> {
        let is_ours = |class: &StorageClass| {
            class.provisioner == HOST_PATH && self.migration.driver(HOST_PATH).is_none()
        };
        match plan(claim, &self.lister.claim_context(claim)) {
            Plan::Provision(class) if is_ours(&class) => Some(class),
            _ => None,
        }
    }

    fn unsupported(&self, request: &ProvisionRequest) -> Option<ProvisionError> {
        let name = request.class.name_any();
        let options = request.class.mount_options.as_deref().unwrap_or_default();
        if !options.is_empty() {
            let options = options.join(" ");
            return Some(ProvisionError::new(format!(
                "Mount options are not supported by the provisioner but StorageClass {name:?} has mount options [{options}]"
            )));
        }
        if let Some(missing) = request.missing_node() {
            return Some(ProvisionError::new(format!("Failed to get target node: {missing}")));
        }
        (request.claim.volume_mode() == "Block").then(|| {
            let error = format!("{HOST_PATH} does not support block volume provisioning");
            ProvisionError::new(self.failure(request.class, &error))
        })
    }

    fn complete(&self, volume: &mut PersistentVolume, _: &ProvisionRequest) {
        set_annotation(&mut volume.metadata, BOUND_BY_CONTROLLER, "yes");
        source(volume, &self.directories);
        let is_kept = self.honors_policy && volume.policy() == DELETE;
        set_finalizer(&mut volume.metadata, IN_TREE_PROTECTION, is_kept);
    }

    fn success(&self, volume: &str) -> String {
        format!("Successfully provisioned volume {volume} using {HOST_PATH}")
    }

    fn failure(&self, class: &StorageClass, error: &str) -> String {
        format!("Failed to provision volume with StorageClass {:?}: {error}", class.name_any())
    }

    fn observe(&self, _: &StorageClass, seconds: f64, is_success: bool) {
        self.attempts.observe(seconds, is_success);
    }
}

/// Sets the source and the annotations of this plugin.
pub fn source(volume: &mut PersistentVolume, directories: &Directories) {
    set_annotation(&mut volume.metadata, CREATED_BY.0, CREATED_BY.1);
    set_annotation(&mut volume.metadata, PROVISIONED_BY, HOST_PATH);
    let path = directories.host_path(&volume.name_any()).to_string_lossy().into_owned();
    let source = HostPathVolumeSource { path, type_: Some(String::new()) };
    volume.spec.get_or_insert_default().host_path = Some(source);
}
