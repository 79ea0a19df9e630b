//! The effects of the decisions of a scheduling cycle, and the time of the next one.

use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Delay;
use coracle_controller_runtime::batch::execute_all;
use coracle_controller_runtime::events::EventType;
use coracle_controller_runtime::{Action, Error, ReconcileContext};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::cluster_events::Effect;
use super::dynamic_resources::{Cleanup, DeviceBinding};
use super::executor::{ERROR, Nomination, UNSCHEDULABLE};
use super::plan::Decision;
use super::pod_info::uid;
use super::volume_binding::VolumeBinding;
use super::{PodSchedulingState, Scheduler};
use crate::timers::{DEVICE_BINDING_TIMEOUT, SCHEDULING_BACKOFF, SCHEDULING_CONTINUATION};

/// The largest number of concurrent bindings.
const BINDINGS: usize = 16;
/// The backoff of a pod after its claims could not be reserved, or after the search for devices
/// took too long. It doubles up to a maximum
/// (kube-scheduler's `podInitialBackoffSeconds` and `podMaxBackoffSeconds`).
const BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// A decision about a pod.
pub(super) struct Decided {
    pub pod: Arc<Pod>,
    pub decision: Decision,
    /// The number of times in a row that it has failed before.
    pub failures: u32,
}

/// The outcome of the decisions of a cycle.
#[derive(Default)]
struct Outcome {
    errors: Vec<Error>,
    /// Whether another cycle has to follow at once.
    is_incomplete: bool,
    /// Whether a pod has not got the node that was chosen for it.
    has_failed: bool,
}

impl Scheduler {
    /// Applies the decisions of a cycle, and returns when the next one is due without an event.
    ///
    /// - `since`: the time of the cycle
    pub(super) async fn apply(
        &self,
        decisions: Vec<Decided>,
        cleanups: &[Cleanup],
        since: Timestamp,
        ctx: &ReconcileContext,
    ) -> Result<Action, Error> {
        // Other pods do not wait for the writes to claims.
        let writes_claims =
            |decided: &Decided| matches!(decided.decision, Decision::BindDevices { .. } | Decision::Fail(_));
        let (with_claims, others): (Vec<_>, Vec<_>) = decisions.into_iter().partition(writes_claims);
        let mut outcome = Outcome::default();
        for decisions in [others, with_claims] {
            let mut bindings = Vec::new();
            for decided in decisions {
                match self.apply_one(decided, &mut outcome, ctx).await {
                    Ok(bound) => bindings.extend(bound),
                    Err(error) => outcome.errors.push(error),
                }
            }
            let bindings = bindings.into_iter().map(|(pod, node)| self.bind(pod, node));
            let bound = execute_all(bindings.collect::<Vec<_>>(), BINDINGS).await;
            outcome.errors.extend(bound.into_iter().filter_map(Result::err));
        }
        for cleanup in cleanups {
            outcome.errors.extend(self.clean_up(cleanup, ctx).await.err());
        }
        if outcome.has_failed {
            // The nodes of the failed pods are free again for others.
            self.events.count(Effect::OnAll);
        }
        match outcome.errors.into_iter().next() {
            Some(error) => Err(error),
            None if outcome.is_incomplete || outcome.has_failed => {
                Ok(Action::Requeue(SCHEDULING_CONTINUATION.after(Duration::ZERO)))
            }
            None => Ok(self.next_cycle(since)),
        }
    }

    /// Applies a decision. Returns the pod and its node if it is to be bound.
    async fn apply_one(
        &self,
        Decided { pod, decision, failures }: Decided,
        outcome: &mut Outcome,
        ctx: &ReconcileContext,
    ) -> Result<Option<(Arc<Pod>, String)>, Error> {
        match decision {
            Decision::Bind(node) => return Ok(Some((pod, node))),
            Decision::BindVolumes(node, volumes) => self.bind_volumes(&pod, &node, &volumes, ctx).await?,
            Decision::BindDevices { node, volumes, devices } => {
                match self.bind_devices(&pod, &devices, ctx).await {
                    Err(error) => {
                        outcome.has_failed = true;
                        self.fail(&pod, &error, failures, ctx).await?;
                    }
                    Ok(()) if volumes.is_empty() && !devices.has_conditions => return Ok(Some((pod, node))),
                    Ok(()) => {
                        // The conditions may be met already, so that no event will come.
                        outcome.is_incomplete = true;
                        self.wait_for_devices(&pod, &node, &devices);
                        self.bind_volumes(&pod, &node, &volumes, ctx).await?;
                    }
                }
            }
            Decision::Fail(error) => {
                outcome.has_failed = true;
                self.release_claims(&pod, ctx).await;
                self.fail(&pod, &error, failures, ctx).await?;
            }
            Decision::Error(error) => {
                self.report_unschedulable(&pod, ERROR, &error, Nomination::Ends, ctx).await?;
            }
            Decision::TimeOut(error) => {
                self.back_off(&pod, failures);
                self.report_unschedulable(&pod, ERROR, &error, Nomination::Ends, ctx).await?;
            }
            Decision::Defer => outcome.is_incomplete = true,
            Decision::Preempt { message, node, victims } => {
                self.preempt(&pod, &message, &node, &victims, ctx).await?;
            }
            Decision::Reject { message, keeps_nomination } => {
                let nomination = if keeps_nomination { Nomination::Unchanged } else { Nomination::Ends };
                self.report_unschedulable(&pod, UNSCHEDULABLE, &message, nomination, ctx).await?;
            }
        }
        Ok(None)
    }

