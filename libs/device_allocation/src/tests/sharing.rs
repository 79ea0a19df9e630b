//! Devices that are allocated already, shared counters and consumable capacity.

use super::*;

#[test]
fn devices_of_other_claims_are_not_free() {
    let result = |device: &str, more: Value| {
        let mut result = json!({"driver": "gpu.example", "pool": "a", "request": "x", "device": device});
        for (key, value) in more.as_object().into_iter().flatten() {
            result[key] = value.clone();
        }
        json!([result])
    };
    let admin = exactly("r", json!({"adminAccess": true}));
    for (case, allocated, request, want) in [
        ("in use", result("d1", json!({})), count("r", 1), "r=d2"),
        ("used by an administrator", result("d1", json!({"adminAccess": true})), count("r", 1), "r=d1"),
        ("for an administrator", result("d1", json!({})), admin, "r=d1"),
        ("not all are free", result("d1", json!({})), all("r"), "none"),
        (
            "another pool",
            json!([{"driver": "gpu.example", "pool": "b", "request": "x", "device": "d1"}]),
            count("r", 1),
            "r=d1",
        ),
    ] {
        let cluster = Cluster::new(vec![slice(plain(&["d1", "d2"]))]).with_allocated(allocated);
        assert_eq!(cluster.devices(&[claim(json!([request]))]), want, "{case}");
    }
}

fn parts(sizes: &[(&str, &str)]) -> Vec<Value> {
    let pool = json!({"name": "a", "generation": 1, "resourceSliceCount": 2});
    let part = |(name, size): &(&str, &str)| {
        let counters = json!({"memory": {"value": size}});
        json!({"name": name, "consumesCounters": [{"counterSet": "card", "counters": counters}]})
    };
    let devices: Value = sizes.iter().map(part).collect();
    let counters = json!([{"name": "card", "counters": {"memory": {"value": "10"}}}]);
    vec![
        named_slice("counters", "a", json!({"pool": pool, "allNodes": true, "sharedCounters": counters})),
        named_slice("devices", "a", json!({"pool": pool, "nodeName": "a", "devices": devices})),
    ]
}

#[test]
fn parts_of_a_device_share_its_counters() {
    let allocated =
        |device: &str| json!([{"driver": "gpu.example", "pool": "a", "request": "x", "device": device}]);
    let parts = || parts(&[("whole", "10"), ("half", "5"), ("other-half", "5"), ("small", "1")]);
    for (case, taken, request, want) in [
        ("one", json!([]), count("r", 1), "r=whole"),
        ("two", json!([]), count("r", 2), "r=half r=other-half"),
        ("too many", json!([]), count("r", 3), "none"),
        ("beside a half", allocated("half"), count("r", 1), "r=other-half"),
        ("beside a small one", allocated("small"), count("r", 2), "none"),
        ("beside the whole", allocated("whole"), count("r", 1), "none"),
    ] {
        let cluster = Cluster::new(parts()).with_allocated(taken);
        assert_eq!(cluster.devices(&[claim(json!([request]))]), want, "{case}");
    }
}

#[test]
fn counters_that_do_not_exist_make_a_pool_invalid() {
    let mut slices = parts(&[("one", "1")]);
    slices[0]["spec"]["sharedCounters"][0]["name"] = json!("other");
    let got = Cluster::new(slices).devices(&[claim(json!([count("r", 1)]))]);
    assert_eq!(got, "invalid resource pools were encountered");
}

#[test]
fn claims_share_the_capacity_of_a_device() {
    let shareable = json!([{
        "name": "net", "allowMultipleAllocations": true,
        "capacity": {"bandwidth": {"value": "10G", "requestPolicy": {"default": "1G"}}},
    }]);
    let asking =
        |name: &str, amount: &str| exactly(name, json!({"capacity": {"requests": {"bandwidth": amount}}}));
    let taken = json!([{
        "driver": "gpu.example", "pool": "a", "request": "x", "device": "net", "shareID": "s",
        "consumedCapacity": {"bandwidth": "7G"},
    }]);
    for (case, allocated, claims, want) in [
        ("a part", json!([]), vec![claim(json!([asking("r", "4G")]))], "r=net"),
        (
            "two claims",
            json!([]),
            vec![claim(json!([asking("q", "4G")])), claim(json!([asking("r", "6G")]))],
            "q=net; r=net",
        ),
        (
            "too much for two",
            json!([]),
            vec![claim(json!([asking("q", "4G")])), claim(json!([asking("r", "7G")]))],
            "none",
        ),
        ("beside another claim", taken.clone(), vec![claim(json!([asking("r", "3G")]))], "r=net"),
        ("too much beside another claim", taken.clone(), vec![claim(json!([asking("r", "4G")]))], "none"),
        ("the default", taken, vec![claim(json!([count("r", 1)]))], "r=net"),
    ] {
        let cluster = Cluster::new(vec![slice(shareable.clone())]).with_allocated(allocated);
        assert_eq!(cluster.devices(&claims), want, "{case}");
    }
}

#[test]
fn a_share_has_an_id_and_its_capacity() {
    let shareable = json!([{"name": "net", "allowMultipleAllocations": true, "capacity": {"bandwidth": {"value": "10G"}}}]);
    let requests = json!([exactly("r", json!({"capacity": {"requests": {"bandwidth": "4G"}}}))]);
    let results = Cluster::new(vec![slice(shareable)]).allocate(&[claim(requests)]).unwrap().unwrap();
    let got = serde_json::to_value(&results[0].devices).unwrap();
    let want = json!({
        "driver": "gpu.example", "pool": "a", "device": "net", "request": "r", "shareID": "share-1",
        "consumedCapacity": {"bandwidth": "4G"},
    });
    assert_eq!(got["results"], json!([want]));
}
