//! Pods with ResourceClaims and with extended resources of a class.

use super::*;
use crate::scheduler::dynamic_resources::Cleanup;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::jiff::Timestamp;

fn slice(node: &str, devices: &[&str]) -> Arc<ResourceSlice> {
    let devices: Vec<Value> = devices
        .iter()
        .map(|name| json!({"name": name, "attributes": {"fast": {"bool": name.starts_with("fast")}}}))
        .collect();
    let spec = json!({
        "driver": "gpu.example", "nodeName": node, "devices": devices,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
    });
    Arc::new(serde_json::from_value(json!({"metadata": {"name": node}, "spec": spec})).unwrap())
}

fn claim(name: &str, request: Value, status: Value) -> Arc<ResourceClaim> {
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": name, "uid": name},
            "spec": {"devices": {"requests": [request]}}, "status": status,
        }))
        .unwrap(),
    )
}

fn asking_for(count: usize) -> Value {
    json!({"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}})
}

fn on(node: &str, reserved: &[&str]) -> Value {
    let consumers: Vec<Value> =
        reserved.iter().map(|uid| json!({"resource": "pods", "name": uid, "uid": uid})).collect();
    let name = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    json!({
        "allocation": {
            "devices": {"results": [{"request": "r", "driver": "gpu.example", "pool": node, "device": "g0"}]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [name]}]},
        },
        "reservedFor": consumers,
    })
}

/// A snapshot of the nodes `a1` and `b1` with these slices and claims, and the class `gpu`.
fn cluster(slices: Vec<Arc<ResourceSlice>>, claims: Vec<Arc<ResourceClaim>>) -> Snapshot {
    let class: DeviceClass = serde_json::from_value(json!({
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "example.com/gpu"},
    }))
    .unwrap();
    let nodes = ["a1", "b1"].map(|name| NodeInfo::new(node(name, json!({}))));
    let devices = DeviceSnapshot::new(claims, slices, vec![Arc::new(class)], Timestamp::UNIX_EPOCH);
    Snapshot { devices, ..snapshot(nodes.into(), vec![]) }
}

fn claiming(name: &str, claim: &str) -> Arc<Pod> {
    pod(name, json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}))
}

fn schedule(snapshot: &mut Snapshot, pod: &Arc<Pod>) -> String {
    rendered(snapshot.schedule(pod, Ok(Claims::default()), || None))
}

