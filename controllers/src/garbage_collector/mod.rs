//! garbage-collector-controller: deletes the dependents of owners that no longer exist.
//!
//! ```text
//!   monitors ─event──► graph (one task) ──work──► attempt-to-delete ─► workers ─► the API
//!   (metadata of all                    └──────► attempt-to-orphan ─► workers ─► the API
//!    deletable kinds)     ▲                                               │
//!                         └───────────────── absent ◄─────────────────────┘
//! ```
//!
//! 1. [`monitor`] watches the metadata of every resource that can be deleted, as reported by
//!    discovery.
//! 2. [`graph`] has the owners and dependents, and returns the objects to process after each
//!    change.
//! 3. A worker reads the object and its owners from the server; [`attempt::plan`] decides; the
//!    worker applies the plan.
//! 4. An owner that orphans its dependents is removed from their references, then its finalizer is
//!    removed.
//!
//! The graph may be old or wrong, so nothing is deleted without reading it from the server. Source:
//! API concepts, "Garbage Collection".

mod attempt;
mod graph;
mod monitor;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;

use coracle_controller_runtime::discovery::Discovery;
use coracle_controller_runtime::events::{EventType, Recorder};
use coracle_controller_runtime::metrics::QueueMetrics;
use coracle_controller_runtime::queue::Queue;
use coracle_controller_runtime::{propagate_panics, work};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use parking_lot::{Mutex, MutexGuard};
use prometheus::Counter;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::settings::Context;
use graph::{Change, Graph, Identity, Owner, Uid, Work};
use monitor::{MonitorEvent, Monitors, Reported, Reports};

pub const NAME: &str = "garbage-collector-controller";

/// The number of objects that are processed concurrently, in each of the two queues.
const WORKERS: usize = 20;

/// The state shared by the tasks of the collector.
struct Collector {
    /// Writes objects of any kind. They are not cached: a worker reads each object from the server
    /// before it decides.
    unrecorded: Client,
    resources: Arc<Discovery>,
    recorder: Recorder,
    graph: Mutex<Graph>,
    to_delete: Queue<Uid>,
    to_orphan: Queue<Uid>,
    reports: Reports,
    errors: Counter,
}

/// Runs until the future is dropped.
///
/// # Panics
/// If one of its tasks does.
pub async fn run(context: Context, ready: impl FnOnce() + Send + 'static) {
    let (reports, receiver) = Reports::new(context.clock.activity().clone());
    let errors = context.metrics.counter(
        "garbagecollector_controller_resources_sync_error_total",
        "Objects that could not be worked on, and are tried again",
        &[],
    );
    let collector = Arc::new(Collector {
        unrecorded: context.unrecorded.clone(),
        resources: context.discovery(),
        recorder: context.recorder(NAME),
        graph: Mutex::default(),
        to_delete: context.queue("garbage_collector_attempt_to_delete"),
        to_orphan: context.queue("garbage_collector_attempt_to_orphan"),
        reports: reports.clone(),
        errors: errors.with_label_values::<&str>(&[]),
    });
    let metrics = context.metrics.queue("garbage_collector_graph_changes");
    let (supervisor, clock) = (context.supervisor(), context.clock.clone());
    let goes_on = context.settings.goes_on;
    drop(context);
    let mut tasks = JoinSet::new();
    tasks.spawn(collector.clone().keep_graph(receiver, metrics));
    let monitors = Monitors::new(collector.unrecorded.clone(), clock, reports, supervisor, goes_on);
    let (synced, is_synced) = tokio::sync::oneshot::channel();
    let resources = collector.resources.clone();
    tasks.spawn(async move {
        let ready = move || {
            ready();
            // The receiver is dropped together with the collector.
            let _ = synced.send(());
        };
        monitors.run(&resources, ready).await;
    });
    // An object must not be taken for absent because it is not known yet.
    let _ = is_synced.await;
    let (deleting, orphaning) = (collector.clone(), collector.clone());
    futures::join!(
        propagate_panics(tasks),
        work(collector.to_delete.clone(), WORKERS, move |uid| deleting.clone().delete(uid)),
        work(collector.to_orphan.clone(), WORKERS, move |uid| orphaning.clone().orphan(uid)),
    );
}

impl Collector {
    /// Maintains the graph, as its only writer.
    async fn keep_graph(
        self: Arc<Self>,
        mut receiver: mpsc::UnboundedReceiver<Reported>,
        metrics: QueueMetrics,
    ) {
        // Each fork has this buffer.
        const BATCH: usize = 64;
        let mut events = Vec::with_capacity(BATCH);
        while receiver.recv_many(&mut events, BATCH).await > 0 {
            metrics.adds.inc_by(events.len() as f64);
            metrics.depth.set(receiver.len() as i64);
            let reported;
            let work: Vec<Work> = {
                let mut graph = self.graph();
                let (events, under_way): (Vec<_>, Vec<_>) = events.drain(..).unzip();
                reported = under_way;
                events.into_iter().flat_map(|event| observe(&mut graph, event)).collect()
            };
            work.into_iter().for_each(|work| self.enqueue(work));
            drop(reported);
        }
    }

    fn enqueue(&self, work: Work) {
        match work {
            Work::Delete(uid) => self.to_delete.add(uid),
            Work::DeleteLater(uid) => self.to_delete.retry(uid),
            Work::Orphan(uid) => self.to_orphan.add(uid),
            Work::ReportInvalidNamespace { dependent, owner } => {
                self.report_invalid_namespace(&dependent, &owner)
            }
        }
    }

    fn report_invalid_namespace(&self, dependent: &Identity, owner: &Owner) {
        let namespace = &dependent.namespace;
        let message = format!(
            "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace {namespace:?}",
            owner.api_version, owner.kind, owner.name, owner.uid
        );
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let about = ObjectReference {
            api_version: text(&dependent.api_version),
            kind: text(&dependent.kind),
            namespace: text(namespace),
            name: text(&dependent.name),
            uid: text(&dependent.uid),
            ..ObjectReference::default()
        };
        self.recorder.event(about, EventType::Warning, "OwnerRefInvalidNamespace", message);
    }

    /// Reports to the graph that an identity was not found.
    fn report_absent(&self, identity: Identity) {
        self.reports.send(MonitorEvent::Change(Change::Absent(identity)));
    }

    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock()
    }
}

fn observe(graph: &mut Graph, event: MonitorEvent) -> Vec<Work> {
    match event {
        MonitorEvent::Change(change) => graph.apply(change),
        MonitorEvent::Relisted { api_version, kind, seen, synced } => {
            let known = graph.observed(&api_version, &kind).into_iter();
            let gone: Vec<Identity> = known.filter(|identity| !seen.contains(&identity.uid)).collect();
            let work = gone.into_iter().flat_map(|identity| graph.apply(Change::Deleted(identity))).collect();
            synced.send_replace(true);
            work
        }
    }
}
