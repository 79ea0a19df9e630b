use coracle_why::{Objects, Refusal, Resource, State, Version};
use serde_json::{Value, json};

use super::{Cluster, object, owner, ready_pod, uid};
use crate::relations::MAX_EDGES;
use crate::{MAX_NODES, Picture};

#[test]
fn objects_beyond_the_limit_are_left_out_and_those_of_the_control_plane_first() {
    let system = (0..10).map(|i| object("Namespace", &format!("kube-{i}"), json!({})));
    let own = (0..MAX_NODES).map(|i| object("ConfigMap", &format!("c{i}"), json!({})));
    let cluster = Cluster(system.clone().chain(own.clone()).collect());
    let picture = cluster.picture();
    assert!(picture.is_truncated);
    assert_eq!(picture.objects.len(), MAX_NODES);
    assert!(picture.objects.iter().all(|node| node.kind == "ConfigMap"));
    let exact = Cluster(own.collect()).picture();
    assert!(!exact.is_truncated && exact.objects.len() == MAX_NODES);
}

#[test]
fn workloads_and_what_they_use_stay_before_all_other_objects_beyond_the_limit() {
    let many = (0..MAX_NODES).map(|i| object("ConfigMap", &format!("c{i}"), json!({})));
    let kinds = ["Secret", "Widget", "Namespace", "Node", "PersistentVolume", "PersistentVolumeClaim"];
    let kinds = kinds.into_iter().chain(["Service", "Pod", "StatefulSet"]);
    let others = kinds.clone().map(|kind| object(kind, "a", json!({})));
    let picture = Cluster(many.chain(others).collect()).picture();
    assert!(picture.is_truncated);
    let mut found: Vec<&str> = picture.objects.iter().map(|node| node.kind.as_str()).collect();
    found.dedup();
    let mut want: Vec<&str> = kinds.filter(|kind| *kind != "Secret").collect();
    want.reverse();
    want.push("ConfigMap");
    assert_eq!(found, want);
}

/// A cluster of which not all objects were read.
struct Partial(Cluster);

impl Objects for Partial {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.0.get(resource, namespace, name)
    }

    fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Value> {
        self.0.list(resource, namespace)
    }

    fn resources(&self) -> Vec<Resource> {
        self.0.resources()
    }

    fn past(&self, _: &str, _: &str, _: &str) -> Vec<Version> {
        Vec::new()
    }

    fn refusals(&self, _: &str, _: &str, _: &str) -> Vec<Refusal> {
        Vec::new()
    }

    fn is_truncated(&self) -> bool {
        true
    }
}

#[test]
fn a_picture_of_a_part_of_the_objects_says_so_and_misses_no_owner() {
    let owned = json!({"metadata": {"ownerReferences": [owner("ReplicaSet", "web-1")]}});
    let cluster = Cluster(vec![ready_pod("web-0", owned)]);
    let whole = cluster.node("Pod/web-0");
    assert_eq!(whole.reason, "owner ReplicaSet/web-1 does not exist");
    let picture = Picture::of(&Partial(cluster), "2026-11-27T10:05:00Z".parse().unwrap());
    assert!(picture.is_truncated);
    let node = &picture.objects[0];
    assert_eq!((node.state, node.reason.as_str(), &node.owners), (State::Ready, "", &whole.owners));
}

#[test]
fn edges_owners_finalizers_and_texts_of_a_node_are_bounded() {
    let pods =
        (0..MAX_EDGES + 20).map(|i| ready_pod(&format!("p{i}"), json!({"metadata": {"labels": {"a": "b"}}})));
    let service = object("Service", "s", json!({"spec": {"selector": {"a": "b"}}}));
    let cluster = Cluster(pods.chain([service]).collect());
    assert_eq!(cluster.node("Service/s").edges.len(), MAX_EDGES);

    let long = "x".repeat(5000);
    let many: Vec<Value> = (0..100).map(|i| json!(format!("example.com/{i}{long}"))).collect();
    let owners: Vec<Value> =
        (0..100).map(|i| json!({"kind": long, "name": long, "uid": format!("{i}{long}")})).collect();
    let held =
        object("ConfigMap", "held", json!({"metadata": {"finalizers": many, "ownerReferences": owners}}));
    let node = Cluster(vec![held]).node("ConfigMap/held");
    assert_eq!((node.finalizers.len(), node.owners.len()), (20, 20));
    let texts = node.finalizers.iter().chain(&node.owners).chain([&node.reason]);
    assert!(texts.into_iter().all(|text| text.chars().count() <= 300));
}

#[test]
fn objects_of_any_shape_are_pictured() {
    let shapes = [json!(null), json!(1), json!("x"), json!([1, {"a": []}]), json!({"name": 5, "uid": []})];
    for kind in ["Pod", "PersistentVolumeClaim", "StatefulSet", "Service", "Ingress", "PersistentVolume"] {
        for member in ["metadata", "spec", "status"] {
            for shape in &shapes {
                let mut object = object(kind, "a", json!({}));
                object[member] = shape.clone();
                let picture = Cluster(vec![object]).picture();
                assert_eq!(
                    picture.objects.len(),
                    usize::from(member != "metadata"),
                    "{kind} {member} {shape}"
                );
            }
        }
    }
}

#[test]
fn hostile_names_and_annotations_stay_text() {
    let name = "</script><img src=x onerror=alert(1)>\u{202e}\0";
    let hostile = object("ConfigMap", "a", json!({"metadata": {"name": name, "annotations": {name: name}}}));
    let picture = Cluster(vec![hostile]).picture();
    assert_eq!(picture.objects[0].name, name);
    let text = serde_json::to_string(&picture).unwrap();
    let read: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["objects"][0]["name"], name);
    assert_eq!(read["objects"][0]["uid"], uid("ConfigMap", "a"));
}
