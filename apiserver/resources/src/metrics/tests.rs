use std::collections::HashMap;
use std::pin::Pin;

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apimachinery::strategy::Computed;
use serde_json::{Value, json};

use super::*;

/// Objects by resource.
struct Objects(HashMap<&'static str, Vec<Value>>);

impl Cluster for Objects {
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Result<Option<Value>> {
        let all = self.list(resource, namespace)?;
        Ok(all.into_iter().find(|object| object.name() == name))
    }

    fn list(&self, resource: &GroupResource, namespace: &str) -> Result<Vec<Value>> {
        let all = self.0.get(resource.resource.as_str()).cloned().unwrap_or_default();
        Ok(all.into_iter().filter(|o| namespace.is_empty() || o.namespace() == namespace).collect())
    }

    fn wait_for<'a>(
        &'a self,
        _: &'a GroupResource,
        _: &'a str,
        _: &'a str,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async {})
    }
}

fn pod(name: &str, phase: &str, containers: &[&str], annotations: Value) -> Value {
    let statuses = containers.iter().map(|name| json!({"name": name, "state": {"running": {}}}));
    json!({
        "metadata": {"name": name, "namespace": "ns", "annotations": annotations, "labels": {"a": name}},
        "spec": {"nodeName": "n0"},
        "status": {"phase": phase, "containerStatuses": statuses.collect::<Vec<_>>()},
    })
}

#[test]
fn running_pods_use_what_their_annotations_say() {
    let both = json!({"sim.coracle.dev/cpu": "0.25", "sim.coracle.dev/memory": "64Mi"});
    let pods = vec![
        pod("one", "Running", &["c"], both.clone()),
        pod("two", "Running", &["c", "d"], json!({"sim.coracle.dev/cpu": "301m"})),
        pod("pending", "Pending", &[], both.clone()),
        pod("ended", "Succeeded", &[], both),
        pod("plain", "Running", &["c"], json!({"sim.coracle.dev/log": "x"})),
        pod(
            "wrong",
            "Running",
            &["c"],
            json!({"sim.coracle.dev/cpu": "-1", "sim.coracle.dev/memory": "much"}),
        ),
    ];
    let ready = |status: &str| json!({"conditions": [{"type": "Ready", "status": status}]});
    let nodes = vec![
        json!({"metadata": {"name": "n0"}, "status": ready("True")}),
        json!({"metadata": {"name": "n1"}, "status": ready("True")}),
        json!({"metadata": {"name": "silent"}, "status": ready("Unknown")}),
    ];
    let cluster = Objects(HashMap::from([("pods", pods), ("nodes", nodes)]));
    let now = "1970-01-01T00:00:00Z";
    let listed = SimulatedPodMetrics(Measured::Annotated).list(&cluster, "ns", now).unwrap();
    let usage: Vec<(&str, &Value)> = listed.iter().map(|m| (m.name(), &m["containers"])).collect();
    let want_one = json!([{"name": "c", "usage": {"cpu": "250m", "memory": "64Mi"}}]);
    let want_two = json!([{"name": "c", "usage": {"cpu": "151m"}}, {"name": "d", "usage": {"cpu": "150m"}}]);
    assert_eq!(usage, [("one", &want_one), ("two", &want_two)]);
    assert_eq!(listed[0]["metadata"]["labels"], json!({"a": "one"}));
    assert_eq!(
        SimulatedPodMetrics(Measured::Annotated).get(&cluster, "ns", "one", now).unwrap().as_ref(),
        listed.first()
    );
    assert!(SimulatedPodMetrics(Measured::Annotated).get(&cluster, "ns", "plain", now).unwrap().is_none());
    let listed = SimulatedNodeMetrics(Measured::Annotated).list(&cluster, "", now).unwrap();
    let usage: Vec<(&str, &Value)> = listed.iter().map(|m| (m.name(), &m["usage"])).collect();
    let (busy, idle) = (json!({"cpu": "551m", "memory": "64Mi"}), json!({"cpu": "0", "memory": "0"}));
    assert_eq!(usage, [("n0", &busy), ("n1", &idle)]);
}

