//! KEP-1847, automatic deletion of claims with their set or pod: each line of its test plan, for
//! sets of all four policies at the same time with data on their volumes, uninterrupted and with
//! restarts of the server; and the ways of deletion, changes of policy, claims of other origins and
//! owners, and the feature gate.
//!
//! If Kubernetes 1.36 differs from the design, the tests expect the behavior of Kubernetes:
//! - `DeleteOnScaledownOnly` keeps claims when the set is deleted, as its description states; line
//!   3 of its test plan does not.
//! - References to sets and pods have `blockOwnerDeletion: true`, so that a foreground deletion
//!   waits for the claims, too.
//! - A claim that outlives its pod is not collected when its set is scaled down afterwards.
//! - Turning the gate off keeps existing references and their effects. The gate is the
//!   controller's: the API has the field anyway, as with a controller of an earlier version.

use anyhow::{Result, ensure};
use coracle_e2e::scenario;
use coracle_e2e::statefulsets::{
    ALL, EITHER, NONE, PolicyPredicate, RetentionPolicy, TestSet, TestSets, WHEN_DELETED, WHEN_SCALED,
    add_hold_finalizer, claim_of, image, owners, pods_of, remove_hold_finalizer, until_observed, until_owned,
    until_settled,
};
use coracle_e2e::volumes::{NODE, Scenario, claim, is_terminating, pod_phase};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

const GATE: &str = "StatefulSetAutoDeletePVC";

scenario! {
    by {
        csi: Csi, None;
        host_path_interrupted: HostPath, Some(Crash);
    }
    // The test plan: lines 1 to 8 of each policy.
    scaled_down,
    scaled_down_and_up,
    deleted_and_recreated,
    one_pod_deleted,
    all_pods_deleted,
    a_pod_deleted_and_the_set_scaled_down_at_once,
    a_pod_deleted_and_the_set_scaled_down_and_up_at_once,
    updated,
    parallel_sets_scaled_and_deleted,
    // "--cascade=false tests", and the other ways to delete.
    orphaned,
    orphaned_while_a_pod_is_condemned,
    deleted_in_the_foreground,
    deleted_while_pods_are_condemned,
    // "Mutating PersistentVolumeClaimDeletePolicy".
    policies_changed,
    policies_changed_while_the_set_is_terminating,
    // Condemned pods.
    condemned_pods_that_wait,
    condemned_pods_that_are_pending,
    pods_wanted_again_while_terminating,
    // Claims.
    claims_created_by_users,
    claims_that_users_own,
    claims_that_others_control,
    terminating_claims_when_their_pods_come_back,
    terminating_claims_when_their_sets_come_back,
}

scenario! {
    by { csi: Csi, None; }
    // Events that are not written yet are lost with a killed server.
    foreign_controllers_of_claims_are_reported,
    // The server is restarted by these scenarios themselves.
    pods_deleted_before_the_set_is_scaled,
    // Upgrade, downgrade.
    gate_turned_on_and_off,
    gate_turned_off_while_a_pod_is_condemned,
    gate_turned_on_while_a_pod_is_condemned,
}

async fn scaled_down(scenario: &mut Scenario) -> Result<()> {
    let sets = TestSets::running(scenario, 2).await?;
    sets.scale(scenario, 1).await?;
    sets.until_ready(scenario, 0..1).await?;
    sets.assert_claims_deleted(scenario, &[NONE, WHEN_SCALED]).await?;
    scenario.assert_remaining(&[]).await
}

async fn scaled_down_and_up(scenario: &mut Scenario) -> Result<()> {
    let mut sets = TestSets::running(scenario, 2).await?;
    sets.scale(scenario, 1).await?;
    sets.assert_claims_deleted(scenario, &[NONE, WHEN_SCALED]).await?;
    sets.scale(scenario, 2).await?;
    sets.until_ready(scenario, 0..2).await?;
    sets.assert_claims_recreated(scenario, &[NONE, WHEN_SCALED]).await?;
    sets.until_owned(scenario, 1, false).await?;
    scenario.assert_remaining(&[]).await
}

