//! Affinity to pods and to names of nodes, topology spread, and volumes.

use super::*;

fn both(mut one: Value, other: &Value) -> Value {
    const REQUIRED: &str = "/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let more = other.pointer(REQUIRED).and_then(Value::as_array).cloned().unwrap_or_default();
    one.pointer_mut(REQUIRED).and_then(Value::as_array_mut).unwrap().extend(more);
    one
}

fn labeled(name: &str, labels: Value) -> Arc<Pod> {
    let mut pod = (*pod(name, json!({}))).clone();
    pod.metadata.labels = serde_json::from_value(labels).unwrap();
    Arc::new(pod)
}

fn with_tier(tier: &str, key: &str) -> Value {
    let mut term = together("any", key);
    term["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"] =
        json!({"matchLabels": {"tier": tier}});
    term
}

#[test]
fn pods_to_be_with_match_all_terms() {
    const AFFINITY: &str = "2 node(s) didn't match pod affinity rules";
    let plain = || [node("a1", json!({})), node("b1", json!({}))];
    let unlabeled = || [node("a1", json!({})), node("b1", json!({"labels": {}}))];
    let x = || labeled("x-1", json!({"app": "x"}));
    let y = || labeled("y-1", json!({"tier": "y"}));
    let x_and_y = || labeled("z-1", json!({"app": "x", "tier": "y"}));
    let with_x_and_y = || both(together("x", "zone"), &with_tier("y", "zone"));
    type There = Vec<(&'static str, Arc<Pod>)>;
    type Case = (&'static str, [Arc<Node>; 2], There, Arc<Pod>, String);
    let cases: Vec<Case> = vec![
        (
            "two pods match a term each",
            plain(),
            vec![("a1", x()), ("a1", y())],
            pod("p-1", with_x_and_y()),
            refused(AFFINITY, HELPLESS),
        ),
        (
            "one pod matches both",
            plain(),
            vec![("a1", x()), ("a1", y()), ("b1", x_and_y())],
            pod("p-1", with_x_and_y()),
            "b1".into(),
        ),
        (
            "the first of its group, beside one that matches a term",
            plain(),
            vec![("b1", x()), ("b1", y())],
            {
                let mut first = (*labeled("p-1", json!({"app": "x", "tier": "y"}))).clone();
                first.spec = pod("p-1", with_x_and_y()).spec.clone();
                Arc::new(first)
            },
            "a1".into(),
        ),
        (
            "the first of its group needs the label",
            unlabeled(),
            vec![("a1", pod("db-1", asking("cpu", "2")))],
            pod("web-1", together("web", "zone")),
            "a1".into(),
        ),
        (
            "no node has the label",
            plain(),
            vec![],
            pod("web-1", together("web", "rack")),
            refused(AFFINITY, HELPLESS),
        ),
    ];
    for (case, nodes, there, pod, want) in cases {
        assert_eq!(decided(&nodes, &there, &pod), want, "{case}");
    }
}

fn spread(effect: &str, selector: Value, more: Value) -> Value {
    let mut rule = json!({
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": effect, "labelSelector": selector,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        rule[key] = value.clone();
    }
    json!({"topologySpreadConstraints": [rule]})
}

#[test]
fn an_empty_selector_counts_no_pods_for_spread() {
    let nodes = [node("a1", json!({})), node("b1", json!({"unschedulable": true}))];
    let there = [("a1", pod("x-1", json!({}))), ("a1", pod("x-2", json!({})))];
    let strict = pod("web-1", spread("DoNotSchedule", json!({}), json!({})));
    assert_eq!(decided(&nodes, &there, &strict), "a1");

    let nodes = [node("a1", json!({})), node("b1", json!({}))];
    let large =
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "512Mi"}}}]});
    let there = [("a1", pod("x-1", json!({}))), ("a1", pod("x-2", json!({}))), ("b1", pod("y-1", large))];
    let preferred = pod("web-1", spread("ScheduleAnyway", json!({}), json!({})));
    assert_eq!(decided(&nodes, &there, &preferred), "a1");
}

