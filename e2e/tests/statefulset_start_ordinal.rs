//! KEP-3335, StatefulSet slice: sets that are scaled and migrated, their claims and data, the user
//! scenarios of the design and its feature gate, each uninterrupted and with restarts of the
//! server. The first two scenarios migrate a set, slice by slice and with its data, to another
//! namespace and to another cluster; `e2e/examples` describes the first one.
//!
//! If Kubernetes 1.36 differs from the design, the tests expect the behavior of Kubernetes: the
//! partition of a rolling update counts from the first ordinal, and is not an ordinal itself.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Result, ensure};
use coracle_e2e::scenario;
use coracle_e2e::statefulsets::{
    History, NONE, RetentionPolicy, TestSets, WHEN_DELETED, WHEN_SCALED, claim_of, image, pod_of, pods_of,
    stateful_set, uids, until_filled, until_owned, until_ready, until_settled,
};
use coracle_e2e::volumes::{BoundClaim, Scenario, claim, claim_phase, volume_phase};
use coracle_e2e::wait::until;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

const GATE: &str = "StatefulSetStartOrdinal";

scenario! {
    by {
        csi: Csi, None;
        host_path_interrupted: HostPath, Some(Crash);
    }
    // User scenarios.
    slices_move_to_another_namespace,
    slices_move_to_another_cluster,
    // "Control Loop Changes"; TestStatefulSetStartOrdinal. User scenario 3 among them: from zero to
    // one.
    sets_start_at_any_ordinal,
    sets_are_scaled_and_moved,
    partitions_count_from_the_start,
    claims_follow_the_range_of_ordinals,
}

scenario! {
    // Upgrade and downgrade: the scenarios restart the server themselves.
    by { csi: Csi, None; }
    gate_turned_off_and_on,
    pods_are_orphaned_before_the_gate_is_turned_off,
}

fn ordinals(start: impl Into<Option<u32>>, replicas: u32) -> Value {
    let ordinals = start.into().map(|start| json!({"start": start}));
    json!({"spec": {"replicas": replicas, "ordinals": ordinals}})
}

/// Returns the manifest of a StatefulSet with this start ordinal.
fn starting(name: &str, start: u32, replicas: u32) -> Value {
    let mut set = stateful_set(name, replicas);
    set["spec"]["ordinals"] = json!({"start": start});
    set
}

const APP: &str = "my-app";

/// Covers "Migrating across namespaces", as in the summary of the design, step by step. The source
/// would delete its claims, so that comes first: "`whenDeleted` and `whenScaled` should be set to
/// Retain prior to migration".
async fn slices_move_to_another_namespace(scenario: &mut Scenario) -> Result<()> {
    const REPLICAS: u32 = 5;
    for name in ["shared", "app-team"] {
        scenario.create::<Namespace>(json!({"metadata": {"name": name}})).await?;
    }
    scenario.namespace = "shared";
    let begin = History::begin(scenario).await?;
    let mut source = stateful_set(APP, REPLICAS);
    source["spec"]["persistentVolumeClaimRetentionPolicy"] =
        RetentionPolicy::DeleteOnScaledownAndStatefulSetDeletion.field();
    scenario.create::<StatefulSet>(source).await?;
    let bound_claims = until_filled(scenario, APP, 0..REPLICAS).await?;
    let retain = json!({"spec": {"persistentVolumeClaimRetentionPolicy": RetentionPolicy::Retain.field()}});
    scenario.patch::<StatefulSet>(APP, retain).await?;
    let keep = async |scenario: &mut Scenario| {
        for bound_claim in &bound_claims {
            until_owned(scenario, &bound_claim.claim, &[]).await?;
            scenario.patch::<PersistentVolume>(&bound_claim.volume, kept()).await?;
        }
        Ok(())
    };
    scenario.uninterrupted(keep).await?;
    scenario.namespace = "app-team";
    scenario.create::<StatefulSet>(starting(APP, REPLICAS, 0)).await?;

    let mut moved = Vec::new();
    for (ordinal, bound_claim) in (0..REPLICAS).zip(bound_claims).rev() {
        scenario.namespace = "shared";
        scenario.patch::<StatefulSet>(APP, json!({"spec": {"replicas": ordinal}})).await?;
        until_ready(scenario, APP, 0..ordinal).await?;
        scenario.delete::<PersistentVolumeClaim>(&bound_claim.claim).await?;
        scenario.until_retained(&bound_claim).await?;

        scenario.namespace = "app-team";
        scenario.patch::<PersistentVolume>(&bound_claim.volume, json!({"spec": {"claimRef": null}})).await?;
        scenario
            .until(&bound_claim.volume, |volume: &PersistentVolume| volume_phase(volume) == "Available")
            .await?;
        bind(scenario, &bound_claim.claim, &bound_claim.volume, "delete").await?;
        let others = uids(&pods_of(scenario, APP).await?);
        scenario.patch::<StatefulSet>(APP, ordinals(ordinal, REPLICAS - ordinal)).await?;
        let pods = until_ready(scenario, APP, ordinal..REPLICAS).await?;
        ensure!(uids(&pods).is_superset(&others), "those that were moved before stay as they are");
        moved.push(bound_claim);
        for bound_claim in &moved {
            let now = scenario.get_bound_claim(&bound_claim.claim).await?;
            ensure!(now.directory == bound_claim.directory, "{now:?} is not {bound_claim:?}");
            scenario.assert_kept(bound_claim).await?;
        }
    }

    // "Clean up the source safely": its claims remain.
    scenario.namespace = "shared";
    scenario.api::<StatefulSet>().delete(APP, &DeleteParams::orphan()).await?;
    scenario.interrupt().await?;
    scenario.until_deleted::<StatefulSet>(APP).await?;
    scenario.namespace = "app-team";
    until_settled(scenario).await?;
    for bound_claim in &moved {
        scenario.assert_kept(bound_claim).await?;
    }
    History::since(scenario, &begin).await?.assert_moved_one_at_a_time(APP, 5)?;
    scenario.assert_remaining(&[]).await
}

