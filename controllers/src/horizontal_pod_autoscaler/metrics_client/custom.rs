//! Metrics of objects, from the custom metrics API (`custom.metrics.k8s.io`).
//!
//! Source: `k8s.io/metrics/pkg/client/custom_metrics`.

use std::collections::BTreeMap;

use coracle_controller_runtime::Error;
use coracle_controller_runtime::discovery::DiscoverySnapshot;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde::Deserialize;

use super::{NO_QUANTITY, Query};
use crate::horizontal_pod_autoscaler::metric_source::milli;
use crate::horizontal_pod_autoscaler::replicas::Sample;

const GROUP: &str = "custom.metrics.k8s.io";
/// The versions that are read; both have the fields that count.
const VERSIONS: [&str; 2] = ["custom.metrics.k8s.io/v1beta2", "custom.metrics.k8s.io/v1beta1"];
/// The window of a metric that does not have one, as of metrics-server.
const WINDOW: SignedDuration = SignedDuration::from_mins(1);
/// The name that stands for all objects.
const ALL_OBJECTS: &str = "*";

#[derive(Deserialize)]
struct MetricValueList {
    items: Option<Vec<MetricValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetricValue {
    described_object: Option<DescribedObject>,
    timestamp: Option<Timestamp>,
    /// `window` in v1beta1.
    #[serde(alias = "window")]
    window_seconds: Option<i64>,
    value: Quantity,
}

#[derive(Deserialize)]
struct DescribedObject {
    name: Option<String>,
}

/// The custom metrics API as one namespace has it.
pub struct CustomMetrics<'a> {
    pub client: &'a Client,
    pub discovery: &'a DiscoverySnapshot,
    pub namespace: &'a str,
}

/// A metric: its name, and the selector of its labels as text.
#[derive(Clone, Copy)]
pub struct Metric<'a> {
    pub name: &'a str,
    pub selector: &'a str,
}

impl CustomMetrics<'_> {
    /// Reads a metric of each pod that a selector matches.
    ///
    /// # Errors
    /// kube-controller-manager's message about the failure.
    pub async fn of_pods(
        &self,
        selector: &str,
        metric: Metric<'_>,
    ) -> Result<BTreeMap<String, Sample>, String> {
        let list = self.values("", "Pod", ALL_OBJECTS, selector, metric).await.map_err(unable)?;
        if list.is_empty() {
            return Err("no metrics returned from custom metrics API".to_owned());
        }
        let sample = |value: MetricValue| {
            let sample = Sample {
                usage: milli(&value.value)?,
                at: value.timestamp.unwrap_or(Timestamp::MIN),
                window: value.window_seconds.map_or(WINDOW, SignedDuration::from_secs),
            };
            Some((value.described_object?.name?, sample))
        };
        Ok(list.into_iter().filter_map(sample).collect())
    }

    /// Reads a metric of one object, in thousandths. The metric of a namespace is always that of
    /// the autoscaler's.
    ///
    /// # Errors
    /// kube-controller-manager's message about the failure.
    pub async fn of_object(
        &self,
        object: &CrossVersionObjectReference,
        metric: Metric<'_>,
    ) -> Result<i64, String> {
        let version = object.api_version.as_deref().unwrap_or_default();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let list = self.values(group, &object.kind, &object.name, "", metric).await.map_err(unable)?;
        match list.as_slice() {
            [value] => milli(&value.value).ok_or_else(|| unable(NO_QUANTITY.to_owned())),
            _ => Err(unable(format!(
                "the custom metrics API server returned {} results when we asked for exactly one",
                list.len()
            ))),
        }
    }

    async fn values(
        &self,
        group: &str,
        kind: &str,
        name: &str,
        selector: &str,
        metric: Metric<'_>,
    ) -> Result<Vec<MetricValue>, String> {
        let version = self.version().await?;
        // A namespace is in no path twice.
        let is_namespace = (group, kind) == ("", "Namespace");
        let (resource, name) = match is_namespace {
            true => ("metrics".to_owned(), metric.name),
            false => (self.resource(group, kind)?, name),
        };
        let mut path = vec!["apis", GROUP, &version, "namespaces", self.namespace, &resource, name];
        if !is_namespace {
            path.push(metric.name);
        }
        let query = Query {
            resource: format!("{resource}.{GROUP}"),
            name: Some(name),
            path: &path,
            parameters: &[("labelSelector", selector), ("metricLabelSelector", metric.selector)],
        };
        let list: MetricValueList = query.send(self.client).await?;
        Ok(list.items.unwrap_or_default())
    }

    /// Returns the resource of a kind with its group: `deployments.apps`.
    fn resource(&self, group: &str, kind: &str) -> Result<String, String> {
        let dotted = |name: &str| match group {
            "" => name.to_owned(),
            group => format!("{name}.{group}"),
        };
        let mut resources = self.discovery.resources.iter().map(|served| &served.resource);
        let found = resources.find(|resource| resource.group == group && resource.kind == kind);
        found.map(|resource| dotted(&resource.plural)).ok_or_else(|| {
            let kind_and_group = dotted(kind);
            format!("unable to map kind {kind_and_group} to resource: no matches for kind {kind:?} in group {group:?}")
        })
    }

    /// Returns the version of the API that the server prefers, of those that are read.
    async fn version(&self) -> Result<String, String> {
        let groups = self.client.list_api_groups().await.map_err(|error| Error::from(error).message())?;
        let group = groups.groups.into_iter().find(|group| group.name == GROUP);
        let group = group.ok_or_else(|| format!("no custom metrics API ({GROUP}) registered"))?;
        let mut versions = group.preferred_version.into_iter().chain(group.versions);
        let version = versions.find(|version| VERSIONS.contains(&version.group_version.as_str()));
        version
            .map(|version| version.version)
            .ok_or_else(|| "no known available metric versions found".to_owned())
    }
}

