//! The number of replicas that the metrics of an autoscaler recommend.

use std::sync::Arc;

use coracle_controller_runtime::discovery::DiscoverySnapshot;
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, MetricStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Client;

use super::conditions::Statement;
use super::metric_source::Failure;

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

/// An autoscaler with the pods of its target.
pub struct Computation<'a> {
    pub reader: &'a Client,
    pub discovery: &'a DiscoverySnapshot,
    pub autoscaler: &'a HorizontalPodAutoscaler,
    pub selector: &'a str,
    pub pods: &'a [Arc<Pod>],
    /// The number of replicas that the target should have.
    pub current: i32,
    /// The number of replicas that it has.
    pub existing: i32,
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
}

fn valid(metric: &str) -> Statement {
    let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
    Statement::scaling_active(true, "ValidMetricFound", message)
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
        let api = tower::service_fn(move |request: Request<Body>| {
            // No group is served.
            let (code, response) = match request.uri().path() {
                "/apis" => (200, &json!({"groups": []})),
                _ => (code, &response),
            };
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
            discovery: &DiscoverySnapshot::default(),
            autoscaler: &serde_json::from_value(autoscaler).unwrap(),
            selector: "a=b",
            pods: &[serde_json::from_value(pod).map(Arc::new).unwrap()],
            current: 1,
            existing: 1,
            now: Timestamp::UNIX_EPOCH,
        };
        computation.compute().await
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