/// Returns the patch with which a volume is kept after its claim is deleted.
fn kept() -> Value {
    json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
}

/// Creates a claim for an available volume.
async fn bind(scenario: &mut Scenario, name: &str, volume: &str, class: &str) -> Result<()> {
    let mut claim = claim(name, class);
    claim["spec"]["volumeName"] = json!(volume);
    scenario.create::<PersistentVolumeClaim>(claim).await?;
    let is_bound = |claim: &PersistentVolumeClaim| claim_phase(claim) == "Bound";
    scenario.until(name, is_bound).await.map(drop)
}

/// Covers "Migrating across clusters": a client creates the volumes there, with their data.
async fn slices_move_to_another_cluster(scenario: &mut Scenario) -> Result<()> {
    const REPLICAS: u32 = 3;
    let mut there = scenario.start_another().await?;
    scenario.create::<StatefulSet>(stateful_set(APP, REPLICAS)).await?;
    there.create::<StatefulSet>(starting(APP, REPLICAS, 0)).await?;
    let bound_claims = until_filled(scenario, APP, 0..REPLICAS).await?;
    for (ordinal, bound_claim) in (0..REPLICAS).zip(bound_claims).rev() {
        scenario.patch::<PersistentVolume>(&bound_claim.volume, kept()).await?;
        scenario.patch::<StatefulSet>(APP, json!({"spec": {"replicas": ordinal}})).await?;
        until_ready(scenario, APP, 0..ordinal).await?;
        scenario.delete::<PersistentVolumeClaim>(&bound_claim.claim).await?;
        scenario.until_retained(&bound_claim).await?;
        scenario.delete::<PersistentVolume>(&bound_claim.volume).await?;
        scenario.until_deleted::<PersistentVolume>(&bound_claim.volume).await?;

        let directory = there.create_static_volume(&bound_claim.volume, "Retain").await?;
        fs::rename(&bound_claim.directory, &directory)?;
        bind(&mut there, &bound_claim.claim, &bound_claim.volume, "").await?;
        there.patch::<StatefulSet>(APP, ordinals(ordinal, REPLICAS - ordinal)).await?;
        until_ready(&there, APP, ordinal..REPLICAS).await?;
        let here = pods_of(scenario, APP).await?;
        ensure!(here.iter().all(|pod| pod.name_any() < pod_of(APP, ordinal)), "an ordinal is in two places");
        there.assert_kept(&BoundClaim { directory, ..bound_claim }).await?;
    }
    scenario.delete::<StatefulSet>(APP).await?;
    scenario.until_deleted::<StatefulSet>(APP).await?;
    scenario.assert_remaining(&[]).await?;
    there.assert_remaining(&[]).await
}

