//! The number of replicas that the metrics of an autoscaler recommend.

use std::sync::Arc;

use coracle_quantity::Quantity;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, HorizontalPodAutoscaler, MetricIdentifier, MetricSpec, MetricStatus,
    MetricTarget, MetricValueStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
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
                let current = current_value(&source.name, &source.target, &proposal);
                let resource = Some(ResourceMetricStatus { name: source.name, current });
                let status = MetricStatus { type_: spec.type_.clone(), resource, ..MetricStatus::default() };
                Ok(Metric { name, replicas: proposal.replicas, status })
            }
            "ContainerResource" => {
                let source = spec.container_resource.clone().unwrap_or_default();
                let container = Some(source.container.as_str());
                let (proposal, name) =
                    self.resource(&source.name, container, &source.target).await.map_err(|message| {
                        let context = format!("failed to get {} container metric value: ", source.container);
                        Failure { reason: "FailedGetContainerResourceMetric", message, context }
                    })?;
                let current = current_value(&source.name, &source.target, &proposal);
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
        let average = target.average_value.as_ref().and_then(milli);
        let (target, what, name) = match (average, target.average_utilization) {
            // kube-controller-manager does not mention a container here.
            (Some(value), _) => {
                (replicas::Target::AverageValue(value), "usage", format!("{resource} resource"))
            }
            (None, Some(percent)) => {
                let kind = if container.is_some() { "container resource" } else { "resource" };
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
                let (object, metric) = (&source.described_object, name(&source.metric));
                // The order is kube-controller-manager's.
                let what = format!("{} on {namespace} {}/{CUSTOM}", object.kind, object.name);
                let which = match source.target.average_value {
                    Some(_) => format!("failed to get {metric} object metric: "),
                    None => String::new(),
                };
                Failure {
                    reason: "FailedGetObjectMetric",
                    message: format!("unable to get metric {metric}: {what}"),
                    context: format!("failed to get object metric value: {which}"),
                }
            }
            ("External", _, _, Some(source)) => {
                let metric = name(&source.metric);
                let selector = source.metric.selector.as_ref().map_or_else(|| "nil".to_owned(), as_in_go);
                let which = match source.target.average_value {
                    Some(_) => format!("{metric} external metric"),
                    None => format!("external metric {metric}"),
                };
                let why = format!(
                    "unable to fetch metrics from external metrics API: the server could not find the requested resource \
                     (get {metric}.external.metrics.k8s.io)"
                );
                Failure {
                    reason: "FailedGetExternalMetric",
                    message: format!("unable to get external metric {namespace}/{metric}/{selector}: {why}"),
                    context: format!("failed to get {metric} external metric value: failed to get {which}: "),
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

/// Formats a selector as Go's `%v` does.
fn as_in_go(selector: &LabelSelector) -> String {
    let label = |(key, value): (&String, &String)| format!("{key}: {value},");
    let labels: String = selector.match_labels.iter().flatten().map(label).collect();
    let expression = |LabelSelectorRequirement { key, operator, values }: &LabelSelectorRequirement| {
        let values = values.as_deref().unwrap_or_default().join(" ");
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    };
    let expressions: String = selector.match_expressions.iter().flatten().map(expression).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

fn valid(metric: &str) -> Statement {
    let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
    Statement::scaling_active(true, "ValidMetricFound", message)
}

/// Returns the value of a metric for the status: the mean usage, and the utilization if that is the
/// target.
fn current_value(resource: &str, target: &MetricTarget, proposal: &Proposal) -> MetricValueStatus {
    MetricValueStatus {
        average_utilization: proposal.utilization.filter(|_| target.average_value.is_none()),
        average_value: Some(Text(usage_text(resource, proposal.average))),
        value: None,
    }
}

/// Returns the text of a usage in thousandths: memory has binary suffixes.
fn usage_text(resource: &str, milli: i64) -> String {
    const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let bytes = milli.div_euclid(1000) + i64::from(milli.rem_euclid(1000) > 0);
    if resource == "memory" && milli.abs() >= 1024 * 1000 {
        let power = (bytes.trailing_zeros() / 10) as usize;
        return format!("{}{}", bytes >> (10 * power), BINARY[power]);
    }
    let text = format!("{milli}m");
    coracle_quantity::printed(&text).map(std::borrow::Cow::into_owned).unwrap_or(text)
}

/// Returns a quantity in thousandths, or `None` if it is not valid.
fn milli(quantity: &Text) -> Option<i64> {
    quantity.0.parse::<Quantity>().ok().map(|quantity| quantity.milli_value())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// Computes the replicas for one metric of an autoscaler with a single pod, whose usage is this
    /// response of the resource metrics API.
    async fn computed(metric: &Value, (code, response): (u16, Value)) -> Computed {
        let api = tower::service_fn(move |_: Request<Body>| {
            let body = Body::from(response.to_string().into_bytes());
            std::future::ready(Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap()))
        });
        let autoscaler = json!({
            "metadata": {"name": "a", "namespace": "n"},
            "spec": {
                "maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d"}, "metrics": [metric],
            },
        });
        let pod = json!({
            "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]},
            "status": {"phase": "Running"},
        });
        let computation = Computation {
            reader: &Client::new(api, "default"),
            autoscaler: &serde_json::from_value(autoscaler).unwrap(),
            selector: "a=b",
            pods: &[serde_json::from_value(pod).map(Arc::new).unwrap()],
            current: 1,
            now: Timestamp::UNIX_EPOCH,
        };
        computation.compute().await
    }

    #[test]
    fn memory_is_written_with_binary_suffixes() {
        for (resource, milli, want) in [
            ("memory", 314_572_800_000, "300Mi"),
            ("memory", 1024 * 1000, "1Ki"),
            ("memory", 1023 * 1000, "1023"),
            ("memory", 1025 * 1000, "1025"),
            ("memory", 1024 * 1000 - 1, "1023999m"),
            ("memory", 2047 * 1000 + 1, "2Ki"),
            ("memory", 0, "0"),
            ("cpu", 2_000_000, "2k"),
            ("cpu", 500, "500m"),
        ] {
            assert_eq!(usage_text(resource, milli), want, "{resource} {milli}");
        }
    }

    fn not_found() -> (u16, Value) {
        (404, json!({"kind": "Status", "status": "Failure", "code": 404}))
    }

    #[tokio::test]
    async fn failures_have_the_words_of_kube_controller_manager() {
        const NO_RESOURCE: &str = "unable to get metrics for resource memory: unable to fetch metrics from resource metrics API: \
                                   the server could not find the requested resource (get pods.metrics.k8s.io)";
        const NO_OBJECT: &str = "unable to get metric m: Ingress on n i/unable to fetch metrics from custom metrics API: \
                                 no custom metrics API (custom.metrics.k8s.io) registered";
        let (value, average) = (json!({"type": "Value", "value": "1"}), json!({"averageValue": "1"}));
        let utilization = json!({"type": "Utilization", "averageUtilization": 50});
        let container = |target: &Value| {
            let source = json!({"name": "memory", "container": "c", "target": target});
            json!({"type": "ContainerResource", "containerResource": source})
        };
        let object = |target: &Value| {
            let described = json!({"kind": "Ingress", "name": "i"});
            let source = json!({"describedObject": described, "metric": {"name": "m"}, "target": target});
            json!({"type": "Object", "object": source})
        };
        for (metric, context, message) in [
            (
                container(&utilization),
                "failed to get c container metric value: ",
                format!("failed to get memory utilization: {NO_RESOURCE}"),
            ),
            (
                container(&average),
                "failed to get c container metric value: ",
                format!("failed to get memory usage: {NO_RESOURCE}"),
            ),
            (object(&value), "failed to get object metric value: ", NO_OBJECT.to_owned()),
            (
                object(&average),
                "failed to get object metric value: failed to get m object metric: ",
                NO_OBJECT.to_owned(),
            ),
        ] {
            let Computed { outcome, warnings, .. } = computed(&metric, not_found()).await;
            let error = format!("invalid metrics (1 invalid out of 1), first error is: {context}{message}");
            assert_eq!(outcome, Err(error));
            assert_eq!(warnings.into_iter().map(|(_, message)| message).collect::<Vec<_>>(), [message]);
        }
    }

    #[tokio::test]
    async fn an_external_metric_is_named_with_its_selector() {
        let (value, average) = (json!({"type": "Value", "value": "1"}), json!({"averageValue": "1"}));
        for (selector, target, context, printed) in [
            (json!(null), &value, "failed to get external metric q", "nil"),
            (json!(null), &average, "failed to get q external metric", "nil"),
            (
                json!({"matchLabels": {"c": "d", "a": "b"}}),
                &value,
                "failed to get external metric q",
                "&LabelSelector{MatchLabels:map[string]string{a: b,c: d,},MatchExpressions:[]LabelSelectorRequirement{},}",
            ),
            (
                json!({"matchExpressions": [
                    {"key": "k", "operator": "In", "values": ["x", "y"]}, {"key": "e", "operator": "Exists"},
                ]}),
                &value,
                "failed to get external metric q",
                "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{\
                 LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},\
                 LabelSelectorRequirement{Key:e,Operator:Exists,Values:[],},},}",
            ),
        ] {
            let source = json!({"metric": {"name": "q", "selector": selector}, "target": target});
            let metric = json!({"type": "External", "external": source});
            let Computed { outcome, warnings, .. } = computed(&metric, not_found()).await;
            let message = format!(
                "unable to get external metric n/q/{printed}: unable to fetch metrics from external metrics API: \
                 the server could not find the requested resource (get q.external.metrics.k8s.io)"
            );
            let context = format!("failed to get q external metric value: {context}: ");
            let error = format!("invalid metrics (1 invalid out of 1), first error is: {context}{message}");
            assert_eq!(outcome, Err(error));
            assert_eq!(warnings, [("FailedGetExternalMetric".to_owned(), message)]);
        }
    }

    #[tokio::test]
    async fn a_mean_of_a_container_is_named_by_the_resource() {
        let target = json!({"type": "AverageValue", "averageValue": "64Mi"});
        let source = json!({"name": "memory", "container": "c", "target": target});
        let metric = json!({"type": "ContainerResource", "containerResource": source});
        let usage = json!({
            "metadata": {"name": "p"}, "timestamp": "2026-01-01T00:00:00Z", "window": "30s",
            "containers": [{"name": "c", "usage": {"memory": "64Mi"}}],
        });
        let Computed { outcome, .. } = computed(&metric, (200, json!({"items": [usage]}))).await;
        assert_eq!(outcome, Ok((1, "memory resource".to_owned())));
    }
}
