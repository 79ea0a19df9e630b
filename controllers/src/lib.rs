//! Kubernetes' controllers, written on its API only: they run unchanged against any cluster.
//!
//! One folder a controller, with kube-controller-manager's name for it. Three folders are shared by
//! some: `workload/` by the controllers of pods' owners, `service_endpoints/` by those of Services,
//! `bootstrap_tokens/` by those of such tokens. The loop that all of them run in is
//! `coracle-controller-runtime`; decisions about volumes that the simulation makes, too, are in
//! `coracle-volumes`, and the semantics of built-in kinds in `coracle-kinds`. Start at
//! [`CONTROLLERS`].
#![warn(missing_docs)]

mod bootstrap_signer;
mod bootstrap_tokens;
mod certificatesigningrequest_approving;
mod certificatesigningrequest_cleaner;
mod certificatesigningrequest_signing;
mod clusterrole_aggregation;
mod cronjob;
mod daemonset;
mod deployment;
mod disruption;
mod endpoints;
mod endpointslice;
mod endpointslice_mirroring;
mod ephemeral_volume;
mod garbage_collector;
mod horizontal_pod_autoscaler;
mod job;
mod namespace;
mod node_lifecycle;
mod persistentvolume_attach_detach;
mod persistentvolume_binder;
mod persistentvolume_expander;
mod persistentvolume_protection;
mod persistentvolumeclaim_protection;
mod pod_garbage_collector;
mod replicaset;
mod replicationcontroller;
mod resourceclaim;
mod resourcequota;
mod root_ca_certificate_publisher;
mod service_cidr;
mod service_endpoints;
mod serviceaccount;
mod serviceaccount_token;
mod settings;
mod statefulset;
mod taint_eviction;
pub mod timers;
mod token_cleaner;
mod ttl;
mod ttl_after_finished;
mod volumeattributesclass_protection;
mod workload;

use coracle_controller_runtime::ControllerDescriptor;
use futures::future::FutureExt;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ReplicationController;

pub use settings::{CertificateTemplate, Context, IsEnabled, Settings, Sign, SignCertificate};

/// All controllers of kube-controller-manager that there are.
// A constant would have all of them compiled again in each crate that uses it.
pub static CONTROLLERS: &[ControllerDescriptor<Settings>] = &[
    ControllerDescriptor {
        name: persistentvolume_attach_detach::NAME,
        start: |context, readiness| {
            let ready = move || readiness.ready(persistentvolume_attach_detach::NAME);
            persistentvolume_attach_detach::run(context, ready).boxed()
        },
        is_possible: |_| true,
    },
    ControllerDescriptor::of::<bootstrap_signer::BootstrapSigner>(),
    ControllerDescriptor::of::<certificatesigningrequest_approving::CertificateSigningRequestApprover>(),
    ControllerDescriptor::of::<certificatesigningrequest_cleaner::CertificateSigningRequestCleaner>(),
    ControllerDescriptor::of::<certificatesigningrequest_signing::CertificateSigningRequestSigner>(),
    ControllerDescriptor::of::<clusterrole_aggregation::ClusterRoleAggregationController>(),
    ControllerDescriptor::of::<cronjob::CronJobController>(),
    ControllerDescriptor::of::<deployment::DeploymentController>(),
    ControllerDescriptor::of::<daemonset::DaemonSetController>(),
    ControllerDescriptor::of::<disruption::DisruptionController>(),
    ControllerDescriptor::of::<endpoints::EndpointsController>(),
    ControllerDescriptor::of::<endpointslice::EndpointSliceController>(),
    ControllerDescriptor::of::<endpointslice_mirroring::EndpointSliceMirroringController>(),
    ControllerDescriptor::of::<ephemeral_volume::EphemeralVolumeController>(),
    ControllerDescriptor {
        name: garbage_collector::NAME,
        start: |context, readiness| {
            garbage_collector::run(context, move || readiness.ready(garbage_collector::NAME)).boxed()
        },
        is_possible: |_| true,
    },
    ControllerDescriptor {
        name: job::NAME,
        start: |context, readiness| job::run(context, move || readiness.ready(job::NAME)).boxed(),
        is_possible: |_| true,
    },
    ControllerDescriptor::of::<horizontal_pod_autoscaler::HorizontalPodAutoscalerController>(),
    ControllerDescriptor::of::<namespace::NamespaceController>(),
    ControllerDescriptor::of::<node_lifecycle::NodeLifecycleController>(),
    ControllerDescriptor {
        name: persistentvolume_binder::NAME,
        start: |context, readiness| {
            persistentvolume_binder::run(context, move || readiness.ready(persistentvolume_binder::NAME))
                .boxed()
        },
        is_possible: |_| true,
    },
    ControllerDescriptor::of::<persistentvolume_expander::ExpandController>(),
    ControllerDescriptor::of::<persistentvolume_protection::PersistentVolumeProtectionController>(),
    ControllerDescriptor::of::<persistentvolumeclaim_protection::PersistentVolumeClaimProtectionController>(),
    ControllerDescriptor::of::<pod_garbage_collector::PodGarbageCollector>(),
    ControllerDescriptor::of::<replicaset::ReplicaSetController<ReplicaSet>>(),
    ControllerDescriptor::of::<replicaset::ReplicaSetController<ReplicationController>>(),
    ControllerDescriptor::of::<resourceclaim::ResourceClaimController>(),
    ControllerDescriptor::of::<resourcequota::ResourceQuotaController>(),
    ControllerDescriptor::of::<root_ca_certificate_publisher::RootCaCertificatePublisher>(),
    ControllerDescriptor::of::<service_cidr::ServiceCidrController>(),
    ControllerDescriptor::of::<serviceaccount::ServiceAccountController>(),
    ControllerDescriptor::of::<serviceaccount_token::TokenController>(),
    ControllerDescriptor::of::<statefulset::StatefulSetController>(),
    ControllerDescriptor::of::<taint_eviction::TaintEvictionController>(),
    ControllerDescriptor::of::<token_cleaner::TokenCleaner>(),
    ControllerDescriptor::of::<ttl::TtlController>(),
    ControllerDescriptor::of::<ttl_after_finished::TtlAfterFinishedController>(),
    ControllerDescriptor::of::<volumeattributesclass_protection::VolumeAttributesClassProtectionController>(),
];

/// The user agent of a client for the controllers: the field manager of what they write is the part
/// before the slash.
pub const USER_AGENT: &str = concat!("kube-controller-manager/v1.36 coracle/", env!("CARGO_PKG_VERSION"));

/// Returns the user agent of one controller.
///
/// Source: `SimpleControllerClientBuilder` of kube-controller-manager, which appends the service
/// account.
pub fn user_agent(controller: &str) -> String {
    format!("{USER_AGENT}/system:serviceaccount:kube-system:{controller}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn folders_are_named_as_the_controllers() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let entries = sources.read_dir().unwrap();
        let found: BTreeSet<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let folder = |name: &str| name.strip_suffix("-controller").unwrap_or(name).replace('-', "_");
        let controllers = CONTROLLERS.iter().map(|controller| folder(controller.name));
        let others =
            ["bootstrap_tokens", "lib.rs", "service_endpoints", "settings.rs", "timers.rs", "workload"]
                .map(str::to_owned);
        assert_eq!(found, controllers.chain(others).collect::<BTreeSet<_>>());
    }
}
