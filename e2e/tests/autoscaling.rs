//! HorizontalPodAutoscalers: upstream's end-to-end behaviors (`[sig-autoscaling] Horizontal pod
//! autoscaling`).
//!
//! The usage of a pod is what its annotations say, so that the load does not spread over more pods
//! as it does upstream: what a target scales to is its limit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle_e2e::json_client::{JsonClient, condition, condition_reason};
use coracle_e2e::webhook::serve;
use coracle_e2e::workloads::{apps, name, pods, replicated, replication_controller, template};
use coracle_e2e::{Cluster, cluster};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::{Value, json};

const DEFAULT: &str = "default";
const CPU: &str = "sim.coracle.dev/cpu";

async fn start() -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().flag("--horizontal-pod-autoscaler-sync-period", "1s").start().await?;
    let client = JsonClient::new(&cluster.endpoint().await?).await?;
    Ok((cluster, client))
}

fn autoscalers() -> String {
    format!("/apis/autoscaling/v2/namespaces/{DEFAULT}/horizontalpodautoscalers")
}

/// Sets what the pods of a workload request and use.
fn measured(mut workload: Value, cpu: &str) -> Value {
    let template = &mut workload["spec"]["template"];
    template["metadata"]["annotations"] = json!({CPU: cpu, "sim.coracle.dev/memory": "64Mi"});
    template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    workload
}

fn cpu(target: Value) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn utilization(percent: u32) -> Value {
    json!({"type": "Utilization", "averageUtilization": percent})
}

fn autoscaler(
    name: &str,
    api_version: &str,
    kind: &str,
    limit: u32,
    metric: Value,
    behavior: Value,
) -> Value {
    let target = json!({"apiVersion": api_version, "kind": kind, "name": name});
    json!({"metadata": {"name": name}, "spec": {
        "scaleTargetRef": target, "minReplicas": 1, "maxReplicas": limit, "metrics": [metric], "behavior": behavior,
    }})
}

/// Changes what the pods of a workload use.
async fn set_usage(client: &mut JsonClient, app: &str, cpu: &str) -> Result<()> {
    for pod in client.list(&format!("{}?labelSelector=app%3D{app}", pods(DEFAULT))).await? {
        let path = format!("{}/{}", pods(DEFAULT), name(&pod));
        let usage = json!({"metadata": {"annotations": {CPU: cpu}}});
        let (status, answer) = client.send("PATCH", &path, Some(usage)).await?;
        // A pod may be scaled down meanwhile.
        ensure!([200, 404].contains(&status), "{answer}");
    }
    Ok(())
}

/// Covers upstream's "Should scale from 1 pod to 3 pods and then from 3 pods to 5 pods" and "Should
/// scale from 5 pods to 3 pods and then from 3 pods to 1 pod", for Deployments, ReplicaSets and
/// ReplicationControllers, by Utilization and AverageValue aggregation, and by container resources;
/// "with short downscale stabilization window should scale down soon after the stabilization
/// period".
#[tokio::test]
async fn targets_of_every_kind_follow_the_usage_of_their_pods() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let average = |value: &str| json!({"type": "AverageValue", "averageValue": value});
    let container = json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c", "target": utilization(50)}});
    let controllers = format!("/api/v1/namespaces/{DEFAULT}/replicationcontrollers");
    let mut stateful = replicated("stateful", 1);
    stateful["spec"]["podManagementPolicy"] = json!("Parallel");
    let cases = [
        ("Deployment", "apps/v1", apps(DEFAULT, "deployments"), replicated("web", 1), cpu(utilization(50))),
        ("ReplicaSet", "apps/v1", apps(DEFAULT, "replicasets"), replicated("set", 1), cpu(average("100m"))),
        ("ReplicationController", "v1", controllers, replication_controller("old", 1), container),
        ("StatefulSet", "apps/v1", apps(DEFAULT, "statefulsets"), stateful, cpu(utilization(50))),
    ];
    let soon = json!({"scaleDown": {"stabilizationWindowSeconds": 2}});
    for (kind, version, path, workload, metric) in &cases {
        client.create(path, measured(workload.clone(), "250m")).await?;
        let autoscaler = autoscaler(name(workload), version, kind, 3, metric.clone(), soon.clone());
        client.create(&autoscalers(), autoscaler).await?;
    }
    for (kind, _, path, workload, _) in &cases {
        let (name, path) = (name(workload), format!("{path}/{}", name(workload)));
        let has = |wanted: u32| {
            move |workload: &Value| {
                workload["spec"]["replicas"] == wanted && workload["status"]["readyReplicas"] == wanted
            }
        };
        client.until(&path, has(3)).await.with_context(|| format!("{kind} up"))?;
        client.patch(&format!("{}/{name}", autoscalers()), json!({"spec": {"maxReplicas": 5}})).await?;
        client.until(&path, has(5)).await.with_context(|| format!("{kind} up again"))?;
        set_usage(&mut client, name, "1m").await?;
        client.until(&path, has(1)).await.with_context(|| format!("{kind} down"))?;
    }
    Ok(())
}

