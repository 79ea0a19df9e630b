//! Kubernetes' controllers, written on its API only: they run unchanged against any cluster.
//!
//! One folder a controller, with kube-controller-manager's name for it; `runtime/` is the loop that all of them run in, and
//! `simulation/` the nodes, the scheduler and the CSI driver that stand in for real ones; `workload/` is what the controllers of
//! pods' owners share. What objects of built-in kinds mean is in
//! `coracle-kinds`. Start at [`CONTROLLERS`], then [`run`].
#![warn(missing_docs)]

mod bootstrap_signer;
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
mod runtime;
mod service_cidr;
mod service_endpoints;
mod serviceaccount;
mod serviceaccount_token;
mod simulation;
mod statefulset;
mod taint_eviction;
mod token_cleaner;
mod ttl;
mod ttl_after_finished;
mod volumeattributesclass_protection;
mod workload;

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use coracle_pki::CertificateRequest;
use futures::future::{BoxFuture, FutureExt, join_all};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ReplicationController;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::oneshot;

use runtime::Controller;
use runtime::leader::LeaderElector;
use runtime::supervise::supervise;

pub use runtime::clock::{Clock, MockClock};
pub use runtime::metrics::{Metrics, QueueMetrics};
pub use runtime::supervise::Readiness;

/// The context of the controllers of this crate.
type Context = runtime::Context<Settings>;

/// What the controllers cannot learn from the API.
#[derive(Clone)]
pub struct Settings {
    /// For how long a terminating namespace is left as it is. What was admitted to it before may still have to be stored,
    /// and not every API server may have observed yet that it is terminating.
    pub namespace_grace: Duration,
    /// The certificates, in PEM, by which clients know the API server; without them they are not published.
    pub root_ca: Option<String>,
    /// Signs the claims of a token; without it no tokens are made.
    pub sign: Option<Sign>,
    /// Issues certificates for CertificateSigningRequests; without it none are.
    pub sign_certificate: Option<SignCertificate>,
    /// How often each HorizontalPodAutoscaler is reconciled.
    pub horizontal_pod_autoscaler_sync_period: Duration,
    /// How many nodes to simulate. None: neither nodes nor the scheduler are simulated, as beside another cluster.
    pub nodes: Option<usize>,
    /// Whether a feature gate is on, by Kubernetes' name.
    pub is_enabled: IsEnabled,
    /// Where the directories are that stand for volumes (`volumes/`), and what pods see of them (`pods/`).
    pub data: PathBuf,
}

/// The gate that lets the CSI driver `coracle.csi` do what `kubernetes.io/host-path` does; Kubernetes has none of that name.
pub const HOST_PATH_MIGRATION: &str = "CSIMigrationHostPath";

/// Whether a feature gate is on.
pub type IsEnabled = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Signs the claims of a token and returns it as a JWS. None: it cannot be signed.
pub type Sign = Arc<dyn Fn(&serde_json::Value) -> Option<String> + Send + Sync>;

/// A certificate to be issued for a request.
#[derive(Clone, Debug)]
pub struct CertificateTemplate<'a> {
    /// The request: the subject, the key and the alternative names are taken from it.
    pub request: CertificateRequest,
    /// The usages, by the API's names.
    pub usages: &'a [String],
    /// From when on the certificate is valid.
    pub not_before: Timestamp,
    /// Until when it is valid, unless its authority ends before.
    pub not_after: Timestamp,
}

