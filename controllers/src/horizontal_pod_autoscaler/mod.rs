//! horizontal-pod-autoscaler-controller: adjusts the number of replicas of a target to the usage of
//! its pods.
//!
//! An autoscaler is reconciled every 15 seconds (`--horizontal-pod-autoscaler-sync-period`), and
//! that long after it changes, never at once:
//! 1. the scale of the target is read (`target.rs`); a size outside of the bounds is moved into
//!    them without metrics;
//! 2. the metrics recommend a number of replicas (`compute.rs`), each by its source
//!    (`metric_source.rs`, with `metrics_client/` and the arithmetic of `replicas.rs`);
//! 3. earlier recommendations, rates and bounds limit it (`stabilize.rs`);
//! 4. the scale is written if it differs, and the status with its conditions (`conditions.rs`).
//!
//! Usage comes from `metrics.k8s.io`, other metrics from `custom.metrics.k8s.io` and
//! `external.metrics.k8s.io`, which aggregated servers may serve. If an API is not served, as on a
//! cluster without metrics-server, the conditions and events report it.

mod compute;
mod conditions;
mod metric_source;
mod metrics;
mod metrics_client;
mod replicas;
mod stabilize;
mod target;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::discovery::Discovery;
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{Action, Controller, Error, Initialize, ReconcileContext, Sources};
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, MetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use parking_lot::{Mutex, MutexGuard};

use crate::settings::{Context, Settings};
use crate::timers::HORIZONTAL_POD_AUTOSCALER;
use compute::{Computation, Computed};
use conditions::Statement;
use metrics::Metrics;
use stabilize::{Memory, Request};
use target::{Target, get_scale, parse_selector, text_selects};

/// The shortest sync period: a shorter one would only read the same metrics again.
const MIN_SYNC_PERIOD: Duration = Duration::from_secs(1);
/// The delay after a failed write of the status.
const RETRY: Duration = Duration::from_secs(15);

pub struct HorizontalPodAutoscalerController {
    /// Writes the scale of targets of any kind, and reads metrics. Scales are not cached: each
    /// reconciliation reads its scale from the server.
    unrecorded: Client,
    clock: Clock,
    recorder: Recorder,
    metrics: Metrics,
    discovery: Arc<Discovery>,
    autoscalers: Arc<Cache<HorizontalPodAutoscaler>>,
    pods: Arc<Cache<Pod>>,
    known: Mutex<HashMap<NamespacedName, Known>>,
    sync_period: Duration,
}

/// The state kept for an autoscaler.
#[derive(Default)]
struct Known {
    memory: Memory,
    /// The selector of its target, as text.
    selector: String,
}

/// One pass over an autoscaler, which builds its status.
struct Pass<'a> {
    controller: &'a HorizontalPodAutoscalerController,
    name: &'a NamespacedName,
    autoscaler: &'a HorizontalPodAutoscaler,
    status: HorizontalPodAutoscalerStatus,
    now: Timestamp,
}

impl Initialize<Settings> for HorizontalPodAutoscalerController {
    fn new(context: &Context) -> HorizontalPodAutoscalerController {
        HorizontalPodAutoscalerController {
            unrecorded: context.unrecorded.clone(),
            clock: context.clock.clone(),
            recorder: context.recorder("horizontal-pod-autoscaler"),
            metrics: Metrics::new(&context.metrics),
            discovery: context.discovery(),
            autoscalers: context.cache(),
            pods: context.cache(),
            known: Mutex::default(),
            sync_period: context.settings.horizontal_pod_autoscaler_sync_period.max(MIN_SYNC_PERIOD),
        }
    }
}

impl Controller for HorizontalPodAutoscalerController {
    const NAME: &'static str = "horizontal-pod-autoscaler-controller";
    const QUEUE_NAME: &'static str = "horizontalpodautoscaler";
    const FIRST_RETRY: Duration = RETRY;
    const MAX_RETRY: Duration = RETRY;
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let sync_period = self.sync_period;
        sources.on(&self.autoscalers, move |change, queue| match (change.name(), &change.new) {
            (Some(name), Some(_)) => queue.add_after(name, HORIZONTAL_POD_AUTOSCALER.after(sync_period)),
            (Some(name), None) => queue.add(name),
            (None, _) => {}
        });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(autoscaler) = self.autoscalers.get(name) else {
            self.known().remove(name);
            self.metrics.forget(name);
            return Ok(Action::AwaitChange);
        };
        self.metrics.observe(name);
        let now = self.clock.now();
        let status = autoscaler.status.clone().unwrap_or_default();
        let mut pass = Pass { controller: self, name, autoscaler: &autoscaler, status, now };
        let outcome = pass.reconcile().await;
        let action = outcome.as_ref().map_or("none", |action| *action);
        let seconds = self.clock.now().duration_since(now).as_secs_f64();
        self.metrics.reconciled(action, outcome.is_err(), seconds);
        self.metrics.desired(name, pass.status.desired_replicas);
        let status = pass.status;
        self.update_status(&autoscaler, status, ctx).await?;
        // The error is in the conditions, and the reconciliation is repeated after the usual
        // period.
        if let Err(error) = outcome {
            tracing::debug!(autoscaler = %name, %error, "not scaled");
        }
        Ok(Action::Requeue(HORIZONTAL_POD_AUTOSCALER.after(self.sync_period)))
    }
}