/// Covers upstream's "with autoscaling disabled shouldn't scale up", "... shouldn't scale down",
/// "with scale limited by number of Pods rate should scale up no more than given number of Pods per
/// minute", "with scale limited by percentage should scale up no more than given percentage of
/// current Pods per minute", "with long upscale stabilization window should scale up only after the
/// stabilization period".
#[tokio::test]
async fn the_behavior_of_an_autoscaler_limits_it() -> Result<()> {
    const STABILIZATION: Duration = Duration::from_secs(5);
    let (_cluster, mut client) = start().await?;
    let deployments = apps(DEFAULT, "deployments");
    let rate = |r#type: &str, value: u32| json!({"policies": [{"type": r#type, "value": value, "periodSeconds": 600}]});
    let cases = [
        ("pinned", 2, "250m", json!({"scaleUp": {"selectPolicy": "Disabled"}}), 2, "ScaleUpLimit"),
        (
            "kept",
            2,
            "1m",
            json!({"scaleDown": {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}}),
            2,
            "ScaleDownLimit",
        ),
        ("by-pods", 2, "250m", json!({"scaleUp": rate("Pods", 1)}), 3, "ScaleUpLimit"),
        ("by-percent", 2, "250m", json!({"scaleUp": rate("Percent", 100)}), 4, "ScaleUpLimit"),
    ];
    for (name, replicas, usage, behavior, ..) in &cases {
        client.create(&deployments, measured(replicated(name, *replicas), usage)).await?;
        let autoscaler = autoscaler(name, "apps/v1", "Deployment", 8, cpu(utilization(50)), behavior.clone());
        client.create(&autoscalers(), autoscaler).await?;
    }
    client.create(&deployments, measured(replicated("late", 1), "250m")).await?;
    let late = json!({"scaleUp": {"stabilizationWindowSeconds": STABILIZATION.as_secs()}});
    let began = Instant::now();
    let autoscaler = autoscaler("late", "apps/v1", "Deployment", 5, cpu(utilization(50)), late);
    client.create(&autoscalers(), autoscaler).await?;
    for (name, .., wanted, reason) in &cases {
        let path = format!("{}/{name}", autoscalers());
        let is_limited = |autoscaler: &Value| {
            autoscaler["status"]["currentReplicas"] == *wanted
                && condition(autoscaler, "ScalingLimited") == Some("True")
                && condition_reason(autoscaler, "ScalingLimited") == Some(reason)
        };
        client.until(&path, is_limited).await.with_context(|| (*name).to_owned())?;
    }
    client.until(&format!("{deployments}/late"), |late| late["spec"]["replicas"] == 5).await?;
    ensure!(began.elapsed() > STABILIZATION - Duration::from_secs(1), "after {:?}", began.elapsed());
    // Meanwhile the others were reconciled several times.
    for (name, .., wanted, _) in &cases {
        let found = client.get(&format!("{deployments}/{name}")).await?;
        ensure!(found["spec"]["replicas"] == *wanted, "{name}: {}", found["spec"]["replicas"]);
    }
    Ok(())
}

/// Covers upstream's "CustomResourceDefinition should scale with a CRD targetRef".
#[tokio::test]
async fn a_custom_resource_with_a_scale_is_scaled() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let scale = json!({
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector",
    });
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
    });
    let definition = json!({"metadata": {"name": "fleets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "fleets", "kind": "Fleet"}, "versions": [version],
    }});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.create(definitions, definition).await?;
    let is_established = |definition: &Value| condition(definition, "Established") == Some("True");
    client.until(&format!("{definitions}/fleets.example.com"), is_established).await?;
    let fleets = format!("/apis/example.com/v1/namespaces/{DEFAULT}/fleets");
    let fleet = json!({"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": {"name": "web"}, "spec": {"replicas": 1}});
    client.create(&fleets, fleet).await?;
    let web = format!("{fleets}/web");
    client
        .patch(&format!("{web}/status"), json!({"status": {"replicas": 1, "selector": "app=fleet"}}))
        .await?;
    let mut pod = template("fleet", json!({CPU: "250m"}));
    pod["metadata"]["name"] = json!("fleet-0");
    client.until_items(&format!("/api/v1/namespaces/{DEFAULT}/serviceaccounts"), 1).await?;
    client.create(&pods(DEFAULT), pod).await?;
    let metric = cpu(json!({"type": "AverageValue", "averageValue": "100m"}));
    client.create(&autoscalers(), autoscaler("web", "example.com/v1", "Fleet", 5, metric, json!({}))).await?;
    client.until(&web, |fleet| fleet["spec"]["replicas"] == 3).await.map(drop)
}

