//! The number of replicas that the metrics of an autoscaler recommend.

use std::sync::Arc;

use coracle_quantity::Quantity;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, HorizontalPodAutoscaler, MetricIdentifier, MetricSpec, MetricStatus,
    MetricTarget, MetricValueStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::jiff::Timestamp;
use kube::Client;

use super::conditions::Statement;
use super::replicas::{self, Proposal, Tolerances, Usage};
use super::usage;

/// kube-controller-manager's default of `--horizontal-pod-autoscaler-tolerance`.
const TOLERANCE: f64 = 0.1;

/// The result of evaluating all metrics.
pub struct Computed {
    /// The number of replicas and the metric that recommends most of them, or the error of the
    /// metrics.
    pub outcome: Result<(i32, String), String>,
    /// The condition `ScalingActive`.
    pub active: Statement,
    /// The current value of each metric.
    pub statuses: Vec<MetricStatus>,
    /// The reason and the message of a warning for each metric that cannot be used.
    pub warnings: Vec<(String, String)>,
    /// The error of some metrics, if the others suffice.
    pub error: Option<String>,
}

/// A metric that was read.
struct Metric {
    name: String,
    replicas: i32,
    status: MetricStatus,
}

/// A metric that could not be read.
struct Failure {
    /// The reason of events and of the condition.
    reason: &'static str,
    /// The message of the event.
    message: String,
    /// Put before the message.
    context: String,
}

/// An autoscaler with the pods of its target.
pub struct Computation<'a> {
    pub reader: &'a Client,
    pub autoscaler: &'a HorizontalPodAutoscaler,
    pub selector: &'a str,
    pub pods: &'a [Arc<Pod>],
    pub current: i32,
    pub now: Timestamp,
}

