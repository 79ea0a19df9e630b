//! KEP-1847, claims that go with their set or pod: each line of its test plan, told of sets of all four policies side by side with
//! data on their volumes, calm and with the server ending in the middle; and the ways of deletion, changes of policy, claims
//! of other origins and owners, and the feature gate.
//!
//! Where Kubernetes 1.36 does other than the design says, it is Kubernetes that is held to:
//! - `DeleteOnScaledownOnly` keeps claims when the set is deleted, as its description says; line 3 of its test plan does not.
//! - References to sets and pods have `blockOwnerDeletion: true`, so that a foreground deletion waits for the claims, too.
//! - A claim whose pod is gone already when its set is scaled down is collected by nobody.
//! - The gate turned off leaves the references that there are, and so what they bring about. It is the controller's: the API has
//!   the field anyway, as with a controller of an earlier version.

use anyhow::{Result, ensure};
use coracle_e2e::statefulsets::{
    ALL, DELETED, EITHER, NONE, Policy, SCALED, Set, Sets, Which, claim_of, hold, image, let_go, owners,
    pods_of, rest, until_observed, until_owned,
};
use coracle_e2e::told;
use coracle_e2e::volumes::{NODE, Story, claim, is_terminating, pod_phase};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

const GATE: &str = "StatefulSetAutoDeletePVC";

told! {
    by {
        csi: Csi, None;
        host_path_interrupted: HostPath, Some(Crash);
    }
    // The test plan: lines 1 to 8 of each policy.
    scaled_down,
    scaled_down_and_up,
    deleted_and_made_again,
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
    policies_changed_while_the_set_goes,
    // Condemned pods.
    condemned_pods_that_wait,
    condemned_pods_that_are_pending,
    pods_that_come_back_while_they_go,
    // Claims.
    claims_made_by_hand,
    claims_that_users_own,
    claims_that_others_control,
    claims_that_go_when_their_pods_come_back,
    claims_that_go_when_their_sets_come_back,
}

told! {
    by { csi: Csi, None; }
    // What was to be told is lost with a server that is killed.
    others_that_control_claims_are_told_of,
    // The server ends in the middle of these anyway.
    pods_gone_before_the_set_is_scaled,
    // Upgrade, downgrade.
    gate_turned_on_and_off,
    gate_turned_off_while_a_pod_is_condemned,
    gate_turned_on_while_a_pod_is_condemned,
}

async fn scaled_down(story: &mut Story) -> Result<()> {
    let sets = Sets::running(story, 2).await?;
    sets.scale(story, 1).await?;
    sets.until_run(story, 0..1).await?;
    sets.go(story, &[NONE, SCALED]).await?;
    story.ends_with(&[]).await
}

async fn scaled_down_and_up(story: &mut Story) -> Result<()> {
    let mut sets = Sets::running(story, 2).await?;
    sets.scale(story, 1).await?;
    sets.go(story, &[NONE, SCALED]).await?;
    sets.scale(story, 2).await?;
    sets.until_run(story, 0..2).await?;
    sets.are_new(story, &[NONE, SCALED]).await?;
    sets.until_owned(story, 1, false).await?;
    story.ends_with(&[]).await
}

async fn deleted_and_made_again(story: &mut Story) -> Result<()> {
    let mut sets = Sets::running(story, 2).await?;
    sets.delete(story, &DeleteParams::default()).await?;
    sets.until_gone(story).await?;
    sets.until_run(story, 0..0).await?;
    sets.go(story, &[DELETED, DELETED]).await?;
    sets.make_again(story, 2, |_| {}).await?;
    sets.until_run(story, 0..2).await?;
    sets.are_new(story, &[DELETED, DELETED]).await?;
    story.ends_with(&[]).await
}

async fn one_pod_deleted(story: &mut Story) -> Result<()> {
    let mut sets = Sets::running(story, 2).await?;
    let old = sets.uids(story, 1..2).await?;
    sets.delete_pods(story, 1..2).await?;
    sets.until_others_run(story, 0..2, &old).await?;
    sets.are_new(story, &[NONE, NONE]).await?;
    sets.until_owned(story, 1, false).await?;
    story.ends_with(&[]).await
}

