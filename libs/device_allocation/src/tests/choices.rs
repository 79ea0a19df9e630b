//! Requests, selectors, constraints and taints.

use super::*;

fn speeds() -> Vec<Value> {
    let speed = |value: i64| json!({"speed": {"int": value}, "model": {"string": format!("m{}", value % 2)}});
    vec![slice(devices(&[("d1", speed(1)), ("d2", speed(2)), ("d7", speed(7)), ("d8", speed(8))]))]
}

#[test]
fn requests_get_devices_in_their_order() {
    let fast = |name: &str| exactly(name, json!({"deviceClassName": "fast"}));
    let speed = |name: &str, value: i64| {
        selecting(name, &format!(r#"device.attributes["gpu.example"].speed == {value}"#))
    };
    let unknown = exactly("r", json!({"deviceClassName": "x"}));
    let admin = |name: &str| exactly(name, json!({"adminAccess": true}));
    let two = |one: Value, other: Value| vec![claim(json!([one])), claim(json!([other]))];
    for (case, claims, want) in [
        ("one", vec![claim(json!([count("r", 1)]))], "r=d1"),
        ("several", vec![claim(json!([count("r", 3)]))], "r=d1 r=d2 r=d7"),
        ("too many", vec![claim(json!([count("r", 5)]))], "none"),
        ("by class", vec![claim(json!([fast("r")]))], "r=d7"),
        ("by selector", vec![claim(json!([speed("r", 8)]))], "r=d8"),
        ("no such device", vec![claim(json!([speed("r", 3)]))], "none"),
        ("two requests", vec![claim(json!([fast("q"), count("r", 2)]))], "q=d7 r=d1 r=d2"),
        ("another choice for the first", vec![claim(json!([count("q", 1), speed("r", 1)]))], "q=d2 r=d1"),
        ("two claims", two(count("q", 1), count("r", 1)), "q=d1; r=d2"),
        ("another choice for the first claim", two(count("q", 3), speed("r", 2)), "q=d1 q=d7 q=d8; r=d2"),
        ("all", vec![claim(json!([all("r")]))], "r=d1 r=d2 r=d7 r=d8"),
        ("all but one", vec![claim(json!([count("q", 1), all("r")]))], "none"),
        ("for administrators", two(all("q"), admin("r")), "q=d1 q=d2 q=d7 q=d8; r=d1"),
        ("one claim has it once", vec![claim(json!([admin("q"), admin("r")]))], "q=d1 r=d2"),
        (
            "unknown class",
            vec![claim(json!([unknown]))],
            r#"claim n/c, request r: could not retrieve device class x: deviceclass.resource.k8s.io "x" not found"#,
        ),
        (
            "more than a claim can have",
            vec![claim(json!([count("q", 30), count("r", 3)]))],
            "claim n/c: number of requested devices 33 exceeds the claim limit of 32",
        ),
        (
            "an unknown mode",
            vec![claim(json!([exactly("r", json!({"allocationMode": "Some"}))]))],
            "claim n/c, request r: unsupported count mode Some",
        ),
        (
            "an error of a selector",
            vec![claim(json!([selecting("r", r#"device.attributes["gpu.example"].size > 1"#)]))],
            "claim n/c: selector #0: CEL runtime error: no such key: size",
        ),
        (
            "no expression",
            vec![claim(json!([selecting("r", "device.size")]))],
            "claim n/c: selector #0: CEL compile error: compilation failed: ERROR: <input>:1:7: undefined field 'size'\n | device.size\n | ......^",
        ),
    ] {
        assert_eq!(Cluster::new(speeds()).devices(&claims), want, "{case}");
    }
}

#[test]
fn of_a_prioritized_list_the_first_possible_alternative_is_chosen() {
    let list = |name: &str, alternatives: Value| json!({"name": name, "firstAvailable": alternatives});
    let speed = |name: &str, amount: usize, least: i64| {
        alternative(name, amount, &format!(r#"device.attributes["gpu.example"].speed >= {least}"#))
    };
    let best = || json!([speed("fast", 2, 7), speed("any", 1, 0)]);
    for (case, requests, want) in [
        ("the best", json!([list("r", best())]), "r/fast=d7 r/fast=d8"),
        (
            "the second",
            json!([exactly("q", json!({"deviceClassName": "fast"})), list("r", best())]),
            "q=d7 r/any=d1",
        ),
        ("none", json!([list("r", json!([speed("fastest", 1, 9), speed("many", 5, 0)]))]), "none"),
        (
            "the best for the first of two",
            json!([list("q", best()), list("r", best())]),
            "q/fast=d7 q/fast=d8 r/any=d1",
        ),
        (
            "one that leaves the claim small enough",
            json!([count("q", 1), list("r", json!([speed("many", 32, 0), speed("one", 1, 0)]))]),
            "q=d1 r/one=d2",
        ),
    ] {
        assert_eq!(Cluster::new(speeds()).devices(&[claim(requests)]), want, "{case}");
    }
}

#[test]
fn constraints_hold_for_the_devices_of_a_claim() {
    let constrained = |requests: Value, constraint: Value| {
        let mut claim = claim(requests);
        claim["spec"]["devices"]["constraints"] = json!([constraint]);
        claim
    };
    let model = |kind: &str| json!({kind: "gpu.example/model"});
    for (case, requests, constraint, want) in [
        ("the same", json!([count("r", 2)]), model("matchAttribute"), "r=d1 r=d7"),
        ("not so many are the same", json!([count("r", 3)]), model("matchAttribute"), "none"),
        ("different ones", json!([count("q", 1), count("r", 1)]), model("distinctAttribute"), "q=d1 r=d2"),
        (
            "not so many are different",
            json!([count("p", 1), count("q", 1), count("r", 1)]),
            model("distinctAttribute"),
            "none",
        ),
        (
            "of some requests",
            json!([count("p", 1), count("q", 1), count("r", 1)]),
            json!({"matchAttribute": "gpu.example/model", "requests": ["q", "r"]}),
            "p=d1 q=d2 r=d8",
        ),
        (
            "an attribute that is missing",
            json!([count("r", 1)]),
            json!({"matchAttribute": "gpu.example/x"}),
            "none",
        ),
        (
            "all, which differ",
            json!([all("r")]),
            model("matchAttribute"),
            "claim n/c, request r: cannot add device gpu.example/a/d2 because a claim constraint would not be satisfied",
        ),
        (
            "unknown",
            json!([count("r", 1)]),
            json!({}),
            "claim n/c, constraint #0: empty constraint (unsupported constraint type?)",
        ),
    ] {
        let got = Cluster::new(speeds()).devices(&[constrained(requests, constraint)]);
        assert_eq!(got, want, "{case}");
    }
}

#[test]
fn tainted_devices_need_a_toleration() {
    let taint = json!([{"key": "k", "effect": "NoSchedule"}]);
    let slices = || vec![slice(json!([{"name": "d1", "taints": taint}, {"name": "d2"}]))];
    let tolerating = exactly("r", json!({"tolerations": [{"key": "k", "operator": "Exists"}]}));
    for (request, want) in [(count("r", 1), "r=d2"), (tolerating, "r=d1"), (count("r", 2), "none")] {
        assert_eq!(Cluster::new(slices()).devices(&[claim(json!([request]))]), want);
    }
}

#[test]
fn a_search_ends_after_a_number_of_steps() {
    let names: Vec<String> = (0..40).map(|i| format!("d{i}")).collect();
    let device = |(i, name): (usize, &String)| json!({"name": name, "attributes": {"a": {"int": i % 2}}});
    let slices = vec![slice(names.iter().enumerate().map(device).collect())];
    // No 21 of 40 devices have the same attribute, and there are very many ways to try.
    let mut claims = claim(json!([count("q", 10), count("r", 11)]));
    claims["spec"]["devices"]["constraints"] = json!([{"matchAttribute": "gpu.example/a"}]);
    let cluster = Cluster { steps: 10_000, ..Cluster::new(slices) };
    assert_eq!(cluster.devices(&[claims]), "timed out trying to allocate devices");
    assert_eq!(cluster.devices(&[claim(json!([count("r", 32)]))]).split(' ').count(), 32);
}

#[test]
fn many_claims_need_no_deep_stack() {
    let names: Vec<String> = (0..120).map(|i| format!("d{i:03}")).collect();
    let pool = |i: usize| {
        let devices: Value = names.iter().map(|name| json!({"name": name})).collect();
        named_slice("slice", &format!("pool-{i:03}"), json!({"nodeName": "a", "devices": devices}))
    };
    let cluster = Cluster { steps: 50_000_000, ..Cluster::new((0..30).map(pool).collect()) };
    let claims: Vec<Value> = (0..100).map(|_| claim(json!([count("r", 32)]))).collect();
    let found = cluster.allocate(&claims).unwrap().unwrap();
    assert_eq!(found.len(), 100);
}