/// Issues a certificate and returns it in PEM, or why it cannot be issued.
pub type SignCertificate = Arc<dyn Fn(&CertificateTemplate<'_>) -> Result<String, String> + Send + Sync>;

impl Default for Settings {
    /// kube-controller-manager's defaults, without what it has no default for.
    fn default() -> Settings {
        Settings {
            namespace_grace: Duration::from_secs(5),
            root_ca: None,
            sign: None,
            sign_certificate: None,
            horizontal_pod_autoscaler_sync_period: Duration::from_secs(15),
            nodes: None,
            // Of the gates that the controllers read no other is off by default.
            is_enabled: Arc::new(|gate| gate != HOST_PATH_MIGRATION),
            data: "/tmp/hostpath_pv".into(),
        }
    }
}

/// How a controller is made.
trait Initialize: Controller {
    /// Whether it can do its work with these settings; one that cannot is not started.
    fn is_possible(_: &Settings) -> bool {
        true
    }

    /// Makes the controller, with the caches that it needs.
    fn new(context: &Context) -> Self;
}

/// A controller that can be selected and started.
pub struct ControllerDescriptor {
    /// kube-controller-manager's name.
    pub name: &'static str,
    /// Runs it until the future is dropped; reports when its sources are synced.
    start: fn(Context, Readiness) -> BoxFuture<'static, ()>,
    is_possible: fn(&Settings) -> bool,
}

/// All controllers of kube-controller-manager that there are. The simulated scheduler and kubelet are not listed.
// A constant would have all of them compiled again in each crate that uses it.
pub static CONTROLLERS: &[ControllerDescriptor] = &[
    descriptor::<persistentvolume_attach_detach::AttachDetachController>(),
    descriptor::<bootstrap_signer::BootstrapSigner>(),
    descriptor::<certificatesigningrequest_approving::CertificateSigningRequestApprover>(),
    descriptor::<certificatesigningrequest_cleaner::CertificateSigningRequestCleaner>(),
    descriptor::<certificatesigningrequest_signing::CertificateSigningRequestSigner>(),
    descriptor::<clusterrole_aggregation::ClusterRoleAggregationController>(),
    descriptor::<cronjob::CronJobController>(),
    descriptor::<deployment::DeploymentController>(),
    descriptor::<daemonset::DaemonSetController>(),
    descriptor::<disruption::DisruptionController>(),
    descriptor::<endpoints::EndpointsController>(),
    descriptor::<endpointslice::EndpointSliceController>(),
    descriptor::<endpointslice_mirroring::EndpointSliceMirroringController>(),
    descriptor::<ephemeral_volume::EphemeralVolumeController>(),
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
    descriptor::<horizontal_pod_autoscaler::HorizontalPodAutoscalerController>(),
    descriptor::<namespace::NamespaceController>(),
    descriptor::<node_lifecycle::NodeLifecycleController>(),
    ControllerDescriptor {
        name: persistentvolume_binder::NAME,
        start: |context, readiness| {
            persistentvolume_binder::run(context, move || readiness.ready(persistentvolume_binder::NAME))
                .boxed()
        },
        is_possible: |_| true,
    },
    descriptor::<persistentvolume_expander::ExpandController>(),
    descriptor::<persistentvolume_protection::PersistentVolumeProtectionController>(),
    descriptor::<persistentvolumeclaim_protection::PersistentVolumeClaimProtectionController>(),
    descriptor::<pod_garbage_collector::PodGarbageCollector>(),
    descriptor::<replicaset::ReplicaSetController<ReplicaSet>>(),
    descriptor::<replicaset::ReplicaSetController<ReplicationController>>(),
    descriptor::<resourceclaim::ResourceClaimController>(),
    descriptor::<resourcequota::ResourceQuotaController>(),
    descriptor::<root_ca_certificate_publisher::RootCaCertificatePublisher>(),
    descriptor::<service_cidr::ServiceCidrController>(),
    descriptor::<serviceaccount::ServiceAccountController>(),
    descriptor::<serviceaccount_token::TokenController>(),
    descriptor::<statefulset::StatefulSetController>(),
    descriptor::<taint_eviction::TaintEvictionController>(),
    descriptor::<token_cleaner::TokenCleaner>(),
    descriptor::<ttl::TtlController>(),
    descriptor::<ttl_after_finished::TtlAfterFinishedController>(),
    descriptor::<volumeattributesclass_protection::VolumeAttributesClassProtectionController>(),
];

const fn descriptor<C: Initialize>() -> ControllerDescriptor {
    let start = |context: Context, readiness: Readiness| {
        let controller = C::new(&context);
        runtime::run(context, controller, move || readiness.ready(C::NAME)).boxed()
    };
    ControllerDescriptor { name: C::NAME, start, is_possible: C::is_possible }
}

/// Makes and runs one of several loops that are started under one name.
fn start_part<C: Initialize>(context: Context, synced: oneshot::Sender<()>) -> BoxFuture<'static, ()> {
    let controller = C::new(&context);
    let ready = move || {
        // The receiver may have been dropped.
        let _ = synced.send(());
    };
    runtime::run(context, controller, ready).boxed()
}

/// The user agent of a client for the controllers: the field manager of what they write is the part before the slash.
pub const USER_AGENT: &str = concat!("kube-controller-manager/v1.36 coracle/", env!("CARGO_PKG_VERSION"));

/// Everything the controllers need.
#[derive(Clone)]
pub struct Options {
    /// The time that they live by.
    pub clock: Clock,
    /// Where they register their metrics.
    pub metrics: Metrics,
    /// Where each of them reports when its caches are synced.
    pub readiness: Readiness,
    /// What they cannot learn from the API.
    pub settings: Settings,
}