async fn all_pods_deleted(story: &mut Story) -> Result<()> {
    let mut sets = Sets::running(story, 2).await?;
    let old = sets.uids(story, 0..2).await?;
    sets.delete_pods(story, 0..2).await?;
    sets.until_others_run(story, 0..2, &old).await?;
    sets.are_new(story, &[NONE, NONE]).await?;
    story.ends_with(&[]).await
}

async fn a_pod_deleted_and_the_set_scaled_down_at_once(story: &mut Story) -> Result<()> {
    let sets = Sets::running(story, 2).await?;
    sets.hold(story, 1).await?;
    sets.delete_pods(story, 1..2).await?;
    sets.scale(story, 1).await?;
    sets.until_owned(story, 1, true).await?;
    sets.let_go(story, 1).await?;
    sets.until_run(story, 0..1).await?;
    sets.go(story, &[NONE, SCALED]).await?;
    story.ends_with(&[]).await
}

async fn a_pod_deleted_and_the_set_scaled_down_and_up_at_once(story: &mut Story) -> Result<()> {
    let mut sets = Sets::running(story, 2).await?;
    sets.hold(story, 1).await?;
    sets.delete_pods(story, 1..2).await?;
    sets.scale(story, 1).await?;
    sets.until_observed(story).await?;
    sets.scale(story, 2).await?;
    sets.until_observed(story).await?;
    // Ordered sets leave alone what goes, so the claim goes with the pod that was condemned.
    sets.until_owned(story, 1, true).await?;
    sets.let_go(story, 1).await?;
    sets.until_run(story, 0..2).await?;
    sets.are_new(story, &[NONE, SCALED]).await?;
    sets.until_owned(story, 1, false).await?;
    story.ends_with(&[]).await
}

async fn updated(story: &mut Story) -> Result<()> {
    let mut sets = Sets::running(story, 2).await?;
    let old = sets.uids(story, 0..2).await?;
    sets.patch(story, |_| image("img:2")).await?;
    sets.until_others_run(story, 0..2, &old).await?;
    for set in &sets.0 {
        for pod in pods_of(story, set.name).await? {
            let image = pod.spec.and_then(|spec| spec.containers.into_iter().next()?.image);
            ensure!(image.as_deref() == Some("img:2"), "{image:?}");
        }
    }
    sets.are_new(story, &[NONE, NONE]).await?;
    story.ends_with(&[]).await
}

async fn parallel_sets_scaled_and_deleted(story: &mut Story) -> Result<()> {
    let mut sets = Sets::make(story, 3, |set| set["spec"]["podManagementPolicy"] = json!("Parallel")).await?;
    sets.until_filled(story, 0..3).await?;
    sets.scale(story, 1).await?;
    sets.until_run(story, 0..1).await?;
    sets.go(story, &[NONE, SCALED, SCALED]).await?;
    sets.scale(story, 3).await?;
    sets.until_run(story, 0..3).await?;
    sets.are_new(story, &[NONE, SCALED, SCALED]).await?;
    sets.delete(story, &DeleteParams::default()).await?;
    sets.until_gone(story).await?;
    sets.go(story, &[DELETED, DELETED, DELETED]).await?;
    story.ends_with(&[]).await
}

async fn orphaned(story: &mut Story) -> Result<()> {
    let mut sets = Sets::running(story, 2).await?;
    let kept = sets.uids(story, 0..1).await?;
    sets.delete(story, &DeleteParams::orphan()).await?;
    sets.until_gone(story).await?;
    for set in &sets.0 {
        for ordinal in 0..2 {
            until_owned(story, &set.claim(ordinal), &[]).await?;
            ensure!(owners(&story.get::<Pod>(&set.pod(ordinal)).await?).is_empty());
        }
    }
    // "Manual pod deletion."
    sets.delete_pods(story, 1..2).await?;
    sets.until_run(story, 0..1).await?;
    sets.go(story, &[NONE, NONE]).await?;

    // A set of the name takes them over, and its policy holds.
    sets.make_again(story, 2, |_| {}).await?;
    sets.until_run(story, 0..2).await?;
    ensure!(sets.uids(story, 0..1).await? == kept, "pods are taken over as they are");
    sets.are_new(story, &[NONE, NONE]).await?;
    sets.until_owned(story, 0, false).await?;
    sets.scale(story, 1).await?;
    sets.go(story, &[NONE, SCALED]).await?;
    sets.delete(story, &DeleteParams::background()).await?;
    sets.go(story, &[DELETED, EITHER]).await?;
    story.ends_with(&[]).await
}

