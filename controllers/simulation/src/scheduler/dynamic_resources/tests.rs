use super::*;
use serde_json::{Value, json};

use super::extended::{ExtendedResources, is_extended};
use crate::scheduler::node_info::NodeInfo;
use crate::scheduler::requests::PodRequests;

fn pod(spec: Value, status: Value) -> Pod {
    let mut spec = spec;
    if spec["containers"].is_null() {
        spec["containers"] = json!([]);
    }
    let meta = json!({"namespace": "n", "name": "p", "uid": "u"});
    serde_json::from_value(json!({"metadata": meta, "spec": spec, "status": status})).unwrap()
}

fn claim(meta: Value, status: Value) -> ResourceClaim {
    let mut meta = meta;
    (meta["namespace"], meta["name"]) = (json!("n"), json!("c"));
    serde_json::from_value(json!({"metadata": meta, "spec": {}, "status": status})).unwrap()
}

#[test]
fn a_pod_waits_until_its_claims_exist() {
    let named = || json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]});
    let generated = || json!({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]});
    let recorded =
        |name: Value| json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}]});
    let owned = json!({"ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true},
    ]});
    let plain = || Some(claim(json!({}), json!({})));
    let terminating = Some(claim(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), json!({})));
    for (case, spec, status, claim, want) in [
        ("none", json!({}), json!({}), None, Ok(0)),
        ("by name", named(), json!({}), plain(), Ok(1)),
        ("missing", named(), json!({}), None, Err(r#"could not find ResourceClaim "n/c""#)),
        ("terminating", named(), json!({}), terminating, Err(r#"resourceclaim "c" is being deleted"#)),
        (
            "not generated yet",
            generated(),
            json!({}),
            plain(),
            Err(r#"pod "n/p": ResourceClaim not created yet"#),
        ),
        ("not needed", generated(), recorded(Value::Null), None, Ok(0)),
        ("generated", generated(), recorded(json!("c")), Some(claim(owned, json!({}))), Ok(1)),
        (
            "of another owner",
            generated(),
            recorded(json!("c")),
            plain(),
            Err("ResourceClaim n/c was not created for Pod n/p (Pod is not owner)"),
        ),
    ] {
        let claim = claim.map(Arc::new);
        let got = claims_of(&pod(spec, status), |_| claim.clone()).map(|claims| claims.len());
        assert_eq!(got, want.map_err(str::to_owned), "{case}");
    }
}

#[test]
fn changes_of_claims_wake_pods_that_need_devices() {
    let new = |status: Value| Some(claim(json!({}), status));
    let allocated = || json!({"allocation": {}});
    let reserved = json!({"allocation": {}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]});
    let extended = Some(claim(json!({"annotations": {EXTENDED_CLAIM: "true"}}), json!({})));
    let finalizer = Some(claim(json!({"finalizers": [FINALIZER]}), json!({})));
    for (case, old, new, want) in [
        ("comes", None, new(json!({})), Effect::Devices),
        ("gets a finalizer", new(json!({})), finalizer, Effect::None),
        ("is allocated", new(json!({})), new(allocated()), Effect::Devices),
        ("is released", new(reserved), new(allocated()), Effect::Devices),
        ("is deallocated", new(allocated()), new(json!({})), Effect::Devices),
        ("is deleted with its devices", new(allocated()), None, Effect::Devices),
        ("is deleted", new(json!({})), None, Effect::None),
        ("of extended resources is deleted", extended, None, Effect::Devices),
    ] {
        assert_eq!(effect_of_claim(old.as_ref(), new.as_ref()), want, "{case}");
    }
}

#[test]
fn devices_are_ready_once_their_conditions_are_met() {
    let result = json!({"request": "r", "driver": "d", "pool": "p", "device": "x",
        "bindingConditions": ["one", "two"], "bindingFailureConditions": ["failed"]});
    let claim = |conditions: &[(&str, &str)]| {
        let condition = |(name, status): &(&str, &str)| {
            json!({"type": name, "status": status, "reason": "why", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let conditions: Vec<Value> = conditions.iter().map(condition).collect();
        claim(
            json!({}),
            json!({
                "allocation": {"allocationTimestamp": "2026-01-01T00:00:00Z", "devices": {"results": [result]}},
                "devices": [{"driver": "d", "pool": "p", "device": "x", "conditions": conditions}],
            }),
        )
    };
    let in_time: Timestamp = "2026-01-01T00:09:59Z".parse().unwrap();
    let due: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
    let failed = |text: &str| Readiness::Failed(text.to_owned());
    let broken = r#"device binding failed: claim=c, reason=why, message="m""#;
    for (case, conditions, now, want) in [
        ("none", &[][..], in_time, Readiness::Pending),
        ("one", &[("one", "True"), ("two", "False")], in_time, Readiness::Pending),
        ("all", &[("one", "True"), ("two", "True")], due, Readiness::Ready),
        ("a failure", &[("one", "True"), ("failed", "True")], in_time, failed(broken)),
        ("too late", &[("one", "True")], due, failed("device binding timeout: claim=c")),
    ] {
        let claim = claim(conditions);
        assert_eq!(Readiness::of(&claim, now), want, "{case}");
        // A deadline that is over, or of which nothing depends, would begin cycle after cycle.
        let deadline = (want == Readiness::Pending).then_some(due);
        assert_eq!(readiness::pending_deadline(&claim, now), deadline, "{case}");
    }
}

#[test]
fn a_pod_does_not_wait_for_a_claim_that_it_has_lost() {
    let pod = pod(json!({}), json!({}));
    let reserved = json!([{"resource": "pods", "name": "p", "uid": "u"}]);
    for (case, status, want) in [
        ("bound", json!({"allocation": {}, "reservedFor": reserved}), None),
        ("deallocated", json!({"reservedFor": reserved}), Some("claim c got deallocated in the meantime")),
        ("not reserved", json!({"allocation": {}}), Some("claim c lost its reservation in the meantime")),
    ] {
        let got = Readiness::of_bound(&claim(json!({}), status), &pod, Timestamp::UNIX_EPOCH);
        let want = want.map_or(Readiness::Ready, |text| Readiness::Failed(text.to_owned()));
        assert_eq!(got, want, "{case}");
    }
}

#[test]
fn extended_resources_have_a_domain_of_their_own() {
    for (name, want) in [
        ("cpu", false),
        ("example.com/gpu", true),
        ("hugepages-2Mi", false),
        ("kubernetes.io/x", false),
        ("requests.example.com/gpu", false),
        ("deviceclass.resource.kubernetes.io/gpu", true),
    ] {
        assert_eq!(is_extended(name), want, "{name}");
    }
}

fn class(name: &str, resource: &str, second: u32) -> Arc<DeviceClass> {
    let created = format!("2026-01-01T00:00:{second:02}Z");
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": created}, "spec": {"extendedResourceName": resource},
        }))
        .unwrap(),
    )
}

#[test]
fn of_several_classes_of_a_resource_the_newest_counts() {
    let classes = [class("old", "e.com/x", 1), class("new", "e.com/x", 2), class("next", "e.com/x", 2)];
    let by_resource = extended::classes_by_resource(&classes);
    let name = |resource: &str| by_resource[resource].metadata.name.clone().unwrap();
    assert_eq!(name("e.com/x"), "new");
    assert_eq!(name("deviceclass.resource.kubernetes.io/old"), "old");
}

#[test]
fn containers_share_the_devices_of_extended_resources() {
    const MOST: u64 = i64::MAX.cast_unsigned();
    let asking = |name: &str, amount: u64| json!({"name": name, "resources": {"requests": {"e.com/x": amount.to_string(), "cpu": "1"}}});
    let mut sidecar = asking("s", 1);
    sidecar["restartPolicy"] = json!("Always");
    for (case, init, containers, want) in [
        ("one", vec![], vec![asking("a", 2)], "container-0-request-1:2 | a=container-0-request-1"),
        (
            "two",
            vec![],
            vec![asking("a", 2), asking("b", 1)],
            "container-0-request-1:2 container-1-request-1:1 | a=container-0-request-1 b=container-1-request-1",
        ),
        (
            "an init container reuses them",
            vec![asking("i", 2)],
            vec![asking("a", 2)],
            "container-1-request-1:2 | a=container-1-request-1 i=container-1-request-1",
        ),
        (
            "an init container needs more",
            vec![asking("i", 3)],
            vec![asking("a", 2)],
            "container-0-request-1:1 container-1-request-1:2 | a=container-1-request-1 i=container-1-request-1 i=container-0-request-1",
        ),
        (
            "init containers run one after the other",
            vec![asking("i", 1), asking("j", 3)],
            vec![json!({"name": "a"})],
            "container-1-request-1:3 | i=container-1-request-1 j=container-1-request-1",
        ),
        (
            "as many as a number can be",
            vec![asking("i", MOST)],
            vec![asking("a", MOST - 1), asking("b", MOST)],
            "container-1-request-1:9223372036854775806 container-2-request-1:9223372036854775807 | a=container-1-request-1 b=container-2-request-1 i=container-1-request-1 i=container-2-request-1",
        ),
        (
            "a sidecar keeps its own",
            vec![sidecar],
            vec![asking("a", 1)],
            "container-0-request-1:1 container-1-request-1:1 | s=container-0-request-1 a=container-1-request-1",
        ),
    ] {
        let pod = pod(json!({"initContainers": init, "containers": containers}), json!({}));
        let snapshot =
            DeviceSnapshot::new(vec![], vec![], vec![class("x", "e.com/x", 1)], Timestamp::UNIX_EPOCH);
        let found = ExtendedResources::of(&pod, &PodRequests::of(&pod), &snapshot, || None).unwrap();
        let node = NodeInfo::new(serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap());
        let claim = found.claim_on(&node).unwrap().unwrap();
        let requests = claim.claim.spec.devices.unwrap().requests.unwrap();
        let requests = requests
            .iter()
            .map(|request| format!("{}:{}", request.name, request.exactly.as_ref().unwrap().count.unwrap()));
        let mappings = claim.mappings.iter();
        let mappings = mappings.map(|mapping| format!("{}={}", mapping.container_name, mapping.request_name));
        let got = format!(
            "{} | {}",
            requests.collect::<Vec<_>>().join(" "),
            mappings.collect::<Vec<_>>().join(" ")
        );
        assert_eq!(got, want, "{case}");
    }
}
