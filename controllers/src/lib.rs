//! Loops that reach desired state, written on the Kubernetes API only: they would run unchanged against any cluster.
//!
//! One folder a controller, named as kube-controller-manager names it; [`runtime`] is the loop that all of them run in.
//! Start at [`CONTROLLERS`], then [`run`].

mod disruption;
mod garbage_collector;
mod namespace;
mod node;
mod pod_gc;
mod resource_quota;
mod root_ca;
pub mod runtime;
mod serviceaccount;
mod serviceaccount_token;

use futures::future::{BoxFuture, FutureExt, join_all};
use kube::Client;

use runtime::clock::Clock;
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
    entry::<disruption::Disruptions>(),
    Entry {
        name: garbage_collector::NAME,
        start: |context, readiness| {
            garbage_collector::run(context, move || readiness.ready(garbage_collector::NAME)).boxed()
        },
        is_possible: |_| true,
    },
    entry::<namespace::Namespaces>(),
    entry::<pod_gc::PodGarbageCollector>(),
    entry::<resource_quota::ResourceQuotas>(),
    entry::<root_ca::RootCertificates>(),
    entry::<serviceaccount::ServiceAccounts>(),
    entry::<serviceaccount_token::Tokens>(),
];

const fn entry<C: Controller>() -> Entry {
    let start = |context: Context, readiness: Readiness| {
        let controller = C::new(&context);
        runtime::run(context, controller, move || readiness.ready(C::NAME)).boxed()
    };
    Entry { name: C::NAME, start, is_possible: C::is_possible }
}

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
    let selected = CONTROLLERS.iter().filter(|entry| is_selected(entry.name)).chain(node::PARTS);
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
