//! Nominated pods, and preemptions that fail.

use super::*;

fn nominated(name: &str, priority: i32, spec: Value) -> Arc<Pod> {
    let mut pod = (*pod(name, important(priority, spec))).clone();
    pod.status = serde_json::from_value(json!({"nominatedNodeName": "a1"})).unwrap();
    Arc::new(pod)
}

/// Plans a pod beside nominated ones, and returns the decision as text.
fn decided_beside(nominees: &[Arc<Pod>], there: &[(&str, Arc<Pod>)], pod: &Arc<Pod>) -> String {
    let mut nodes: Vec<NodeInfo> =
        ["a1", "b1"].map(|name| NodeInfo::new(node(name, json!({})))).into_iter().collect();
    for (node, pod) in there {
        nodes.iter_mut().find(|info| info.name() == *node).unwrap().add_pod(pod.clone());
    }
    let nominees = super::super::nominees(nominees, |_| false);
    rendered(Snapshot { nominees, ..snapshot(nodes, vec![]) }.schedule(pod, Ok(Claims::default()), || None))
}

#[test]
fn nominated_pods_count_for_pods_of_no_higher_priority() {
    let full = |name: &str, priority: i32| pod(name, important(priority, asking("cpu", "2")));
    let there = || vec![("b1", full("x-1", 9))];
    let nominee = |priority: i32| nominated("h-1", priority, asking("cpu", "2"));
    let insufficient = refused("2 Insufficient cpu", VICTIMLESS);
    for (case, nominee, pod, want) in [
        ("more important", nominee(6), full("web-1", 5), insufficient.as_str()),
        ("as important", nominee(5), full("web-1", 5), insufficient.as_str()),
        ("less important", nominee(4), full("web-1", 5), "a1"),
        ("the nominated pod", nominee(5), nominee(5), "a1"),
    ] {
        assert_eq!(decided_beside(&[nominee], &there(), &pod), want, "{case}");
    }
}

#[test]
fn nominated_pods_help_no_other_pod() {
    let cpu = || asking("cpu", "1");
    let there = [("a1", pod("x-1", important(9, cpu()))), ("b1", pod("y-1", json!({})))];
    let nominee = nominated("h-1", 9, cpu());
    // The pods to be with are not there yet.
    let with = pod("web-1", together("h", "zone"));
    let want = refused("2 node(s) didn't match pod affinity rules", HELPLESS);
    assert_eq!(decided_beside(std::slice::from_ref(&nominee), &there, &with), want);
    // Nominated pods count for filters, but not for scores.
    let web = pod("web-1", json!({}));
    assert_eq!(decided_beside(&[nominee], &there[1..], &web), "a1");
}

#[test]
fn a_nomination_ends_when_preemption_cannot_help() {
    let full = || asking("cpu", "2");
    let keeps = |nodes: &[Arc<Node>], there: &[Arc<Pod>], pod: &Arc<Pod>| {
        let mut nodes: Vec<NodeInfo> = nodes.iter().cloned().map(NodeInfo::new).collect();
        there.iter().for_each(|pod| nodes[0].add_pod(pod.clone()));
        match snapshot(nodes, vec![]).schedule(pod, Ok(Claims::default()), || None) {
            Decision::Reject { keeps_nomination, .. } => keeps_nomination,
            decision => panic!("{}", rendered(decision)),
        }
    };
    let one = [node("a1", json!({}))];
    let mut never = full();
    never["preemptionPolicy"] = json!("Never");
    let more_important = [pod("x-1", important(9, full()))];
    assert!(!keeps(&one, &more_important, &nominated("web-1", 5, full())), "no candidates");
    assert!(!keeps(&[], &[], &nominated("web-1", 5, full())), "no nodes");
    assert!(keeps(&one, &more_important, &nominated("web-1", 5, never)), "not eligible");
}

#[test]
fn preemption_tells_why_its_victims_do_not_suffice() {
    let of = |name: &str, priority: i32, cpu: &str| pod(name, important(priority, asking("cpu", cpu)));
    let nodes = [node("a1", json!({})), node("b1", json!({}))];
    let there = [("a1", of("x-1", 0, "500m")), ("a1", of("x-2", 9, "1500m")), ("b1", of("y-1", 9, "2"))];
    assert_eq!(
        decided(&nodes, &there, &of("web-1", 5, "1")),
        refused("2 Insufficient cpu", "1 Insufficient cpu, 1 No preemption victims found for incoming pod")
    );
}

#[test]
fn a_budget_without_a_selector_protects_no_pod() {
    let budget = |name: &str, selector: Value| {
        let budget = json!({
            "metadata": {"namespace": "n", "name": name}, "spec": {"selector": selector},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        });
        Arc::new(serde_json::from_value::<PodDisruptionBudget>(budget).unwrap())
    };
    let budgets = vec![budget("all", json!({})), budget("y", json!({"matchLabels": {"app": "y"}}))];
    let mut node = NodeInfo::new(node("a1", json!({})));
    ["x-1", "y-1"].into_iter().for_each(|name| node.add_pod(pod(name, asking("cpu", "1"))));
    let preemptor = pod("web-1", important(9, asking("cpu", "1")));
    let got = rendered(snapshot(vec![node], budgets).schedule(&preemptor, Ok(Claims::default()), || None));
    assert!(got.ends_with(" a1 without x-1"), "{got}");
}
