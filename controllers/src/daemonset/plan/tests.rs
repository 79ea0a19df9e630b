use super::*;
use crate::daemonset::status::status;
use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T00:01:00Z";

fn set(strategy: Value) -> DaemonSet {
    let set = json!({
        "metadata": {"name": "d", "namespace": "n", "uid": "u", "generation": 2},
        "spec": {
            "selector": {"matchLabels": {"app": "x"}}, "updateStrategy": strategy,
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [], "nodeSelector": {"ds": "yes"}}},
        },
    });
    serde_json::from_value(set).unwrap()
}

/// Builds nodes with these names; an upper case one is not selected, and `?` after a name is a
/// taint that prevents scheduling.
fn nodes(names: &str) -> Vec<Arc<Node>> {
    let node = |word: &str| {
        let name = word.trim_end_matches('?');
        let taints =
            if word.ends_with('?') { json!([{"key": "k", "effect": "NoSchedule"}]) } else { json!([]) };
        let selected = if name.to_lowercase() == name { "yes" } else { "no" };
        let node =
            json!({"metadata": {"name": name, "labels": {"ds": selected}}, "spec": {"taints": taints}});
        Arc::new(serde_json::from_value(node).unwrap())
    };
    names.split_whitespace().map(node).collect()
}

/// Builds pods from `node:flags`, flags being `n` new or `o` old, `r` ready, `w` waits for the
/// scheduler, `F` failed, `S` succeeded and `t` terminating. They are named by their position, and
/// each is older than the next.
fn pods(words: &str) -> Vec<Arc<Pod>> {
    let pod = |(index, word): (usize, &str)| {
        let (node, flags) = word.split_once(':').unwrap();
        let has = |flag: char| flags.contains(flag);
        let set = set(json!({}));
        let mut pod =
            crate::daemonset::pods::new_pod(&set, node, if has('n') { "new" } else { "old" }).unwrap();
        pod.metadata.name = Some(index.to_string());
        pod.metadata.creation_timestamp =
            Some(serde_json::from_value(json!(format!("2026-01-01T00:00:{index:02}Z"))).unwrap());
        if has('t') {
            pod.metadata.deletion_timestamp = Some(serde_json::from_value(json!(NOW)).unwrap());
        }
        if !has('w') {
            pod.spec.as_mut().unwrap().node_name = Some(node.to_owned());
        }
        let phase = if has('F') {
            "Failed"
        } else if has('S') {
            "Succeeded"
        } else {
            "Running"
        };
        let ready = json!({"type": "Ready", "status": if has('r') { "True" } else { "False" }});
        pod.status = serde_json::from_value(json!({"phase": phase, "conditions": [ready]})).unwrap();
        Arc::new(pod)
    };
    words.split_whitespace().enumerate().map(pod).collect()
}

fn planned(set: &DaemonSet, node_names: &str, words: &str) -> String {
    let (nodes, pods) = (nodes(node_names), pods(words));
    let observed = Observed { set, pods: &pods, nodes: &nodes, hash: "new", now: NOW.parse().unwrap() };
    let plan = plan(&observed, |_| None);
    let created = plan.create.iter().map(|node| format!("+{node}"));
    let deleted = plan.delete.iter().map(|pod| format!("-{}", pod.metadata.name.as_ref().unwrap()));
    created.chain(deleted).collect::<Vec<_>>().join(" ")
}

fn rolling(unavailable: Value, surge: Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}})
}

#[test]
fn each_node_has_one_pod() {
    let set = set(json!({"type": "OnDelete"}));
    for (case, nodes, pods, want) in [
        ("a pod on each", "a b C", "", "+a +b"),
        ("none to do", "a b", "a:nr b:n", ""),
        ("not on other nodes", "A", "A:nr", "-0"),
        ("a terminating one blocks", "a", "a:nt", ""),
        ("one that ended does not", "a", "a:nFt", "+a"),
        ("failed", "a", "a:nF", "-0"),
        ("succeeded", "a", "a:nS", "-0"),
        ("the oldest of several stays", "a", "a:n a:n a:n", "-1 -2"),
        ("a bound one stays", "a", "a:nw a:n", "-0"),
        ("no new pods on a tainted node", "a?", "", ""),
        ("and old ones stay", "a?", "a:nr", ""),
        ("one that waits for a node that is gone", "a", "a:n b:nw", "-1"),
        ("one that ran there is left to others", "a", "a:n b:n", ""),
        ("old ones stay until they are deleted", "a", "a:or", ""),
    ] {
        assert_eq!(planned(&set, nodes, pods), want, "{case}");
    }
}

