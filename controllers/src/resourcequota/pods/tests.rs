use super::*;
use serde_json::{Value, json};

fn pod(spec: Value, status: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status})).unwrap()
}

fn used(pod: &Pod) -> String {
    let usage = pod.usage(Timestamp::UNIX_EPOCH);
    for name in usage.keys() {
        assert!(Pod::matches(name), "{name}");
    }
    usage.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn pods_take_what_they_ask_for() {
    let with = |requests: Value, limits: Value| json!({"name": "c", "resources": {"requests": requests, "limits": limits}});
    for (case, spec, status, want) in [
        ("nothing", json!({"containers": [with(json!({}), json!({}))]}), json!({}), "count/pods=1 pods=1"),
        (
            "ended",
            json!({"containers": [with(json!({"cpu": "1"}), json!({}))]}),
            json!({"phase": "Succeeded"}),
            "count/pods=1",
        ),
        (
            "all kinds",
            json!({"containers": [with(
                json!({"cpu": "1", "example.com/gpu": "2", "hugepages-2Mi": "4Mi", "deviceclass.resource.kubernetes.io/a": "1"}),
                json!({"memory": "1Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": "2"}),
            )]}),
            json!({}),
            "count/pods=1 cpu=1 hugepages-2Mi=4Mi limits.memory=1Gi pods=1 requests.cpu=1 \
             requests.deviceclass.resource.kubernetes.io/a=1 requests.example.com/gpu=2 requests.hugepages-2Mi=4Mi",
        ),
        (
            "a greedy start beside a sidecar",
            json!({
                "initContainers": [
                    {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                    with(json!({"cpu": "3"}), json!({})),
                ],
                "containers": [with(json!({"cpu": "1"}), json!({}))],
            }),
            json!({}),
            "count/pods=1 cpu=4 pods=1 requests.cpu=4",
        ),
        (
            "the pod's word and overhead",
            json!({
                "containers": [with(json!({"cpu": "1"}), json!({"cpu": "1"}))],
                "resources": {"requests": {"cpu": "5"}},
                "overhead": {"cpu": "500m", "memory": "1Mi"},
            }),
            json!({}),
            "count/pods=1 cpu=5500m limits.cpu=1500m memory=1Mi pods=1 requests.cpu=5500m requests.memory=1Mi",
        ),
        (
            "shrinking",
            json!({"containers": [with(json!({"cpu": "1"}), json!({"cpu": "1"}))]}),
            json!({"containerStatuses": [{
                "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}, "allocatedResources": {"cpu": "4"},
            }]}),
            "count/pods=1 cpu=4 limits.cpu=3 pods=1 requests.cpu=4",
        ),
        (
            "growing beyond what there is",
            json!({"containers": [with(json!({"cpu": "9"}), json!({}))]}),
            json!({
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
                "containerStatuses": [{
                    "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "resources": {"requests": {"cpu": "2"}},
                }],
            }),
            "count/pods=1 cpu=2 pods=1 requests.cpu=2",
        ),
    ] {
        assert_eq!(used(&pod(spec, status)), want, "{case}");
    }
}

#[test]
fn a_pod_that_is_stuck_in_its_end_takes_nothing() {
    let mut pod = pod(json!({"containers": []}), json!({}));
    let at = |second| Timestamp::from_second(second).unwrap();
    pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(100)));
    pod.metadata.deletion_grace_period_seconds = Some(30);
    for (second, want) in [(100, true), (130, true), (131, false)] {
        assert_eq!(pod.usage(at(second)).contains_key("pods"), want, "{second}");
    }
}

#[test]
fn pods_are_in_scopes() {
    let crossing = json!({"containers": [], "affinity": {"podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "namespaceSelector": {}}},
        ],
    }}});
    let at_home = json!({"containers": [], "affinity": {"podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}],
    }}});
    for (scope, spec, status, want) in [
        ("Terminating", json!({"containers": [], "activeDeadlineSeconds": 5}), json!({}), true),
        ("NotTerminating", json!({"containers": []}), json!({}), true),
        ("BestEffort", json!({"containers": []}), json!({"qosClass": "BestEffort"}), true),
        ("NotBestEffort", json!({"containers": []}), json!({"qosClass": "Burstable"}), true),
        ("PriorityClass", json!({"containers": [], "priorityClassName": "high"}), json!({}), true),
        ("PriorityClass", json!({"containers": []}), json!({}), false),
        ("CrossNamespacePodAffinity", crossing, json!({}), true),
        ("CrossNamespacePodAffinity", at_home, json!({}), false),
        ("VolumeAttributesClass", json!({"containers": []}), json!({}), false),
    ] {
        let scope_selector = json!({"operator": "Exists", "scopeName": scope});
        let got = pod(spec, status).is_in(&serde_json::from_value(scope_selector).unwrap());
        assert_eq!(got, want, "{scope}");
    }
}
