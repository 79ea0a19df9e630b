use std::collections::HashMap;

use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T00:01:00Z";
const GATES: Gates = Gates { retention: true, start: true, max_unavailable: false };

/// Builds a set `web` of three pods at the revision `new`, with the further fields in `spec`.
fn set(spec: Value) -> StatefulSet {
    let mut set = json!({
        "metadata": {"name": "web", "namespace": "n", "uid": "S", "generation": 1},
        "spec": {"replicas": 3, "selector": {}, "template": {}, "updateStrategy": {
            "type": "RollingUpdate", "rollingUpdate": {"partition": 0},
        }},
    });
    set["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(set).unwrap()
}

/// Builds a pod from `web-0:Ready`, `web-1:Pending`, `web-2:Unready`, `web-3:Failed` or
/// `web-4:Fresh` (ready for ten seconds); `/old` is of the revision `old`, `~` terminates, `?` has
/// lost its label.
fn pod(text: &str) -> Arc<Pod> {
    let (name, rest) = text.split_once(':').unwrap();
    let state = rest.trim_end_matches("/old").trim_end_matches(['~', '?']);
    let (phase, ready, since) = match state {
        "Ready" => ("Running", "True", "2026-01-01T00:00:00Z"),
        "Fresh" => ("Running", "True", "2026-01-01T00:00:50Z"),
        "Unready" => ("Running", "False", "2026-01-01T00:00:00Z"),
        other => (other, "False", "2026-01-01T00:00:00Z"),
    };
    let revision = if rest.ends_with("/old") { "old" } else { "new" };
    let mut labels = json!({"controller-revision-hash": revision});
    if !rest.contains('?') {
        labels["statefulset.kubernetes.io/pod-name"] = json!(name);
    }
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": format!("data-{name}")}}]);
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "labels": labels},
        "spec": {"containers": [], "volumes": volumes},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}]},
    });
    if rest.contains('~') {
        pod["metadata"]["deletionTimestamp"] = json!(NOW);
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// Builds a claim from `data-web-0`, with `@S` owned by the set, with `@web-0` by that pod, with
/// `@x` by an earlier pod of the name, with `~` terminating.
fn claim(text: &str) -> (String, Arc<PersistentVolumeClaim>) {
    let (name, owner) =
        text.trim_end_matches('~').split_once('@').unwrap_or((text.trim_end_matches('~'), ""));
    let pod = name.trim_start_matches("data-");
    let (api_version, kind, of) =
        if owner == "S" { ("apps/v1", "StatefulSet", "web") } else { ("v1", "Pod", pod) };
    let mut claim = json!({"metadata": {"name": name}});
    if !owner.is_empty() {
        claim["metadata"]["ownerReferences"] =
            json!([{"apiVersion": api_version, "kind": kind, "name": of, "uid": owner, "controller": true}]);
    }
    if text.ends_with('~') {
        claim["metadata"]["deletionTimestamp"] = json!(NOW);
    }
    (name.to_owned(), Arc::new(serde_json::from_value(claim).unwrap()))
}

fn planned(set: &StatefulSet, pods: &str, claims: &str, gates: Gates) -> Plan {
    let pods: Vec<_> = pods.split_whitespace().map(pod).collect();
    let claims: HashMap<_, _> = claims.split_whitespace().map(claim).collect();
    let revision = |name: &str| Revision { name: name.to_owned(), template: Arc::default() };
    plan(&Observed {
        set,
        current: revision("old"),
        update: revision("new"),
        collisions: 0,
        pods: &pods,
        find_claim: &|name| claims.get(name).cloned(),
        now: NOW.parse().unwrap(),
        gates,
    })
}

/// Formats a plan: `+` creates a pod or, before it, a claim; `=` completes and `*` repairs a pod,
/// `>` sets the owner of a claim, `-` deletes a pod, and `^` does so for the update. Stages are
/// separated by `|`.
fn shown(plan: &Plan) -> String {
    let stages = plan.stages.iter().map(|stage| stage.iter().map(show).collect::<Vec<_>>().join(" "));
    let outdated: Vec<_> = plan.outdated.iter().map(|pod| format!("^{}", pod_name(pod))).collect();
    let parts = stages.chain([outdated.join(" ")]).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(" | ")
}

fn pod_name(pod: &Pod) -> String {
    let revision = identity::revision(pod);
    let of = if revision == "old" { "/old" } else { "" };
    format!("{}{of}", pod.metadata.name.as_deref().unwrap())
}

fn show(step: &Step) -> String {
    let (sign, pod, claims, owners) = match step {
        Step::Create { pod, claims, owners, .. } => ("+", Some(pod), Some(claims), Some(owners)),
        Step::ProvideClaims { pod, claims, owners } => ("=", Some(pod), Some(claims), Some(owners)),
        Step::Update { pod, claims, owners } => ("*", Some(pod), Some(claims), Some(owners)),
        Step::UpdateClaimOwners(owners) => ("", None, None, Some(owners)),
        Step::Delete(pod) => ("-", Some(pod), None, None),
    };
    let missing = claims
        .iter()
        .flat_map(|claims| &claims.missing)
        .map(|c| format!("+{}", c.metadata.name.clone().unwrap()));
    let terminating = claims.iter().flat_map(|claims| &claims.terminating).map(|name| format!("!{name}"));
    let pod = pod.map(|pod| format!("{sign}{}", pod_name(pod)));
    let owners = owners.into_iter().flatten().map(|(name, update)| {
        let owners = update.change.iter().flat_map(|claim| claim.metadata.owner_references.iter().flatten());
        let owners: Vec<_> = owners.map(|owner| owner.name.as_str()).collect();
        format!("{name}>{}", owners.join(","))
    });
    missing.chain(terminating).chain(pod).chain(owners).collect::<Vec<_>>().join(",")
}

fn check(spec: &Value, cases: &[(&str, &str, &str)]) {
    for (case, pods, want) in cases {
        assert_eq!(shown(&planned(&set(spec.clone()), pods, "", GATES)), *want, "{case}");
    }
}

#[test]
fn ordered_sets_are_scaled_one_by_one() {
    check(
        &json!({}),
        &[
            ("the first first", "", "+web-0"),
            ("waits for it", "web-0:Pending", ""),
            ("until it is ready", "web-0:Unready", ""),
            ("then the next", "web-0:Ready", "+web-1"),
            ("fills a gap", "web-0:Ready web-2:Ready", "+web-1"),
            ("waits for one that goes", "web-0:Ready~ web-1:Ready", ""),
            ("starts again what ended", "web-0:Failed web-1:Ready", "-web-0"),
            ("however it did", "web-0:Succeeded", "-web-0"),
            ("once", "web-0:Failed~", ""),
            ("is at rest", "web-0:Ready web-1:Ready web-2:Ready", ""),
            ("repairs who they are", "web-0:Ready? web-1:Ready", "*web-0 +web-2"),
            ("but not while one is not ready", "web-0:Unready? web-1:Ready web-2:Ready", ""),
        ],
    );
}

#[test]
fn ordered_sets_shrink_from_the_top() {
    check(
        &json!({"replicas": 1}),
        &[
            ("the highest first", "web-0:Ready web-1:Ready web-2:Ready", "-web-2"),
            ("waits until it is gone", "web-0:Ready web-1:Ready web-2:Ready~", ""),
            ("not while one below is not ready", "web-0:Unready web-1:Ready", ""),
            ("nor a condemned one", "web-0:Ready web-1:Unready web-2:Ready", "-web-2"),
            ("the first that is not ready may go", "web-0:Ready web-1:Ready web-2:Unready", "-web-2"),
            ("but not another", "web-0:Ready web-1:Unready web-2:Unready", ""),
        ],
    );
}

#[test]
fn parallel_sets_do_not_wait() {
    check(
        &json!({"podManagementPolicy": "Parallel", "replicas": 2}),
        &[
            ("all at once", "", "+web-0 +web-1"),
            ("whatever the others do", "web-0:Pending", "+web-1"),
            ("down too", "web-0:Unready web-2:Unready web-3:Ready web-4:Ready~", "+web-1 | -web-3 -web-2"),
            ("what ended is started again", "web-0:Failed web-1:Failed~", "-web-0"),
            ("updates while one is not ready", "web-0:Unready/old web-1:Ready/old", "^web-1/old"),
        ],
    );
}

#[test]
fn a_range_starts_anywhere() {
    check(
        &json!({"ordinals": {"start": 5}, "replicas": 2}),
        &[
            ("from the start", "", "+web-5"),
            ("others go when all are there", "web-4:Ready web-5:Ready", "+web-6"),
            ("the highest first", "web-4:Ready web-5:Ready web-6:Ready web-7:Ready", "-web-7"),
            ("those below too", "web-4:Ready web-5:Ready web-6:Ready", "-web-4"),
        ],
    );
}

#[test]
fn updates_end_at_the_partition() {
    let rolling = |partition: i32| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}});
    let all_old = "web-0:Ready/old web-1:Ready/old web-2:Ready/old";
    check(
        &rolling(2),
        &[
            ("the highest", all_old, "^web-2/old"),
            ("no further", "web-0:Ready/old web-1:Ready/old web-2:Ready", ""),
            ("below it comes back old", "web-0:Ready/old", "+web-1/old"),
            ("above it new", "web-0:Ready/old web-1:Ready/old", "+web-2"),
        ],
    );
    check(&rolling(0), &[("a broken one blocks", "web-0:Ready/old web-1:Ready/old web-2:Unready", "")]);
    check(
        &json!({"updateStrategy": {"type": "OnDelete"}}),
        &[("never", all_old, ""), ("but new", "", "+web-0")],
    );
    let most = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}});
    assert_eq!(
        shown(&planned(&set(most.clone()), all_old, "", Gates { max_unavailable: true, ..GATES })),
        "^web-2/old ^web-1/old"
    );
    assert_eq!(shown(&planned(&set(most), all_old, "", GATES)), "^web-2/old", "the gate is off");
}

