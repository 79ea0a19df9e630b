//! pod-garbage-collector-controller: deletes the pods that no kubelet will delete.
//!
//! All pods are checked periodically:
//! 1. ended pods, once there are too many;
//! 2. terminating pods on a node that is out of service (KEP-2268), or without a node;
//! 3. pods on nodes that do not exist: a node must be missing for some time, and on the server,
//!    before its pods are deleted.
//!
//! A pod is marked as failed first, so that clients that wait for its end observe one.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::batch::execute_all;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_not_found, uid_precondition,
};
use coracle_kinds::pods;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Patch;
use kube::{Api, Client};
use parking_lot::Mutex;
use prometheus::CounterVec;
use serde_json::json;

use crate::settings::{Context, Settings};
use crate::timers::{LEFT_OVER_PODS, POD_GARBAGE_COLLECTION};
use plan::{Quarantine, Reason};

/// kube-controller-manager's defaults.
const PERIOD: Duration = Duration::from_secs(20);
const QUARANTINE: Duration = Duration::from_secs(40);
const TERMINATED_THRESHOLD: usize = 12_500;

/// The only key.
const ALL: &str = "pods";

/// The number of pods that are deleted concurrently.
const MAX_CONCURRENT: usize = 20;

pub struct PodGarbageCollector {
    reader: Client,
    clock: Clock,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<Node>>,
    quarantine: Mutex<Quarantine>,
    deleted: CounterVec,
    errors: CounterVec,
}

impl Initialize<Settings> for PodGarbageCollector {
    fn new(context: &Context) -> PodGarbageCollector {
        let counter = |name, help| context.metrics.counter(name, help, &["namespace", "reason"]);
        PodGarbageCollector {
            reader: context.unrecorded.clone(),
            clock: context.clock.clone(),
            pods: context.cache(),
            nodes: context.cache(),
            quarantine: Mutex::default(),
            deleted: counter(
                "pod_gc_collector_force_delete_pods_total",
                "Number of pods that are being forcefully deleted since the Pod GC Controller started.",
            ),
            errors: counter(
                "pod_gc_collector_force_delete_pod_errors_total",
                "Number of errors encountered when forcefully deleting the pods since the Pod GC Controller started.",
            ),
        }
    }
}

impl Controller for PodGarbageCollector {
    const NAME: &'static str = "pod-garbage-collector-controller";
    const QUEUE_NAME: &'static str = "orphaned_pods_nodes";
    const WORKERS: usize = 1;
    /// There is one key for all pods.
    type Key = &'static str;

    fn sources(&self, sources: &mut Sources<&'static str>) {
        sources.every(POD_GARBAGE_COLLECTION.after(PERIOD), &self.clock, ALL);
        let nodes = self.nodes.clone();
        sources.on(&self.pods, move |change, queue| {
            let has_lost_its_node = |pod: &Arc<Pod>| match pods::node(pod) {
                Some(node) => nodes.get(&NamespacedName::new("", node)).is_none(),
                None => pod.metadata.deletion_timestamp.is_some(),
            };
            let concerns = change.changed(|pod| {
                (pods::node(pod).map(str::to_owned), pod.metadata.deletion_timestamp.is_some())
            });
            if concerns && change.new.as_ref().is_some_and(has_lost_its_node) {
                queue.add_after(ALL, LEFT_OVER_PODS.after(PERIOD));
            }
        });
        sources.on(&self.nodes, |change, queue| {
            let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.clone());
            if change.new.is_none() || change.changed(taints) {
                queue.add_after(ALL, LEFT_OVER_PODS.after(PERIOD));
            }
        });
    }

    async fn reconcile(&self, _: &&'static str, ctx: &ReconcileContext) -> Result<Action, Error> {
        let (pods, nodes) = (self.pods.all(), self.nodes.all());
        let pods = || pods.iter().map(Arc::as_ref);
        let nodes: BTreeMap<&str, &Node> =
            nodes.iter().filter_map(|node| Some((node.metadata.name.as_deref()?, node.as_ref()))).collect();
        let mut terminating = plan::pods_to_delete(pods(), &nodes, TERMINATED_THRESHOLD);
        let missed = {
            let mut quarantine = self.quarantine.lock();
            quarantine.observe(pods(), &nodes, QUARANTINE, self.clock.now())
        };
        for node in missed {
            match Api::<Node>::all(self.reader.clone()).get_metadata_opt(&node).await {
                Ok(None) => terminating.extend(plan::orphans_of_node(&node, pods())),
                Ok(Some(_)) => {}
                // The next check starts the wait again.
                Err(error) => tracing::info!(%node, %error, "the node cannot be read"),
            }
        }
        let work = terminating.into_iter().map(|(pod, reason)| self.count(pod, reason, ctx));
        execute_all(work, MAX_CONCURRENT).await;
        let is_empty = self.quarantine.lock().is_empty();
        Ok(if is_empty { Action::AwaitChange } else { Action::Requeue(LEFT_OVER_PODS.after(PERIOD)) })
    }
}

impl PodGarbageCollector {
    async fn count(&self, pod: &Pod, reason: Reason, ctx: &ReconcileContext) {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let labels = &[namespace, reason.label()];
        self.deleted.with_label_values(labels).inc();
        if let Err(error) = self.delete(pod, reason, ctx).await {
            self.errors.with_label_values(labels).inc();
            tracing::info!(namespace, pod = pod.metadata.name, %error, "cannot delete the pod");
        }
    }

    async fn delete(&self, pod: &Pod, reason: Reason, ctx: &ReconcileContext) -> kube::Result<()> {
        let pods = ctx.api(&self.pods);
        if let Some(status) = plan::failed_status(pod, reason, self.clock.now()) {
            let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
            let patched = pods.patch_status_unread(&NamespacedName::of(pod), Patch::Strategic(patch)).await;
            // A pod that does not exist is deleted nevertheless, so that the next reconciliation
            // waits until that is observed.
            ignore_not_found(patched)?;
        }
        ignore_not_found(pods.delete(pod, &uid_precondition(pod).grace_period(0)).await).map(|_| ())
    }
}