impl Computation<'_> {
    /// Reads all metrics.
    pub async fn compute(&self) -> Computed {
        let specs = self.autoscaler.spec.metrics.as_deref().unwrap_or_default();
        let (mut statuses, mut warnings) = (Vec::with_capacity(specs.len()), Vec::new());
        let (mut highest, mut failures, mut first): (Option<(i32, String)>, usize, Option<Failure>) =
            (None, 0, None);
        for spec in specs {
            match self.metric(spec).await {
                Ok(metric) => {
                    if highest
                        .as_ref()
                        .is_none_or(|(replicas, _)| *replicas == 0 || metric.replicas > *replicas)
                    {
                        highest = Some((metric.replicas, metric.name));
                    }
                    statuses.push(metric.status);
                }
                Err(failure) => {
                    failures += 1;
                    warnings.push((failure.reason.to_owned(), failure.message.clone()));
                    statuses.push(MetricStatus::default());
                    first.get_or_insert(failure);
                }
            }
        }
        let error = first.as_ref().map(|failure| {
            format!(
                "invalid metrics ({failures} invalid out of {}), first error is: {}{}",
                specs.len(),
                failure.context,
                failure.message
            )
        });
        let (outcome, active) = match (highest, first, &error) {
            (Some(highest), None, _) => (Ok(highest.clone()), valid(&highest.1)),
            (Some(highest), Some(_), _) if highest.0 >= self.current => {
                (Ok(highest.clone()), valid(&highest.1))
            }
            (_, Some(failure), Some(error)) => {
                let message = format!("the HPA was unable to compute the replica count: {}", failure.message);
                (Err(error.clone()), Statement::scaling_active(false, failure.reason, message))
            }
            // The API server admits no autoscaler without metrics.
            (_, _, _) => (Ok((0, String::new())), valid("")),
        };
        Computed { outcome, active, statuses, warnings, error }
    }

    async fn metric(&self, spec: &MetricSpec) -> Result<Metric, Failure> {
        match spec.type_.as_str() {
            "Resource" => {
                let source = spec.resource.clone().unwrap_or_default();
                let (proposal, name) =
                    self.resource(&source.name, None, &source.target).await.map_err(|message| {
                        let context = format!("failed to get {} resource metric value: ", source.name);
                        Failure { reason: "FailedGetResourceMetric", message, context }
                    })?;
                let current = current_value(&source.target, &proposal);
                let resource = Some(ResourceMetricStatus { name: source.name, current });
                let status = MetricStatus { type_: spec.type_.clone(), resource, ..MetricStatus::default() };
                Ok(Metric { name, replicas: proposal.replicas, status })
            }
            "ContainerResource" => {
                let source = spec.container_resource.clone().unwrap_or_default();
                let container = Some(source.container.as_str());
                let (proposal, name) =
                    self.resource(&source.name, container, &source.target).await.map_err(|message| {
                        let context = format!("failed to get {} container metric value: ", source.name);
                        Failure { reason: "FailedGetContainerResourceMetric", message, context }
                    })?;
                let current = current_value(&source.target, &proposal);
                let status =
                    ContainerResourceMetricStatus { name: source.name, container: source.container, current };
                let status = MetricStatus {
                    type_: spec.type_.clone(),
                    container_resource: Some(status),
                    ..MetricStatus::default()
                };
                Ok(Metric { name, replicas: proposal.replicas, status })
            }
            _ => Err(self.unavailable(spec)),
        }
    }

    /// Computes the replicas from the usage of one resource. Returns the name of the metric, too.
    async fn resource(
        &self,
        resource: &str,
        container: Option<&str>,
        target: &MetricTarget,
    ) -> Result<(Proposal, String), String> {
        let kind = if container.is_some() { "container resource" } else { "resource" };
        let average = target.average_value.as_ref().and_then(milli);
        let (target, what, name) = match (average, target.average_utilization) {
            (Some(value), _) => {
                (replicas::Target::AverageValue(value), "usage", format!("{resource} {kind}"))
            }
            (None, Some(percent)) => {
                let name = format!("{resource} {kind} utilization (percentage of request)");
                (replicas::Target::Utilization(percent), "utilization", name)
            }
            (None, None) => {
                return Err("invalid resource metric source: neither an average utilization target nor an average value \
                            (usage) target was set"
                    .to_owned());
            }
        };
        let failed = |why: String| format!("failed to get {resource} {what}: {why}");
        let namespace = self.autoscaler.metadata.namespace.as_deref().unwrap_or_default();
        let samples = usage::read(self.reader, namespace, self.selector, resource, container).await;
        let samples = samples
            .map_err(|error| failed(format!("unable to get metrics for resource {resource}: {error}")))?;
        let usage = Usage { resource, container, pods: self.pods, samples, now: self.now };
        let proposal = usage.replicas(self.current, target, self.tolerances()).map_err(failed)?;
        Ok((proposal, name))
    }

    fn tolerances(&self) -> Tolerances {
        let behavior = self.autoscaler.spec.behavior.as_ref();
        let of = |tolerance: Option<&Text>| {
            tolerance.and_then(milli).map_or(TOLERANCE, |milli| milli as f64 / 1000.0)
        };
        let up = behavior.and_then(|behavior| behavior.scale_up.as_ref()?.tolerance.as_ref());
        let down = behavior.and_then(|behavior| behavior.scale_down.as_ref()?.tolerance.as_ref());
        Tolerances { up: of(up), down: of(down) }
    }

    /// Returns the failure for a metric of another API, since these APIs are not served.
    fn unavailable(&self, spec: &MetricSpec) -> Failure {
        const CUSTOM: &str = "unable to fetch metrics from custom metrics API: no custom metrics API \
                              (custom.metrics.k8s.io) registered";
        let namespace = self.autoscaler.metadata.namespace.as_deref().unwrap_or_default();
        let name = |metric: &MetricIdentifier| metric.name.clone();
        match (spec.type_.as_str(), &spec.pods, &spec.object, &spec.external) {
            ("Pods", Some(source), _, _) => Failure {
                reason: "FailedGetPodsMetric",
                message: format!("unable to get metric {}: {CUSTOM}", name(&source.metric)),
                context: "failed to get pods metric value: ".to_owned(),
            },
            ("Object", _, Some(source), _) => {
                let object = &source.described_object;
                // The order is kube-controller-manager's.
                let what = format!("{} on {namespace} {}/{CUSTOM}", object.kind, object.name);
                Failure {
                    reason: "FailedGetObjectMetric",
                    message: format!("unable to get metric {}: {what}", name(&source.metric)),
                    context: "failed to get object metric value: ".to_owned(),
                }
            }
            ("External", _, _, Some(source)) => {
                let metric = name(&source.metric);
                let selector =
                    source.metric.selector.as_ref().map_or_else(|| "nil".to_owned(), |s| format!("{s:?}"));
                let why = format!(
                    "unable to fetch metrics from external metrics API: the server could not find the requested resource \
                     (get {metric}.external.metrics.k8s.io)"
                );
                Failure {
                    reason: "FailedGetExternalMetric",
                    message: format!("unable to get external metric {namespace}/{metric}/{selector}: {why}"),
                    context: format!("failed to get {metric} external metric value: "),
                }
            }
            (unknown, ..) => Failure {
                reason: "InvalidMetricSourceType",
                message: format!("unknown metric source type {unknown:?}"),
                context: String::new(),
            },
        }
    }
}

fn valid(metric: &str) -> Statement {
    let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
    Statement::scaling_active(true, "ValidMetricFound", message)
}

/// Returns the value of a metric for the status: the mean usage, and the utilization if that is the
/// target.
fn current_value(target: &MetricTarget, proposal: &Proposal) -> MetricValueStatus {
    MetricValueStatus {
        average_utilization: proposal.utilization.filter(|_| target.average_value.is_none()),
        average_value: Some(Text(
            coracle_quantity::printed(&format!("{}m", proposal.average))
                .map_or_else(|_| format!("{}m", proposal.average), std::borrow::Cow::into_owned),
        )),
        value: None,
    }
}

/// Returns a quantity in thousandths, or `None` if it is not valid.
fn milli(quantity: &Text) -> Option<i64> {
    quantity.0.parse::<Quantity>().ok().map(|quantity| quantity.milli_value())
}