async fn deleted_and_recreated(scenario: &mut Scenario) -> Result<()> {
    let mut sets = TestSets::running(scenario, 2).await?;
    sets.delete(scenario, &DeleteParams::default()).await?;
    sets.until_deleted(scenario).await?;
    sets.until_ready(scenario, 0..0).await?;
    sets.assert_claims_deleted(scenario, &[WHEN_DELETED, WHEN_DELETED]).await?;
    sets.recreate(scenario, 2, |_| {}).await?;
    sets.until_ready(scenario, 0..2).await?;
    sets.assert_claims_recreated(scenario, &[WHEN_DELETED, WHEN_DELETED]).await?;
    scenario.assert_remaining(&[]).await
}

async fn one_pod_deleted(scenario: &mut Scenario) -> Result<()> {
    let mut sets = TestSets::running(scenario, 2).await?;
    let old = sets.uids(scenario, 1..2).await?;
    sets.delete_pods(scenario, 1..2).await?;
    sets.until_replaced(scenario, 0..2, &old).await?;
    sets.assert_claims_recreated(scenario, &[NONE, NONE]).await?;
    sets.until_owned(scenario, 1, false).await?;
    scenario.assert_remaining(&[]).await
}

async fn all_pods_deleted(scenario: &mut Scenario) -> Result<()> {
    let mut sets = TestSets::running(scenario, 2).await?;
    let old = sets.uids(scenario, 0..2).await?;
    sets.delete_pods(scenario, 0..2).await?;
    sets.until_replaced(scenario, 0..2, &old).await?;
    sets.assert_claims_recreated(scenario, &[NONE, NONE]).await?;
    scenario.assert_remaining(&[]).await
}

async fn a_pod_deleted_and_the_set_scaled_down_at_once(scenario: &mut Scenario) -> Result<()> {
    let sets = TestSets::running(scenario, 2).await?;
    sets.add_hold_finalizer(scenario, 1).await?;
    sets.delete_pods(scenario, 1..2).await?;
    sets.scale(scenario, 1).await?;
    sets.until_owned(scenario, 1, true).await?;
    sets.remove_hold_finalizer(scenario, 1).await?;
    sets.until_ready(scenario, 0..1).await?;
    sets.assert_claims_deleted(scenario, &[NONE, WHEN_SCALED]).await?;
    scenario.assert_remaining(&[]).await
}

async fn a_pod_deleted_and_the_set_scaled_down_and_up_at_once(scenario: &mut Scenario) -> Result<()> {
    let mut sets = TestSets::running(scenario, 2).await?;
    sets.add_hold_finalizer(scenario, 1).await?;
    sets.delete_pods(scenario, 1..2).await?;
    sets.scale(scenario, 1).await?;
    sets.until_observed(scenario).await?;
    sets.scale(scenario, 2).await?;
    sets.until_observed(scenario).await?;
    // Ordered sets do not touch terminating pods, so the claim is deleted with the pod that was
    // condemned.
    sets.until_owned(scenario, 1, true).await?;
    sets.remove_hold_finalizer(scenario, 1).await?;
    sets.until_ready(scenario, 0..2).await?;
    sets.assert_claims_recreated(scenario, &[NONE, WHEN_SCALED]).await?;
    sets.until_owned(scenario, 1, false).await?;
    scenario.assert_remaining(&[]).await
}

async fn updated(scenario: &mut Scenario) -> Result<()> {
    let mut sets = TestSets::running(scenario, 2).await?;
    let old = sets.uids(scenario, 0..2).await?;
    sets.patch(scenario, |_| image("img:2")).await?;
    sets.until_replaced(scenario, 0..2, &old).await?;
    for set in &sets.0 {
        for pod in pods_of(scenario, set.name).await? {
            let image = pod.spec.and_then(|spec| spec.containers.into_iter().next()?.image);
            ensure!(image.as_deref() == Some("img:2"), "{image:?}");
        }
    }
    sets.assert_claims_recreated(scenario, &[NONE, NONE]).await?;
    scenario.assert_remaining(&[]).await
}