async fn sets_start_at_any_ordinal(scenario: &mut Scenario) -> Result<()> {
    const STARTS: [(&str, Option<u32>, u32); 6] = [
        ("none", None, 3),
        ("zero", Some(0), 2),
        ("one", Some(1), 3),
        ("four", Some(4), 3),
        ("two-digits", Some(9), 3),
        ("last", Some(i32::MAX as u32 - 2), 2),
    ];
    let make = async |scenario: &mut Scenario| {
        for (name, start, replicas) in STARTS {
            let mut set = stateful_set(name, replicas);
            set["spec"]["ordinals"] = start.map_or(json!(null), |start| json!({"start": start}));
            scenario.create::<StatefulSet>(set).await?;
        }
        Ok(())
    };
    scenario.uninterrupted(make).await?;
    for (name, start, replicas) in STARTS {
        let start = start.unwrap_or(0);
        until_ready(scenario, name, start..start + replicas).await?;
        for ordinal in start..start + replicas {
            let pod: Pod = scenario.get(&pod_of(name, ordinal)).await?;
            let spec = pod.spec.clone().unwrap_or_default();
            let volume = spec.volumes.iter().flatten().find(|volume| volume.name == "data");
            let claim = volume.and_then(|volume| volume.persistent_volume_claim.as_ref());
            ensure!(
                pod.labels()["apps.kubernetes.io/pod-index"] == ordinal.to_string(),
                "{:?}",
                pod.labels()
            );
            ensure!(spec.hostname == Some(pod.name_any()), "{:?}", spec.hostname);
            ensure!(claim.is_some_and(|claim| claim.claim_name == claim_of(name, ordinal)), "{claim:?}");
        }
    }
    scenario.assert_remaining(&[]).await
}

/// Checks that new ordinals are created one after the other before old ones are deleted, and these
/// from the highest down. Pods in both ranges remain, and recreated ones find their data.
async fn sets_are_scaled_and_moved(scenario: &mut Scenario) -> Result<()> {
    const STEPS: [(Option<u32>, u32, &str); 11] = [
        (Some(7), 2, "+7 +8"),
        (Some(7), 4, "+9 +10"),
        (Some(7), 1, "-10 -9 -8"),
        (Some(5), 3, "+5 +6"),
        (Some(6), 3, "+8 -5"),
        (Some(0), 3, "+0 +1 +2 -8 -7 -6"),
        (Some(1), 3, "+3 -0"),
        (None, 1, "+0 -3 -2 -1"),
        (Some(2), 2, "+2 +3 -0"),
        (Some(2), 0, "-3 -2"),
        (Some(8), 1, "+8"),
    ];
    let begin = History::begin(scenario).await?;
    let mut parallel = starting("parallel", 7, 0);
    parallel["spec"]["podManagementPolicy"] = json!("Parallel");
    scenario.create::<StatefulSet>(parallel).await?;
    scenario.create::<StatefulSet>(starting("ordered", 7, 0)).await?;
    let mut bound_claims = BTreeMap::new();
    for (start, replicas, _) in STEPS {
        for set in ["parallel", "ordered"] {
            scenario.patch::<StatefulSet>(set, ordinals(start, replicas)).await?;
        }
        let start = start.unwrap_or(0);
        for set in ["parallel", "ordered"] {
            until_ready(scenario, set, start..start + replicas).await?;
            for claim in (start..start + replicas).map(|ordinal| claim_of(set, ordinal)) {
                match bound_claims.get(&claim) {
                    None => drop(bound_claims.insert(claim.clone(), scenario.write_data(&claim).await?)),
                    Some(bound_claim) => {
                        let now = scenario.get_bound_claim(&claim).await?;
                        ensure!(now.volume == bound_claim.volume, "{now:?} is not {bound_claim:?}");
                        scenario.assert_kept(bound_claim).await?;
                    }
                }
            }
        }
        ensure!(bound_claims.values().all(BoundClaim::has_data), "data are lost");
    }
    let order = History::since(scenario, &begin).await?.transitions("ordered");
    let want = STEPS.map(|(_, _, order)| order).join(" ");
    ensure!(order == want, "{order}\nand not\n{want}");
    scenario.assert_remaining(&[]).await
}

async fn partitions_count_from_the_start(scenario: &mut Scenario) -> Result<()> {
    let images = async |scenario: &Scenario| -> Result<String> {
        let pods = pods_of(scenario, APP).await?;
        let image = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.containers.first()?.image.clone());
        let images = pods.iter().map(|pod| format!("{} {}", pod.name_any(), image(pod).unwrap_or_default()));
        Ok(images.collect::<Vec<_>>().join(", "))
    };
    let update = |partition: u32, tag: &str| {
        let mut change = image(tag);
        change["spec"]["updateStrategy"] =
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
        change
    };
    scenario.create::<StatefulSet>(starting(APP, 5, 3)).await?;
    until_ready(scenario, APP, 5..8).await?;
    for (change, ordinals, want) in [
        // By the design 6 would be the first ordinal to be updated, and 3 would be none.
        (update(3, "img:2"), 5..8, "my-app-5 img:1, my-app-6 img:1, my-app-7 img:1"),
        (update(1, "img:2"), 5..8, "my-app-5 img:1, my-app-6 img:2, my-app-7 img:2"),
        (ordinals(4, 3), 4..7, "my-app-4 img:1, my-app-5 img:2, my-app-6 img:2"),
        (update(0, "img:2"), 4..7, "my-app-4 img:2, my-app-5 img:2, my-app-6 img:2"),
    ] {
        scenario.patch::<StatefulSet>(APP, change).await?;
        until(want, async || images(scenario).await, |found| found == want).await?;
        until_ready(scenario, APP, ordinals).await?;
        until_settled(scenario).await?;
        let found = images(scenario).await?;
        ensure!(found == want, "{found}, and not {want}");
    }
    scenario.assert_remaining(&[]).await
}

