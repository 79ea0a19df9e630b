//! taint-eviction-controller: deletes pods from nodes with taints of the effect NoExecute that they
//! do not tolerate.
//!
//! A pod is reconciled when it is bound, when its tolerations change, and when such taints of its
//! node do:
//! 1. a pod that tolerates all taints for ever is left alone; one that waits for its deletion no
//!    longer does;
//! 2. one that tolerates them for some time waits for so long, from when the taints were observed;
//! 3. one that does not, or no longer, gets the condition DisruptionTarget and is deleted.

mod plan;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::{EventType, Recorder};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_conflict, ignore_not_found,
};
use coracle_kinds::conditions::status_patch;
use coracle_kinds::pods;
use coracle_kinds::taints::no_execute_taints;
use coracle_volumes::indexes::ByNode;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod, PodCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::api::{DeleteParams, Patch};
use parking_lot::{Mutex, MutexGuard};
use prometheus::{CounterVec, HistogramVec};
use serde_json::{Value, json};

use crate::settings::{Context, Settings};
use crate::timers::TAINT_EVICTION;
use plan::{Eviction, Step, observed_since, plan};

pub struct TaintEvictionController {
    clock: Clock,
    recorder: Recorder,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<Node>>,
    evictions: Mutex<HashMap<NamespacedName, Eviction>>,
    /// The start of a fork, before which taints were observed when they were added.
    resumed: Option<Timestamp>,
    deletions: CounterVec,
    latency: HistogramVec,
}

impl Initialize<Settings> for TaintEvictionController {
    fn new(context: &Context) -> TaintEvictionController {
        const SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0];
        TaintEvictionController {
            clock: context.clock.clone(),
            recorder: context.recorder("taint-eviction-controller"),
            pods: context.cache(),
            nodes: context.cache(),
            evictions: Mutex::default(),
            resumed: context.settings.goes_on.then(|| context.clock.now()),
            deletions: context.metrics.counter(
                "taint_eviction_controller_pod_deletions_total",
                "Total number of Pods deleted by TaintEvictionController since its start.",
                &[],
            ),
            latency: context.metrics.histogram(
                "taint_eviction_controller_pod_deletion_duration_seconds",
                "Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion via TaintEvictionController.",
                &SECONDS,
                &[],
            ),
        }
    }
}

impl Controller for TaintEvictionController {
    const NAME: &'static str = "taint-eviction-controller";
    const QUEUE_NAME: &'static str = "noexec_taint_pod";
    const WORKERS: usize = 8;
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources.on_each_if(&self.pods, |change| {
            let spec = |pod: &Pod| {
                let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.clone());
                (pods::node(pod).map(str::to_owned), tolerations, pod.metadata.uid.clone())
            };
            change.states().any(|pod| pods::node(pod).is_some()) && change.changed(spec)
        });
        let pods = self.pods.clone();
        sources.on(&self.nodes, move |change, queue| {
            let evicting = |node: &Node| no_execute_taints(node).cloned().collect::<Vec<Taint>>();
            let is_tainted = |node: &Arc<Node>| no_execute_taints(node).next().is_some();
            let Some(name) = change.name() else { return };
            if change.states().any(is_tainted) && change.changed(evicting) {
                let here = pods.by::<ByNode>(&ByNode::key(&name.name));
                here.iter().for_each(|pod| queue.add(NamespacedName::of(pod.as_ref())));
            }
        });
    }

    async fn reconcile(&self, key: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let now = self.clock.now();
        let pod = self.pods.get(key);
        let node = pod.as_deref().and_then(pods::node);
        let node = node.and_then(|node| self.nodes.get(&NamespacedName::new("", node)));
        let known = self.evictions().get(key).cloned();
        let since = observed_since(pod.as_deref(), node.as_deref(), self.resumed, now);
        let plan = plan(pod.as_deref(), node.as_deref(), known.as_ref(), since, now);
        if plan.is_cancelled {
            let about = pod.as_ref().map_or_else(|| reference(key), |pod| pod.object_ref(&()));
            let message = format!("Cancelling deletion of Pod {key}");
            self.recorder.event(about, EventType::Normal, "TaintManagerEviction", message);
        }
        match (plan.step, pod) {
            (Step::Evict(eviction), Some(pod)) => {
                let message = format!("Marking for deletion Pod {key}");
                self.recorder.normal(pod.as_ref(), "TaintManagerEviction", message);
                self.evict(key, &pod, eviction.since, ctx).await?;
                self.evictions().insert(key.clone(), Eviction { is_done: true, ..eviction });
            }
            (Step::Wait(eviction), Some(_)) => {
                let delay = Duration::try_from(eviction.due.duration_since(now)).unwrap_or_default();
                self.evictions().insert(key.clone(), eviction);
                return Ok(Action::Requeue(TAINT_EVICTION.after(delay)));
            }
            (Step::Keep, Some(_)) => {}
            _ => {
                self.evictions().remove(key);
            }
        }
        Ok(Action::Cancel(&TAINT_EVICTION))
    }
}

