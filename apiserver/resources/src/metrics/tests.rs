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
    let listed = SimulatedPodMetrics.list(&cluster, "ns", now).unwrap();
    let usage: Vec<(&str, &Value)> = listed.iter().map(|m| (m.name(), &m["containers"])).collect();
    let want_one = json!([{"name": "c", "usage": {"cpu": "250m", "memory": "64Mi"}}]);
    let want_two = json!([{"name": "c", "usage": {"cpu": "151m"}}, {"name": "d", "usage": {"cpu": "150m"}}]);
    assert_eq!(usage, [("one", &want_one), ("two", &want_two)]);
    assert_eq!(listed[0]["metadata"]["labels"], json!({"a": "one"}));
    assert_eq!(SimulatedPodMetrics.get(&cluster, "ns", "one", now).unwrap().as_ref(), listed.first());
    assert!(SimulatedPodMetrics.get(&cluster, "ns", "plain", now).unwrap().is_none());
    let listed = SimulatedNodeMetrics.list(&cluster, "", now).unwrap();
    let usage: Vec<(&str, &Value)> = listed.iter().map(|m| (m.name(), &m["usage"])).collect();
    let (busy, idle) = (json!({"cpu": "551m", "memory": "64Mi"}), json!({"cpu": "0", "memory": "0"}));
    assert_eq!(usage, [("n0", &busy), ("n1", &idle)]);
}

#[test]
fn an_annotated_pod_provides_the_group() {
    let extension = crate::metrics_extension().unwrap();
    for (annotation, want) in
        [("sim.coracle.dev/cpu", true), ("sim.coracle.dev/memory", true), ("x/cpu", false)]
    {
        let pod = json!({"metadata": {"annotations": {annotation: "1"}}}).to_string();
        assert_eq!((extension.is_provided_by)(pod.as_bytes()), want, "{annotation}");
    }
    let error = SimulatedPodMetrics.not_found("ns", "p").to_string();
    assert_eq!(error, r#"podmetrics.metrics.k8s.io "ns/p" not found"#);
}