#[test]
fn rolling_updates_keep_enough_pods() {
    for (case, strategy, nodes, pods, want) in [
        ("one after the other", rolling(json!(1), json!(0)), "a b c", "a:or b:or c:or", "-0"),
        ("waits for the new one", rolling(json!(1), json!(0)), "a b", "a:n b:or", ""),
        ("waits for one that goes", rolling(json!(1), json!(0)), "a b", "a:ot b:or", ""),
        ("old ones that do not serve", rolling(json!(1), json!(0)), "a b c", "a:o b:o c:or", "-0 -1"),
        ("shares are rounded up", rolling(json!("34%"), json!(0)), "a b c", "a:or b:or c:or", "-0 -1"),
        ("both zero is one", rolling(json!(0), json!(0)), "a b", "a:or b:or", "-0"),
        ("missing ones first", rolling(json!(1), json!(0)), "a b", "a:or", "+b"),
        ("surge", rolling(json!(0), json!(1)), "a b", "a:or b:or", "+a"),
        ("surge waits", rolling(json!(0), json!(1)), "a b", "a:or a:n b:or", ""),
        ("surge goes on", rolling(json!(0), json!(1)), "a b", "a:or a:nr b:or", "-0"),
        ("surge where nothing serves", rolling(json!(0), json!(1)), "a b c", "a:o b:or c:o", "+a +c +b"),
        ("one that serves neither way", rolling(json!(0), json!(1)), "a", "a:o a:n", "-0"),
        ("surge beside a terminating one", rolling(json!(0), json!(1)), "a", "a:nt", "+a"),
        ("surge leaves a tainted node", rolling(json!(0), json!(1)), "a b?", "a:nr b:or", "-1"),
    ] {
        assert_eq!(planned(&set(strategy), nodes, pods), want, "{case}");
    }
}

#[test]
fn a_failed_pod_stays_while_its_node_is_in_backoff() {
    let (set, nodes, pods) = (set(json!({})), nodes("a b"), pods("a:nF b:nF"));
    let observed = Observed { set: &set, pods: &pods, nodes: &nodes, hash: "new", now: NOW.parse().unwrap() };
    let plan = plan(&observed, |node| (node == "a").then_some(Duration::from_secs(3)));
    assert_eq!(plan.ended, [(pods[1].clone(), "b".to_owned(), Ended::Failed)]);
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(3)));
}

#[test]
fn each_node_counts_by_its_first_pod() {
    for (case, nodes_, pods_, want) in [
        ("none", "", "", "desired 0 current 0 misscheduled 0 ready 0 updated 0 available 0 unavailable 0"),
        (
            "missing",
            "a b",
            "a:nr",
            "desired 2 current 1 misscheduled 0 ready 1 updated 1 available 1 unavailable 1",
        ),
        (
            "tainted",
            "a?",
            "a:nr",
            "desired 0 current 0 misscheduled 1 ready 0 updated 0 available 0 unavailable 0",
        ),
        (
            "surge",
            "a",
            "a:or a:n",
            "desired 1 current 1 misscheduled 0 ready 1 updated 0 available 1 unavailable 0",
        ),
    ] {
        let (set, nodes, pods) = (set(json!({})), nodes(nodes_), pods(pods_));
        let observed =
            Observed { set: &set, pods: &pods, nodes: &nodes, hash: "new", now: NOW.parse().unwrap() };
        let (s, _) = status(&observed);
        let text = format!(
            "desired {} current {} misscheduled {} ready {} updated {} available {} unavailable {}",
            s.desired_number_scheduled,
            s.current_number_scheduled,
            s.number_misscheduled,
            s.number_ready,
            s.updated_number_scheduled.unwrap_or(0),
            s.number_available.unwrap_or(0),
            s.number_unavailable.unwrap_or(0),
        );
        assert_eq!(text, want, "{case}");
        assert_eq!(s.observed_generation, Some(2));
    }
}