#[test]
fn pods_have_to_be_ready_for_a_while() {
    for (case, pods, want, wake) in [
        ("not long enough", "web-0:Fresh", "", Some(20)),
        ("nobody knows", "web-0:Ready web-1:Unready", "", None),
        ("the first counts", "web-0:Ready web-1:Fresh web-2:Fresh", "", Some(20)),
    ] {
        let plan = planned(&set(json!({"minReadySeconds": 30})), pods, "", GATES);
        assert_eq!(shown(&plan), want, "{case}");
        assert_eq!(plan.requeue_after, wake.map(Duration::from_secs), "{case}");
    }
}

#[test]
fn claims_are_created_and_deleted_with_their_pods() {
    let spec = |deleted: &str, scaled: &str, replicas: i32| {
        let policy = json!({"whenDeleted": deleted, "whenScaled": scaled});
        json!({
            "replicas": replicas, "podManagementPolicy": "Parallel", "persistentVolumeClaimRetentionPolicy": policy,
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
        })
    };
    let (retain, delete) = ("Retain", "Delete");
    for (case, spec, pods, claims, want) in [
        ("claims first", spec(retain, retain, 1), "", "", "+data-web-0,+web-0"),
        ("an old one will do", spec(retain, retain, 1), "", "data-web-0", "+web-0"),
        ("and is the set's", spec(delete, retain, 1), "", "data-web-0", "+web-0,data-web-0>web"),
        ("not one that goes", spec(retain, retain, 1), "", "data-web-0~", "!data-web-0,+web-0"),
        ("nor an earlier pod's", spec(retain, delete, 1), "", "data-web-0@x", ""),
        ("unless it is kept", spec(retain, retain, 1), "", "data-web-0@x", "+web-0"),
        ("what is missing is made", spec(retain, retain, 1), "web-0:Pending", "", "+data-web-0,=web-0"),
        ("but not of a running pod", spec(retain, retain, 1), "web-0:Ready", "", ""),
        ("nor when that is repaired", spec(retain, retain, 1), "web-0:Ready?", "data-web-0~", "*web-0"),
        ("but when it waits", spec(retain, retain, 1), "web-0:Pending?", "", "+data-web-0,*web-0"),
        ("given to the set", spec(delete, delete, 1), "web-0:Ready", "data-web-0", "*web-0,data-web-0>web"),
        ("taken from it", spec(retain, delete, 1), "web-0:Ready", "data-web-0@S", "*web-0,data-web-0>"),
        (
            "first all claims, then the pods",
            spec(delete, delete, 0),
            "web-0:Ready web-1:Ready~",
            "data-web-0@S data-web-1@S",
            "data-web-1>web-1 data-web-0>web-0 | -web-0",
        ),
        ("kept when scaled", spec(delete, retain, 0), "web-0:Ready", "data-web-0@S", "-web-0"),
    ] {
        assert_eq!(shown(&planned(&set(spec), pods, claims, GATES)), want, "{case}");
    }
}

