//! Pools: generations, missing slices, contradictions, and the nodes of slices and devices.

use super::*;

fn of_pool(name: &str, generation: i64, slices: i64, more: Value) -> Value {
    let mut slice = named_slice(name, "p", more);
    slice["spec"]["pool"] = json!({"name": "p", "generation": generation, "resourceSliceCount": slices});
    slice
}

fn on(node: &str, names: &[&str]) -> Value {
    json!({"nodeName": node, "devices": plain(names)})
}

#[test]
fn devices_come_from_the_newest_complete_pools() {
    let invalid = "invalid resource pools were encountered";
    let other = || named_slice("other", "q", on("a", &["o1"]));
    for (case, slices, want) in [
        (
            "complete",
            vec![of_pool("s1", 1, 2, on("a", &["d1"])), of_pool("s2", 1, 2, on("a", &["d2"]))],
            "r=d1",
        ),
        (
            "in the order of names",
            vec![of_pool("s2", 1, 2, on("a", &["d2"])), of_pool("s1", 1, 2, on("a", &["d3"]))],
            "r=d3",
        ),
        ("incomplete", vec![of_pool("s1", 1, 2, on("a", &["d1"]))], "none"),
        (
            "complete on other nodes",
            vec![of_pool("s1", 1, 2, on("a", &["d1"])), of_pool("s2", 1, 2, on("b", &["d2"]))],
            "r=d1",
        ),
        (
            "an old generation",
            vec![of_pool("s1", 1, 1, on("a", &["d1"])), of_pool("s2", 2, 1, on("a", &["d2"]))],
            "r=d2",
        ),
        // kube-scheduler looks at the slices of other nodes only if some of the pool are missing.
        (
            "obsolete",
            vec![of_pool("s1", 1, 2, on("a", &["d1"])), of_pool("s2", 2, 1, on("b", &["d2"]))],
            "none",
        ),
        ("incomplete, another pool", vec![of_pool("s1", 1, 2, on("a", &["d1"])), other()], "r=o1"),
        ("two devices of a name", vec![of_pool("s1", 1, 1, on("a", &["d1", "d1"]))], invalid),
        (
            "two devices of a name, another pool",
            vec![of_pool("s1", 1, 1, on("a", &["d1", "d1"])), other()],
            "r=o1",
        ),
        ("no slices", vec![], "none"),
    ] {
        assert_eq!(Cluster::new(slices).devices(&[claim(json!([count("r", 1)]))]), want, "{case}");
    }
}

#[test]
fn all_devices_need_complete_pools() {
    let at = "claim n/c, request r: asks for all devices, but resource pool gpu.example/p is currently";
    for (slice, want) in [
        (of_pool("s1", 1, 2, on("a", &["d1"])), format!("{at} being updated")),
        (of_pool("s1", 1, 1, on("a", &["d1", "d1"])), format!("{at} invalid")),
    ] {
        assert_eq!(Cluster::new(vec![slice]).devices(&[claim(json!([all("r")]))]), want);
    }
}

#[test]
fn slices_and_devices_are_for_nodes() {
    let zone = |value: &str| {
        let expression = json!({"key": "zone", "operator": "In", "values": [value]});
        json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]})
    };
    let devices = || plain(&["d1"]);
    let of_devices = |more: Value| {
        let mut device = more;
        device["name"] = json!("d2");
        json!({"perDeviceNodeSelection": true, "devices": [{"name": "d1", "nodeName": "b"}, device]})
    };
    for (case, spec, want) in [
        ("this node", json!({"nodeName": "a", "devices": devices()}), "r=d1"),
        ("another node", json!({"nodeName": "b", "devices": devices()}), "none"),
        ("all nodes", json!({"allNodes": true, "devices": devices()}), "r=d1"),
        ("its label", json!({"nodeSelector": zone("z"), "devices": devices()}), "r=d1"),
        ("another label", json!({"nodeSelector": zone("y"), "devices": devices()}), "none"),
        ("no node at all", json!({"devices": devices()}), "none"),
        ("a device of this node", of_devices(json!({"nodeName": "a"})), "r=d2"),
        ("a device of all nodes", of_devices(json!({"allNodes": true})), "r=d2"),
        ("a device of its label", of_devices(json!({"nodeSelector": zone("z")})), "r=d2"),
        ("a device of another label", of_devices(json!({"nodeSelector": zone("y")})), "none"),
    ] {
        let got = Cluster::new(vec![named_slice("s", "p", spec)]).devices(&[claim(json!([count("r", 1)]))]);
        assert_eq!(got, want, "{case}");
    }
}

#[test]
fn pools_with_binding_conditions_come_last() {
    let waiting = json!({"nodeName": "a", "devices": [{"name": "w", "bindingConditions": ["x"], "bindingFailureConditions": ["y"]}]});
    let slices = || vec![named_slice("s", "a", waiting.clone()), named_slice("s", "b", on("a", &["d"]))];
    assert_eq!(Cluster::new(slices()).devices(&[claim(json!([count("r", 2)]))]), "r=d r=w");
}
