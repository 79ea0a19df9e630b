//! The metrics of an autoscaler, each read from the API of its source: the number of replicas that it
//! recommends, and its value for the status.

use coracle_quantity::Quantity;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricSource, ContainerResourceMetricStatus, ExternalMetricSource, ExternalMetricStatus,
    MetricIdentifier, MetricSpec, MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricSource,
    ObjectMetricStatus, PodsMetricSource, PodsMetricStatus, ResourceMetricSource, ResourceMetricStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::Selector;

use super::compute::Computation;
use super::metrics_client::custom::{self, CustomMetrics};
use super::metrics_client::{self, external};
use super::replicas::{self, Proposal, Tolerances, Total, Usage};

/// kube-controller-manager's default of `--horizontal-pod-autoscaler-tolerance`.
const TOLERANCE: f64 = 0.1;

/// A metric that was read.
pub struct Metric {
    pub name: String,
    pub replicas: i32,
    pub status: MetricStatus,
}

/// A metric that could not be read.
pub struct Failure {
    /// The reason of events and of the condition.
    pub reason: &'static str,
    /// The message of the event.
    pub message: String,
    /// Put before the message.
    pub context: String,
}

impl Computation<'_> {
    /// Reads one metric.
    ///
    /// # Errors
    /// Its API does not have it, or the pods do not suffice for a recommendation.
    pub async fn metric(&self, spec: &MetricSpec) -> Result<Metric, Failure> {
        match (spec.type_.as_str(), spec) {
            ("Resource", MetricSpec { resource: Some(source), .. }) => self.of_resource(source).await,
            ("ContainerResource", MetricSpec { container_resource: Some(source), .. }) => {
                self.of_container(source).await
            }
            ("Pods", MetricSpec { pods: Some(source), .. }) => self.of_pods(source).await,
            ("Object", MetricSpec { object: Some(source), .. }) => self.of_object(source).await,
            ("External", MetricSpec { external: Some(source), .. }) => self.of_another_system(source).await,
            // The API server admits none of them.
            (unknown, _) => Err(Failure {
                reason: "InvalidMetricSourceType",
                message: format!("unknown metric source type {unknown:?}"),
                context: String::new(),
            }),
        }
    }

    async fn of_resource(&self, source: &ResourceMetricSource) -> Result<Metric, Failure> {
        let ResourceMetricSource { name, target } = source;
        let (proposal, metric) = self.resource(name, None, target).await.map_err(|message| {
            let context = format!("failed to get {name} resource metric value: ");
            Failure { reason: "FailedGetResourceMetric", message, context }
        })?;
        let current = current_value(name, target, &proposal);
        let resource = Some(ResourceMetricStatus { name: name.clone(), current });
        let status = MetricStatus { type_: "Resource".to_owned(), resource, ..MetricStatus::default() };
        Ok(Metric { name: metric, replicas: proposal.replicas, status })
    }

    async fn of_container(&self, source: &ContainerResourceMetricSource) -> Result<Metric, Failure> {
        let ContainerResourceMetricSource { container, name, target } = source;
        let (proposal, metric) = self.resource(name, Some(container), target).await.map_err(|message| {
            let context = format!("failed to get {container} container metric value: ");
            Failure { reason: "FailedGetContainerResourceMetric", message, context }
        })?;
        let current = current_value(name, target, &proposal);
        let (name, container) = (name.clone(), container.clone());
        let status = MetricStatus {
            type_: "ContainerResource".to_owned(),
            container_resource: Some(ContainerResourceMetricStatus { name, container, current }),
            ..MetricStatus::default()
        };
        Ok(Metric { name: metric, replicas: proposal.replicas, status })
    }

    async fn of_pods(&self, source: &PodsMetricSource) -> Result<Metric, Failure> {
        let PodsMetricSource { metric, target } = source;
        let read = async || {
            let selector = selector_text(metric.selector.as_ref())?;
            let wanted = custom::Metric { name: &metric.name, selector: &selector };
            let samples = self.custom_metrics().of_pods(self.selector, wanted).await;
            let samples =
                samples.map_err(|error| format!("unable to get metric {}: {error}", metric.name))?;
            let target = target.average_value.as_ref().and_then(milli).unwrap_or_default();
            let usage = Usage { resource: "", container: None, pods: self.pods, samples, now: self.now };
            usage.replicas(self.current, replicas::Target::AverageValue(target), self.tolerances())
        };
        let proposal = read().await.map_err(|message| {
            let context = "failed to get pods metric value: ".to_owned();
            Failure { reason: "FailedGetPodsMetric", message, context }
        })?;
        let status = MetricStatus {
            type_: "Pods".to_owned(),
            pods: Some(PodsMetricStatus { current: average(proposal.average), metric: metric.clone() }),
            ..MetricStatus::default()
        };
        Ok(Metric { name: format!("pods metric {}", metric.name), replicas: proposal.replicas, status })
    }

    async fn of_object(&self, source: &ObjectMetricSource) -> Result<Metric, Failure> {
        let ObjectMetricSource { described_object, metric, target } = source;
        let read = async || {
            let selector = selector_text(metric.selector.as_ref())?;
            let wanted = custom::Metric { name: &metric.name, selector: &selector };
            let value = self.custom_metrics().of_object(described_object, wanted).await;
            value.map_err(|error| {
                let (kind, name, namespace) =
                    (&described_object.kind, &described_object.name, self.namespace());
                // The order is kube-controller-manager's.
                format!("unable to get metric {}: {kind} on {namespace} {name}/{error}", metric.name)
            })
        };
        let by_share = target.average_value.is_some();
        let context = match by_share {
            true => {
                format!("failed to get object metric value: failed to get {} object metric: ", metric.name)
            }
            false => "failed to get object metric value: ".to_owned(),
        };
        let fail = |message| Failure { reason: "FailedGetObjectMetric", message, context };
        let recommended = match read().await {
            Ok(value) => self.by_total("object", value, target),
            Err(error) => Err(error),
        };
        let (replicas, current) = recommended.map_err(fail)?;
        let name = match by_share {
            true => external_name(metric),
            false => format!("{} metric {}", described_object.kind, metric.name),
        };
        let object = ObjectMetricStatus {
            current,
            described_object: described_object.clone(),
            metric: metric.clone(),
        };
        let status =
            MetricStatus { type_: "Object".to_owned(), object: Some(object), ..MetricStatus::default() };
        Ok(Metric { name, replicas, status })
    }

    async fn of_another_system(&self, source: &ExternalMetricSource) -> Result<Metric, Failure> {
        let ExternalMetricSource { metric, target } = source;
        let name = &metric.name;
        let read = async || {
            let selector = selector_text(metric.selector.as_ref())?;
            let namespace = self.namespace();
            external::read(self.reader, namespace, name, &selector).await.map_err(|error| {
                let selector = as_in_go(metric.selector.as_ref());
                format!("unable to get external metric {namespace}/{name}/{selector}: {error}")
            })
        };
        let which = match target.average_value {
            Some(_) => format!("{name} external metric"),
            None => format!("external metric {name}"),
        };
        let context = format!("failed to get {name} external metric value: failed to get {which}: ");
        let fail = |message| Failure { reason: "FailedGetExternalMetric", message, context };
        let recommended = match read().await {
            Ok(value) => self.by_total("external", value, target),
            Err(error) => Err(error),
        };
        let (replicas, current) = recommended.map_err(fail)?;
        let external = Some(ExternalMetricStatus { current, metric: metric.clone() });
        let status = MetricStatus { type_: "External".to_owned(), external, ..MetricStatus::default() };
        Ok(Metric { name: external_name(metric), replicas, status })
    }

    /// Computes the replicas from one value for all pods, in thousandths.
    fn by_total(
        &self,
        source: &str,
        value: i64,
        target: &MetricTarget,
    ) -> Result<(i32, MetricValueStatus), String> {
        let total = Total { value, tolerances: self.tolerances() };
        let of = |quantity: &Option<Text>| quantity.as_ref().and_then(milli);
        match (of(&target.average_value), of(&target.value)) {
            (Some(share), _) => {
                let (replicas, share) = total.replicas_by_share(share, self.existing);
                Ok((replicas, average(share)))
            }
            (None, Some(target)) => {
                let replicas = total.replicas(target, self.current, self.pods)?;
                let value = Some(Text(usage_text("", value)));
                Ok((replicas, MetricValueStatus { value, ..MetricValueStatus::default() }))
            }
            (None, None) => Err(format!(
                "invalid {source} metric source: neither a value target nor an average value target was set"
            )),
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
        let samples =
            metrics_client::resource::read(self.reader, self.namespace(), self.selector, resource, container)
                .await;
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

    fn namespace(&self) -> &str {
        self.autoscaler.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn custom_metrics(&self) -> CustomMetrics<'_> {
        CustomMetrics { client: self.reader, discovery: self.discovery, namespace: self.namespace() }
    }
}

/// Returns the name of a metric that has one value for all pods, as in messages.
fn external_name(metric: &MetricIdentifier) -> String {
    format!("external metric {}({})", metric.name, as_in_go(metric.selector.as_ref()))
}

/// Returns the text of a selector for a request.
fn selector_text(selector: Option<&LabelSelector>) -> Result<String, String> {
    let selector =
        selector.cloned().map(Selector::try_from).transpose().map_err(|error| error.to_string())?;
    Ok(selector.map(|selector| selector.to_string()).unwrap_or_default())
}

fn average(milli: i64) -> MetricValueStatus {
    MetricValueStatus { average_value: Some(Text(usage_text("", milli))), ..MetricValueStatus::default() }
}

/// Formats a selector as Go's `%v` does.
fn as_in_go(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
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
    if resource == "memory" && milli.unsigned_abs() >= 1024 * 1000 {
        let power = (bytes.trailing_zeros() / 10) as usize;
        return format!("{}{}", bytes >> (10 * power), BINARY[power]);
    }
    let text = format!("{milli}m");
    coracle_quantity::printed(&text).map(std::borrow::Cow::into_owned).unwrap_or(text)
}

/// Returns a quantity in thousandths, or `None` if it is not valid.
pub fn milli(quantity: &Text) -> Option<i64> {
    quantity.0.parse::<Quantity>().ok().map(|quantity| quantity.milli_value())
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
