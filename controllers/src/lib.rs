//! Loops that reach desired state, written on the Kubernetes API only: they would run unchanged against any cluster.
//!
//! One folder a controller, named as kube-controller-manager names it; [`runtime`] is the loop that all of them run in.
//! Start at [`CONTROLLERS`], then [`run`].

mod disruption;
mod ephemeral_volume;
mod garbage_collector;
mod namespace;
mod persistentvolume_attach_detach;
mod persistentvolume_binder;
mod persistentvolume_expander;
mod persistentvolume_protection;
mod persistentvolumeclaim_protection;
mod pod_garbage_collector;
mod resourcequota;
mod root_ca_certificate_publisher;
pub mod runtime;
mod serviceaccount;
mod serviceaccount_token;
mod simulation;
mod statefulset;
mod volumeattributesclass_protection;

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, join_all};
use kube::Client;
use tokio::sync::oneshot;

use runtime::Controller;
use runtime::clock::Clock;
use runtime::leader::LeaderElector;
use runtime::metrics::Metrics;
use runtime::supervise::{Readiness, supervise};

/// What controllers are made of.
type Context = runtime::Context<Settings>;

/// What the controllers cannot learn from the API.
#[derive(Clone)]
pub struct Settings {
    /// For how long a terminating namespace is left as it is. What was admitted to it before may still have to be stored,
    /// and not every API server may know yet that it is terminating.
    pub namespace_grace: Duration,
    /// The certificates, in PEM, by which clients know the API server; without them they are not published.
    pub root_ca: Option<String>,
    /// Signs the claims of a token; without it no tokens are made.
    pub sign: Option<Sign>,
    /// How many nodes to simulate. None: scheduling is somebody else's, as it is beside another cluster.
    pub nodes: Option<usize>,
    /// Whether a feature gate is on, by Kubernetes' name.
    pub is_enabled: IsEnabled,
    /// Where the directories are that stand for volumes (`volumes/`), and what pods see of them (`pods/`).
    pub data: PathBuf,
}

/// The gate that lets the CSI driver `coracle.csi` do what `kubernetes.io/host-path` does; Kubernetes has none of that name.
pub const HOST_PATH_MIGRATION: &str = "CSIMigrationHostPath";

pub type IsEnabled = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// None where it fails.
pub type Sign = Arc<dyn Fn(&serde_json::Value) -> Option<String> + Send + Sync>;