#[test]
fn gates_can_be_closed() {
    let policy = json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    let spec = json!({
        "replicas": 1, "ordinals": {"start": 1}, "persistentVolumeClaimRetentionPolicy": policy,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
    });
    for (case, gates, want) in [
        ("open", GATES, "*web-1,data-web-1>web | data-web-0>web-0 | -web-0"),
        ("claims stay as they are", Gates { retention: false, ..GATES }, "-web-0"),
        (
            "ordinals start at 0",
            Gates { start: false, ..GATES },
            "*web-0,data-web-0>web | data-web-1>web-1 | -web-1",
        ),
    ] {
        let plan = planned(&set(spec.clone()), "web-0:Ready web-1:Ready", "data-web-0 data-web-1", gates);
        assert_eq!(shown(&plan), want, "{case}");
    }
}

#[test]
fn a_terminating_set_only_updates_its_status() {
    let mut set = set(json!({}));
    set.metadata.deletion_timestamp = serde_json::from_value(json!(NOW)).unwrap();
    let plan = planned(&set, "web-0:Failed", "", GATES);
    assert_eq!(shown(&plan), "");
    assert_eq!(plan.status.replicas, 1);
}

#[test]
fn a_plan_does_not_grow_with_the_wanted_pods() {
    let huge = |spec: Value| {
        let claims = json!([{"metadata": {"name": "data"}, "spec": {}}]);
        let mut whole = json!({"replicas": i32::MAX, "volumeClaimTemplates": claims});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        set(whole)
    };
    let parallel = |more: Value| {
        let mut spec = json!({"podManagementPolicy": "Parallel"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let rolling =
        |rolling: Value| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}});
    for (case, spec, steps, first) in [
        ("one by one", json!({}), 1, "+data-web-0,+web-0"),
        ("many at once", parallel(json!({})), 250, "+data-web-0,+web-0"),
        (
            "as many as may be wanted without a pace",
            parallel(json!({"replicas": 5000})),
            MAX_CREATIONS,
            "+data-web-0,+web-0",
        ),
        (
            "ordinals end with an int32",
            parallel(json!({"ordinals": {"start": i32::MAX - 2}})),
            2,
            "+data-web-2147483645,+web-2147483645",
        ),
        ("a partition", parallel(rolling(json!({"partition": i32::MAX}))), 250, "+data-web-0,+web-0/old"),
        ("unavailable", parallel(rolling(json!({"maxUnavailable": i32::MAX}))), 250, "+data-web-0,+web-0"),
    ] {
        let plan = planned(&huge(spec), "", "", Gates { max_unavailable: true, ..GATES });
        let all: Vec<&Step> = plan.stages.iter().flatten().collect();
        assert_eq!((all.len(), show(all[0]).as_str()), (steps, first), "{case}");
    }
}