#[test]
fn preferred_spread_counts_the_nodes_of_its_policies() {
    let web = || json!({"matchLabels": {"app": "web"}});
    let taint = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
    let there = || {
        let [one, two, three] = ["web-2", "web-3", "web-4"].map(|name| pod(name, json!({})));
        [("a1", one), ("b2", two), ("b2", three)]
    };
    let nodes = [node("a1", json!({})), node("b1", json!({})), node("b2", taint)];
    for (policy, want) in [("Honor", "b1"), ("Ignore", "a1")] {
        let rule = spread("ScheduleAnyway", web(), json!({"nodeTaintsPolicy": policy}));
        assert_eq!(decided(&nodes, &there(), &pod("web-1", rule)), want, "taints: {policy}");
    }
    let labeled = |name: &str, zone: &str| node(name, json!({"labels": {"zone": zone, "k": "1"}}));
    let nodes = [labeled("a1", "a"), labeled("b1", "b"), node("b2", json!({}))];
    for (policy, want) in [("Honor", "b1"), ("Ignore", "a1")] {
        let mut rule = spread("ScheduleAnyway", web(), json!({"nodeAffinityPolicy": policy}));
        rule["nodeSelector"] = json!({"k": "1"});
        assert_eq!(decided(&nodes, &there(), &pod("web-1", rule)), want, "affinity: {policy}");
    }
}

#[test]
fn affinity_to_names_leaves_other_nodes_out() {
    const OTHERS: &str = "node(s) didn't satisfy plugin(s) [NodeAffinity]";
    let named = |names: &[&[&str]], cpu: &str| {
        let fields: Vec<_> = names
            .iter()
            .map(|names| json!({"key": "metadata.name", "operator": "In", "values": names}))
            .collect();
        let required = json!({"nodeSelectorTerms": [{"matchFields": fields}]});
        let mut spec = asking("cpu", cpu);
        spec["affinity"] =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        pod("web-1", spec)
    };
    let taint = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
    let nodes = [node("a1", taint), node("b1", json!({}))];
    for (case, pod, want) in [
        ("fits", named(&[&["b1"]], "1"), "b1".to_owned()),
        ("too large", named(&[&["b1"]], "6"), refused(&format!("1 Insufficient cpu, 1 {OTHERS}"), HELPLESS)),
        ("no such node", named(&[&["nope"]], "1"), refused(&format!("2 {OTHERS}"), HELPLESS)),
        (
            "a contradiction",
            named(&[&["a1"], &["b1"]], "1"),
            "0/2 nodes are available: pod affinity terms conflict. not found".to_owned(),
        ),
    ] {
        assert_eq!(decided(&nodes, &[], &pod), want, "{case}");
    }
}

#[test]
fn volumes_keep_pods_from_nodes() {
    let disk = json!({"volumes": [{"name": "v", "iscsi": {"targetPortal": "t", "iqn": "q", "lun": 0}}]});
    let nodes = [node("a1", json!({})), node("b1", json!({}))];
    let there = [("a1", pod("x-1", disk.clone())), ("b1", pod("x-2", disk.clone()))];
    let pod_of_disk = pod("web-1", disk);
    assert_eq!(decided(&nodes, &there[..1], &pod_of_disk), "b1");
    assert_eq!(decided(&nodes, &there, &pod_of_disk), refused("2 node(s) had no available disk", VICTIMLESS));

    let zone = |zone: &str| json!({"topology.kubernetes.io/zone": zone});
    let nodes = ["a1", "b1"].map(|name| NodeInfo::new(node(name, json!({"labels": zone(name)}))));
    let mut snapshot = snapshot(nodes.into(), vec![]);
    let claims = |in_zone: &str| {
        let volume = json!({"metadata": {"name": "pv", "labels": zone(in_zone)}});
        let mut claims = Claims::default();
        claims.volumes.push(Arc::new(serde_json::from_value(volume).unwrap()));
        claims
    };
    let web = pod("web-1", json!({}));
    assert_eq!(rendered(snapshot.schedule(&web, Ok(claims("b1")), || None)), "b1");
    assert_eq!(
        rendered(snapshot.schedule(&web, Ok(claims("c1")), || None)),
        refused("2 node(s) had no available volume zone", HELPLESS)
    );
}

#[test]
fn scores_count_the_change_of_the_balance() {
    let of = |cpu: &str, memory: &str| json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]});
    let nodes = [node("a1", json!({})), node("b1", json!({}))];
    for (case, a, b, pod, want) in [
        (
            "a small change",
            pod("x-1", of("1", "1Mi")),
            pod("y-1", of("600m", "300Mi")),
            pod("web-1", of("200m", "100Mi")),
            "a1",
        ),
        (
            "no requests",
            pod("x-1", asking("cpu", "800m")),
            pod("y-1", of("600m", "400Mi")),
            pod("web-1", json!({})),
            "a1",
        ),
    ] {
        assert_eq!(decided(&nodes, &[("a1", a), ("b1", b)], &pod), want, "{case}");
    }
}
