//! The allocation beside its devices: configuration and nodes.

use super::*;

fn allocation(slices: Vec<Value>, claim: Value) -> Value {
    let results = Cluster::new(slices).allocate(&[claim]).unwrap().unwrap();
    serde_json::to_value(&results[0]).unwrap()
}

#[test]
fn the_configuration_of_class_and_claim_is_copied() {
    let fast = exactly("fast", json!({"deviceClassName": "fast"}));
    let list = json!({"name": "list", "firstAvailable": [alternative("one", 1, "true")]});
    let mut claim = claim(json!([count("q", 1), count("r", 1), list, fast]));
    let config = |requests: Value, of: &str| json!({"requests": requests, "opaque": {"driver": "gpu.example", "parameters": {"of": of}}});
    claim["spec"]["devices"]["config"] = json!([
        config(Value::Null, "claim"),
        config(json!(["q", "r"]), "two"),
        config(json!(["list/one"]), "alternative"),
        config(json!(["list/two"]), "another alternative"),
    ]);
    let speed = json!({"speed": {"int": 9}});
    let all = ["d1", "d2", "d3", "d4"].map(|name| (name, speed.clone()));
    let got = allocation(vec![slice(devices(&all))], claim);
    let shown: Vec<String> = got["devices"]["config"]
        .as_array()
        .unwrap()
        .iter()
        .map(|config| {
            format!("{} {} {}", config["source"], config["requests"], config["opaque"]["parameters"]["of"])
        })
        .collect();
    let want = [
        r#""FromClass" ["q","r","list/one"] "class""#,
        r#""FromClaim" null "claim""#,
        r#""FromClaim" ["q","r"] "two""#,
        r#""FromClaim" ["q","r"] "two""#,
        r#""FromClaim" ["list/one"] "alternative""#,
    ];
    assert_eq!(shown, want);
}

#[test]
fn an_allocation_is_for_the_nodes_of_its_devices() {
    let expression = |key: &str| json!({"key": key, "operator": "Exists"});
    let labeled = |keys: &[&str]| {
        let all: Vec<Value> = keys.iter().map(|key| expression(key)).collect();
        json!({"nodeSelectorTerms": [{"matchExpressions": all}]})
    };
    let this_node = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]});
    let of = |spec: Value, names: Value| {
        let mut spec = spec;
        spec["devices"] = names;
        spec
    };
    for (case, specs, want) in [
        ("a node", vec![of(json!({"nodeName": "a"}), plain(&["d1"]))], this_node.clone()),
        ("all nodes", vec![of(json!({"allNodes": true}), plain(&["d1"]))], Value::Null),
        (
            "a label",
            vec![of(json!({"nodeSelector": labeled(&["zone"])}), plain(&["d1"]))],
            labeled(&["zone"]),
        ),
        (
            "the same label twice",
            vec![
                of(json!({"nodeSelector": labeled(&["zone"])}), plain(&["d1"])),
                of(json!({"nodeSelector": labeled(&["zone"])}), plain(&["d2"])),
            ],
            labeled(&["zone"]),
        ),
        (
            "a label and a node",
            vec![
                of(json!({"nodeSelector": labeled(&["zone"])}), plain(&["d1"])),
                of(json!({"nodeName": "a"}), plain(&["d2"])),
            ],
            this_node.clone(),
        ),
        (
            "a device that binds to the node",
            vec![of(json!({"allNodes": true}), json!([{"name": "d1", "bindsToNode": true}]))],
            this_node.clone(),
        ),
        (
            "a device of a node",
            vec![of(json!({"perDeviceNodeSelection": true}), json!([{"name": "d1", "nodeName": "a"}]))],
            this_node,
        ),
    ] {
        let amount = specs.len();
        let pools = specs.into_iter().enumerate();
        let slices = pools.map(|(i, spec)| named_slice("s", &format!("p{i}"), spec)).collect();
        let got = allocation(slices, claim(json!([count("r", amount)])));
        assert_eq!(got["nodeSelector"], want, "{case}");
    }
}