async fn claims_follow_the_range_of_ordinals(scenario: &mut Scenario) -> Result<()> {
    let mut sets = TestSets::create(scenario, 2, |set| set["spec"]["ordinals"] = json!({"start": 1})).await?;
    sets.until_filled(scenario, 1..3).await?;
    sets.until_owned(scenario, 1, false).await?;
    // Ordinals below the range are deleted like those above it.
    sets.patch(scenario, |_| ordinals(2, 2)).await?;
    sets.until_ready(scenario, 2..4).await?;
    sets.assert_claims_deleted(scenario, &[WHEN_SCALED, NONE]).await?;
    sets.patch(scenario, |_| ordinals(1, 2)).await?;
    sets.until_ready(scenario, 1..3).await?;
    sets.assert_claims_recreated(scenario, &[WHEN_SCALED, NONE]).await?;
    sets.until_owned(scenario, 1, false).await?;
    for set in &sets.0 {
        match WHEN_SCALED(set.policy) {
            true => scenario.until_deleted::<PersistentVolumeClaim>(&set.claim(3)).await?,
            false => until_owned(scenario, &set.claim(3), &set.expected_owners(3, true)).await.map(drop)?,
        }
    }
    sets.delete(scenario, &DeleteParams::default()).await?;
    sets.until_deleted(scenario).await?;
    sets.assert_claims_deleted(scenario, &[WHEN_DELETED, WHEN_DELETED]).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks the design's "Versions not implementing this will attempt to re-create all replicas from
/// 0, and terminate any pods of ordinal N or greater"; "if reenabled, the set will scale pods to
/// start from this ordinal". Their claims are deleted or kept, by the policy.
async fn gate_turned_off_and_on(scenario: &mut Scenario) -> Result<()> {
    let begin = History::begin(scenario).await?;
    let mut sets = TestSets::create(scenario, 2, |set| set["spec"]["ordinals"] = json!({"start": 2})).await?;
    sets.until_filled(scenario, 2..4).await?;
    scenario.restart_with_gate(GATE, false).await?;
    sets.until_ready(scenario, 0..2).await?;
    for set in &sets.0 {
        let spec = scenario.get::<StatefulSet>(set.name).await?.spec.unwrap_or_default();
        ensure!(spec.ordinals.and_then(|ordinals| ordinals.start) == Some(2), "the spec is preserved");
    }
    sets.assert_claims_deleted(scenario, &[WHEN_SCALED, WHEN_SCALED]).await?;
    scenario.restart_with_gate(GATE, true).await?;
    sets.until_ready(scenario, 2..4).await?;
    sets.assert_claims_recreated(scenario, &[WHEN_SCALED, WHEN_SCALED]).await?;
    let history = History::since(scenario, &begin).await?;
    for set in &sets.0 {
        let order = history.transitions(set.name);
        ensure!(order == "+2 +3 +0 +1 -3 -2 +2 +3 -1 -0", "{order}");
    }
    scenario.assert_remaining(&[]).await
}

/// Checks the design's "Pods can be orphaned to prevent the set from deleting them until the
/// operator has a chance to react."
async fn pods_are_orphaned_before_the_gate_is_turned_off(scenario: &mut Scenario) -> Result<()> {
    let from_two = |set: &mut Value| set["spec"]["ordinals"] = json!({"start": 2});
    let mut sets = TestSets::create(scenario, 2, from_two).await?;
    sets.until_filled(scenario, 2..4).await?;
    let old = sets.uids(scenario, 2..4).await?;
    sets.delete(scenario, &DeleteParams::orphan()).await?;
    sets.until_deleted(scenario).await?;
    scenario.restart_with_gate(GATE, false).await?;
    sets.assert_claims_deleted(scenario, &[NONE, NONE]).await?;
    scenario.restart_with_gate(GATE, true).await?;
    sets.recreate(scenario, 2, from_two).await?;
    sets.until_ready(scenario, 2..4).await?;
    sets.until_owned(scenario, 3, false).await?;
    ensure!(sets.uids(scenario, 2..4).await? == old, "they are the same pods");
    sets.assert_claims_recreated(scenario, &[NONE, NONE]).await?;
    scenario.assert_remaining(&[]).await
}
