//! Reads the usage of pods from the resource metrics API (`metrics.k8s.io`).

use std::collections::BTreeMap;

use coracle_controller_runtime::Error;
use coracle_quantity::Quantity;
use kube::Client;
use kube::api::ListParams;
use kube::core::Request;
use serde_json::Value;

use super::replicas::Sample;

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
    let failed = |why: String| format!("unable to fetch metrics from resource metrics API: {why}");
    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods");
    let request = Request::new(path).list(&ListParams::default().labels(selector));
    let request = request.map_err(|error| failed(error.to_string()))?;
    let list: Value = client.request(request).await.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 404 => {
            failed("the server could not find the requested resource (get pods.metrics.k8s.io)".to_owned())
        }
        error => failed(Error::from(error).message()),
    })?;
    match list["items"].as_array().map(Vec::as_slice) {
        None | Some([]) => Err("no metrics returned from resource metrics API".to_owned()),
        Some(pods) => Ok(pods.iter().filter_map(|pod| sample(pod, resource, container)).collect()),
    }
}

/// Returns the name and the usage of a pod, or `None` if the usage of a container is not known.
fn sample(pod: &Value, resource: &str, only: Option<&str>) -> Option<(String, Sample)> {
    let name = |value: &Value| value["name"].as_str().map(str::to_owned);
    let containers = pod["containers"].as_array()?.iter();
    let containers = containers.filter(|container| only.is_none() || name(container).as_deref() == only);
    let (mut usage, mut is_known) = (0i64, only.is_none());
    for container in containers {
        let quantity: Quantity = container["usage"][resource].as_str()?.parse().ok()?;
        usage = usage.saturating_add(quantity.milli_value());
        is_known = true;
    }
    let at = pod["timestamp"].as_str()?.parse().ok()?;
    let window = coracle_duration::parse(pod["window"].as_str()?).ok()?;
    is_known.then_some((name(&pod["metadata"])?, Sample { usage, at, window }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_usage_of_a_pod_is_that_of_its_containers() {
        let metrics = json!({
            "metadata": {"name": "p"}, "timestamp": "2026-01-01T00:00:00Z", "window": "30s",
            "containers": [
                {"name": "a", "usage": {"cpu": "250m", "memory": "64Mi"}},
                {"name": "b", "usage": {"cpu": "1"}},
            ],
        });
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