    /// Binds the volumes of a pod on a node, for which it is nominated meanwhile.
    async fn bind_volumes(
        &self,
        pod: &Pod,
        node: &str,
        volumes: &[VolumeBinding],
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let mut outcome = self.nominate(pod, node, ctx).await;
        for volume in volumes {
            outcome = outcome.and(self.bind_volume(volume, node, ctx).await);
        }
        outcome
    }

    fn wait_for_devices(&self, pod: &Pod, node: &str, devices: &DeviceBinding) {
        if devices.has_conditions {
            let message = format!("waiting for binding conditions for device on node {node}");
            self.recorder.action(pod, EventType::Normal, "BindingConditionsPending", "Scheduling", message);
        }
    }

    /// Reports that the claims of a pod could not be reserved. It is tried again after a while.
    async fn fail(&self, pod: &Pod, error: &str, failures: u32, ctx: &ReconcileContext) -> Result<(), Error> {
        self.back_off(pod, failures);
        let message = format!("running PreBind plugin \"DynamicResources\": {error}");
        self.report_unschedulable(pod, ERROR, &message, Nomination::Unchanged, ctx).await
    }

    /// Puts the next attempt to schedule a pod off, the longer the more have failed.
    fn back_off(&self, pod: &Pod, failures: u32) {
        let delay = BACKOFF.saturating_mul(2_u32.saturating_pow(failures)).min(MAX_BACKOFF);
        let until =
            SignedDuration::try_from(delay).ok().and_then(|delay| self.clock.now().checked_add(delay).ok());
        let until = until.unwrap_or(Timestamp::MAX);
        let state = PodSchedulingState::BackingOff { until, failures: failures.saturating_add(1) };
        self.known().insert(uid(pod).to_owned(), state);
    }

    /// Removes a pod from the consumers of its claims.
    async fn release_claims(&self, pod: &Pod, ctx: &ReconcileContext) {
        let claims = self.devices.claims_of(pod).unwrap_or_default();
        let claims: Vec<_> = claims.iter().map(|claim| (**claim).clone()).collect();
        self.unreserve(pod, &claims, ctx).await;
        if let Some(claim) = self.devices.extended_claim_of(pod) {
            // The garbage collector deletes it with its pod otherwise.
            self.clean_up(&Cleanup::Delete(claim), ctx).await.ok();
        }
    }

    /// Returns the time of the next cycle without an event: a backoff ends, or devices time out.
    ///
    /// - `since`: the time of this cycle. What was due then is handled already.
    pub(super) fn next_cycle(&self, since: Timestamp) -> Action {
        let now = self.clock.now();
        let until = |time: Timestamp| Duration::try_from(time.duration_since(now)).unwrap_or_default();
        let known = self.known();
        let waiting = known.values().filter_map(|state| match state {
            PodSchedulingState::BackingOff { until: time, .. } => {
                Some(SCHEDULING_BACKOFF.after(until(*time)))
            }
            _ => None,
        });
        let backoff = waiting.min();
        let waits = known.values().any(PodSchedulingState::waits_for_claims);
        drop(known);
        let timeout = waits.then(|| self.next_device_timeout(since)).flatten();
        let timeout = timeout.map(|time| DEVICE_BINDING_TIMEOUT.after(until(time)));
        let next: Option<Delay> = [backoff, timeout].into_iter().flatten().min();
        next.map_or(Action::AwaitChange, Action::Requeue)
    }

    /// Returns the time at which the devices of the first pod that waits for them time out.
    fn next_device_timeout(&self, since: Timestamp) -> Option<Timestamp> {
        let pods = self.pods.by::<super::Unassigned>(&super::Unassigned::key());
        let known = self.known();
        let waits = |pod: &&Arc<Pod>| known.get(uid(pod)).is_some_and(PodSchedulingState::waits_for_claims);
        pods.iter().filter(waits).filter_map(|pod| self.devices.deadline(pod, since)).min()
    }
}
