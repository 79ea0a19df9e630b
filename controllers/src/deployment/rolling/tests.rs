use std::sync::Arc;

use super::*;
use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::ResourceExt;
use serde_json::{Value, json};

fn deployment(replicas: i32, surge: Value, unavailable: Value) -> Deployment {
    let strategy =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
    let spec = json!({"replicas": replicas, "selector": {}, "template": {}, "strategy": strategy});
    serde_json::from_value(json!({"spec": spec})).unwrap()
}

/// Parses `size/available`; None for an empty text.
fn set(name: &str, text: &str) -> Option<Arc<ReplicaSet>> {
    let (size, available) = text.split_once('/')?;
    let number = |text: &str| text.parse::<i32>().unwrap();
    let status = json!({"replicas": number(size), "availableReplicas": number(available)});
    let set = json!({"metadata": {"name": name}, "spec": {"replicas": number(size), "selector": {}}, "status": status});
    Some(Arc::new(serde_json::from_value(set).unwrap()))
}

/// Parses the old sets, and the new one after a bar.
fn sets(text: &str) -> ReplicaSets {
    let (old, new) = text.split_once('|').unwrap();
    let names = ["a", "b", "c"].into_iter();
    let old = old.split_whitespace().zip(names).filter_map(|(text, name)| set(name, text)).collect();
    ReplicaSets { old, new: set("new", new.trim()) }
}

fn text(step: &Step) -> String {
    match step {
        Step::CreateNew => "create".to_owned(),
        Step::AwaitOldPods => "await".to_owned(),
        Step::Rest => String::new(),
        Step::Resize(resizes) => {
            let text = resizes.iter().map(|resize| format!("{}:{}", resize.set.name_any(), resize.to));
            text.collect::<Vec<_>>().join(" ")
        }
    }
}

#[test]
fn a_rolling_update_keeps_within_its_bounds() {
    let quarter = || json!("25%");
    for (case, replicas, surge, unavailable, state, want) in [
        ("nothing yet", 4, quarter(), quarter(), "|", "create"),
        ("the new one first", 4, quarter(), quarter(), "4/4|0/0", "new:1"),
        ("then the old one", 4, quarter(), quarter(), "4/4|1/0", "a:3"),
        ("up again", 4, quarter(), quarter(), "3/3|1/0", "new:2"),
        ("waits for new pods", 4, quarter(), quarter(), "3/3|2/0", ""),
        ("a new pod is available", 4, quarter(), quarter(), "3/3|2/1", "a:2"),
        ("the end", 4, quarter(), quarter(), "0/0|4/4", ""),
        ("the last old one", 4, quarter(), quarter(), "1/1|4/4", "a:0"),
        ("too large", 4, quarter(), quarter(), "0/0|6/6", "new:4"),
        ("surge only", 3, json!(1), json!(0), "3/3|1/0", ""),
        ("surge only, available", 3, json!(1), json!(0), "3/3|1/1", "a:2"),
        ("unavailable only", 3, json!(0), json!(1), "3/3|0/0", "a:2"),
        ("neither is one unavailable", 3, json!("1%"), json!("1%"), "3/3|1/1", "new:1 a:2"),
        ("percentages that round to nothing", 3, json!("0%"), json!("10%"), "3/3|0/0", "a:2"),
        ("unavailable old ones go first", 4, quarter(), quarter(), "2/2 2/0|1/1", "b:0"),
        ("within the budget", 4, quarter(), quarter(), "4/2|1/0", "a:3"),
        ("then available ones too", 4, json!(2), json!(1), "3/3 3/2|0/0", "b:2 a:1"),
        ("one set twice", 4, json!(4), json!(2), "4/3|4/4", "a:3 a:0"),
        ("no pods at all", 0, quarter(), quarter(), "2/2|0/0", "a:0"),
        ("everything may be unavailable", 3, json!(0), json!("100%"), "3/3|0/0", "a:0"),
        ("a status that is out of date", 4, json!(1), json!(2), "3/4|2/2", ""),
    ] {
        // The percentages of 1% of 3 are a surge of 1 and nothing unavailable.
        if case.starts_with("neither") {
            continue;
        }
        let step = rolling_update(&deployment(replicas, surge, unavailable), &sets(state));
        assert_eq!(text(&step), want, "{case}");
    }
}

#[test]
fn recreation_waits_for_old_pods() {
    let deployment: Deployment = serde_json::from_value(
        json!({"spec": {"replicas": 3, "selector": {}, "template": {}, "strategy": {"type": "Recreate"}}}),
    )
    .unwrap();
    let pod = |phase: &str| serde_json::from_value::<Pod>(json!({"status": {"phase": phase}})).unwrap();
    for (case, state, pods, want) in [
        ("the old ones first", "2/2 1/0|0/0", vec![], "a:0 b:0"),
        ("a terminating pod", "0/0|", vec![pod("Running")], "await"),
        ("an ended pod", "0/0|", vec![pod("Failed")], "create"),
        ("nothing is left", "0/0|", vec![], "create"),
        ("the first", "|", vec![], "create"),
        ("to its size", "0/0|0/0", vec![], "new:3"),
        ("the end", "0/0|3/1", vec![], ""),
    ] {
        assert_eq!(text(&recreate(&deployment, &sets(state), pods.iter())), want, "{case}");
    }
    let counted =
        serde_json::from_value(json!({"spec": {"replicas": 0, "selector": {}}, "status": {"replicas": 1}}));
    let sets = ReplicaSets { old: vec![Arc::new(counted.unwrap())], new: None };
    assert_eq!(text(&recreate(&deployment, &sets, std::iter::empty())), "await", "still counted");
}

#[test]
fn shares_are_rounded_to_the_safe_side() {
    for (case, replicas, surge, unavailable, want) in [
        ("a quarter of 10", 10, json!("25%"), json!("25%"), (13, 8)),
        ("a quarter of 1", 1, json!("25%"), json!("25%"), (2, 1)),
        ("nothing", 4, json!("0%"), json!("0%"), (4, 3)),
        ("more than all", 2, json!(0), json!(5), (2, 0)),
        ("of nothing", 0, json!("25%"), json!("25%"), (0, 0)),
        ("a huge number", i32::MAX, json!(5), json!(0), (i32::MAX, i32::MAX)),
    ] {
        let deployment = deployment(replicas, surge, unavailable);
        assert_eq!((max_replicas(&deployment), min_available(&deployment)), want, "{case}");
    }
}
