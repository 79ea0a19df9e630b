mod constraints;
mod devices;
mod nominations;
mod scores;

use super::*;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::super::node_info::View;
use super::super::pod_info::sort_by_priority;

fn node(name: &str, more: Value) -> Arc<Node> {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": name.get(..1)}},
        "spec": more,
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "3"}},
    });
    if let Some(labels) = more.get("labels") {
        node["metadata"]["labels"] = labels.clone();
    }
    Arc::new(serde_json::from_value(node).unwrap())
}

fn pod(name: &str, spec: Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {"namespace": "n", "name": name, "uid": name, "labels": {"app": name.split('-').next()}},
        "spec": {"containers": [{"name": "c"}]},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn asking(resource: &str, amount: &str) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {resource: amount}}}]})
}

fn apart(app: &str, key: &str) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key});
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn together(app: &str, key: &str) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key});
    json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

/// Plans a pod, and returns the decision as text.
fn decided(nodes: &[Arc<Node>], there: &[(&str, Arc<Pod>)], pod: &Arc<Pod>) -> String {
    let mut nodes: Vec<NodeInfo> = nodes.iter().cloned().map(NodeInfo::new).collect();
    for (node, pod) in there {
        nodes.iter_mut().find(|info| info.name() == *node).unwrap().add_pod(pod.clone());
    }
    rendered(snapshot(nodes, vec![]).schedule(pod, Ok(Claims::default()), || None))
}

fn snapshot(nodes: Vec<NodeInfo>, budgets: Vec<Arc<PodDisruptionBudget>>) -> Snapshot {
    Snapshot {
        nodes,
        namespaces: Namespaces::new(),
        budgets,
        next_start: 0,
        nominees: vec![],
        devices: DeviceSnapshot::default(),
        volume_limits: Arc::default(),
        cleanups: vec![],
    }
}

fn rendered(decision: Decision) -> String {
    match decision {
        Decision::Bind(node) => node,
        Decision::BindVolumes(..) => "provision".to_owned(),
        Decision::BindDevices { node, .. } => format!("{node} with devices"),
        Decision::Error(error) | Decision::Fail(error) => error,
        Decision::TimeOut(error) => format!("later: {error}"),
        Decision::Defer => "later".to_owned(),
        Decision::Reject { message, .. } => message,
        Decision::Preempt { message, node, victims } => {
            let names: Vec<_> = victims.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
            format!("{message} {node} without {}", names.join(" "))
        }
    }
}

fn refused(reasons: &str, preemption: &str) -> String {
    format!(
        "0/2 nodes are available: {reasons}. no new claims to deallocate, preemption: 0/2 nodes are available: {preemption}."
    )
}

const HELPLESS: &str = "2 Preemption is not helpful for scheduling";
const VICTIMLESS: &str = "2 No preemption victims found for incoming pod";