#[test]
fn the_usage_of_simulated_containers_follows_from_their_requests_unless_annotations_say_it() {
    let simulated = |name: &str, requests: &[Value], annotations: Value| {
        let names: Vec<String> = (0..requests.len()).map(|index| format!("c{index}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut pod = pod(name, "Running", &names, annotations);
        let specs = names.iter().zip(requests);
        let specs = specs.map(|(name, request)| json!({"name": name, "resources": {"requests": request}}));
        pod["spec"]["containers"] = specs.collect();
        for status in pod["status"]["containerStatuses"].as_array_mut().unwrap() {
            status["containerID"] = json!("coracle://1");
        }
        pod
    };
    let none = json!({});
    let pods = vec![
        simulated("requests", &[json!({"cpu": "1", "memory": "100Mi"}), none.clone()], none.clone()),
        simulated("least", &[json!({"cpu": "5m", "memory": "1Mi"})], none.clone()),
        simulated("annotated", &[json!({"cpu": "1"})], json!({"sim.coracle.dev/cpu": "7m"})),
        simulated("wrong", std::slice::from_ref(&none), json!({"sim.coracle.dev/cpu": "-1"})),
        pod("other", "Running", &["c"], none.clone()),
        pod("pending", "Pending", &["c"], none.clone()),
    ];
    let node = |name: &str, runtime: &str| {
        json!({"metadata": {"name": name}, "status": {
            "conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"containerRuntimeVersion": runtime},
        }})
    };
    let nodes =
        vec![node("n0", "coracle://0.1.0"), node("n1", "coracle://0.1.0"), node("n2", "containerd://2")];
    let cluster = Objects(HashMap::from([("pods", pods), ("nodes", nodes)]));
    let now = "1970-01-01T00:00:00Z";
    let metrics = SimulatedPodMetrics(Measured::Simulated);
    let listed = metrics.list(&cluster, "ns", now).unwrap();
    let usage: Vec<(&str, Vec<&Value>)> = listed
        .iter()
        .map(|m| (m.name(), m["containers"].as_array().unwrap().iter().map(|c| &c["usage"]).collect()))
        .collect();
    let amount = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
    let (asked, default) = (amount("100m", "50Mi"), amount("1m", "8Mi"));
    let (least, annotated) = (amount("1m", "1Mi"), amount("7m", "8Mi"));
    assert_eq!(
        usage,
        [
            ("requests", vec![&asked, &default]),
            ("least", vec![&least]),
            ("annotated", vec![&annotated]),
            ("wrong", vec![&default]),
        ]
    );
    assert!(metrics.get(&cluster, "ns", "other", now).unwrap().is_none(), "no simulated kubelet runs it");
    assert!(SimulatedPodMetrics(Measured::Annotated).get(&cluster, "ns", "least", now).unwrap().is_none());
    let listed = SimulatedNodeMetrics(Measured::Simulated).list(&cluster, "", now).unwrap();
    let usage: Vec<&Value> = listed.iter().map(|m| &m["usage"]).collect();
    assert_eq!(usage, [&amount("160m", "331Mi"), &amount("50m", "256Mi"), &amount("0", "0")]);
}

#[test]
fn a_measured_pod_provides_the_group() {
    let running = r#"{"status":{"phase":"Running","containerStatuses":[{"containerID":"coracle://1"}]}}"#;
    let ended = running.replace("Running", "Succeeded");
    for (measured, want) in [(Measured::Annotated, false), (Measured::Simulated, true)] {
        let extension = crate::metrics_extension(measured).unwrap();
        assert_eq!((extension.is_provided_by)(running.as_bytes()), want, "{measured:?}");
        assert!(!(extension.is_provided_by)(ended.as_bytes()));
        assert!((extension.is_provided_by)(br#"{"metadata":{"annotations":{"sim.coracle.dev/cpu":"1"}}}"#));
    }
    let extension = crate::metrics_extension(Measured::Annotated).unwrap();
    for (annotation, want) in
        [("sim.coracle.dev/cpu", true), ("sim.coracle.dev/memory", true), ("x/cpu", false)]
    {
        let pod = json!({"metadata": {"annotations": {annotation: "1"}}}).to_string();
        assert_eq!((extension.is_provided_by)(pod.as_bytes()), want, "{annotation}");
    }
    let error = SimulatedPodMetrics(Measured::Annotated).not_found("ns", "p").to_string();
    assert_eq!(error, r#"podmetrics.metrics.k8s.io "ns/p" not found"#);
}
