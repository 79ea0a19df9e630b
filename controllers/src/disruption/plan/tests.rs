use super::*;
use serde_json::{Value, json};

const NOW: &str = "2026-01-02T03:04:05Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn pod(name: &str, status: Value) -> Arc<Pod> {
    Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "status": status})).unwrap())
}

fn ready(name: &str) -> Arc<Pod> {
    pod(name, json!({"conditions": [{"type": "Ready", "status": "True"}]}))
}

fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
    let budget = json!({"metadata": {"name": "b", "generation": 3}, "spec": spec, "status": status});
    serde_json::from_value(budget).unwrap()
}

#[test]
fn shares_are_rounded_up() {
    for (case, spec, scale, want) in [
        ("nothing said", json!({}), 5, Ok((0, 0))),
        ("a number has to stay", json!({"minAvailable": 7}), 5, Ok((5, 7))),
        ("a share has to stay", json!({"minAvailable": "50%"}), 5, Ok((5, 3))),
        ("all have to stay", json!({"minAvailable": "100%"}), 5, Ok((5, 5))),
        ("a number may go", json!({"maxUnavailable": 2}), 5, Ok((5, 3))),
        ("more may go than there are", json!({"maxUnavailable": 9}), 5, Ok((5, 0))),
        ("a share may go", json!({"maxUnavailable": "30%"}), 5, Ok((5, 3))),
        ("a share of nothing", json!({"maxUnavailable": "30%"}), 0, Ok((0, 0))),
        (
            "no share",
            json!({"minAvailable": "half"}),
            5,
            Err("invalid value for IntOrString: invalid type: string is not a percentage".to_owned()),
        ),
    ] {
        let spec = budget(spec, json!({})).spec.unwrap();
        let got = counts(&spec, scale).map(|counts| (counts.expected, counts.desired));
        assert_eq!(got, want, "{case}");
    }
}

#[test]
fn a_budget_spares_what_is_healthy_beyond_what_has_to_stay() {
    let unready = pod("u", json!({"conditions": [{"type": "Ready", "status": "False"}]}));
    let terminating: Arc<Pod> = Arc::new(
        serde_json::from_value(json!({
            "metadata": {"name": "g", "deletionTimestamp": NOW},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap(),
    );
    for (case, pods, (expected, desired), evicted, (healthy, spared, left, recheck, stayed)) in [
        ("all stay", vec![ready("a"), ready("b")], (2, 2), json!({}), (2, 0, "", None, "")),
        ("one may go", vec![ready("a"), ready("b")], (2, 1), json!({}), (2, 1, "", None, "")),
        ("too few", vec![ready("a"), unready], (2, 2), json!({}), (1, 0, "", None, "")),
        ("one goes", vec![ready("a"), terminating.clone()], (2, 1), json!({}), (1, 0, "", None, "")),
        ("none expected", vec![ready("a")], (0, 0), json!({}), (1, 0, "", None, "")),
        (
            "one is evicted",
            vec![ready("a"), ready("b")],
            (2, 1),
            json!({"a": "2026-01-02T03:03:05Z"}),
            (1, 0, "a", Some(60), ""),
        ),
        (
            "evicted ones go or are gone",
            vec![ready("a"), terminating],
            (2, 0),
            json!({"g": NOW, "x": NOW}),
            (1, 1, "", None, ""),
        ),
        (
            "an evicted one stays",
            vec![ready("a"), ready("b")],
            (2, 1),
            json!({"a": "2026-01-02T03:02:04Z"}),
            (2, 1, "", None, "a"),
        ),
    ] {
        let budget = budget(json!({}), json!({"disruptedPods": evicted}));
        let plan = plan(&budget, &pods, Counts { expected, desired }, now());
        let status = plan.status;
        assert_eq!(status.current_healthy, Some(healthy), "{case}");
        assert_eq!(status.disruptions_allowed, Some(spared), "{case}");
        let disrupted = status.disrupted_pods.unwrap_or_default();
        assert_eq!(disrupted.into_keys().collect::<Vec<_>>().join(" "), left, "{case}");
        assert_eq!(plan.recheck.map(|delay| delay.as_secs()), recheck, "{case}");
        let not_deleted: Vec<_> = plan.not_deleted.iter().filter_map(|p| p.metadata.name.clone()).collect();
        assert_eq!(not_deleted.join(" "), stayed, "{case}");
        assert_eq!(status.observed_generation, Some(3), "{case}");
        let condition = status.conditions.unwrap().remove(0);
        let want = if spared > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), want, "{case}");
    }
}

#[test]
fn a_plan_that_was_carried_out_changes_nothing() {
    let pods = [ready("a"), ready("b")];
    let counts = Counts { expected: 2, desired: 1 };
    let mut budget = budget(json!({}), json!({}));
    budget.status = Some(plan(&budget, &pods, counts, now()).status);
    let later = now().saturating_add(SignedDuration::from_hours(1)).unwrap();
    assert_eq!(budget.status, Some(plan(&budget, &pods, counts, later).status));
    let failed = uncountable(&budget, "no scale", later);
    assert_eq!(failed.conditions.as_ref().unwrap()[0].last_transition_time, Time(later));
    budget.status = Some(failed.clone());
    let status = uncountable(&budget, "no scale", now());
    assert_eq!(status, failed);
    assert_eq!((status.disruptions_allowed, status.expected_pods), (Some(0), Some(2)));
}

#[test]
fn a_mark_that_nothing_came_of_is_taken_back() {
    let marked = |phase: &str, status: &str, reason: &str, since: &str| {
        let condition =
            json!({"type": TO_BE_DISRUPTED, "status": status, "reason": reason, "lastTransitionTime": since});
        pod("p", json!({"phase": phase, "conditions": [condition]}))
    };
    for (case, pod, want) in [
        ("not marked", ready("p"), None),
        ("no longer", marked("Running", "False", "PreemptionByScheduler", NOW), None),
        ("the kubelet", marked("Running", "True", "TerminationByKubelet", NOW), None),
        ("ended", marked("Failed", "True", "PreemptionByScheduler", NOW), None),
        ("just now", marked("Running", "True", "PreemptionByScheduler", NOW), Some(120)),
        ("too long ago", marked("Running", "True", "EvictionByEvictionAPI", "2026-01-02T03:00:00Z"), Some(0)),
    ] {
        assert_eq!(stale_after(&pod, now()).map(|delay| delay.as_secs()), want, "{case}");
        if want == Some(0) {
            let cleared = without_disruption(&pod, now());
            let got = serde_json::to_value(&cleared.status.unwrap().conditions.unwrap()[0]).unwrap();
            assert_eq!(
                got,
                json!({"type": TO_BE_DISRUPTED, "status": "False", "lastTransitionTime": NOW}),
                "{case}"
            );
        }
    }
}

#[test]
fn selectors_are_printed_as_go_prints_them() {
    for (selector, want) in [
        (Value::Null, "nil"),
        (
            json!({"matchLabels": {"b": "2", "a": "1"}}),
            "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:[]LabelSelectorRequirement{},}",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "y"]}]}),
            "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:a,Operator:In,Values:[x y],},},}",
        ),
    ] {
        let selector: Option<LabelSelector> = serde_json::from_value(selector).unwrap();
        assert_eq!(printed(selector.as_ref()), want);
    }
}
