//! Trees of owners and dependents.

use serde_json::{Value, json};

use super::fake::{Fake, alice, claim, cluster, node, object, owned, pod, terminating, unready};
use crate::tree::{MAX_DEPTH, MAX_NODES, TreeNode, tree};

fn drawn(cluster: &Fake, object: &str) -> String {
    let (resource, name) = object.split_once(' ').unwrap();
    let namespace = if super::fake::is_namespaced(resource) { "shop" } else { "" };
    tree(cluster, resource, namespace, name).unwrap().to_string()
}

/// Returns an object with another owner in addition to those that it has.
fn also_owned(object: Value, owner: &Value) -> Value {
    let mut changed = object.clone();
    let reference = owned(object, owner)["metadata"]["ownerReferences"][0].clone();
    changed["metadata"]["ownerReferences"].as_array_mut().unwrap().push(reference);
    changed
}

#[test]
fn trees() {
    let deployment = object(
        "Deployment",
        "web",
        json!({"spec": {"replicas": 2}, "status": {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 1, "availableReplicas": 1}}),
    );
    let set = owned(
        object(
            "ReplicaSet",
            "web-1",
            json!({"spec": {"replicas": 2}, "status": {"replicas": 2, "readyReplicas": 1, "availableReplicas": 1}}),
        ),
        &deployment,
    );
    let crashing = unready(
        "web-1-b",
        "Running",
        json!({"containerStatuses": [{"name": "app", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}),
    );
    let whole = cluster([
        node("node-0"),
        deployment.clone(),
        set.clone(),
        owned(pod("web-1-a"), &set),
        owned(crashing, &set),
        owned(terminating(pod("web-1-c"), &["example.com/hold"]), &set),
    ]);
    let drawing = "\
deployment.apps/shop/web  progressing: 1/2 ready
└─ replicaset.apps/shop/web-1  progressing: 1 of 2 pods ready
   ├─ pod/shop/web-1-a  ready  <--
   ├─ pod/shop/web-1-b  failing: CrashLoopBackOff
   └─ pod/shop/web-1-c  terminating: finalizers example.com/hold";
    assert_eq!(drawn(&whole, "pods web-1-a"), drawing);
    assert_eq!(
        drawn(&whole, "deployments.apps web"),
        drawing.replace("  <--", "").replace("1/2 ready", "1/2 ready  <--")
    );
    assert_eq!(
        drawn(&cluster([claim("data", "Bound")]), "persistentvolumeclaims data"),
        "persistentvolumeclaim/shop/data  ready  <--"
    );
    let orphans = cluster([owned(pod("web-1-a"), &set), node("node-0")]);
    assert_eq!(
        drawn(&orphans, "pods web-1-a"),
        "replicaset.apps/shop/web-1  missing: does not exist\n└─ pod/shop/web-1-a  ready  <--"
    );
    assert_eq!(
        drawn(&orphans.deleted("10:04:00", alice(), set.clone()), "replicasets.apps web-1"),
        "replicaset.apps/shop/web-1  missing: does not exist any more  <--\n└─ pod/shop/web-1-a  ready"
    );
    let mut unserved = owned(pod("web-1-a"), &set);
    unserved["metadata"]["ownerReferences"][0]["kind"] = json!("Other");
    assert_eq!(
        drawn(&cluster([unserved, node("node-0")]), "pods web-1-a"),
        "other.apps/shop/web-1  missing: its kind is not served\n└─ pod/shop/web-1-a  ready  <--"
    );
    // Gadgets are cluster-scoped, and have dependents in namespaces.
    let gadget = object("Gadget", "g", json!({}));
    assert_eq!(
        drawn(
            &cluster([gadget.clone(), owned(object("Widget", "w", json!({})), &gadget)]),
            "gadgets.example.com g"
        ),
        "gadget.example.com/g  ready  <--\n└─ widget.example.com/shop/w  ready"
    );
}

#[test]
fn circles_and_several_owners_are_shown_once() {
    let widgets = ["a", "b", "c"].map(|name| object("Widget", name, json!({})));
    let [a, b, c] = &widgets;
    let circle = cluster([owned(a.clone(), c), owned(b.clone(), a), owned(c.clone(), b)]);
    assert_eq!(
        drawn(&circle, "widgets.example.com a"),
        "widget.example.com/shop/b  ready: also owned by widget.example.com/a
└─ widget.example.com/shop/c  ready
   └─ widget.example.com/shop/a  ready  <--
      └─ widget.example.com/shop/b  ready: circle of owners: it is above"
            .replace(": also owned by widget.example.com/a", "")
    );
    let own = cluster([owned(a.clone(), a)]);
    assert_eq!(
        drawn(&own, "widgets.example.com a"),
        "widget.example.com/shop/a  ready  <--\n└─ widget.example.com/shop/a  ready: circle of owners: it is above  <--"
    );
    let diamond = cluster([a.clone(), owned(b.clone(), a), also_owned(owned(c.clone(), a), b)]);
    assert_eq!(
        drawn(&diamond, "widgets.example.com a"),
        "widget.example.com/shop/a  ready  <--
├─ widget.example.com/shop/b  ready
│  └─ widget.example.com/shop/c  ready: also owned by widget.example.com/a
└─ widget.example.com/shop/c  ready: has several owners: it is above"
    );
}

fn size(node: &TreeNode) -> (usize, usize) {
    let sizes = node.dependents.iter().map(size);
    sizes.fold((1, 1), |(count, depth), (more, below)| (count + more, depth.max(below + 1)))
}

#[test]
fn trees_are_bounded_in_number_and_depth() {
    let root = object("Widget", "root", json!({}));
    let many = (0..700).map(|number| owned(object("Widget", &format!("w-{number}"), json!({})), &root));
    let wide = tree(&cluster(many.chain([root.clone()])), "widgets.example.com", "shop", "root").unwrap();
    assert_eq!((size(&wide.root), wide.omitted), ((MAX_NODES, 2), 700 - (MAX_NODES - 1)));
    assert!(wide.to_string().ends_with("\nand 201 more"));
    let mut chain = vec![root];
    for number in 0..100 {
        let next = owned(object("Widget", &format!("w-{number}"), json!({})), chain.last().unwrap());
        chain.push(next);
    }
    let deep = tree(&cluster(chain.clone()), "widgets.example.com", "shop", "root").unwrap();
    assert_eq!((size(&deep.root), deep.omitted), ((MAX_DEPTH, MAX_DEPTH), 1));
    let low = tree(&cluster(chain), "widgets.example.com", "shop", "w-99").unwrap();
    assert_eq!(low.root.object, format!("widget.example.com/shop/w-{}", 99 - (MAX_DEPTH - 1)));
    assert_eq!((size(&low.root), low.omitted), ((MAX_DEPTH, MAX_DEPTH), 0));
}

#[test]
fn objects_with_many_owners_do_not_make_a_tree_larger() {
    let root = object("Widget", "root", json!({}));
    let owners: Vec<Value> =
        (0..30).map(|i| owned(object("Widget", &format!("owner-{i}"), json!({})), &root)).collect();
    let references = owners.iter().map(|owner| {
        json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
               "uid": owner["metadata"]["uid"]})
    });
    let references: Vec<Value> = references.collect();
    let dependents = (0..100).map(|i| {
        let mut dependent = object("Widget", &format!("w-{i}"), json!({}));
        dependent["metadata"]["ownerReferences"] = json!(references);
        dependent
    });
    let cluster = cluster(dependents.chain(owners).chain([root]));
    let tree = tree(&cluster, "widgets.example.com", "shop", "root").unwrap();
    assert_eq!(size(&tree.root).0, MAX_NODES);
    assert!(tree.omitted > 0);
}