fn unable(error: String) -> String {
    format!("unable to fetch metrics from custom metrics API: {error}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coracle_controller_runtime::discovery::ServedResource;
    use http::{Request, Response};
    use kube::client::Body;
    use kube::discovery::ApiResource;
    use serde_json::{Value, json};

    use super::*;

    /// Returns a client of a server with these versions of the custom metrics API. Each metric that
    /// it returns is described by the URI of the request.
    fn serving(versions: &'static [&'static str], count: usize) -> Client {
        let respond = move |request: Request<Body>| {
            let version =
                |version: &&str| json!({"groupVersion": format!("{GROUP}/{version}"), "version": version});
            let versions: Vec<Value> = versions.iter().map(version).collect();
            let group = json!({"name": GROUP, "versions": versions, "preferredVersion": versions.first()});
            let value = json!({"describedObject": {"name": request.uri().to_string()}, "value": "1500m"});
            let document = match request.uri().path() {
                "/apis" if versions.is_empty() => json!({"groups": []}),
                "/apis" => json!({"groups": [group]}),
                _ => json!({"items": vec![value; count]}),
            };
            let response = Response::new(Body::from(document.to_string().into_bytes()));
            std::future::ready(Ok::<_, std::convert::Infallible>(response))
        };
        Client::new(tower::service_fn(respond), "default")
    }

    fn discovery() -> DiscoverySnapshot {
        let served = |group: &str, kind: &str, plural: &str| {
            let (group, kind, plural) = (group.to_owned(), kind.to_owned(), plural.to_owned());
            let resource =
                ApiResource { group, version: "v1".into(), api_version: "v1".into(), kind, plural };
            Arc::new(ServedResource { resource, namespaced: true, preferred: true, verbs: Vec::new() })
        };
        let resources = vec![served("", "Pod", "pods"), served("apps", "Deployment", "deployments")];
        DiscoverySnapshot { resources, ..DiscoverySnapshot::default() }
    }

    #[tokio::test]
    async fn metrics_are_read_in_the_preferred_version() {
        for (versions, want) in [(&["v1beta2", "v1beta1"][..], "v1beta2"), (&["v9", "v1beta1"], "v1beta1")] {
            let (client, discovery) = (serving(versions, 1), discovery());
            let api = CustomMetrics { client: &client, discovery: &discovery, namespace: "n" };
            let metric = Metric { name: "m", selector: "c=d" };
            let pods = api.of_pods("a=b", metric).await.unwrap();
            let (uri, sample) = pods.into_iter().next().unwrap();
            assert_eq!(sample.usage, 1500);
            assert_eq!(
                uri,
                format!(
                    "/apis/custom.metrics.k8s.io/{want}/namespaces/n/pods/*/m?labelSelector=a%3Db&metricLabelSelector=c%3Dd"
                )
            );
        }
    }

    #[tokio::test]
    async fn a_metric_of_an_object_is_one_value() {
        let reference = |version: &str, kind: &str| CrossVersionObjectReference {
            api_version: Some(version.to_owned()),
            kind: kind.to_owned(),
            name: "o".to_owned(),
        };
        const ONE: &[&str] = &["v1beta1"];
        let none = "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered";
        let unknown = "unable to fetch metrics from custom metrics API: unable to map kind Ingress.networking.k8s.io to resource: \
                       no matches for kind \"Ingress\" in group \"networking.k8s.io\"";
        let two = "unable to fetch metrics from custom metrics API: \
                   the custom metrics API server returned 2 results when we asked for exactly one";
        for (versions, count, object, want) in [
            (ONE, 1, reference("apps/v1", "Deployment"), Ok(1500)),
            (ONE, 1, reference("v1", "Namespace"), Ok(1500)),
            (ONE, 2, reference("apps/v1", "Deployment"), Err(two)),
            (ONE, 1, reference("networking.k8s.io/v1", "Ingress"), Err(unknown)),
            (&[], 1, reference("networking.k8s.io/v1", "Ingress"), Err(none)),
        ] {
            let (client, discovery) = (serving(versions, count), discovery());
            let api = CustomMetrics { client: &client, discovery: &discovery, namespace: "n" };
            let got = api.of_object(&object, Metric { name: "m", selector: "" }).await;
            assert_eq!(got, want.map_err(str::to_owned));
        }
    }
}