impl Default for Settings {
    /// As far as kube-controller-manager has a default.
    fn default() -> Settings {
        Settings {
            namespace_grace: Duration::from_secs(5),
            root_ca: None,
            sign: None,
            nodes: None,
            // Of those that the controllers ask for no other is off by default.
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

    fn new(context: &Context) -> Self;
}

/// A controller as it is listed.
pub struct Entry {
    /// kube-controller-manager's name.
    pub name: &'static str,
    /// Runs it until the future is dropped; reports when its sources are synced.
    start: fn(Context, Readiness) -> BoxFuture<'static, ()>,
    is_possible: fn(&Settings) -> bool,
}

/// All controllers there are.
pub const CONTROLLERS: &[Entry] = &[
    entry::<persistentvolume_attach_detach::AttachDetach>(),
    entry::<disruption::Disruptions>(),
    entry::<ephemeral_volume::EphemeralVolumes>(),
    Entry {
        name: garbage_collector::NAME,
        start: |context, readiness| {
            garbage_collector::run(context, move || readiness.ready(garbage_collector::NAME)).boxed()
        },
        is_possible: |_| true,
    },
    entry::<namespace::Namespaces>(),
    Entry {
        name: persistentvolume_binder::NAME,
        start: |context, readiness| {
            persistentvolume_binder::run(context, move || readiness.ready(persistentvolume_binder::NAME))
                .boxed()
        },
        is_possible: |_| true,
    },
    entry::<persistentvolume_expander::Expander>(),
    entry::<persistentvolume_protection::VolumeProtection>(),
    entry::<persistentvolumeclaim_protection::ClaimProtection>(),
    entry::<pod_garbage_collector::PodGarbageCollector>(),
    entry::<resourcequota::ResourceQuotas>(),
    entry::<root_ca_certificate_publisher::RootCertificates>(),
    entry::<serviceaccount::ServiceAccounts>(),
    entry::<serviceaccount_token::Tokens>(),
    entry::<statefulset::StatefulSets>(),
    entry::<volumeattributesclass_protection::AttributesClassProtection>(),
];

const fn entry<C: Initialize>() -> Entry {
    let start = |context: Context, readiness: Readiness| {
        let controller = C::new(&context);
        runtime::run(context, controller, move || readiness.ready(C::NAME)).boxed()
    };
    Entry { name: C::NAME, start, is_possible: C::is_possible }
}

/// Makes and runs one of several loops that are started together.
fn start_part<C: Initialize>(context: Context, synced: oneshot::Sender<()>) -> BoxFuture<'static, ()> {
    let controller = C::new(&context);
    let ready = move || {
        // The receiver is dropped if nobody waits.
        let _ = synced.send(());
    };
    runtime::run(context, controller, ready).boxed()
}

/// As whom a client of the controllers should come: what they write is owned by the name before the slash.
pub const USER_AGENT: &str = concat!("kube-controller-manager/v1.36 coracle/", env!("CARGO_PKG_VERSION"));

/// Everything the controllers are given.
#[derive(Clone)]
pub struct Options {
    pub clock: Clock,
    pub metrics: Metrics,
    pub readiness: Readiness,
    pub settings: Settings,
}

/// Runs the selected controllers until the future is dropped. `is_selected` is asked with kube-controller-manager's names.
pub fn run(
    client: Client,
    options: Options,
    is_selected: impl Fn(&str) -> bool,
) -> impl Future<Output = ()> + Send {
    let Options { clock, metrics, readiness, settings } = options;
    let selected = CONTROLLERS.iter().chain(simulation::CONTROLLERS).filter(|entry| is_selected(entry.name));
    let selected = selected.chain(simulation::ALWAYS);
    let selected: Vec<&Entry> = selected.filter(|entry| (entry.is_possible)(&settings)).collect();
    // At once, so that nobody who asks later believes them to be ready.
    selected.iter().for_each(|entry| readiness.expect(entry.name));
    async move {
        let context = Context::new(client, clock, metrics, settings);
        join_all(selected.into_iter().map(|entry| {
            supervise(entry.name, &context, || (entry.start)(context.clone(), readiness.clone()))
        }))
        .await;
        // A selection of nothing has nothing to do, for ever.
        std::future::pending().await
    }
}

/// The lease was lost, so that another process may run the controllers by now.
#[derive(Debug, thiserror::Error)]
#[error("leaderelection lost")]
pub struct LeaseLost;

/// Like [`run`], in one of several processes: only while the lease is held by `identity`, which is nobody else's. It ends
/// when the lease is lost, or when `stop` does; then the lease is given back.
///
/// # Errors
/// The lease was lost.
pub async fn run_elected(
    client: Client,
    options: Options,
    is_selected: impl Fn(&str) -> bool,
    identity: String,
    stop: impl Future<Output = ()>,
) -> Result<(), LeaseLost> {
    /// The lease ends by itself if it cannot be given back; nobody shall have to wait for that here.
    const RELEASE: Duration = Duration::from_secs(1);
    let clock = options.clock.clone();
    let context = Context::new(client.clone(), clock.clone(), options.metrics.clone(), Settings::default());
    let mut elector = LeaderElector::new(&context, identity);
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
    // Also where it was only about to be won: the answer may be on its way.
    tokio::select! {
        released = elector.release() => if let Err(error) = released {
            tracing::info!(%error, "the lease is not given back");
        },
        () = clock.sleep(RELEASE) => {}
    }
    Ok(())
}