/// What was condemned before goes with its pod, though nobody deletes that pod but a user.
async fn orphaned_while_a_pod_is_condemned(story: &mut Story) -> Result<()> {
    let sets = Sets::running(story, 2).await?;
    sets.hold(story, 1).await?;
    sets.scale(story, 1).await?;
    sets.until_observed(story).await?;
    sets.delete(story, &DeleteParams::orphan()).await?;
    sets.until_gone(story).await?;
    for set in &sets.0 {
        let pod = Some(format!("Pod/{}", set.pod(1))).filter(|_| SCALED(set.policy));
        until_owned(story, &set.claim(0), &[]).await?;
        until_owned(story, &set.claim(1), &pod.into_iter().collect::<Vec<_>>()).await?;
    }
    sets.let_go(story, 1).await?;
    sets.go(story, &[NONE, SCALED]).await?;
    sets.until_run(story, 0..1).await?;
    story.ends_with(&[]).await
}

async fn deleted_in_the_foreground(story: &mut Story) -> Result<()> {
    let sets = Sets::running(story, 2).await?;
    sets.hold(story, 1).await?;
    sets.delete(story, &DeleteParams::foreground()).await?;
    for set in &sets.0 {
        story.until_gone::<Pod>(&set.pod(0)).await?;
        if DELETED(set.policy) {
            story.until(&set.claim(1), |claim: &PersistentVolumeClaim| is_terminating(claim)).await?;
        }
    }
    rest(story).await?;
    for set in &sets.0 {
        ensure!(is_terminating(&story.get::<StatefulSet>(set.name).await?), "{} waits", set.name);
        let claim = story.get::<PersistentVolumeClaim>(&set.claim(1)).await?;
        ensure!(is_terminating(&claim) == DELETED(set.policy), "{claim:?}");
        story.is_kept(&set.assets[1]).await?;
    }
    sets.let_go(story, 1).await?;
    for set in &sets.0 {
        story.until_gone::<StatefulSet>(set.name).await?;
        for ordinal in 0..2 {
            let claim = story.api::<PersistentVolumeClaim>().get_opt(&set.claim(ordinal)).await?;
            ensure!(claim.is_none() == DELETED(set.policy), "{claim:?} when its set has gone");
        }
    }
    sets.go(story, &[DELETED, DELETED]).await?;
    story.ends_with(&[]).await
}

/// "No references are added, except for any pending condemned pods from a previous scale-down."
async fn deleted_while_pods_are_condemned(story: &mut Story) -> Result<()> {
    let sets = Sets::running(story, 3).await?;
    sets.hold(story, 2).await?;
    sets.scale(story, 1).await?;
    sets.until_owned(story, 1, true).await?;
    sets.until_owned(story, 2, true).await?;
    sets.delete(story, &DeleteParams::background()).await?;
    sets.until_gone(story).await?;
    sets.let_go(story, 2).await?;
    sets.until_run(story, 0..0).await?;
    sets.go(story, &[DELETED, EITHER, EITHER]).await?;
    story.ends_with(&[]).await
}