impl TaintEvictionController {
    async fn evict(
        &self,
        key: &NamespacedName,
        pod: &Pod,
        since: Timestamp,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let pods = ctx.api(&self.pods);
        let live = pods.get(key).await?;
        let Some(live) = live.filter(|live| live.metadata.uid == pod.metadata.uid) else { return Ok(()) };
        if let Some(patch) = marking(&live, self.clock.now()) {
            let patched = pods.patch_status_unread(key, Patch::Strategic(patch)).await;
            if ignore_not_found(ignore_conflict(patched))?.flatten().is_none() {
                return Ok(());
            }
        }
        if ignore_not_found(pods.delete(&live, &DeleteParams::default()).await)?.is_some() {
            self.deletions.with_label_values::<&str>(&[]).inc();
            let passed = self.clock.now().duration_since(since).as_secs_f64();
            self.latency.with_label_values::<&str>(&[]).observe(passed);
        }
        Ok(())
    }

    fn evictions(&self) -> MutexGuard<'_, HashMap<NamespacedName, Eviction>> {
        self.evictions.lock()
    }
}

/// Returns the patch of the status that marks a pod for its deletion, or `None` if it is marked.
fn marking(pod: &Pod, now: Timestamp) -> Option<Value> {
    let condition = PodCondition {
        type_: "DisruptionTarget".to_owned(),
        status: "True".to_owned(),
        reason: Some("DeletionByTaintManager".to_owned()),
        message: Some("Taint manager: deleting due to NoExecute taint".to_owned()),
        observed_generation: pod.metadata.generation,
        last_transition_time: Some(Time(now)),
        ..PodCondition::default()
    };
    let is_same = |known: &PodCondition| {
        (&known.status, &known.reason, &known.message)
            == (&condition.status, &condition.reason, &condition.message)
    };
    if pods::conditions(pod).find(|known| known.type_ == condition.type_).is_some_and(is_same) {
        return None;
    }
    let known = pods::conditions(pod).map(|known| known.type_.as_str());
    Some(json!({"metadata": {"uid": pod.metadata.uid}, "status": status_patch(known, &[condition])}))
}

/// Builds a reference to a pod of which only the name is known.
fn reference(key: &NamespacedName) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(key.name.clone()),
        namespace: Some(key.namespace.clone()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_marked_once_after_its_other_conditions() {
        let pod = |conditions: &[Value]| -> Pod {
            let status = json!({"conditions": conditions});
            serde_json::from_value(json!({"metadata": {"uid": "u"}, "status": status})).unwrap()
        };
        let [ready, scheduled] = ["Ready", "PodScheduled"].map(|of| json!({"type": of, "status": "True"}));
        let patch = marking(&pod(&[ready.clone(), scheduled.clone()]), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(patch["metadata"], json!({"uid": "u"}));
        let order = json!([{"type": "Ready"}, {"type": "PodScheduled"}, {"type": "DisruptionTarget"}]);
        assert_eq!(patch["status"]["$setElementOrder/conditions"], order);
        let [mark] = patch["status"]["conditions"].as_array().unwrap().as_slice() else { panic!("{patch}") };
        assert_eq!((&mark["type"], &mark["status"]), (&json!("DisruptionTarget"), &json!("True")));
        let marked = pod(&[ready, mark.clone(), scheduled]);
        assert_eq!(marking(&marked, Timestamp::UNIX_EPOCH), None);
    }
}
