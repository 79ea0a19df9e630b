use coracle_why::State;
use serde_json::json;

use super::{Cluster, claim, object, owner, ready_pod, stateful_set, terminating, uid, uses_claim, volume};
use crate::{EdgeType, Picture};

const PVC_PROTECTION: &str = "kubernetes.io/pvc-protection";

#[test]
fn a_terminating_claim_is_blocked_by_the_pod_that_uses_it() {
    let cluster = Cluster(vec![
        claim("data-web-0", terminating(PVC_PROTECTION)),
        ready_pod("web-0", uses_claim("data-web-0")),
        volume("Bound", json!({})),
    ]);
    let node = cluster.node("PersistentVolumeClaim/data-web-0");
    assert_eq!(node.state, State::Terminating);
    assert_eq!(node.finalizers, [PVC_PROTECTION]);
    assert_eq!(node.blocked_by, [uid("Pod", "web-0")]);
    let edges: Vec<_> = node.edges.iter().map(|edge| (edge.edge_type, edge.to.as_str())).collect();
    assert_eq!(edges, [(EdgeType::Volume, "PersistentVolume-pv-1")]);
    let pod = cluster.node("Pod/web-0");
    assert_eq!((pod.state, pod.blocked_by.len()), (State::Ready, 0));
    assert_eq!(pod.edges[0].to, uid("PersistentVolumeClaim", "data-web-0"));
}

#[test]
fn a_claim_that_a_terminating_pod_uses_is_blocked_by_it_too() {
    let mut pod = ready_pod("web-0", uses_claim("data-web-0"));
    super::merge(&mut pod, terminating("example.com/hold"));
    let cluster = Cluster(vec![claim("data-web-0", terminating(PVC_PROTECTION)), pod]);
    assert_eq!(cluster.node("PersistentVolumeClaim/data-web-0").blocked_by, [uid("Pod", "web-0")]);
    assert_eq!(cluster.node("Pod/web-0").state, State::Terminating);
}

#[test]
fn a_stateful_set_without_its_pod_is_blocked_by_the_claim_that_is_being_deleted() {
    let cluster = Cluster(vec![stateful_set(1), claim("data-web-0", terminating(PVC_PROTECTION))]);
    let node = cluster.node("StatefulSet/web");
    assert_eq!(node.state, State::Progressing);
    assert!(node.reason.contains("data-web-0"), "{}", node.reason);
    assert_eq!(node.blocked_by, [uid("PersistentVolumeClaim", "data-web-0")]);
    assert_eq!(node.edges[0].to, uid("PersistentVolumeClaim", "data-web-0"));
}

#[test]
fn a_terminating_volume_is_blocked_by_the_claim_it_is_bound_to() {
    for rest in [json!({}), terminating(PVC_PROTECTION)] {
        let cluster = Cluster(vec![
            claim("data-web-0", rest),
            ready_pod("web-0", uses_claim("data-web-0")),
            volume("Bound", terminating("kubernetes.io/pv-protection")),
        ]);
        let node = cluster.node("PersistentVolume/pv-1");
        assert_eq!(node.blocked_by, [uid("PersistentVolumeClaim", "data-web-0")]);
    }
}

#[test]
fn a_volume_with_a_failed_deletion_is_failing() {
    let status = json!({"status": {"message": "the disk is attached to node-1"}});
    let node = Cluster(vec![volume("Failed", status)]).node("PersistentVolume/pv-1");
    assert_eq!(node.state, State::Failing, "{node:?}");
}

#[test]
fn an_orphaned_pod_is_a_root_that_says_so() {
    let labels = json!({"metadata": {"labels": {"controller-revision-hash": "web-1"}}});
    let node = Cluster(vec![ready_pod("web-0", labels)]).node("Pod/web-0");
    assert_eq!((node.state, node.reason.as_str(), node.owners.len()), (State::Ready, "has no owner", 0));
    let alone = Cluster(vec![ready_pod("alone", json!({}))]).node("Pod/alone");
    assert_eq!(alone.reason, "");
}

#[test]
fn an_owner_that_does_not_exist_is_named() {
    let rest = json!({"metadata": {"ownerReferences": [owner("ReplicaSet", "web-1")]}});
    let node = Cluster(vec![ready_pod("web-0", rest)]).node("Pod/web-0");
    assert_eq!(node.state, State::Progressing);
    assert_eq!(node.reason, "owner ReplicaSet/web-1 does not exist");
    assert_eq!(node.owners, [uid("ReplicaSet", "web-1")]);
}