#[test]
fn pods_find_their_node() {
    let plain = || [node("a1", json!({})), node("b1", json!({}))];
    let tainted = |effect: &str| {
        let taints = json!({"taints": [{"key": "k", "value": "v", "effect": effect}]});
        [node("a1", taints), node("b1", json!({"unschedulable": true}))]
    };
    let affinity = |operator: &str, values: Value| {
        let term = json!({"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]});
        let required = json!({"nodeSelectorTerms": [term]});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
    };
    let port = json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80}]}]});
    let spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }]});
    let web = |spec: Value| pod("web-1", spec);
    let none = || json!({});
    let mixed = "1 node(s) had untolerated taint(s), 1 node(s) were unschedulable";
    type There = Vec<(&'static str, Arc<Pod>)>;
    type Case = (&'static str, [Arc<Node>; 2], There, Arc<Pod>, String);
    let cases: Vec<Case> = vec![
        ("any node", plain(), vec![], web(none()), "a1".into()),
        ("the emptiest", plain(), vec![("a1", web(none()))], web(none()), "b1".into()),
        ("by selector", plain(), vec![], web(json!({"nodeSelector": {"zone": "b"}})), "b1".into()),
        (
            "no such label",
            plain(),
            vec![],
            web(json!({"nodeSelector": {"zone": "c"}})),
            refused("2 node(s) didn't match Pod's node affinity/selector", HELPLESS),
        ),
        ("by affinity", plain(), vec![], web(affinity("NotIn", json!(["a"]))), "b1".into()),
        ("tainted", tainted("NoSchedule"), vec![], web(none()), refused(mixed, HELPLESS)),
        ("only preferred", tainted("PreferNoSchedule"), vec![], web(none()), "a1".into()),
        (
            "tolerated",
            tainted("NoExecute"),
            vec![],
            web(json!({"tolerations": [{"key": "k", "operator": "Exists"}]})),
            "a1".into(),
        ),
        (
            "tolerated with another value",
            tainted("NoSchedule"),
            vec![],
            web(json!({"tolerations": [{"key": "k", "value": "w"}]})),
            refused(mixed, HELPLESS),
        ),
        (
            "cordoned and tolerated",
            tainted("NoSchedule"),
            vec![],
            web(json!({"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]})),
            "b1".into(),
        ),
        (
            "too much for any",
            plain(),
            vec![],
            web(asking("cpu", "3")),
            refused("2 Insufficient cpu", HELPLESS),
        ),
        (
            "too much for now",
            plain(),
            vec![("a1", web(asking("memory", "1Gi"))), ("b1", web(asking("memory", "1Mi")))],
            web(asking("memory", "1Gi")),
            refused("2 Insufficient memory", VICTIMLESS),
        ),
        (
            "full",
            plain(),
            ["a1", "a1", "a1", "b1", "b1", "b1"].map(|node| (node, web(json!({})))).into(),
            web(none()),
            refused("2 Too many pods", VICTIMLESS),
        ),
        ("ports", plain(), vec![("a1", web(port.clone()))], web(port.clone()), "b1".into()),
        (
            "no ports left",
            plain(),
            vec![("a1", web(port.clone())), ("b1", web(port.clone()))],
            web(port),
            refused("2 node(s) didn't have free ports for the requested pod ports", VICTIMLESS),
        ),
        ("apart", plain(), vec![("a1", web(none()))], web(apart("web", "zone")), "b1".into()),
        (
            "nowhere apart",
            plain(),
            vec![("a1", web(none())), ("b1", web(none()))],
            web(apart("web", "zone")),
            refused("2 node(s) didn't match pod anti-affinity rules", VICTIMLESS),
        ),
        (
            "others want to be apart",
            plain(),
            vec![("a1", pod("db-1", apart("web", "zone"))), ("b1", pod("db-2", apart("web", "zone")))],
            web(none()),
            refused("2 node(s) didn't satisfy existing pods anti-affinity rules", VICTIMLESS),
        ),
        ("together", plain(), vec![("b1", pod("db-1", none()))], web(together("db", "zone")), "b1".into()),
        ("the first of its kind", plain(), vec![], web(together("web", "zone")), "a1".into()),
        (
            "nobody to be with",
            plain(),
            vec![],
            web(together("db", "zone")),
            refused("2 node(s) didn't match pod affinity rules", HELPLESS),
        ),
        (
            "spread",
            plain(),
            vec![("a1", web(none())), ("b1", pod("db-1", none())), ("b1", pod("db-2", none()))],
            web(spread.clone()),
            "b1".into(),
        ),
        (
            "spread over labels that are missing",
            [node("a1", json!({"labels": {}})), node("b1", json!({"labels": {}}))],
            vec![],
            web(spread),
            refused(
                "2 node(s) didn't match pod topology spread constraints (missing required label)",
                HELPLESS,
            ),
        ),
    ];
    for (case, nodes, there, pod, want) in cases {
        assert_eq!(decided(&nodes, &there, &pod), want, "{case}");
    }
}

#[test]
fn what_is_said_without_nodes_or_claims() {
    let pod = pod("web-1", json!({"preemptionPolicy": "Never", "nodeSelector": {"no": "such"}}));
    assert_eq!(decided(&[], &[], &pod), "no nodes available to schedule pods");
    let nodes = [node("a1", json!({}))];
    assert_eq!(
        decided(&nodes, &[], &pod),
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. \
         no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."
    );
    let claims = Err(r#"persistentvolumeclaim "c" not found"#.to_owned());
    let decision = snapshot(vec![NodeInfo::new(nodes[0].clone())], vec![]).schedule(&pod, claims, || None);
    assert_eq!(
        rendered(decision),
        r#"0/1 nodes are available: persistentvolumeclaim "c" not found. not found"#
    );
}

#[test]
fn the_important_come_first() {
    let pod = |name: &str, priority: i32, second: i64| {
        let created = k8s_openapi::jiff::Timestamp::from_second(second).unwrap().to_string();
        Arc::new(
            serde_json::from_value::<Pod>(json!({
                "metadata": {"name": name, "creationTimestamp": created},
                "spec": {"containers": [], "priority": priority},
            }))
            .unwrap(),
        )
    };
    let pods = vec![pod("late", 0, 20), pod("early", 0, 10), pod("important", 5, 30)];
    let names: Vec<_> = sort_by_priority(pods).iter().map(|pod| pod.metadata.name.clone().unwrap()).collect();
    assert_eq!(names, ["important", "early", "late"]);
}

fn important(priority: i32, spec: Value) -> Value {
    let mut spec = spec;
    spec["priority"] = json!(priority);
    spec
}

#[test]
fn of_the_nodes_that_fit_the_best_is_taken() {
    let plain = || [node("a1", json!({})), node("b1", json!({}))];
    let zone_b = json!([{"weight": 5, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}}]);
    let prefers_b =
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": zone_b}}});
    let near = |kind: &str, app: &str| {
        let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "zone"});
        let weighted = json!([{"weight": 100, "podAffinityTerm": term}]);
        json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}})
    };
    let spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }]});
    let avoided =
        [node("a1", json!({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]})), node("b1", json!({}))];
    let web = |spec: Value| pod("web-1", spec);
    let db = |name: &str| pod(name, json!({}));
    type There = Vec<(&'static str, Arc<Pod>)>;
    type Case = (&'static str, [Arc<Node>; 2], There, Arc<Pod>, &'static str);
    let cases: Vec<Case> = vec![
        ("preferred node", plain(), vec![], web(prefers_b), "b1"),
        ("a taint to be avoided", avoided, vec![], web(json!({})), "b1"),
        ("what is used most", plain(), vec![("a1", pod("db-1", asking("cpu", "1")))], web(json!({})), "b1"),
        ("drawn to others", plain(), vec![("b1", db("db-1"))], web(near("podAffinity", "db")), "b1"),
        (
            "keeps away",
            plain(),
            vec![("a1", db("db-1")), ("b1", db("x-1")), ("b1", db("x-2"))],
            web(near("podAntiAffinity", "db")),
            "b1",
        ),
        (
            "others are drawn to it",
            plain(),
            vec![("b1", pod("db-1", near("podAffinity", "web")))],
            web(json!({})),
            "b1",
        ),
        (
            "others keep away",
            plain(),
            vec![("a1", pod("db-1", near("podAntiAffinity", "web"))), ("b1", db("x-1")), ("b1", db("x-2"))],
            web(json!({})),
            "b1",
        ),
        (
            "spread",
            plain(),
            vec![("a1", pod("web-2", json!({}))), ("b1", db("x-1")), ("b1", db("x-2"))],
            web(spread),
            "b1",
        ),
    ];
    for (case, nodes, there, pod, want) in cases {
        assert_eq!(decided(&nodes, &there, &pod), want, "{case}");
    }
}

