//! `coracle.csi`: a simulated CSI driver with its sidecars.
//!
//! - [`register`] creates the CSIDriver object, and the CSINodes of the simulated nodes, as
//!   node-driver-registrar does;
//! - [`Driver`] acts as external-provisioner, in the loop of all [`coracle_volumes::provisioner`]s,
//!   and [`reclaim`] deletes its volumes;
//! - [`attach`] is external-attacher, and [`resize`] external-resizer.
//!
//! A volume is a directory, and `volumeHandle` is its name. Objects of other drivers are ignored.
//!
//! The gate `CSIMigrationHostPath` assigns the volumes of `kubernetes.io/host-path` to this driver
//! as well. These stay host path volumes, so that the gate can be turned off again.

mod attach;
mod plan;
mod reclaim;
mod register;
mod resize;

use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{ControllerDescriptor, Part, run_all, start_part};
use coracle_kinds::storage::{
    ClaimExt, EXTERNAL_PROTECTION, PROVISIONED_BY, SELECTED_NODE, waits_for_consumer,
};
use coracle_object_meta::{annotation, set_annotation, set_finalizer};
use coracle_volumes::host_path::set_source;
use coracle_volumes::migration::{CSI_DRIVER, HOST_PATH, Migration};
use coracle_volumes::provisioner::directories::Directories;
use coracle_volumes::provisioner::{ProvisionError, ProvisionRequest, ProvisionerPlugin, provision};
use futures::FutureExt;
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use prometheus::{CounterVec, HistogramVec};

use crate::settings::{Context, Settings};

/// All loops of the driver. No flag selects it.
pub const DESCRIPTOR: ControllerDescriptor<Settings> = ControllerDescriptor {
    name: CSI_DRIVER,
    start: |context, readiness| run(context, move || readiness.ready(CSI_DRIVER)).boxed(),
    is_possible,
};

/// Returns `true` if nodes are simulated. The nodes of another cluster could not use the volumes.
fn is_possible(settings: &Settings) -> bool {
    settings.nodes.is_some()
}

async fn run(context: Context, ready: impl FnOnce() + Send + 'static) {
    let parts: [Part<Settings>; 5] = [
        start_part::<_, provision::ProvisionController<Driver>>,
        start_part::<_, reclaim::ReclaimController>,
        start_part::<_, attach::ExternalAttacher>,
        start_part::<_, resize::ExternalResizer>,
        start_part::<_, register::NodeDriverRegistrar>,
    ];
    run_all(context, &parts, ready).await;
}

/// Secrets for the deletion of a volume; ours needs none.
const DELETION_SECRETS: [&str; 2] = [
    "volume.kubernetes.io/provisioner-deletion-secret-name",
    "volume.kubernetes.io/provisioner-deletion-secret-namespace",
];
/// The prefix of class parameters for the provisioner, not for the driver.
const FOR_PROVISIONER: &str = "csi.storage.k8s.io/";
const FS_TYPE: &str = "csi.storage.k8s.io/fstype";
const IDENTITY: &str = "storage.kubernetes.io/csiProvisionerIdentity";

/// The driver as a provisioner.
pub struct Driver {
    classes: Arc<Cache<StorageClass>>,
    directories: Directories,
    migration: Migration,
    honors_policy: bool,
    recorder: Recorder,
    /// Identifies the process that made a volume.
    identity: String,
    provisioned: CounterVec,
    failed: CounterVec,
    duration: HistogramVec,
}

impl ProvisionerPlugin for Driver {
    type Settings = Settings;
    const CONTROLLER: &'static str = CSI_DRIVER;
    const QUEUE_NAME: &'static str = "csi_provision";
    const PROVISIONER: &'static str = CSI_DRIVER;

    fn new(context: &Context) -> Driver {
        let counter = |name, help| context.metrics.counter(name, help, &["class", "source"]);
        Driver {
            classes: context.cache(),
            directories: Directories::new(&context.settings.volumes.data),
            migration: context.settings.volumes.migration,
            honors_policy: context.settings.volumes.honors_policy,
            recorder: recorder(context),
            identity: format!("{}-{CSI_DRIVER}", started(context)),
            provisioned: counter(
                "controller_persistentvolumeclaim_provision_total",
                "Volumes that were provisioned",
            ),
            failed: counter(
                "controller_persistentvolumeclaim_provision_failed_total",
                "Attempts to provision a volume that failed",
            ),
            duration: context.metrics.histogram(
                "controller_persistentvolumeclaim_provision_duration_seconds",
                "How long the provisioning of a volume takes",
                prometheus::DEFAULT_BUCKETS,
                &["class", "source"],
            ),
        }
    }

    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn class(&self, claim: &PersistentVolumeClaim) -> Option<Arc<StorageClass>> {
        let class = self.classes.get(&NamespacedName::new("", claim.class()))?;
        let node = annotation(&claim.metadata, SELECTED_NODE).unwrap_or_default();
        (!waits_for_consumer(&class) || !node.is_empty()).then_some(class)
    }