/// From each policy to each other, while the claim of one pod is in use, that of another is condemned, and a third has none.
async fn policies_changed(story: &mut Story) -> Result<()> {
    /// Each of the twelve steps once; the last leads back to the first.
    const ROUND: [usize; 12] = [0, 1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 3];
    let retain = |set: &mut Value| {
        set["spec"]["persistentVolumeClaimRetentionPolicy"] = Policy::Retain.field();
    };
    let mut sets = Sets::make(story, 3, retain).await?;
    sets.until_filled(story, 0..3).await?;
    sets.scale(story, 2).await?;
    sets.until_run(story, 0..2).await?;
    sets.hold(story, 1).await?;
    sets.patch(story, of_the_policy).await?;
    sets.until_owned(story, 0, false).await?;
    sets.scale(story, 1).await?;
    sets.until_owned(story, 1, true).await?;
    for step in 1..=ROUND.len() {
        for (number, set) in sets.0.iter_mut().enumerate() {
            let begin = ROUND.iter().position(|policy| *policy == number).unwrap_or(0);
            set.policy = Policy::ALL[ROUND[(begin + step) % ROUND.len()]];
        }
        sets.patch(story, of_the_policy).await?;
        sets.until_owned(story, 0, false).await?;
        sets.until_owned(story, 1, true).await?;
        for set in &sets.0 {
            until_owned(story, &set.claim(2), &[]).await?;
        }
    }
    sets.let_go(story, 1).await?;
    sets.until_run(story, 0..1).await?;
    sets.go(story, &[NONE, SCALED, NONE]).await?;
    sets.delete(story, &DeleteParams::default()).await?;
    sets.go(story, &[DELETED, EITHER, NONE]).await?;
    story.ends_with(&[]).await
}

fn of_the_policy(set: &Set) -> Value {
    json!({"spec": {"persistentVolumeClaimRetentionPolicy": set.policy.field()}})
}

/// "May result in claims not being deleted as expected when the policy is being changed from Retain, and claims being deleted
/// unexpectedly when the policy is being changed to Retain."
async fn policies_changed_while_the_set_goes(story: &mut Story) -> Result<()> {
    let sets = Sets::running(story, 2).await?;
    sets.hold(story, 1).await?;
    sets.delete(story, &DeleteParams::foreground()).await?;
    sets.patch(story, |set| {
        let other = Policy::ALL.into_iter().find(|other| DELETED(*other) != DELETED(set.policy));
        json!({"spec": {"persistentVolumeClaimRetentionPolicy": other.map(Policy::field)}})
    })
    .await?;
    sets.until_observed(story).await?;
    sets.until_owned(story, 1, false).await?;
    sets.let_go(story, 1).await?;
    sets.until_gone(story).await?;
    sets.go(story, &[DELETED, DELETED]).await?;
    story.ends_with(&[]).await
}

/// The claims of all condemned pods are given away before the first of them goes.
async fn condemned_pods_that_wait(story: &mut Story) -> Result<()> {
    let sets = Sets::running(story, 3).await?;
    sets.hold(story, 2).await?;
    sets.scale(story, 1).await?;
    sets.until_owned(story, 2, true).await?;
    sets.until_owned(story, 1, true).await?;
    sets.until_owned(story, 0, false).await?;
    for set in &sets.0 {
        ensure!(!is_terminating(&story.get::<Pod>(&set.pod(1)).await?), "{} is not the next", set.pod(1));
        story.is_kept(&set.assets[1]).await?;
        story.is_kept(&set.assets[2]).await?;
    }
    sets.let_go(story, 2).await?;
    sets.until_run(story, 0..1).await?;
    sets.go(story, &[NONE, SCALED, SCALED]).await?;
    story.ends_with(&[]).await
}

async fn condemned_pods_that_are_pending(story: &mut Story) -> Result<()> {
    let sets = Sets::running(story, 2).await?;
    story.patch::<Node>(NODE, json!({"spec": {"unschedulable": true}})).await?;
    let old = sets.uids(story, 1..2).await?;
    sets.delete_pods(story, 1..2).await?;
    for set in &sets.0 {
        let is_back =
            |pod: &Pod| pod_phase(pod) == "Pending" && pod.uid().is_some_and(|uid| !old.contains(&uid));
        story.until(&set.pod(1), is_back).await?;
    }
    sets.scale(story, 1).await?;
    sets.until_run(story, 0..1).await?;
    story.patch::<Node>(NODE, json!({"spec": {"unschedulable": null}})).await?;
    sets.go(story, &[NONE, SCALED]).await?;
    story.ends_with(&[]).await
}

