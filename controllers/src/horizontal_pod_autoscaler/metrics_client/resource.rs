//! The usage of pods, from the resource metrics API (`metrics.k8s.io`).

use std::collections::BTreeMap;

use coracle_quantity::Quantity;
use kube::Client;
use serde::Deserialize;

use super::Query;
use crate::horizontal_pod_autoscaler::replicas::Sample;

#[derive(Deserialize)]
struct PodMetricsList {
    items: Option<Vec<PodMetrics>>,
}

#[derive(Deserialize)]
struct PodMetrics {
    metadata: Metadata,
    timestamp: String,
    window: String,
    containers: Option<Vec<ContainerMetrics>>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
struct ContainerMetrics {
    name: String,
    #[serde(default)]
    usage: BTreeMap<String, String>,
}

/// Reads the usage of each pod that a selector matches.
///
/// # Errors
/// kube-controller-manager's message about the failure.
pub async fn read(
    client: &Client,
    namespace: &str,
    selector: &str,
    resource: &str,
    container: Option<&str>,
) -> Result<BTreeMap<String, Sample>, String> {
    let query = Query {
        resource: "pods.metrics.k8s.io".to_owned(),
        name: None,
        path: &["apis", "metrics.k8s.io", "v1beta1", "namespaces", namespace, "pods"],
        parameters: &[("labelSelector", selector)],
    };
    let list: PodMetricsList = query
        .send(client)
        .await
        .map_err(|error| format!("unable to fetch metrics from resource metrics API: {error}"))?;
    match list.items.as_deref() {
        None | Some([]) => Err("no metrics returned from resource metrics API".to_owned()),
        Some(pods) => Ok(pods.iter().filter_map(|pod| sample(pod, resource, container)).collect()),
    }
}

/// Returns the name and the usage of a pod, or `None` if the usage of a container is not known.
fn sample(pod: &PodMetrics, resource: &str, only: Option<&str>) -> Option<(String, Sample)> {
    let containers = pod.containers.iter().flatten();
    let containers = containers.filter(|container| only.is_none_or(|only| container.name == only));
    let (mut usage, mut is_known) = (0i64, false);
    for container in containers {
        let quantity: Quantity = container.usage.get(resource)?.parse().ok()?;
        usage = usage.saturating_add(quantity.milli_value());
        is_known = true;
    }
    let at = pod.timestamp.parse().ok()?;
    let window = coracle_duration::parse(&pod.window).ok()?;
    is_known.then(|| (pod.metadata.name.clone(), Sample { usage, at, window }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_usage_of_a_pod_is_that_of_its_containers() {
        let metrics: PodMetrics = serde_json::from_value(json!({
            "metadata": {"name": "p"}, "timestamp": "2026-01-01T00:00:00Z", "window": "30s",
            "containers": [
                {"name": "a", "usage": {"cpu": "250m", "memory": "64Mi"}},
                {"name": "b", "usage": {"cpu": "1"}},
            ],
        }))
        .unwrap();
        for (resource, container, want) in [
            ("cpu", None, Some(1250)),
            ("cpu", Some("a"), Some(250)),
            ("cpu", Some("x"), None),
            ("memory", None, None),
            ("memory", Some("a"), Some(64 * 1024 * 1024 * 1000)),
        ] {
            let got = sample(&metrics, resource, container).map(|(_, sample)| sample.usage);
            assert_eq!(got, want, "{resource} {container:?}");
        }
    }
}