    fn unsupported(&self, request: &ProvisionRequest) -> Option<ProvisionError> {
        if let Some(message) = request.missing_node() {
            return Some(ProvisionError { message, reschedules: true });
        }
        let spec = request.claim.spec.as_ref();
        let selects = spec.is_some_and(|spec| spec.selector.is_some());
        let copies = spec.is_some_and(|spec| spec.data_source.is_some());
        match request.claim.volume_mode() {
            _ if selects => Some("claim Selector is not supported".to_owned()),
            _ if copies => Some(format!("{CSI_DRIVER} makes empty volumes only")),
            "Block" => Some(format!("{CSI_DRIVER} makes no block volumes")),
            _ => None,
        }
        .map(ProvisionError::new)
    }

    fn complete(&self, volume: &mut PersistentVolume, request: &ProvisionRequest) {
        for secret in DELETION_SECRETS {
            set_annotation(&mut volume.metadata, secret, "");
        }
        set_finalizer(&mut volume.metadata, EXTERNAL_PROTECTION, self.honors_policy);
        let migrated = self.migration.driver(&request.class.provisioner) == Some(CSI_DRIVER);
        if migrated && request.class.provisioner == HOST_PATH {
            set_source(volume, &self.directories);
            return;
        }
        set_annotation(&mut volume.metadata, PROVISIONED_BY, &request.class.provisioner);
        let handle = volume.name_any();
        let parameters = request.class.parameters.clone().unwrap_or_default();
        let fs_type = parameters.get(FS_TYPE).cloned();
        let for_driver = parameters.into_iter().filter(|(key, _)| !key.starts_with(FOR_PROVISIONER));
        let identity = (IDENTITY.to_owned(), self.identity.clone());
        let spec = volume.spec.get_or_insert_default();
        let claimed = request.claim.spec.as_ref();
        spec.volume_mode = claimed.and_then(|claimed| claimed.volume_mode.clone());
        let attributes = claimed.and_then(|claimed| claimed.volume_attributes_class_name.clone());
        spec.volume_attributes_class_name = attributes.filter(|class| !class.is_empty());
        spec.csi = Some(CSIPersistentVolumeSource {
            driver: CSI_DRIVER.to_owned(),
            volume_handle: handle,
            fs_type,
            volume_attributes: Some(for_driver.chain([identity]).collect()),
            ..CSIPersistentVolumeSource::default()
        });
    }

    fn begun(&self, claim: &PersistentVolumeClaim) {
        let name = NamespacedName::of(claim).to_string();
        let message = format!("External provisioner is provisioning volume for claim {name:?}");
        self.recorder.normal(claim, "Provisioning", message);
    }

    fn success(&self, volume: &str) -> String {
        format!("Successfully provisioned volume {volume}")
    }

    fn failure(&self, _: &StorageClass, error: &str) -> String {
        error.to_owned()
    }

    fn observe(&self, class: &StorageClass, seconds: f64, is_success: bool) {
        let class = class.name_any();
        let labels = &[class.as_str(), ""];
        match is_success {
            true => {
                self.provisioned.with_label_values(labels).inc();
                self.duration.with_label_values(labels).observe(seconds);
            }
            false => self.failed.with_label_values(labels).inc(),
        }
    }
}

/// Returns the number that identifies this start of the provisioner: the milliseconds since 1970,
/// or a number derived from the seed.
fn started(context: &Context) -> i64 {
    let seeded = context.settings.seed.map(|seed| seed.number(&["provisioners", "", CSI_DRIVER]) as u32);
    seeded.map_or_else(|| context.clock.now().as_millisecond(), i64::from)
}

/// Returns the recorder of events. Its component has the process in its name, as
/// external-provisioner's.
fn recorder(context: &Context) -> Recorder {
    let id = context.identity();
    context.recorder(&format!("{CSI_DRIVER}_csi-controller-0_{id}"))
}