#[test]
fn pods_beyond_a_gap_are_looked_after() {
    let parallel = json!({"replicas": i32::MAX, "podManagementPolicy": "Parallel"});
    let plan = planned(&set(parallel), "web-7:Ready web-9000:Failed web-9001:Ready", "", GATES);
    let last: Vec<String> = plan.stages.iter().flatten().rev().take(2).map(show).collect();
    // web-7 exists, so the last one that is created has the next ordinal.
    assert_eq!(last, ["-web-9000", "+web-250"]);
    let ordered = set(json!({"replicas": i32::MAX}));
    assert_eq!(shown(&planned(&ordered, "web-0:Ready web-9000:Failed", "", GATES)), "+web-1");
}

#[test]
fn creations_keep_pace_with_the_pods_that_run() {
    let parallel = |replicas: i32| set(json!({"replicas": replicas, "podManagementPolicy": "Parallel"}));
    let pods = |running: usize, pending: usize| {
        let state = |ordinal: usize| if ordinal < running { "Ready" } else { "Pending" };
        let pods = (0..running + pending).map(|ordinal| format!("web-{ordinal}:{}", state(ordinal)));
        pods.collect::<Vec<_>>().join(" ")
    };
    for (case, replicas, running, pending, want) in [
        ("a few are pending", i32::MAX, 0, 200, 50),
        ("as many as may be", i32::MAX, 0, 250, 0),
        ("running ones do not count", i32::MAX, 1000, 249, 1),
        ("a set of fewer pods has no pace", 5000, 0, 4500, 500),
        ("those that are too many are deleted", 490, 0, 500, 10),
    ] {
        let plan = planned(&parallel(replicas), &pods(running, pending), "", GATES);
        assert_eq!(plan.stages.iter().flatten().count(), want, "{case}");
    }
}

/// Verifies that a set that may not create more pods yet is still updated and scaled down:
/// otherwise a wrong template could never be corrected.
#[test]
fn what_is_not_created_yet_holds_up_nothing_else() {
    let parallel = |replicas: i32, partition: i32| {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
        set(json!({"replicas": replicas, "podManagementPolicy": "Parallel", "updateStrategy": strategy}))
    };
    let pending = (0..250).map(|ordinal| format!("web-{ordinal}:Pending/old"));
    let pending = pending.collect::<Vec<_>>().join(" ");
    for (case, set, pods, want) in [
        ("a wrong template", parallel(6000, 0), pending.clone(), "^web-249/old"),
        ("the last above the partition", parallel(6000, 249), pending.clone(), "^web-249/old"),
        ("all below the partition", parallel(6000, 250), pending.clone(), ""),
        ("fewer are wanted", parallel(6000, 250), format!("{pending} web-7000:Ready"), "-web-7000"),
    ] {
        assert_eq!(shown(&planned(&set, &pods, "", GATES)), want, "{case}");
    }
}
