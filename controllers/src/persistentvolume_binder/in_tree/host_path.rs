//! `kubernetes.io/host-path` as a provisioner. Claims are judged as the binder judges them.

use std::sync::Arc;

use coracle_controller_runtime::events::Recorder;
use coracle_kinds::storage::{BOUND_BY_CONTROLLER, ClaimExt, DELETE, IN_TREE_PROTECTION, VolumeExt};
use coracle_object_meta::{set_annotation, set_finalizer};
use coracle_volumes::host_path::set_source;
use coracle_volumes::migration::{HOST_PATH, Migration};
use coracle_volumes::provisioner::directories::Directories;
use coracle_volumes::provisioner::{ProvisionError, ProvisionRequest, ProvisionerPlugin};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;

use super::super::claims::ClaimLister;
use super::super::claims::plan::{Plan, plan};
use super::super::metrics::{Attempts, Operation};
use super::super::{COMPONENT, NAME};
use crate::settings::{Context, Settings};

pub struct HostPath {
    lister: ClaimLister,
    directories: Directories,
    migration: Migration,
    honors_policy: bool,
    recorder: Recorder,
    attempts: Attempts,
}

impl ProvisionerPlugin for HostPath {
    type Settings = Settings;
    const CONTROLLER: &'static str = NAME;
    const QUEUE_NAME: &'static str = "host_path_provision";
    const PROVISIONER: &'static str = HOST_PATH;

    fn new(context: &Context) -> HostPath {
        HostPath {
            lister: ClaimLister::new(context),
            directories: Directories::new(&context.settings.volumes.data),
            migration: context.settings.volumes.migration,
            honors_policy: context.settings.volumes.honors_policy,
            recorder: context.recorder(COMPONENT),
            attempts: Attempts::new(context, Operation::Provision, HOST_PATH),
        }
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
        set_source(volume, &self.directories);
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