/// Nobody looks while a pod is deleted and its set is scaled: its claim is left as it was.
async fn pods_gone_before_the_set_is_scaled(story: &mut Story) -> Result<()> {
    let mut sets = Sets::running(story, 2).await?;
    story.run_controllers("*,-statefulset-controller").await?;
    sets.delete_pods(story, 1..2).await?;
    sets.until_run(story, 0..1).await?;
    sets.scale(story, 1).await?;
    story.run_controllers("*").await?;
    sets.until_observed(story).await?;
    sets.go(story, &[NONE, NONE]).await?;
    sets.until_owned(story, 1, false).await?;
    sets.scale(story, 2).await?;
    sets.until_run(story, 0..2).await?;
    sets.are_new(story, &[NONE, NONE]).await?;
    story.ends_with(&[]).await
}

/// A parallel set takes back the claim of a pod that it wants again, also while that pod goes.
async fn pods_that_come_back_while_they_go(story: &mut Story) -> Result<()> {
    let slow = |set: &mut Value| {
        set["spec"]["podManagementPolicy"] = json!("Parallel");
        set["spec"]["template"]["metadata"]["annotations"] =
            json!({"sim.coracle.dev/terminate-after": "10m"});
        set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(600);
    };
    let mut sets = Sets::make(story, 2, slow).await?;
    sets.until_filled(story, 0..2).await?;
    let old = sets.uids(story, 1..2).await?;
    sets.scale(story, 1).await?;
    sets.until_owned(story, 1, true).await?;
    for set in &sets.0 {
        story.until(&set.pod(1), |pod: &Pod| is_terminating(pod)).await?;
    }
    sets.scale(story, 2).await?;
    sets.until_owned(story, 1, false).await?;
    for set in &sets.0 {
        story.api::<Pod>().delete(&set.pod(1), &DeleteParams::default().grace_period(0)).await?;
    }
    sets.until_others_run(story, 0..2, &old).await?;
    sets.are_new(story, &[NONE, NONE]).await?;
    story.ends_with(&[]).await
}

/// "If a user pre-provisions a claim matching those of a template it will be deleted according to the policy."
async fn claims_made_by_hand(story: &mut Story) -> Result<()> {
    let provision = async |story: &mut Story| {
        let mut assets = Vec::new();
        for policy in Policy::ALL {
            for ordinal in 0..2 {
                assets.push(story.bound_static(&claim_of(policy.set(), ordinal), "Delete").await?);
            }
        }
        Ok(assets)
    };
    let assets = story.at_once(provision).await?;
    let mut sets = Sets::make(story, 2, |_| {}).await?;
    for (set, assets) in sets.0.iter_mut().zip(assets.chunks(2)) {
        set.assets = assets.to_vec();
    }
    sets.until_run(story, 0..2).await?;
    sets.until_owned(story, 0, false).await?;
    sets.until_owned(story, 1, false).await?;
    sets.are_new(story, &[NONE, NONE]).await?;
    sets.scale(story, 1).await?;
    sets.go(story, &[NONE, SCALED]).await?;
    sets.delete(story, &DeleteParams::default()).await?;
    sets.go(story, &[DELETED, EITHER]).await?;
    story.ends_with(&[]).await
}

/// Sets with two pods each whose claims have been there before, owned by a ConfigMap.
async fn with_claims_of(story: &mut Story, is_controller: bool) -> Result<Sets> {
    let user: ConfigMap = story.create(json!({"metadata": {"name": "user"}})).await?;
    let reference = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "user", "uid": user.uid(), "controller": is_controller,
    });
    let provision = async |story: &mut Story| {
        for policy in Policy::ALL {
            for ordinal in 0..2 {
                let mut claim = claim(&claim_of(policy.set(), ordinal), "delete");
                claim["metadata"]["ownerReferences"] = json!([reference]);
                story.create::<PersistentVolumeClaim>(claim).await?;
            }
        }
        Ok(())
    };
    story.at_once(provision).await?;
    let mut sets = Sets::make(story, 2, |_| {}).await?;
    sets.until_filled(story, 0..2).await?;
    Ok(sets)
}