async fn parallel_sets_scaled_and_deleted(scenario: &mut Scenario) -> Result<()> {
    let mut sets =
        TestSets::create(scenario, 3, |set| set["spec"]["podManagementPolicy"] = json!("Parallel")).await?;
    sets.until_filled(scenario, 0..3).await?;
    sets.scale(scenario, 1).await?;
    sets.until_ready(scenario, 0..1).await?;
    sets.assert_claims_deleted(scenario, &[NONE, WHEN_SCALED, WHEN_SCALED]).await?;
    sets.scale(scenario, 3).await?;
    sets.until_ready(scenario, 0..3).await?;
    sets.assert_claims_recreated(scenario, &[NONE, WHEN_SCALED, WHEN_SCALED]).await?;
    sets.delete(scenario, &DeleteParams::default()).await?;
    sets.until_deleted(scenario).await?;
    sets.assert_claims_deleted(scenario, &[WHEN_DELETED, WHEN_DELETED, WHEN_DELETED]).await?;
    scenario.assert_remaining(&[]).await
}

async fn orphaned(scenario: &mut Scenario) -> Result<()> {
    let mut sets = TestSets::running(scenario, 2).await?;
    let kept = sets.uids(scenario, 0..1).await?;
    sets.delete(scenario, &DeleteParams::orphan()).await?;
    sets.until_deleted(scenario).await?;
    for set in &sets.0 {
        for ordinal in 0..2 {
            until_owned(scenario, &set.claim(ordinal), &[]).await?;
            ensure!(owners(&scenario.get::<Pod>(&set.pod(ordinal)).await?).is_empty());
        }
    }
    // "Manual pod deletion."
    sets.delete_pods(scenario, 1..2).await?;
    sets.until_ready(scenario, 0..1).await?;
    sets.assert_claims_deleted(scenario, &[NONE, NONE]).await?;

    // A set of the same name adopts them, and its policy applies.
    sets.recreate(scenario, 2, |_| {}).await?;
    sets.until_ready(scenario, 0..2).await?;
    ensure!(sets.uids(scenario, 0..1).await? == kept, "pods are taken over as they are");
    sets.assert_claims_recreated(scenario, &[NONE, NONE]).await?;
    sets.until_owned(scenario, 0, false).await?;
    sets.scale(scenario, 1).await?;
    sets.assert_claims_deleted(scenario, &[NONE, WHEN_SCALED]).await?;
    sets.delete(scenario, &DeleteParams::background()).await?;
    sets.assert_claims_deleted(scenario, &[WHEN_DELETED, EITHER]).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks that a claim of a condemned pod is deleted with its pod, even if a user deletes that pod.
async fn orphaned_while_a_pod_is_condemned(scenario: &mut Scenario) -> Result<()> {
    let sets = TestSets::running(scenario, 2).await?;
    sets.add_hold_finalizer(scenario, 1).await?;
    sets.scale(scenario, 1).await?;
    sets.until_observed(scenario).await?;
    sets.delete(scenario, &DeleteParams::orphan()).await?;
    sets.until_deleted(scenario).await?;
    for set in &sets.0 {
        let pod = Some(format!("Pod/{}", set.pod(1))).filter(|_| WHEN_SCALED(set.policy));
        until_owned(scenario, &set.claim(0), &[]).await?;
        until_owned(scenario, &set.claim(1), &pod.into_iter().collect::<Vec<_>>()).await?;
    }
    sets.remove_hold_finalizer(scenario, 1).await?;
    sets.assert_claims_deleted(scenario, &[NONE, WHEN_SCALED]).await?;
    sets.until_ready(scenario, 0..1).await?;
    scenario.assert_remaining(&[]).await
}

async fn deleted_in_the_foreground(scenario: &mut Scenario) -> Result<()> {
    let sets = TestSets::running(scenario, 2).await?;
    sets.add_hold_finalizer(scenario, 1).await?;
    sets.delete(scenario, &DeleteParams::foreground()).await?;
    for set in &sets.0 {
        scenario.until_deleted::<Pod>(&set.pod(0)).await?;
        if WHEN_DELETED(set.policy) {
            scenario.until(&set.claim(1), |claim: &PersistentVolumeClaim| is_terminating(claim)).await?;
        }
    }
    until_settled(scenario).await?;
    for set in &sets.0 {
        ensure!(is_terminating(&scenario.get::<StatefulSet>(set.name).await?), "{} waits", set.name);
        let claim = scenario.get::<PersistentVolumeClaim>(&set.claim(1)).await?;
        ensure!(is_terminating(&claim) == WHEN_DELETED(set.policy), "{claim:?}");
        scenario.assert_kept(&set.bound_claims[1]).await?;
    }
    sets.remove_hold_finalizer(scenario, 1).await?;
    for set in &sets.0 {
        scenario.until_deleted::<StatefulSet>(set.name).await?;
        for ordinal in 0..2 {
            let claim = scenario.api::<PersistentVolumeClaim>().get_opt(&set.claim(ordinal)).await?;
            ensure!(claim.is_none() == WHEN_DELETED(set.policy), "{claim:?} when its set has gone");
        }
    }
    sets.assert_claims_deleted(scenario, &[WHEN_DELETED, WHEN_DELETED]).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks the design's "No references are added, except for any pending condemned pods from a
/// previous scale-down."
async fn deleted_while_pods_are_condemned(scenario: &mut Scenario) -> Result<()> {
    let sets = TestSets::running(scenario, 3).await?;
    sets.add_hold_finalizer(scenario, 2).await?;
    sets.scale(scenario, 1).await?;
    sets.until_owned(scenario, 1, true).await?;
    sets.until_owned(scenario, 2, true).await?;
    sets.delete(scenario, &DeleteParams::background()).await?;
    sets.until_deleted(scenario).await?;
    sets.remove_hold_finalizer(scenario, 2).await?;
    sets.until_ready(scenario, 0..0).await?;
    sets.assert_claims_deleted(scenario, &[WHEN_DELETED, EITHER, EITHER]).await?;
    scenario.assert_remaining(&[]).await
}

/// Changes each policy to each other one, with a claim in use, a condemned claim, and an ordinal
/// without a claim.
async fn policies_changed(scenario: &mut Scenario) -> Result<()> {
    /// Each of the twelve steps once; the last leads back to the first.
    const ROUND: [usize; 12] = [0, 1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 3];
    let retain = |set: &mut Value| {
        set["spec"]["persistentVolumeClaimRetentionPolicy"] = RetentionPolicy::Retain.field();
    };
    let mut sets = TestSets::create(scenario, 3, retain).await?;
    sets.until_filled(scenario, 0..3).await?;
    sets.scale(scenario, 2).await?;
    sets.until_ready(scenario, 0..2).await?;
    sets.add_hold_finalizer(scenario, 1).await?;
    sets.patch(scenario, of_the_policy).await?;
    sets.until_owned(scenario, 0, false).await?;
    sets.scale(scenario, 1).await?;
    sets.until_owned(scenario, 1, true).await?;
    for step in 1..=ROUND.len() {
        for (number, set) in sets.0.iter_mut().enumerate() {
            let begin = ROUND.iter().position(|policy| *policy == number).unwrap_or(0);
            set.policy = RetentionPolicy::ALL[ROUND[(begin + step) % ROUND.len()]];
        }
        sets.patch(scenario, of_the_policy).await?;
        sets.until_owned(scenario, 0, false).await?;
        sets.until_owned(scenario, 1, true).await?;
        for set in &sets.0 {
            until_owned(scenario, &set.claim(2), &[]).await?;
        }
    }
    sets.remove_hold_finalizer(scenario, 1).await?;
    sets.until_ready(scenario, 0..1).await?;
    sets.assert_claims_deleted(scenario, &[NONE, WHEN_SCALED, NONE]).await?;
    sets.delete(scenario, &DeleteParams::default()).await?;
    sets.assert_claims_deleted(scenario, &[WHEN_DELETED, EITHER, NONE]).await?;
    scenario.assert_remaining(&[]).await
}

fn of_the_policy(set: &TestSet) -> Value {
    json!({"spec": {"persistentVolumeClaimRetentionPolicy": set.policy.field()}})
}

/// Checks the design's "May result in claims not being deleted as expected when the policy is being
/// changed from Retain, and claims being deleted unexpectedly when the policy is being changed to
/// Retain."
async fn policies_changed_while_the_set_is_terminating(scenario: &mut Scenario) -> Result<()> {
    let sets = TestSets::running(scenario, 2).await?;
    sets.add_hold_finalizer(scenario, 1).await?;
    sets.delete(scenario, &DeleteParams::foreground()).await?;
    sets.patch(scenario, |set| {
        let other =
            RetentionPolicy::ALL.into_iter().find(|other| WHEN_DELETED(*other) != WHEN_DELETED(set.policy));
        json!({"spec": {"persistentVolumeClaimRetentionPolicy": other.map(RetentionPolicy::field)}})
    })
    .await?;
    sets.until_observed(scenario).await?;
    sets.until_owned(scenario, 1, false).await?;
    sets.remove_hold_finalizer(scenario, 1).await?;
    sets.until_deleted(scenario).await?;
    sets.assert_claims_deleted(scenario, &[WHEN_DELETED, WHEN_DELETED]).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks that the claims of all condemned pods get their owner references before the first of the
/// pods is deleted.
async fn condemned_pods_that_wait(scenario: &mut Scenario) -> Result<()> {
    let sets = TestSets::running(scenario, 3).await?;
    sets.add_hold_finalizer(scenario, 2).await?;
    sets.scale(scenario, 1).await?;
    sets.until_owned(scenario, 2, true).await?;
    sets.until_owned(scenario, 1, true).await?;
    sets.until_owned(scenario, 0, false).await?;
    for set in &sets.0 {
        ensure!(!is_terminating(&scenario.get::<Pod>(&set.pod(1)).await?), "{} is not the next", set.pod(1));
        scenario.assert_kept(&set.bound_claims[1]).await?;
        scenario.assert_kept(&set.bound_claims[2]).await?;
    }
    sets.remove_hold_finalizer(scenario, 2).await?;
    sets.until_ready(scenario, 0..1).await?;
    sets.assert_claims_deleted(scenario, &[NONE, WHEN_SCALED, WHEN_SCALED]).await?;
    scenario.assert_remaining(&[]).await
}

async fn condemned_pods_that_are_pending(scenario: &mut Scenario) -> Result<()> {
    let sets = TestSets::running(scenario, 2).await?;
    scenario.patch::<Node>(NODE, json!({"spec": {"unschedulable": true}})).await?;
    let old = sets.uids(scenario, 1..2).await?;
    sets.delete_pods(scenario, 1..2).await?;
    for set in &sets.0 {
        let is_back =
            |pod: &Pod| pod_phase(pod) == "Pending" && pod.uid().is_some_and(|uid| !old.contains(&uid));
        scenario.until(&set.pod(1), is_back).await?;
    }
    sets.scale(scenario, 1).await?;
    sets.until_ready(scenario, 0..1).await?;
    scenario.patch::<Node>(NODE, json!({"spec": {"unschedulable": null}})).await?;
    sets.assert_claims_deleted(scenario, &[NONE, WHEN_SCALED]).await?;
    scenario.assert_remaining(&[]).await
}

/// Deletes a pod and scales its set while no controller runs: its claim remains unchanged.
async fn pods_deleted_before_the_set_is_scaled(scenario: &mut Scenario) -> Result<()> {
    let mut sets = TestSets::running(scenario, 2).await?;
    scenario.restart_with_controllers("*,-statefulset-controller").await?;
    sets.delete_pods(scenario, 1..2).await?;
    sets.until_ready(scenario, 0..1).await?;
    sets.scale(scenario, 1).await?;
    scenario.restart_with_controllers("*").await?;
    sets.until_observed(scenario).await?;
    sets.assert_claims_deleted(scenario, &[NONE, NONE]).await?;
    sets.until_owned(scenario, 1, false).await?;
    sets.scale(scenario, 2).await?;
    sets.until_ready(scenario, 0..2).await?;
    sets.assert_claims_recreated(scenario, &[NONE, NONE]).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks that a parallel set removes the owner reference from the claim of a pod that is desired
/// again, also while that pod is terminating.
async fn pods_wanted_again_while_terminating(scenario: &mut Scenario) -> Result<()> {
    let slow = |set: &mut Value| {
        set["spec"]["podManagementPolicy"] = json!("Parallel");
        set["spec"]["template"]["metadata"]["annotations"] =
            json!({"sim.coracle.dev/terminate-after": "10m"});
        set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(600);
    };
    let mut sets = TestSets::create(scenario, 2, slow).await?;
    sets.until_filled(scenario, 0..2).await?;
    let old = sets.uids(scenario, 1..2).await?;
    sets.scale(scenario, 1).await?;
    sets.until_owned(scenario, 1, true).await?;
    for set in &sets.0 {
        scenario.until(&set.pod(1), |pod: &Pod| is_terminating(pod)).await?;
    }
    sets.scale(scenario, 2).await?;
    sets.until_owned(scenario, 1, false).await?;
    for set in &sets.0 {
        scenario.api::<Pod>().delete(&set.pod(1), &DeleteParams::default().grace_period(0)).await?;
    }
    sets.until_replaced(scenario, 0..2, &old).await?;
    sets.assert_claims_recreated(scenario, &[NONE, NONE]).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks the design's "If a user pre-provisions a claim matching those of a template it will be
/// deleted according to the policy."
async fn claims_created_by_users(scenario: &mut Scenario) -> Result<()> {
    let provision = async |scenario: &mut Scenario| {
        let mut bound_claims = Vec::new();
        for policy in RetentionPolicy::ALL {
            for ordinal in 0..2 {
                bound_claims
                    .push(scenario.create_bound_static(&claim_of(policy.set(), ordinal), "Delete").await?);
            }
        }
        Ok(bound_claims)
    };
    let bound_claims = scenario.uninterrupted(provision).await?;
    let mut sets = TestSets::create(scenario, 2, |_| {}).await?;
    for (set, bound_claims) in sets.0.iter_mut().zip(bound_claims.chunks(2)) {
        set.bound_claims = bound_claims.to_vec();
    }
    sets.until_ready(scenario, 0..2).await?;
    sets.until_owned(scenario, 0, false).await?;
    sets.until_owned(scenario, 1, false).await?;
    sets.assert_claims_recreated(scenario, &[NONE, NONE]).await?;
    sets.scale(scenario, 1).await?;
    sets.assert_claims_deleted(scenario, &[NONE, WHEN_SCALED]).await?;
    sets.delete(scenario, &DeleteParams::default()).await?;
    sets.assert_claims_deleted(scenario, &[WHEN_DELETED, EITHER]).await?;
    scenario.assert_remaining(&[]).await
}

/// Creates sets with two pods each; their claims existed before, owned by a ConfigMap.
async fn with_claims_of(scenario: &mut Scenario, is_controller: bool) -> Result<TestSets> {
    let user: ConfigMap = scenario.create(json!({"metadata": {"name": "user"}})).await?;
    let reference = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "user", "uid": user.uid(), "controller": is_controller,
    });
    let provision = async |scenario: &mut Scenario| {
        for policy in RetentionPolicy::ALL {
            for ordinal in 0..2 {
                let mut claim = claim(&claim_of(policy.set(), ordinal), "delete");
                claim["metadata"]["ownerReferences"] = json!([reference]);
                scenario.create::<PersistentVolumeClaim>(claim).await?;
            }
        }
        Ok(())
    };
    scenario.uninterrupted(provision).await?;
    let mut sets = TestSets::create(scenario, 2, |_| {}).await?;
    sets.until_filled(scenario, 0..2).await?;
    Ok(sets)
}

/// Checks that a claim with a user's owner reference has several owners, and is deleted with the
/// last of them.
async fn claims_that_users_own(scenario: &mut Scenario) -> Result<()> {
    let mut sets = with_claims_of(scenario, false).await?;
    let both = |set: &TestSet, ordinal, is_condemned| {
        [vec!["ConfigMap/user".to_owned()], set.expected_owners(ordinal, is_condemned)].concat()
    };
    for set in &sets.0 {
        until_owned(scenario, &set.claim(0), &both(set, 0, false)).await?;
        until_owned(scenario, &set.claim(1), &both(set, 1, false)).await?;
    }
    sets.add_hold_finalizer(scenario, 1).await?;
    sets.scale(scenario, 1).await?;
    for set in &sets.0 {
        until_owned(scenario, &set.claim(1), &both(set, 1, true)).await?;
    }
    sets.remove_hold_finalizer(scenario, 1).await?;
    sets.assert_claims_deleted(scenario, &[NONE, NONE]).await?;
    for set in &sets.0 {
        let rest = if WHEN_SCALED(set.policy) { Vec::new() } else { set.expected_owners(1, false) };
        until_owned(scenario, &set.claim(1), &[vec!["ConfigMap/user".to_owned()], rest].concat()).await?;
    }
    sets.scale(scenario, 2).await?;
    sets.until_ready(scenario, 0..2).await?;
    sets.assert_claims_recreated(scenario, &[NONE, NONE]).await?;
    sets.delete(scenario, &DeleteParams::default()).await?;
    sets.until_deleted(scenario).await?;
    sets.assert_claims_deleted(scenario, &[NONE, NONE]).await?;
    scenario.delete::<ConfigMap>("user").await?;
    sets.assert_claims_deleted(scenario, &[ALL, ALL]).await?;
    scenario.assert_remaining(&[]).await
}

async fn claims_that_others_control(scenario: &mut Scenario) -> Result<()> {
    let mut sets = with_claims_of(scenario, true).await?;
    let user = ["ConfigMap/user".to_owned()];
    sets.scale(scenario, 1).await?;
    sets.until_ready(scenario, 0..1).await?;
    sets.assert_claims_deleted(scenario, &[NONE, NONE]).await?;
    for set in &sets.0 {
        until_owned(scenario, &set.claim(0), &user).await?;
        until_owned(scenario, &set.claim(1), &user).await?;
    }
    // Once the other controller removes its reference, the sets add theirs.
    let free = async |scenario: &mut Scenario| {
        let no_owners = json!({"metadata": {"ownerReferences": null}});
        for claim in sets.0.iter().flat_map(|set| [set.claim(0), set.claim(1)]) {
            scenario.patch::<PersistentVolumeClaim>(&claim, no_owners.clone()).await?;
        }
        Ok(())
    };
    scenario.uninterrupted(free).await?;
    sets.scale(scenario, 2).await?;
    sets.until_ready(scenario, 0..2).await?;
    sets.assert_claims_recreated(scenario, &[NONE, NONE]).await?;
    sets.until_owned(scenario, 0, false).await?;
    sets.until_owned(scenario, 1, false).await?;
    sets.delete(scenario, &DeleteParams::default()).await?;
    sets.assert_claims_deleted(scenario, &[WHEN_DELETED, WHEN_DELETED]).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks that a foreign controller is reported once, when the pod is created.
async fn foreign_controllers_of_claims_are_reported(scenario: &mut Scenario) -> Result<()> {
    let sets = with_claims_of(scenario, true).await?;
    for set in &sets.0 {
        if EITHER(set.policy) {
            let why = format!("{} has a conflicting OwnerReference", set.claim(0));
            scenario.wait_for_event(set.name, "ConflictingController", &why).await?;
        }
    }
    Ok(())
}

/// Checks that the pod is not created with a terminating claim, and that the claim is not kept for
/// it.
async fn terminating_claims_when_their_pods_come_back(scenario: &mut Scenario) -> Result<()> {
    let mut sets = TestSets::running(scenario, 2).await?;
    let delete = async |scenario: &mut Scenario| {
        for set in &sets.0 {
            add_hold_finalizer::<PersistentVolumeClaim>(scenario, &set.claim(1)).await?;
            scenario.delete::<PersistentVolumeClaim>(&set.claim(1)).await?;
        }
        Ok(())
    };
    scenario.uninterrupted(delete).await?;
    for set in &sets.0 {
        scenario.assert_postponed(&set.bound_claims[1]).await?;
    }
    sets.delete_pods(scenario, 1..2).await?;
    until_refused(scenario, &sets, 1, ALL).await?;
    sets.until_ready(scenario, 0..2).await?;
    sets.assert_claims_recreated(scenario, &[NONE, ALL]).await?;
    scenario.assert_remaining(&[]).await
}

/// Waits until sets report why they do not create the pods of an ordinal, and then lets the
/// deletion of their claims proceed.
async fn until_refused(
    scenario: &mut Scenario,
    sets: &TestSets,
    ordinal: u32,
    which: PolicyPredicate,
) -> Result<()> {
    for set in sets.0.iter().filter(|set| which(set.policy)) {
        let why = format!("pvc {} is being deleted", set.claim(ordinal));
        scenario.wait_for_event(set.name, "FailedCreate", &why).await?;
        remove_hold_finalizer::<PersistentVolumeClaim>(scenario, &set.claim(ordinal)).await?;
    }
    scenario.interrupt().await
}

async fn terminating_claims_when_their_sets_come_back(scenario: &mut Scenario) -> Result<()> {
    let mut sets = TestSets::running(scenario, 1).await?;
    for set in sets.0.iter().filter(|set| WHEN_DELETED(set.policy)) {
        add_hold_finalizer::<PersistentVolumeClaim>(scenario, &set.claim(0)).await?;
    }
    sets.delete(scenario, &DeleteParams::background()).await?;
    sets.until_deleted(scenario).await?;
    sets.until_ready(scenario, 0..0).await?;
    for set in sets.0.iter().filter(|set| WHEN_DELETED(set.policy)) {
        scenario.until(&set.claim(0), |claim: &PersistentVolumeClaim| is_terminating(claim)).await?;
    }
    sets.recreate(scenario, 1, |_| {}).await?;
    until_refused(scenario, &sets, 0, WHEN_DELETED).await?;
    sets.until_ready(scenario, 0..1).await?;
    sets.assert_claims_recreated(scenario, &[WHEN_DELETED]).await?;
    sets.until_owned(scenario, 0, false).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks the design's "Create a set in the previous version and upgrade: the claims should remain
/// intact. Downgrade: the others get deleted based on if the references were already set."
async fn gate_turned_on_and_off(scenario: &mut Scenario) -> Result<()> {
    scenario.restart_with_gate(GATE, false).await?;
    let sets = TestSets::running(scenario, 3).await?;
    sets.scale(scenario, 2).await?;
    sets.until_ready(scenario, 0..2).await?;
    sets.assert_claims_deleted(scenario, &[NONE, NONE, NONE]).await?;
    for set in &sets.0 {
        for ordinal in 0..3 {
            until_owned(scenario, &set.claim(ordinal), &[]).await?;
        }
    }
    scenario.restart_with_gate(GATE, true).await?;
    sets.until_owned(scenario, 0, false).await?;
    sets.until_owned(scenario, 1, false).await?;
    sets.scale(scenario, 1).await?;
    sets.until_ready(scenario, 0..1).await?;
    sets.assert_claims_deleted(scenario, &[NONE, WHEN_SCALED, NONE]).await?;
    scenario.restart_with_gate(GATE, false).await?;
    until_settled(scenario).await?;
    sets.until_owned(scenario, 0, false).await?;
    sets.scale(scenario, 0).await?;
    sets.until_ready(scenario, 0..0).await?;
    sets.assert_claims_deleted(scenario, &[NONE, WHEN_SCALED, NONE]).await?;
    sets.delete(scenario, &DeleteParams::default()).await?;
    sets.until_deleted(scenario).await?;
    sets.assert_claims_deleted(scenario, &[WHEN_DELETED, EITHER, NONE]).await?;
    scenario.assert_remaining(&[]).await
}

async fn gate_turned_off_while_a_pod_is_condemned(scenario: &mut Scenario) -> Result<()> {
    let mut sets = TestSets::running(scenario, 2).await?;
    sets.add_hold_finalizer(scenario, 1).await?;
    sets.scale(scenario, 1).await?;
    sets.until_owned(scenario, 1, true).await?;
    scenario.restart_with_gate(GATE, false).await?;
    sets.remove_hold_finalizer(scenario, 1).await?;
    sets.until_ready(scenario, 0..1).await?;
    sets.assert_claims_deleted(scenario, &[NONE, WHEN_SCALED]).await?;
    sets.scale(scenario, 2).await?;
    sets.until_ready(scenario, 0..2).await?;
    sets.assert_claims_recreated(scenario, &[NONE, WHEN_SCALED]).await?;
    // After this no claim is deleted that had no owner before.
    sets.scale(scenario, 1).await?;
    sets.until_ready(scenario, 0..1).await?;
    sets.assert_claims_deleted(scenario, &[NONE, NONE]).await?;
    scenario.assert_remaining(&[]).await
}

async fn gate_turned_on_while_a_pod_is_condemned(scenario: &mut Scenario) -> Result<()> {
    scenario.restart_with_gate(GATE, false).await?;
    let sets = TestSets::running(scenario, 2).await?;
    sets.add_hold_finalizer(scenario, 1).await?;
    sets.scale(scenario, 1).await?;
    for set in &sets.0 {
        scenario.until(&set.pod(1), |pod: &Pod| is_terminating(pod)).await?;
        until_observed(scenario, set.name).await?;
        until_owned(scenario, &set.claim(1), &[]).await?;
    }
    scenario.restart_with_gate(GATE, true).await?;
    sets.until_owned(scenario, 1, true).await?;
    sets.remove_hold_finalizer(scenario, 1).await?;
    sets.until_ready(scenario, 0..1).await?;
    sets.assert_claims_deleted(scenario, &[NONE, WHEN_SCALED]).await?;
    scenario.assert_remaining(&[]).await
}