#[test]
fn the_controller_is_the_first_of_several_owners() {
    let mut second = owner("ConfigMap", "b");
    second["controller"] = json!(false);
    let rest = json!({"metadata": {"ownerReferences": [second, owner("ConfigMap", "a")]}});
    let cluster = Cluster(vec![
        object("ConfigMap", "a", json!({})),
        object("ConfigMap", "b", json!({})),
        ready_pod("p", rest),
    ]);
    assert_eq!(cluster.node("Pod/p").owners, [uid("ConfigMap", "a"), uid("ConfigMap", "b")]);
}

#[test]
fn circles_of_owners_are_pictured_as_they_are() {
    let circular = |name, owned_by| {
        object("ConfigMap", name, json!({"metadata": {"ownerReferences": [owner("ConfigMap", owned_by)]}}))
    };
    let cluster = Cluster(vec![circular("a", "b"), circular("b", "a"), circular("self", "self")]);
    let picture = cluster.picture();
    assert_eq!(picture.objects.len(), 3);
    assert_eq!(cluster.node("ConfigMap/self").owners, [uid("ConfigMap", "self")]);
}

#[test]
fn selectors_targets_and_mounts_are_edges() {
    let labels = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"volumes": [{"name": "c", "configMap": {"name": "cfg"}}]}});
    let backend =
        json!({"spec": {"rules": [{"http": {"paths": [{"backend": {"service": {"name": "web"}}}]}}]}});
    let target = json!({"spec": {"scaleTargetRef": {"kind": "StatefulSet", "name": "web"}}});
    let cluster = Cluster(vec![
        ready_pod("web-0", labels),
        ready_pod("other", json!({})),
        object("ConfigMap", "cfg", json!({})),
        object("Service", "web", json!({"spec": {"selector": {"app": "web"}}})),
        object("Service", "all", json!({"spec": {"selector": {}}})),
        object("Ingress", "web", backend),
        object("HorizontalPodAutoscaler", "web", target),
        stateful_set(0),
    ]);
    for (name, want) in [
        ("Service/web", vec![(EdgeType::Selector, uid("Pod", "web-0"))]),
        ("Service/all", vec![]),
        ("Pod/web-0", vec![(EdgeType::Mount, uid("ConfigMap", "cfg"))]),
        ("Ingress/web", vec![(EdgeType::Target, uid("Service", "web"))]),
        ("HorizontalPodAutoscaler/web", vec![(EdgeType::Target, uid("StatefulSet", "web"))]),
    ] {
        let got: Vec<_> =
            cluster.node(name).edges.into_iter().map(|edge| (edge.edge_type, edge.to)).collect();
        assert_eq!(got, want, "{name}");
    }
}

#[test]
fn heartbeats_and_events_are_no_nodes_and_bootstrap_objects_are_background() {
    let cluster = Cluster(vec![
        object("Event", "e", json!({})),
        object("Lease", "l", json!({})),
        object("ConfigMap", "kube-root-ca.crt", json!({})),
        object("Namespace", "kube-system", json!({})),
        object("Namespace", "shop", json!({})),
    ]);
    let picture = cluster.picture();
    let nodes: Vec<_> = picture.objects.iter().map(|node| (node.name.as_str(), node.is_background)).collect();
    assert_eq!(nodes, [("kube-system", true), ("shop", false), ("kube-root-ca.crt", true)]);
}

#[test]
fn changes_are_the_nodes_that_differ_though_only_others_were_written() {
    let before = Cluster(vec![
        object("Service", "web", json!({})),
        ready_pod("a", json!({})),
        ready_pod("b", json!({})),
    ]);
    let mut after = before.clone();
    after.0.remove(2);
    let labels = json!({"metadata": {"resourceVersion": "9"}});
    super::merge(&mut after.0[1], labels);
    after.0.push(ready_pod("c", json!({})));
    let (resource_version, oldest) = ("9".to_owned(), "3".to_owned());
    let later = Picture { resource_version, oldest, is_truncated: true, ..after.picture() };
    let changes = later.changes_since(&before.picture());
    let names: Vec<_> = changes.changed.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["a", "c"]);
    assert_eq!(changes.deleted, [uid("Pod", "b")]);
    assert_eq!((changes.resource_version.as_str(), changes.oldest.as_str()), ("9", "3"));
    assert!(changes.is_truncated);
    assert_eq!(later.changes_since(&later), later.without_changes());
}