/// A claim has several owners then, and goes with the last of them.
async fn claims_that_users_own(story: &mut Story) -> Result<()> {
    let mut sets = with_claims_of(story, false).await?;
    let both = |set: &Set, ordinal, is_condemned| {
        [vec!["ConfigMap/user".to_owned()], set.owner(ordinal, is_condemned)].concat()
    };
    for set in &sets.0 {
        until_owned(story, &set.claim(0), &both(set, 0, false)).await?;
        until_owned(story, &set.claim(1), &both(set, 1, false)).await?;
    }
    sets.hold(story, 1).await?;
    sets.scale(story, 1).await?;
    for set in &sets.0 {
        until_owned(story, &set.claim(1), &both(set, 1, true)).await?;
    }
    sets.let_go(story, 1).await?;
    sets.go(story, &[NONE, NONE]).await?;
    for set in &sets.0 {
        let rest = if SCALED(set.policy) { Vec::new() } else { set.owner(1, false) };
        until_owned(story, &set.claim(1), &[vec!["ConfigMap/user".to_owned()], rest].concat()).await?;
    }
    sets.scale(story, 2).await?;
    sets.until_run(story, 0..2).await?;
    sets.are_new(story, &[NONE, NONE]).await?;
    sets.delete(story, &DeleteParams::default()).await?;
    sets.until_gone(story).await?;
    sets.go(story, &[NONE, NONE]).await?;
    story.delete::<ConfigMap>("user").await?;
    sets.go(story, &[ALL, ALL]).await?;
    story.ends_with(&[]).await
}

async fn claims_that_others_control(story: &mut Story) -> Result<()> {
    let mut sets = with_claims_of(story, true).await?;
    let user = ["ConfigMap/user".to_owned()];
    sets.scale(story, 1).await?;
    sets.until_run(story, 0..1).await?;
    sets.go(story, &[NONE, NONE]).await?;
    for set in &sets.0 {
        until_owned(story, &set.claim(0), &user).await?;
        until_owned(story, &set.claim(1), &user).await?;
    }
    // Once the other lets them go, they are the sets'.
    let free = async |story: &mut Story| {
        let nobody = json!({"metadata": {"ownerReferences": null}});
        for claim in sets.0.iter().flat_map(|set| [set.claim(0), set.claim(1)]) {
            story.patch::<PersistentVolumeClaim>(&claim, nobody.clone()).await?;
        }
        Ok(())
    };
    story.at_once(free).await?;
    sets.scale(story, 2).await?;
    sets.until_run(story, 0..2).await?;
    sets.are_new(story, &[NONE, NONE]).await?;
    sets.until_owned(story, 0, false).await?;
    sets.until_owned(story, 1, false).await?;
    sets.delete(story, &DeleteParams::default()).await?;
    sets.go(story, &[DELETED, DELETED]).await?;
    story.ends_with(&[]).await
}

/// Once, when the pod is made.
async fn others_that_control_claims_are_told_of(story: &mut Story) -> Result<()> {
    let sets = with_claims_of(story, true).await?;
    for set in &sets.0 {
        if EITHER(set.policy) {
            let why = format!("{} has a conflicting OwnerReference", set.claim(0));
            story.until_told(set.name, "ConflictingController", &why).await?;
        }
    }
    Ok(())
}

/// The pod is not made with a claim that goes, nor is the claim kept for it.
async fn claims_that_go_when_their_pods_come_back(story: &mut Story) -> Result<()> {
    let mut sets = Sets::running(story, 2).await?;
    let delete = async |story: &mut Story| {
        for set in &sets.0 {
            hold::<PersistentVolumeClaim>(story, &set.claim(1)).await?;
            story.delete::<PersistentVolumeClaim>(&set.claim(1)).await?;
        }
        Ok(())
    };
    story.at_once(delete).await?;
    for set in &sets.0 {
        story.is_postponed(&set.assets[1]).await?;
    }
    sets.delete_pods(story, 1..2).await?;
    until_refused(story, &sets, 1, ALL).await?;
    sets.until_run(story, 0..2).await?;
    sets.are_new(story, &[NONE, ALL]).await?;
    story.ends_with(&[]).await
}

/// Until sets say why they do not make the pods of an ordinal, and then their claims are let go.
async fn until_refused(story: &mut Story, sets: &Sets, ordinal: u32, which: Which) -> Result<()> {
    for set in sets.0.iter().filter(|set| which(set.policy)) {
        let why = format!("pvc {} is being deleted", set.claim(ordinal));
        story.until_told(set.name, "FailedCreate", &why).await?;
        let_go::<PersistentVolumeClaim>(story, &set.claim(ordinal)).await?;
    }
    story.interrupt().await
}