#[test]
fn pods_of_lower_priority_make_room() {
    let plain = || vec![node("a1", json!({})), node("b1", json!({}))];
    let full = |name: &str, priority: i32| pod(name, important(priority, asking("cpu", "2")));
    let half = |name: &str, priority: i32| pod(name, important(priority, asking("cpu", "1")));
    let filtered = "0/2 nodes are available: 2 Insufficient cpu.";
    let refused = |why: &str| refused("2 Insufficient cpu", why);
    let never =
        important(9, json!({"preemptionPolicy": "Never", "containers": asking("cpu", "2")["containers"]}));
    let port = |priority: i32| {
        important(
            priority,
            json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80}]}]}),
        )
    };
    let budget = |app: &str, allowed: i32| {
        let budget = json!({
            "metadata": {"namespace": "n", "name": app}, "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        });
        Arc::new(serde_json::from_value::<PodDisruptionBudget>(budget).unwrap())
    };
    type There = Vec<(&'static str, Arc<Pod>)>;
    type Case = (&'static str, There, Vec<Arc<PodDisruptionBudget>>, Arc<Pod>, String);
    let cases: Vec<Case> = vec![
        ("the lowest priority", vec![("a1", full("x-1", 2)), ("b1", full("y-1", 1))], vec![], full("web-1", 9), format!("{filtered} b1 without y-1")),
        ("as few as possible", vec![("a1", half("x-1", 1)), ("a1", half("x-2", 2)), ("b1", full("y-1", 5))], vec![], half("web-1", 9), format!("{filtered} a1 without x-1")),
        ("not of equal priority", vec![("a1", full("x-1", 9)), ("b1", full("y-1", 9))], vec![], full("web-1", 9), refused(VICTIMLESS)),
        ("a budget is kept", vec![("a1", full("x-1", 1)), ("b1", full("y-1", 2))], vec![budget("x", 0)], full("web-1", 9), format!("{filtered} b1 without y-1")),
        ("a budget that allows it", vec![("a1", full("x-1", 1)), ("b1", full("y-1", 2))], vec![budget("x", 1)], full("web-1", 9), format!("{filtered} a1 without x-1")),
        ("a budget is broken if there is no other way", vec![("a1", full("x-1", 1)), ("b1", full("y-1", 10))], vec![budget("x", 0)], full("web-1", 9), format!("{filtered} a1 without x-1")),
        ("one of a node is kept by its budget", vec![("a1", half("x-1", 1)), ("a1", half("y-1", 2)), ("b1", full("z-1", 9))], vec![budget("x", 0)], half("web-1", 9), format!("{filtered} a1 without y-1")),
        (
            "never", vec![("a1", full("x-1", 1)), ("b1", full("y-1", 1))], vec![], pod("web-1", never),
            format!("{filtered} no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."),
        ),
        (
            "a port", vec![("a1", pod("x-1", port(1))), ("b1", pod("y-1", port(9)))], vec![], pod("web-1", port(9)),
            "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports. a1 without x-1".to_owned(),
        ),
    ];
    for (case, there, budgets, pod, want) in cases {
        let mut nodes: Vec<NodeInfo> = plain().into_iter().map(NodeInfo::new).collect();
        for (node, pod) in &there {
            nodes.iter_mut().find(|info| info.name() == *node).unwrap().add_pod(pod.clone());
        }
        let mut snapshot = snapshot(nodes, budgets);
        assert_eq!(rendered(snapshot.schedule(&pod, Ok(Claims::default()), || None)), want, "{case}");
        let left: usize = snapshot.nodes.iter().map(|node| node.pods_in(View::Present).count()).sum();
        assert_eq!(left, there.len(), "{case}: nothing is removed before it is deleted");
    }
}

#[test]
fn a_preemption_is_waited_for() {
    let mut preemptor = (*pod("web-1", important(9, asking("cpu", "2")))).clone();
    preemptor.status = serde_json::from_value(json!({"nominatedNodeName": "a1"})).unwrap();
    let mut victim = (*pod("x-1", important(1, asking("cpu", "2")))).clone();
    victim.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"});
    victim.status = serde_json::from_value(json!({"conditions": [condition]})).unwrap();
    let nodes = [node("a1", json!({})), node("b1", json!({}))];
    let other = pod("y-1", important(1, asking("cpu", "2")));
    let there = [("a1", Arc::new(victim)), ("b1", other)];
    let preemptor = Arc::new(preemptor);
    let got = decided(&nodes, &there, &preemptor);
    assert!(
        got.ends_with("preemption: not eligible due to a terminating pod on the nominated node."),
        "{got}"
    );
    // Without the victim the nominated node is taken, though the other is as good.
    assert_eq!(decided(&nodes, &[], &preemptor), "a1");
}

#[test]
fn a_claim_for_one_pod_is_used_by_one() {
    let volumes = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
    let nodes = vec![NodeInfo::new(node("a1", json!({})))];
    let mut snapshot = snapshot(nodes, vec![]);
    let claims = || {
        let mut claims = Claims::default();
        claims.exclusive.push("c".to_owned());
        claims
    };
    assert_eq!(rendered(snapshot.schedule(&pod("web-1", volumes.clone()), Ok(claims()), || None)), "a1");
    let got = rendered(snapshot.schedule(&pod("web-2", volumes.clone()), Ok(claims()), || None));
    let want = "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod. ";
    assert!(got.starts_with(want), "{got}");
    let got = rendered(snapshot.schedule(&pod("web-3", important(1, volumes)), Ok(claims()), || None));
    assert!(got.ends_with("a1 without web-1"), "{got}");
}

#[test]
fn large_clusters_are_sampled() {
    for (nodes, want) in [(1, 100), (200, 100), (1000, 420), (5000, 500), (10000, 500)] {
        assert_eq!(feasible_nodes_to_find(nodes), want, "{nodes}");
    }
}
