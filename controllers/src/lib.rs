//! Loops that reach desired state, written on the Kubernetes API only: they would run unchanged against any cluster.
//!
//! One folder a controller, named as kube-controller-manager names it; [`runtime`] is the loop that all of them run in.
//! Start at [`CONTROLLERS`], then [`run`].

mod attach_detach;
mod beneath;
mod csi;
mod disruption;
mod ephemeral_volume;
mod garbage_collector;
mod namespace;
mod node;
mod persistentvolume_binder;
mod persistentvolume_expander;
mod pod_gc;
mod provisioner;
mod pv_protection;
mod pvc_protection;
mod resource_quota;
mod root_ca;
pub mod runtime;
mod serviceaccount;
mod serviceaccount_token;
mod simulation;
mod statefulset;
mod volume;
mod volumeattributesclass_protection;
mod workload;

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, join_all};
use kube::Client;

use runtime::clock::Clock;
use runtime::leader::Election;
use runtime::metrics::Metrics;
use runtime::supervise::{Readiness, supervise};
use runtime::{Context, Controller, Settings};

/// A controller as it is listed.
pub struct Entry {
    /// kube-controller-manager's name.
    pub name: &'static str,
    /// Runs it until the future is dropped, and tells when it knows all it needs.
    start: fn(Context, Readiness) -> BoxFuture<'static, ()>,
    is_possible: fn(&Settings) -> bool,
}

/// All controllers there are.
pub const CONTROLLERS: &[Entry] = &[
    entry::<attach_detach::AttachDetach>(),
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
    entry::<pv_protection::VolumeProtection>(),
    entry::<pvc_protection::ClaimProtection>(),
    entry::<pod_gc::PodGarbageCollector>(),
    entry::<resource_quota::ResourceQuotas>(),
    entry::<root_ca::RootCertificates>(),
    entry::<serviceaccount::ServiceAccounts>(),
    entry::<serviceaccount_token::Tokens>(),
    entry::<statefulset::StatefulSets>(),
    entry::<volumeattributesclass_protection::AttributesClassProtection>(),
];

const fn entry<C: Controller>() -> Entry {
    let start = |context: Context, readiness: Readiness| {
        let controller = C::new(&context);
        runtime::run(context, controller, move || readiness.ready(C::NAME)).boxed()
    };
    Entry { name: C::NAME, start, is_possible: C::is_possible }
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
    let selected = CONTROLLERS.iter().chain(node::CONTROLLERS).filter(|entry| is_selected(entry.name));
    let selected = selected.chain(node::PARTS).chain(csi::PARTS);
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
    let mut election = Election::new(&context, identity);
    let leading = async {
        election.win().await;
        tokio::select! {
            () = election.keep() => {}
            // It has no end.
            () = run(client, options, is_selected) => {}
        }
    };
    // Who cannot tell whether the lease is still there must not lead.
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
        released = election.release() => if let Err(error) = released {
            tracing::info!(%error, "the lease is not given back");
        },
        () = clock.sleep(RELEASE) => {}
    }
    Ok(())
}