impl HorizontalPodAutoscalerController {
    fn known(&self) -> MutexGuard<'_, HashMap<NamespacedName, Known>> {
        self.known.lock()
    }

    async fn update_status(
        &self,
        autoscaler: &HorizontalPodAutoscaler,
        status: HorizontalPodAutoscalerStatus,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        if autoscaler.status.clone().unwrap_or_default() == status {
            return Ok(());
        }
        let changed = HorizontalPodAutoscaler { status: Some(status), ..autoscaler.clone() };
        let replaced = ctx.api(&self.autoscalers).replace_status(&changed).await.map_err(Error::from);
        replaced.map(drop).inspect_err(|error| {
            self.recorder.warning(autoscaler, "FailedUpdateStatus", error.message());
        })
    }
}

impl Pass<'_> {
    /// Scales the target. Returns the action for the metrics.
    async fn reconcile(&mut self) -> Result<&'static str, String> {
        let controller = self.controller;
        let spec = &self.autoscaler.spec;
        let scale = get_scale(
            &controller.unrecorded,
            &controller.discovery,
            &self.name.namespace,
            &spec.scale_target_ref,
        );
        let target = scale.await.inspect_err(|error| {
            controller.recorder.warning(self.autoscaler, "FailedGetScale", error.clone());
            let message = format!("the HPA controller was unable to get the target's current scale: {error}");
            self.set(Statement::able_to_scale(false, "FailedGetScale", message));
        })?;
        let message = "the HPA controller was able to get the target's current scale";
        self.set(Statement::able_to_scale(true, "SucceededGetScale", message));
        let (current, min, max) = (target.replicas(), spec.min_replicas.unwrap_or(1), spec.max_replicas);
        controller.known().entry(self.name.clone()).or_default().memory.observe_first(current, self.now);
        let (desired, why, statuses) = if current == 0 && min != 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            self.set(Statement::scaling_active(false, "ScalingDisabled", message));
            (0, String::new(), None)
        } else if current > max {
            (max, "Current number of replicas above Spec.MaxReplicas".to_owned(), None)
        } else if current < min {
            (min, "Current number of replicas below Spec.MinReplicas".to_owned(), None)
        } else {
            self.by_metrics(&target, Request { current, recommended: 0, min, max, now: self.now }).await?
        };
        self.scale(&target, current, desired, &why, statuses).await
    }

    /// Returns the desired number of replicas by the metrics, the reason for it, and the metrics
    /// for the status.
    async fn by_metrics(
        &mut self,
        target: &Target,
        request: Request,
    ) -> Result<(i32, String, Option<Vec<MetricStatus>>), String> {
        let controller = self.controller;
        let outcome = match self.pods_of(target) {
            Ok(pods) => {
                let computation = Computation {
                    reader: &controller.unrecorded,
                    discovery: &controller.discovery.current(),
                    autoscaler: self.autoscaler,
                    selector: target.selector(),
                    pods: &pods,
                    current: request.current,
                    existing: target.existing_replicas(),
                    now: self.now,
                };
                let Computed { outcome, active, statuses, warnings, error } = computation.compute().await;
                for (reason, message) in warnings {
                    controller.recorder.warning(self.autoscaler, &reason, message);
                }
                self.set(active);
                if let Some(error) = error.filter(|_| outcome.is_ok()) {
                    tracing::debug!(autoscaler = %self.name, error, "some metrics are not used");
                }
                outcome.map_err(|error| (error, Some(statuses.clone()))).map(|highest| (highest, statuses))
            }
            Err(error) => Err((error, None)),
        };
        let ((recommended, metric), statuses) = outcome.map_err(|(error, statuses)| {
            self.set_replicas(request.current, self.status.desired_replicas, statuses);
            controller.recorder.warning(self.autoscaler, "FailedComputeMetricsReplicas", error.clone());
            error
        })?;
        let why = match recommended {
            more if more > request.current => format!("{metric} above target"),
            less if less < request.current => "All metrics below target".to_owned(),
            _ => String::new(),
        };
        let (desired, conditions) = {
            let mut known = controller.known();
            let memory = &mut known.entry(self.name.clone()).or_default().memory;
            memory.normalize(self.autoscaler.spec.behavior.as_ref(), Request { recommended, ..request })
        };
        conditions.into_iter().for_each(|condition| self.set(condition));
        Ok((desired, why, Some(statuses)))
    }

    /// Returns the pods of the target. It fails if the selector is not valid, or if another
    /// autoscaler selects some of the pods.
    fn pods_of(&mut self, target: &Target) -> Result<Vec<Arc<Pod>>, String> {
        let controller = self.controller;
        let text = target.selector();
        let fail = |pass: &mut Self, event: &str, error: &str, reason: &str, message: &str| {
            controller.recorder.warning(pass.autoscaler, event, error);
            pass.set(Statement::scaling_active(false, reason, message));
            error.to_owned()
        };
        if text.is_empty() {
            let message = "the HPA target's scale is missing a selector";
            return Err(fail(self, "SelectorRequired", "selector is required", "InvalidSelector", message));
        }
        let selector = parse_selector(text).map_err(|error| {
            let error =
                format!("couldn't convert selector into a corresponding internal selector object: {error}");
            fail(self, "InvalidSelector", &error, "InvalidSelector", &error)
        })?;
        let mut pods = controller.pods.in_namespace(&self.name.namespace);
        pods.retain(|pod| coracle_object_meta::selector_matches(&selector, &pod.metadata));
        let mut autoscalers: Vec<String> = {
            let mut known = controller.known();
            known.entry(self.name.clone()).or_default().selector = text.to_owned();
            let selects = |known: &Known| pods.iter().any(|pod| text_selects(&known.selector, &pod.metadata));
            let same = known.iter().filter(|(name, _)| name.namespace == self.name.namespace);
            let same = same.filter(|(_, known)| !known.selector.is_empty() && selects(known));
            same.map(|(name, _)| format!("{}/{}", name.namespace, name.name)).collect()
        };
        if autoscalers.len() > 1 {
            autoscalers.sort();
            let autoscalers = autoscalers.join(" ");
            let error = format!("pods by selector {text} are controlled by multiple HPAs: [{autoscalers}]");
            return Err(fail(self, "AmbiguousSelector", &error, "AmbiguousSelector", &error));
        }
        Ok(pods)
    }

    async fn scale(
        &mut self,
        target: &Target,
        current: i32,
        desired: i32,
        why: &str,
        statuses: Option<Vec<MetricStatus>>,
    ) -> Result<&'static str, String> {
        let controller = self.controller;
        if desired == current {
            self.set_replicas(current, desired, statuses);
            return Ok("none");
        }
        let recorded = format!("New size: {desired}; reason: {why}");
        if let Err(error) = target.set_replicas(&controller.unrecorded, desired).await {
            let error = Error::from(error).message();
            controller.recorder.warning(
                self.autoscaler,
                "FailedRescale",
                format!("{recorded}; error: {error}"),
            );
            let message = format!("the HPA controller was unable to update the target scale: {error}");
            self.set(Statement::able_to_scale(false, "FailedUpdateScale", message));
            self.set_replicas(current, self.status.desired_replicas, statuses);
            return Err(format!("failed to rescale: {error}"));
        }
        let message = format!("the HPA controller was able to update the target scale to {desired}");
        self.set(Statement::able_to_scale(true, "SucceededRescale", message));
        controller.recorder.normal(self.autoscaler, "SuccessfulRescale", recorded);
        {
            let mut known = controller.known();
            let memory = &mut known.entry(self.name.clone()).or_default().memory;
            memory.observe_scaling(self.autoscaler.spec.behavior.as_ref(), current, desired, self.now);
        }
        self.set_replicas(current, desired, statuses);
        self.status.last_scale_time = Some(Time(self.now));
        Ok(if desired > current { "scale_up" } else { "scale_down" })
    }

    fn set_replicas(&mut self, current: i32, desired: i32, statuses: Option<Vec<MetricStatus>>) {
        self.status.current_replicas = Some(current).filter(|current| *current != 0);
        self.status.desired_replicas = desired;
        self.status.current_metrics = statuses.filter(|statuses| !statuses.is_empty());
    }

    fn set(&mut self, statement: Statement) {
        conditions::set(self.status.conditions.get_or_insert_default(), statement, self.now);
    }
}
