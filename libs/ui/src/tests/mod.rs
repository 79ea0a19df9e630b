mod assets;
mod bounds;
mod picture;
mod redaction;
mod sessions;

use coracle_why::{Objects, Refusal, Resource, Version};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{Node, Picture};

/// Kind, apiVersion, resource, and whether it is namespaced.
const KINDS: [(&str, &str, &str, bool); 15] = [
    ("Pod", "v1", "pods", true),
    ("PersistentVolumeClaim", "v1", "persistentvolumeclaims", true),
    ("PersistentVolume", "v1", "persistentvolumes", false),
    ("Service", "v1", "services", true),
    ("ConfigMap", "v1", "configmaps", true),
    ("Secret", "v1", "secrets", true),
    ("Event", "v1", "events", true),
    ("Namespace", "v1", "namespaces", false),
    ("Node", "v1", "nodes", false),
    ("StatefulSet", "apps/v1", "statefulsets.apps", true),
    ("ReplicaSet", "apps/v1", "replicasets.apps", true),
    ("Ingress", "networking.k8s.io/v1", "ingresses.networking.k8s.io", true),
    ("HorizontalPodAutoscaler", "autoscaling/v2", "horizontalpodautoscalers.autoscaling", true),
    ("Widget", "example.com/v1", "widgets.example.com", true),
    ("Lease", "coordination.k8s.io/v1", "leases.coordination.k8s.io", true),
];

/// A cluster in memory.
#[derive(Clone, Default)]
struct Cluster(Vec<Value>);

impl Cluster {
    fn of_resource<'a>(&'a self, resource: &'a str) -> impl Iterator<Item = &'a Value> {
        let kind = KINDS.iter().find(|(_, _, other, _)| *other == resource).map(|(kind, ..)| *kind);
        self.0.iter().filter(move |object| object["kind"].as_str() == kind)
    }

    fn picture(&self) -> Picture {
        Picture::of(self, "2026-11-27T10:05:00Z".parse::<Timestamp>().unwrap())
    }

    /// Returns the node of an object, named `kind/name`.
    fn node(&self, name: &str) -> Node {
        let (kind, name) = name.split_once('/').unwrap();
        let mut nodes = self.picture().objects.into_iter();
        nodes.find(|node| node.kind == kind && node.name == name).unwrap()
    }
}

impl Objects for Cluster {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let is_meant = |metadata: &Value| {
            metadata["name"] == name && metadata["namespace"].as_str().unwrap_or_default() == namespace
        };
        self.of_resource(resource).find(|object| is_meant(&object["metadata"])).cloned()
    }

    fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Value> {
        let is_within =
            |object: &&Value| namespace.is_none_or(|namespace| object["metadata"]["namespace"] == namespace);
        self.of_resource(resource).filter(is_within).cloned().collect()
    }

    fn resources(&self) -> Vec<Resource> {
        let resource = |(kind, api_version, name, namespaced): &(&str, &str, &str, bool)| Resource {
            name: (*name).to_owned(),
            kind: (*kind).to_owned(),
            api_version: (*api_version).to_owned(),
            namespaced: *namespaced,
            is_custom: name.ends_with(".example.com"),
        };
        KINDS.iter().map(resource).collect()
    }

    fn past(&self, _: &str, _: &str, _: &str) -> Vec<Version> {
        Vec::new()
    }

    fn refusals(&self, _: &str, _: &str, _: &str) -> Vec<Refusal> {
        Vec::new()
    }
}

/// Builds an object in the namespace `shop` (or none), with a uid made of its kind and name.
fn object(kind: &str, name: &str, rest: Value) -> Value {
    let (_, api_version, _, namespaced) = KINDS.iter().find(|(other, ..)| *other == kind).unwrap();
    let mut object = json!({"kind": kind, "apiVersion": api_version, "metadata": {
        "name": name, "uid": uid(kind, name), "creationTimestamp": "2026-11-27T10:00:00Z", "resourceVersion": "7"}});
    if *namespaced {
        object["metadata"]["namespace"] = json!("shop");
    }
    merge(&mut object, rest);
    object
}

fn uid(kind: &str, name: &str) -> String {
    format!("{kind}-{name}")
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn owner(kind: &str, name: &str) -> Value {
    let (_, api_version, ..) = KINDS.iter().find(|(other, ..)| *other == kind).unwrap();
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid(kind, name), "controller": true})
}

fn ready_pod(name: &str, rest: Value) -> Value {
    let mut pod = object(
        "Pod",
        name,
        json!({"spec": {"nodeName": "node-0", "containers": [{"name": "app"}]},
               "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    merge(&mut pod, rest);
    pod
}

fn terminating(finalizer: &str) -> Value {
    json!({"metadata": {"deletionTimestamp": "2026-11-27T10:03:00Z", "finalizers": [finalizer]}})
}

fn claim(name: &str, rest: Value) -> Value {
    let mut claim = object(
        "PersistentVolumeClaim",
        name,
        json!({"spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}}),
    );
    merge(&mut claim, rest);
    claim
}

fn volume(phase: &str, rest: Value) -> Value {
    let mut volume = object(
        "PersistentVolume",
        "pv-1",
        json!({"spec": {"persistentVolumeReclaimPolicy": "Delete",
                        "claimRef": {"namespace": "shop", "name": "data-web-0", "uid": uid("PersistentVolumeClaim", "data-web-0")}},
               "status": {"phase": phase}}),
    );
    merge(&mut volume, rest);
    volume
}

fn uses_claim(claim: &str) -> Value {
    json!({"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}})
}

fn stateful_set(replicas: i64) -> Value {
    object(
        "StatefulSet",
        "web",
        json!({"metadata": {"generation": 1}, "spec": {"replicas": replicas, "volumeClaimTemplates": [{"metadata": {"name": "data"}}]},
               "status": {"observedGeneration": 1, "replicas": 0, "readyReplicas": 0}}),
    )
}