/// Checks the usage without annotations, as on a cluster with metrics-server whose pods are nearly
/// idle.
#[tokio::test]
async fn without_annotations_usage_follows_from_the_requests_of_pods() -> Result<()> {
    const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";
    let (_cluster, mut client) = start().await?;
    let (status, groups) = client.send("GET", METRICS, None).await?;
    ensure!(status == 404, "there is no pod yet: {groups}");
    let mut web = replicated("web", 3);
    web["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "500m", "memory": "64Mi"}});
    let deployments = apps(DEFAULT, "deployments");
    client.create(&deployments, web).await?;
    client.until(&format!("{deployments}/web"), |web| web["status"]["readyReplicas"] == 3).await?;
    // The group is served soon after the first of them runs.
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let is_available = |service: &Value| condition(service, "Available") == Some("True");
    client.until(&format!("{services}/v1beta1.metrics.k8s.io"), is_available).await?;
    let measured = format!("{METRICS}/namespaces/{DEFAULT}/pods");
    let items = client.until_items(&measured, 3).await?;
    for pod in &items {
        let usage = json!([{"name": "c", "usage": {"cpu": "50m", "memory": "32Mi"}}]);
        ensure!(pod["containers"] == usage, "{pod}");
    }
    let node = client.get(&format!("{METRICS}/nodes/node-0")).await?;
    ensure!(node["usage"] == json!({"cpu": "200m", "memory": "352Mi"}), "{node}");

    // A tenth of the request is less than its target.
    let soon = json!({"scaleDown": {"stabilizationWindowSeconds": 0}});
    let idle = autoscaler("web", "apps/v1", "Deployment", 5, cpu(utilization(50)), soon);
    client.create(&autoscalers(), idle).await?;
    client.until(&format!("{deployments}/web"), |web| web["status"]["replicas"] == 1).await?;
    let is_known = |autoscaler: &Value| {
        autoscaler["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"] == 10
            && condition_reason(autoscaler, "ScalingActive") == Some("ValidMetricFound")
    };
    client.until(&format!("{}/web", autoscalers()), is_known).await?;

    // An annotation wins, of the resource that it is about.
    set_usage(&mut client, "web", "2").await?;
    client.until(&format!("{deployments}/web"), |web| web["status"]["replicas"] == 5).await?;
    let busy = json!([{"name": "c", "usage": {"cpu": "2", "memory": "32Mi"}}]);
    let items = client.list(&measured).await?;
    ensure!(items.iter().any(|pod| pod["containers"] == busy), "{items:?}");
    Ok(())
}

/// Responds as an adapter of Prometheus and of a queue does: each pod of `crowd` has 30 requests a
/// second, the Service `front` 200, and the queue has 35 messages.
async fn metrics_adapter(request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    const CUSTOM: &str = "/apis/custom.metrics.k8s.io/v1beta2";
    const EXTERNAL: &str = "/apis/external.metrics.k8s.io/v1beta1";
    const AT: &str = "2026-01-01T00:00:00Z";
    let of = |kind: &str, name: String, value: &str| {
        let object = json!({"apiVersion": "v1", "kind": kind, "namespace": DEFAULT, "name": name});
        json!({"describedObject": object, "metric": {"name": "m"}, "timestamp": AT, "value": value})
    };
    let path = request.uri().path();
    let resources =
        |version: &str| json!({"kind": "APIResourceList", "groupVersion": version, "resources": []});
    let (status, document) = match path.strip_prefix(CUSTOM).or(path.strip_prefix(EXTERNAL)) {
        Some("") => (200, resources(path.trim_start_matches("/apis/"))),
        Some("/namespaces/default/pods/*/requests")
            if request.uri().query() == Some("labelSelector=app%3Dcrowd") =>
        {
            let pods: Vec<Value> = (0..9).map(|pod| of("Pod", format!("crowd-{pod}"), "30")).collect();
            (200, json!({"kind": "MetricValueList", "items": pods}))
        }
        Some("/namespaces/default/services/front/requests") => {
            (200, json!({"kind": "MetricValueList", "items": [of("Service", "front".to_owned(), "200")]}))
        }
        Some("/namespaces/default/messages")
            if request.uri().query() == Some("labelSelector=queue%3Djobs") =>
        {
            let value =
                json!({"metricName": "messages", "metricLabels": {}, "timestamp": AT, "value": "17500m"});
            (200, json!({"kind": "ExternalMetricValueList", "items": [value, value]}))
        }
        _ => (
            404,
            json!({"kind": "Status", "message": format!("no metric at {}", request.uri()), "code": 404}),
        ),
    };
    Ok(Response::builder().status(status).body(Full::new(document.to_string().into()))?)
}

/// Covers upstream's "with Custom Metric of type Pod from Stackdriver", "of type Object" and "with
/// External Metric with target average value", whose adapter is any server.
#[tokio::test]
async fn targets_follow_the_metrics_of_aggregated_servers() -> Result<()> {
    let (address, ca_bundle) = serve(&["adapter.default.svc"], Arc::default(), metrics_adapter).await?;
    let cluster = cluster()
        .flag("--horizontal-pod-autoscaler-sync-period", "1s")
        .flag("--webhook-service-url", format!("default/adapter=https://{address}"))
        .start()
        .await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let metric = |name: &str| json!({"name": name});
    let average = |value: &str| json!({"type": "AverageValue", "averageValue": value});
    let by_pods = json!({"type": "Pods", "pods": {"metric": metric("requests"), "target": average("10")}});
    let front = json!({"apiVersion": "v1", "kind": "Service", "name": "front"});
    let by_object = json!({"type": "Object", "object": {
        "describedObject": front, "metric": metric("requests"), "target": {"type": "Value", "value": "100"},
    }});
    let messages = json!({"name": "messages", "selector": {"matchLabels": {"queue": "jobs"}}});
    let by_queue = json!({"type": "External", "external": {"metric": messages, "target": average("10")}});
    let lost = json!({"type": "External", "external": {"metric": metric("lost"), "target": average("10")}});
    let stateful = {
        let mut set = replicated("crowd", 2);
        set["spec"]["podManagementPolicy"] = json!("Parallel");
        set
    };
    let deployments = || apps(DEFAULT, "deployments");
    client.create(&apps(DEFAULT, "statefulsets"), stateful).await?;
    for name in ["shop", "queue", "lost"] {
        client.create(&deployments(), replicated(name, 1)).await?;
    }
    for (name, kind, metric) in [
        ("crowd", "StatefulSet", by_pods),
        ("shop", "Deployment", by_object),
        ("queue", "Deployment", by_queue),
        ("lost", "Deployment", lost),
    ] {
        client.create(&autoscalers(), autoscaler(name, "apps/v1", kind, 5, metric, json!({}))).await?;
    }
    // No such API is served yet.
    let warned = |message: &'static str| {
        move |autoscaler: &Value| {
            let conditions = autoscaler["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|condition| {
                condition["type"] == "ScalingActive"
                    && condition["message"].as_str().is_some_and(|text| text.contains(message))
            })
        }
    };
    for (name, message) in [
        ("crowd", "no custom metrics API (custom.metrics.k8s.io) registered"),
        ("queue", "the server could not find the requested resource (get messages.external.metrics.k8s.io)"),
    ] {
        client.until(&format!("{}/{name}", autoscalers()), warned(message)).await.context(name)?;
    }
    for (group, version) in [("custom.metrics.k8s.io", "v1beta2"), ("external.metrics.k8s.io", "v1beta1")] {
        let service = json!({
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {
                "group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
                "caBundle": ca_bundle, "service": {"namespace": DEFAULT, "name": "adapter"},
            },
        });
        client.create("/apis/apiregistration.k8s.io/v1/apiservices", service).await?;
    }
    for (name, replicas, r#type, current) in [
        ("crowd", 5, "pods", json!({"averageValue": "30"})),
        ("shop", 5, "object", json!({"value": "200"})),
        ("queue", 4, "external", json!({"averageValue": "8750m"})),
    ] {
        let is_scaled = |autoscaler: &Value| {
            autoscaler["status"]["currentReplicas"] == replicas
                && autoscaler["status"]["currentMetrics"][0][r#type]["current"] == current
        };
        client.until(&format!("{}/{name}", autoscalers()), is_scaled).await.context(name)?;
    }
    let message = "no metric at /apis/external.metrics.k8s.io/v1beta1/namespaces/default/lost";
    client.until(&format!("{}/lost", autoscalers()), warned(message)).await?;
    Ok(())
}