/// Runs the selected controllers until the future is dropped.
///
/// - `client`: comes with [`USER_AGENT`], since what the controllers write is owned by its first part
/// - `is_selected`: whether a controller is selected, by its name in [`CONTROLLERS`], or `kube-scheduler` or `kubelet`
pub fn run(client: Client, options: Options, is_selected: &dyn Fn(&str) -> bool) -> BoxFuture<'static, ()> {
    let Options { clock, metrics, readiness, settings } = options;
    let all = CONTROLLERS.iter().chain(simulation::CONTROLLERS);
    let mut selected: Vec<&ControllerDescriptor> =
        all.filter(|descriptor| is_selected(descriptor.name)).collect();
    // Without a controller or a node there is nothing to simulate.
    if !selected.is_empty() || settings.nodes.is_some_and(|count| count > 0) {
        selected.extend(simulation::ALWAYS);
    }
    selected.retain(|descriptor| (descriptor.is_possible)(&settings));
    // At once, so that they are not ready before they have started.
    selected.iter().for_each(|descriptor| readiness.expect(descriptor.name));
    Box::pin(async move {
        let context = Context::new(client, clock, metrics, settings);
        join_all(selected.into_iter().map(|descriptor| {
            supervise(descriptor.name, &context, || (descriptor.start)(context.clone(), readiness.clone()))
        }))
        .await;
        // Without any controller there is nothing to do, for ever.
        std::future::pending().await
    })
}

/// The lease was lost, so that another process may run the controllers by now.
#[derive(Debug, thiserror::Error)]
#[error("leaderelection lost")]
pub struct LeaseLost;

/// Like [`run`], in one of several processes: only while `identity`, which is unique, holds the lease. Returns when the lease is
/// lost, or when `stop` does; then the lease is released.
///
/// # Errors
/// The lease was lost.
pub fn run_elected<'a>(
    client: Client,
    options: Options,
    is_selected: &'a (dyn Fn(&str) -> bool + Sync),
    identity: String,
    stop: BoxFuture<'a, ()>,
) -> BoxFuture<'a, Result<(), LeaseLost>> {
    /// A lease that cannot be released expires by itself, so that there is no need to wait for long.
    const RELEASE: Duration = Duration::from_secs(1);
    let clock = options.clock.clone();
    let context = Context::new(client.clone(), clock.clone(), options.metrics.clone(), Settings::default());
    let mut elector = LeaderElector::new(&context, identity);
    Box::pin(async move {
        let leading = async {
            elector.acquire().await;
            tokio::select! {
                () = elector.renew_until_lost() => {}
                // It has no end.
                () = run(client, options, is_selected) => {}
            }
        };
        // A process that does not know whether it holds the lease must not lead.
        let leading = AssertUnwindSafe(leading).catch_unwind();
        tokio::select! {
            ended = leading => {
                if ended.is_err() {
                    tracing::error!("the leader election panicked");
                }
                return Err(LeaseLost);
            }
            () = stop => {}
        }
        // Also if it was not acquired yet: the request may still be under way.
        tokio::select! {
            released = elector.release() => if let Err(error) = released {
                tracing::info!(%error, "the lease is not released");
            },
            () = clock.sleep(RELEASE) => {}
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn sources() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
    }

    #[test]
    fn folders_are_named_as_the_controllers() {
        let entries = sources().read_dir().unwrap();
        let found: BTreeSet<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let folder = |name: &str| name.strip_suffix("-controller").unwrap_or(name).replace('-', "_");
        let controllers = CONTROLLERS.iter().map(|controller| folder(controller.name));
        let others = ["lib.rs", "runtime", "service_endpoints", "simulation", "workload"].map(str::to_owned);
        assert_eq!(found, controllers.chain(others).collect::<BTreeSet<_>>());
    }

    #[test]
    fn the_runtime_knows_nothing_else_of_the_crate() {
        let mut folders = vec![sources().join("runtime")];
        while let Some(folder) = folders.pop() {
            for entry in folder.read_dir().unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                let is_foreign = |line: &&str| {
                    let line =
                        line.replace("crate::runtime", "").replace("coracle_kinds::NamespacedName", "");
                    line.contains("crate::")
                        || line.replace("coracle_kinds::meta", "").contains("coracle_kinds")
                };
                let foreign: Vec<&str> = text.lines().filter(is_foreign).collect();
                assert_eq!(foreign, [""; 0], "{}", path.display());
            }
        }
    }
}