#[test]
fn pods_with_claims_go_where_their_devices_are() {
    let still = |reasons: &str| {
        format!(
            "0/2 nodes are available: {reasons}. still not schedulable, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
        )
    };
    let early = |reason: &str| {
        format!(
            "0/2 nodes are available: {reason}. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
        )
    };
    let unknown = json!({"name": "r", "exactly": {"deviceClassName": "tpu"}});
    let fast = json!({"name": "fast", "deviceClassName": "gpu", "selectors": [{"cel": {"expression": r#"device.attributes["gpu.example"].fast"#}}]});
    let list = json!({"name": "r", "firstAvailable": [fast, {"name": "any", "deviceClassName": "gpu"}]});
    let broken = json!({"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": "device.attributes['gpu.example'].no"}}]}});
    let both = || vec![slice("a1", &["g0"]), slice("b1", &["fast0", "g1"])];
    for (case, slices, request, status, want) in [
        ("the only device", vec![slice("b1", &["g0"])], asking_for(1), json!({}), "b1 with devices".to_owned()),
        ("enough devices", both(), asking_for(2), json!({}), "b1 with devices".to_owned()),
        ("too few devices", both(), asking_for(3), json!({}), still("2 cannot allocate all claims")),
        ("the best alternative", both(), list, json!({}), "b1 with devices".to_owned()),
        ("an unknown class", both(), unknown, json!({}), early("request r: device class tpu does not exist")),
        ("allocated", both(), asking_for(1), on("b1", &["other"]), "b1 with devices".to_owned()),
        (
            "allocated elsewhere, in use",
            both(),
            asking_for(1),
            on("c1", &["other"]),
            still("2 resourceclaim not available on the node"),
        ),
        (
            "an error of the claim",
            both(),
            broken,
            json!({}),
            "running \"DynamicResources\" filter plugin: claim n/c: selector #0: CEL runtime error: no such key: no".to_owned(),
        ),
    ] {
        let mut snapshot = cluster(slices, vec![claim("c", request, status)]);
        assert_eq!(schedule(&mut snapshot, &claiming("web-1", "c")), want, "{case}");
        assert!(snapshot.cleanups.is_empty(), "{case}");
    }
}

#[test]
fn a_pod_with_a_long_search_is_put_off() {
    // The compilation alone has more steps than a pod may have.
    let expression = " ".repeat(300_000);
    let selectors = json!([{"cel": {"expression": expression}}]);
    let request =
        json!({"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1, "selectors": selectors}});
    let mut snapshot = cluster(vec![slice("a1", &["g0"])], vec![claim("c", request, json!({}))]);
    let got = schedule(&mut snapshot, &claiming("web-1", "c"));
    let want = "running \"DynamicResources\" filter plugin: node a1: timed out trying to allocate devices";
    assert_eq!(got, format!("later: {want}"));
}

#[test]
fn ids_of_shares_follow_from_pod_claim_and_request() {
    let ids = || {
        let mut slice = (*slice("a1", &["g0"])).clone();
        let devices = slice.spec.devices.as_mut().unwrap();
        devices[0].allow_multiple_allocations = Some(true);
        let claims = ["c", "d"].map(|name| claim(name, asking_for(1), json!({})));
        let mut snapshot = cluster(vec![Arc::new(slice)], claims.into());
        snapshot.devices = snapshot.devices.with_seed("7".parse().ok());
        ["c", "d"].map(|name| {
            let Decision::BindDevices { devices, .. } =
                snapshot.schedule(&claiming("web-1", name), Ok(Claims::default()), || None)
            else {
                panic!("no binding");
            };
            let allocation = devices.claims[0].allocation.clone().unwrap();
            allocation.devices.unwrap().results.unwrap()[0].share_id.clone().unwrap()
        })
    };
    let [one, other] = ids();
    assert_ne!(one, other);
    assert_eq!(ids(), [one, other]);
}

#[test]
fn a_device_is_given_to_one_pod_of_a_cycle() {
    let claims = ["c", "d"].map(|name| claim(name, asking_for(1), json!({})));
    let mut snapshot = cluster(vec![slice("a1", &["g0"])], claims.into());
    assert_eq!(schedule(&mut snapshot, &claiming("web-1", "c")), "a1 with devices");
    let got = schedule(&mut snapshot, &claiming("web-2", "d"));
    assert!(got.starts_with("0/2 nodes are available: 2 cannot allocate all claims."), "{got}");
    let got = schedule(&mut snapshot, &claiming("web-3", "c"));
    let want = "0/2 nodes are available: resource claim n/c is in the process of being allocated. no new";
    assert!(got.starts_with(want), "{got}");
}

#[test]
fn an_unused_claim_that_is_elsewhere_is_deallocated() {
    for (reserved, want) in
        [(&[][..], true), (&["web-1"], true), (&["web-2"], false), (&["web-1", "web-2"], false)]
    {
        let mut snapshot = cluster(vec![], vec![claim("c", asking_for(1), on("c1", reserved))]);
        let got = schedule(&mut snapshot, &claiming("web-1", "c"));
        let text = if want { "deallocation of ResourceClaim completed, " } else { "still not schedulable, " };
        assert!(got.contains(text), "{reserved:?}: {got}");
        assert_eq!(matches!(snapshot.cleanups[..], [Cleanup::Deallocate(_)]), want, "{reserved:?}");
    }
}

#[test]
fn the_claims_of_a_pod_are_reserved_for_it() {
    let statuses = [json!({}), on("a1", &["web-2"]), on("a1", &["web-1"])];
    let names = ["new", "shared", "known"];
    let claims =
        names.iter().zip(statuses).map(|(name, status)| claim(name, asking_for(1), status)).collect();
    let mut snapshot = cluster(vec![slice("a1", &["g0", "g1"])], claims);
    let all: Vec<Value> = names.iter().map(|name| json!({"name": name, "resourceClaimName": name})).collect();
    let pod = pod("web-1", json!({"resourceClaims": all}));
    let Decision::BindDevices { node, devices, .. } = snapshot.schedule(&pod, Ok(Claims::default()), || None)
    else {
        panic!("no binding");
    };
    let bound: Vec<_> = devices
        .claims
        .iter()
        .map(|bound| (bound.claim.metadata.name.as_deref().unwrap(), bound.allocation.is_some()))
        .collect();
    assert_eq!((node.as_str(), bound), ("a1", vec![("new", true), ("shared", false)]));
}

#[test]
fn extended_resources_are_allocated_as_devices() {
    let asking = |amount: &str| pod("web-1", asking("example.com/gpu", amount));
    let mut snapshot = cluster(vec![slice("b1", &["g0", "g1"])], vec![]);
    let Decision::BindDevices { node, devices, .. } =
        snapshot.schedule(&asking("2"), Ok(Claims::default()), || None)
    else {
        panic!("no binding");
    };
    let extended = devices.extended.unwrap();
    assert_eq!((node.as_str(), extended.mappings[0].request_name.as_str()), ("b1", "container-0-request-0"));
    let got = schedule(&mut snapshot, &asking("1"));
    assert!(got.starts_with("0/2 nodes are available: 2 cannot allocate all claims. still"), "{got}");
    // A node that has the resource itself needs no devices.
    let mut with_resource = (*node_with("c1")).clone();
    with_resource
        .status
        .as_mut()
        .unwrap()
        .allocatable
        .as_mut()
        .unwrap()
        .insert("example.com/gpu".to_owned(), serde_json::from_value(json!("1")).unwrap());
    snapshot.nodes.push(NodeInfo::new(Arc::new(with_resource)));
    assert_eq!(schedule(&mut snapshot, &asking("1")), "c1");
}

fn node_with(name: &str) -> Arc<Node> {
    node(name, json!({}))
}

#[test]
fn a_claim_that_an_earlier_cycle_has_left_is_deleted() {
    let mut stale = (*claim("x", asking_for(1), json!({}))).clone();
    stale.metadata = serde_json::from_value(json!({
        "namespace": "n", "name": "x", "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web-1", "uid": "web-1", "controller": true}],
    }))
    .unwrap();
    let mut snapshot = cluster(vec![slice("a1", &["g0"])], vec![Arc::new(stale)]);
    let got = schedule(&mut snapshot, &pod("web-1", asking("example.com/gpu", "1")));
    assert!(
        got.contains("2 cannot schedule extended resource claim. deletion of ResourceClaim completed, "),
        "{got}"
    );
    assert!(matches!(snapshot.cleanups[..], [Cleanup::Delete(_)]));
}
