use super::*;
use crate::endpointslice::topology::PopulatedHints;
use serde_json::{Value, json};

fn service(spec: Value) -> Service {
    let meta = json!({"name": "s", "namespace": "n", "uid": "u", "labels": {"team": "blue"}});
    serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
}

/// Builds a pod from its name, its address and words: `ready`, `terminating`, `over`, and a node
/// other than `node`.
fn pod(name: &str, ip: &str, words: &str) -> Arc<Pod> {
    let has = |word: &str| words.split(' ').any(|w| w == word);
    let node = words.split(' ').find_map(|word| word.strip_prefix("on:")).unwrap_or("node");
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "n", "uid": name},
        "spec": {"nodeName": node, "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}]},
        "status": {
            "phase": if has("over") { "Succeeded" } else { "Running" },
            "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": if has("ready") { "True" } else { "False" }}],
        },
    });
    if has("terminating") {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn plan_of(service: &Service, pods: &[Arc<Pod>], slices: Vec<Arc<EndpointSlice>>) -> Plan {
    let node = |name: &str| {
        let node = json!({"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "z"}}});
        (name == "node").then(|| Arc::new(serde_json::from_value(node).unwrap()))
    };
    let mut populated = PopulatedHints::new();
    let mut hinter = Hinter { nodes: &Vec::new, populated: &mut populated, events: Vec::new() };
    plan(Observed { service, pods, slices, node }, &mut hinter)
}

/// Executes a plan on slices, each new one under the next number.
fn apply(plan: &Plan, slices: &mut BTreeMap<String, Arc<EndpointSlice>>) -> String {
    let mut text = Vec::new();
    for changes in &plan.changes {
        for slice in &changes.create {
            let mut slice = slice.clone();
            let name = (slices.len() + 1).to_string();
            slice.metadata.name = Some(name.clone());
            text.push(format!("+{name}"));
            slices.insert(name, Arc::new(slice));
        }
        for slice in &changes.update {
            let name = slice.metadata.name.clone().unwrap();
            text.push(format!("~{name}"));
            slices.insert(name, Arc::new(slice.clone()));
        }
        for slice in &changes.delete {
            let name = slice.metadata.name.clone().unwrap();
            text.push(format!("-{name}"));
            slices.remove(&name);
        }
    }
    text.join(" ")
}

/// Formats the endpoints of slices: `r` ready, `s` serving, `t` terminating.
fn endpoints(slices: &BTreeMap<String, Arc<EndpointSlice>>) -> String {
    let endpoint = |endpoint: &k8s_openapi::api::discovery::v1::Endpoint| {
        let conditions = endpoint.conditions.clone().unwrap();
        let flags = [(conditions.ready, "r"), (conditions.serving, "s"), (conditions.terminating, "t")];
        let flags: String =
            flags.into_iter().filter(|(is, _)| *is == Some(true)).map(|(_, flag)| flag).collect();
        format!("{}={flags}", endpoint.target_ref.as_ref().unwrap().name.as_ref().unwrap())
    };
    let slice = |slice: &Arc<EndpointSlice>| {
        let ports = slice.ports.iter().flatten().map(|port| port.port.unwrap().to_string());
        let ports: Vec<String> = ports.collect();
        let endpoints: Vec<String> = slice.endpoints.iter().flatten().map(endpoint).collect();
        format!("{}[{}]", ports.join(","), endpoints.join(" "))
    };
    slices.values().map(slice).collect::<Vec<_>>().join(" ")
}

#[test]
fn slices_follow_the_pods() {
    let web = json!({"ipFamilies": ["IPv4"], "clusterIP": "10.0.0.1", "ports": [{"port": 80, "targetPort": "web"}]});
    let everything = json!({
        "ipFamilies": ["IPv4"], "clusterIP": "10.0.0.1", "publishNotReadyAddresses": true, "ports": [{"port": 80}],
    });
    let two = [pod("a", "10.1.0.1", "ready"), pod("b", "10.1.0.2", "")];
    let (web, everything) = (service(web), service(everything));
    let mut slices = BTreeMap::new();
    for (case, service, pods, want, then) in [
        ("none", &web, &[][..], "+1", "[]"),
        ("still none", &web, &[], "", "[]"),
        ("the placeholder's name is used again", &web, &two, "~1", "8080[a=rs b=]"),
        ("nothing new", &web, &two, "", "8080[a=rs b=]"),
        ("a pod terminates", &web, &[pod("a", "10.1.0.1", "ready terminating")], "~1", "8080[a=st]"),
        ("it ended", &web, &[pod("a", "10.1.0.1", "over")], "~1", "[]"),
        ("other ports", &everything, &two, "~1", "80[a=rs b=r]"),
        ("a pod of another family", &everything, &[pod("a", "fd00::1", "ready")], "~1", "[]"),
        ("all are gone", &everything, &[], "", "[]"),
    ] {
        let plan = plan_of(service, pods, slices.values().cloned().collect());
        assert_eq!(apply(&plan, &mut slices), want, "{case}");
        assert_eq!(endpoints(&slices), then, "{case}");
    }
}

#[test]
fn a_pod_on_an_unknown_node_is_left_out_and_tried_again() {
    let lost = [pod("a", "10.1.0.1", "ready"), pod("b", "10.1.0.2", "ready on:lost")];
    for (publishes_all, want, errors) in [
        (false, "80[a=rs]", &["skipping Pod b for Service n/s: Node lost Not Found"][..]),
        (true, "80[a=rs b=rs]", &[]),
    ] {
        let spec = json!({"ipFamilies": ["IPv4"], "publishNotReadyAddresses": publishes_all, "ports": [{"port": 80}]});
        let mut slices = BTreeMap::new();
        let plan = plan_of(&service(spec), &lost, Vec::new());
        assert_eq!(plan.errors, errors);
        apply(&plan, &mut slices);
        assert_eq!(endpoints(&slices), want);
    }
}

#[test]
fn both_families_have_slices_of_their_own_until_one_is_dropped() {
    let dual = service(json!({"ipFamilies": ["IPv4", "IPv6"], "ports": [{"port": 80}]}));
    let single = service(json!({"ipFamilies": ["IPv6"], "ports": [{"port": 80}]}));
    let pods = [pod("a", "10.1.0.1", "ready"), pod("b", "fd00::1", "ready")];
    let mut slices = BTreeMap::new();
    assert_eq!(apply(&plan_of(&dual, &pods, Vec::new()), &mut slices), "+1 +2");
    assert_eq!(endpoints(&slices), "80[a=rs] 80[b=rs]");
    assert_eq!(apply(&plan_of(&single, &pods, slices.values().cloned().collect()), &mut slices), "-1");
}

#[test]
fn labels_are_those_of_the_service() {
    let mut service = service(json!({"ipFamilies": ["IPv4"], "clusterIP": "None"}));
    let mut slices = BTreeMap::new();
    apply(&plan_of(&service, &[pod("a", "10.1.0.1", "ready")], Vec::new()), &mut slices);
    let labels = |slices: &BTreeMap<String, Arc<EndpointSlice>>| json!(slices["1"].metadata.labels);
    let mut want = json!({
        "team": "blue", "service.kubernetes.io/headless": "", "kubernetes.io/service-name": "s",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    });
    assert_eq!(labels(&slices), want);
    service.metadata.labels.as_mut().unwrap().insert("team".into(), "red".into());
    let plan = plan_of(&service, &[pod("a", "10.1.0.1", "ready")], slices.values().cloned().collect());
    assert_eq!(apply(&plan, &mut slices), "~1");
    want["team"] = json!("red");
    assert_eq!(labels(&slices), want);
}