async fn claims_that_go_when_their_sets_come_back(story: &mut Story) -> Result<()> {
    let mut sets = Sets::running(story, 1).await?;
    for set in sets.0.iter().filter(|set| DELETED(set.policy)) {
        hold::<PersistentVolumeClaim>(story, &set.claim(0)).await?;
    }
    sets.delete(story, &DeleteParams::background()).await?;
    sets.until_gone(story).await?;
    sets.until_run(story, 0..0).await?;
    for set in sets.0.iter().filter(|set| DELETED(set.policy)) {
        story.until(&set.claim(0), |claim: &PersistentVolumeClaim| is_terminating(claim)).await?;
    }
    sets.make_again(story, 1, |_| {}).await?;
    until_refused(story, &sets, 0, DELETED).await?;
    sets.until_run(story, 0..1).await?;
    sets.are_new(story, &[DELETED]).await?;
    sets.until_owned(story, 0, false).await?;
    story.ends_with(&[]).await
}

/// "Create a set in the previous version and upgrade: the claims should remain intact. Downgrade: the others get deleted based on
/// if the references were already set."
async fn gate_turned_on_and_off(story: &mut Story) -> Result<()> {
    story.set_gate(GATE, false).await?;
    let sets = Sets::running(story, 3).await?;
    sets.scale(story, 2).await?;
    sets.until_run(story, 0..2).await?;
    sets.go(story, &[NONE, NONE, NONE]).await?;
    for set in &sets.0 {
        for ordinal in 0..3 {
            until_owned(story, &set.claim(ordinal), &[]).await?;
        }
    }
    story.set_gate(GATE, true).await?;
    sets.until_owned(story, 0, false).await?;
    sets.until_owned(story, 1, false).await?;
    sets.scale(story, 1).await?;
    sets.until_run(story, 0..1).await?;
    sets.go(story, &[NONE, SCALED, NONE]).await?;
    story.set_gate(GATE, false).await?;
    rest(story).await?;
    sets.until_owned(story, 0, false).await?;
    sets.scale(story, 0).await?;
    sets.until_run(story, 0..0).await?;
    sets.go(story, &[NONE, SCALED, NONE]).await?;
    sets.delete(story, &DeleteParams::default()).await?;
    sets.until_gone(story).await?;
    sets.go(story, &[DELETED, EITHER, NONE]).await?;
    story.ends_with(&[]).await
}

async fn gate_turned_off_while_a_pod_is_condemned(story: &mut Story) -> Result<()> {
    let mut sets = Sets::running(story, 2).await?;
    sets.hold(story, 1).await?;
    sets.scale(story, 1).await?;
    sets.until_owned(story, 1, true).await?;
    story.set_gate(GATE, false).await?;
    sets.let_go(story, 1).await?;
    sets.until_run(story, 0..1).await?;
    sets.go(story, &[NONE, SCALED]).await?;
    sets.scale(story, 2).await?;
    sets.until_run(story, 0..2).await?;
    sets.are_new(story, &[NONE, SCALED]).await?;
    // From now on nothing goes that had no owner before.
    sets.scale(story, 1).await?;
    sets.until_run(story, 0..1).await?;
    sets.go(story, &[NONE, NONE]).await?;
    story.ends_with(&[]).await
}

async fn gate_turned_on_while_a_pod_is_condemned(story: &mut Story) -> Result<()> {
    story.set_gate(GATE, false).await?;
    let sets = Sets::running(story, 2).await?;
    sets.hold(story, 1).await?;
    sets.scale(story, 1).await?;
    for set in &sets.0 {
        story.until(&set.pod(1), |pod: &Pod| is_terminating(pod)).await?;
        until_observed(story, set.name).await?;
        until_owned(story, &set.claim(1), &[]).await?;
    }
    story.set_gate(GATE, true).await?;
    sets.until_owned(story, 1, true).await?;
    sets.let_go(story, 1).await?;
    sets.until_run(story, 0..1).await?;
    sets.go(story, &[NONE, SCALED]).await?;
    story.ends_with(&[]).await
}
