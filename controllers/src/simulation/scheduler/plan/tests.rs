use super::*;
use serde_json::{Value, json};

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
        "metadata": {"namespace": "n", "name": name, "labels": {"app": name.split('-').next()}},
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

/// Where a pod goes, or what is said about it.
fn decided(nodes: &[Arc<Node>], there: &[(&str, Arc<Pod>)], pod: &Arc<Pod>) -> String {
    let mut nodes: Vec<NodeInfo> = nodes.iter().cloned().map(NodeInfo::new).collect();
    for (node, pod) in there {
        nodes.iter_mut().find(|info| info.name() == *node).unwrap().add_pod(pod.clone());
    }
    match decide(&mut nodes, pod, Ok(Claims::default()), &Namespaces::new()) {
        Decision::Bind(node) => node,
        Decision::BindVolumes(..) => "provision".to_owned(),
        Decision::Reject(message) => message,
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
    let mut nodes = [NodeInfo::new(nodes[0].clone())];
    let claims = Err(r#"persistentvolumeclaim "c" not found"#.to_owned());
    let Decision::Reject(message) = decide(&mut nodes, &pod, claims, &Namespaces::new()) else {
        panic!("it was placed")
    };
    assert_eq!(message, r#"0/1 nodes are available: persistentvolumeclaim "c" not found. not found"#);
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
