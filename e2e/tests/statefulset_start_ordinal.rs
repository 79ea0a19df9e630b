//! KEP-3335, ordinals that start anywhere: sets that are scaled and moved, claims and data as they come and go, the design's user
//! stories and its feature gate, each told calm and with the server ending in the middle. The first two stories move a set,
//! slice by slice and with its data, to another namespace and to another cluster; `e2e/examples` tells the first for people.
//!
//! Where Kubernetes 1.36 does other than the design says, it is Kubernetes that is held to: the partition of a rolling update
//! counts from the first ordinal, and is no ordinal itself.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Result, ensure};
use coracle_e2e::statefulsets::{
    DELETED, History, NONE, Policy, SCALED, Sets, claim_of, filled, image, pod_of, pods_of, rest,
    stateful_set, uids, until_owned, until_run,
};
use coracle_e2e::told;
use coracle_e2e::volumes::{Asset, Story, claim, claim_phase, volume_phase};
use coracle_e2e::wait::until;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

const GATE: &str = "StatefulSetStartOrdinal";

told! {
    by {
        csi: Csi, None;
        host_path_interrupted: HostPath, Some(Crash);
    }
    // User stories.
    slices_move_to_another_namespace,
    slices_move_to_another_cluster,
    // "Control Loop Changes"; TestStatefulSetStartOrdinal. User story 3 among them: from zero to one.
    sets_start_anywhere,
    sets_are_scaled_and_moved,
    partitions_count_from_the_start,
    claims_come_and_go_with_ordinals,
}

told! {
    // Upgrade and downgrade: the server ends in the middle anyway.
    by { csi: Csi, None; }
    gate_turned_off_and_on,
    pods_are_orphaned_before_the_gate_is_turned_off,
}

fn ordinals(start: impl Into<Option<u32>>, replicas: u32) -> Value {
    let ordinals = start.into().map(|start| json!({"start": start}));
    json!({"spec": {"replicas": replicas, "ordinals": ordinals}})
}

/// A set that starts there, and is not made yet.
fn starting(name: &str, start: u32, replicas: u32) -> Value {
    let mut set = stateful_set(name, replicas);
    set["spec"]["ordinals"] = json!({"start": start});
    set
}

const APP: &str = "my-app";

/// "Migrating across namespaces", as the summary of the design has it, step by step. The source would delete its claims, so
/// that comes first: "`whenDeleted` and `whenScaled` should be set to Retain prior to migration".
async fn slices_move_to_another_namespace(story: &mut Story) -> Result<()> {
    const REPLICAS: u32 = 5;
    for name in ["shared", "app-team"] {
        story.create::<Namespace>(json!({"metadata": {"name": name}})).await?;
    }
    story.namespace = "shared";
    let begin = History::begin(story).await?;
    let mut source = stateful_set(APP, REPLICAS);
    source["spec"]["persistentVolumeClaimRetentionPolicy"] =
        Policy::DeleteOnScaledownAndStatefulSetDeletion.field();
    story.create::<StatefulSet>(source).await?;
    let assets = filled(story, APP, 0..REPLICAS).await?;
    let retain = json!({"spec": {"persistentVolumeClaimRetentionPolicy": Policy::Retain.field()}});
    story.patch::<StatefulSet>(APP, retain).await?;
    let keep = async |story: &mut Story| {
        for asset in &assets {
            until_owned(story, &asset.claim, &[]).await?;
            story.patch::<PersistentVolume>(&asset.volume, kept()).await?;
        }
        Ok(())
    };
    story.at_once(keep).await?;
    story.namespace = "app-team";
    story.create::<StatefulSet>(starting(APP, REPLICAS, 0)).await?;

    let mut moved = Vec::new();
    for (ordinal, asset) in (0..REPLICAS).zip(assets).rev() {
        story.namespace = "shared";
        story.patch::<StatefulSet>(APP, json!({"spec": {"replicas": ordinal}})).await?;
        until_run(story, APP, 0..ordinal).await?;
        story.delete::<PersistentVolumeClaim>(&asset.claim).await?;
        story.is_retained(&asset).await?;

        story.namespace = "app-team";
        story.patch::<PersistentVolume>(&asset.volume, json!({"spec": {"claimRef": null}})).await?;
        story.until(&asset.volume, |volume: &PersistentVolume| volume_phase(volume) == "Available").await?;
        bind(story, &asset.claim, &asset.volume, "delete").await?;
        let others = uids(&pods_of(story, APP).await?);
        story.patch::<StatefulSet>(APP, ordinals(ordinal, REPLICAS - ordinal)).await?;
        let pods = until_run(story, APP, ordinal..REPLICAS).await?;
        ensure!(uids(&pods).is_superset(&others), "those that were moved before stay as they are");
        moved.push(asset);
        for asset in &moved {
            let now = story.look(&asset.claim).await?;
            ensure!(now.directory == asset.directory, "{now:?} is not {asset:?}");
            story.is_kept(asset).await?;
        }
    }

    // "Clean up the source safely": whatever should be left of it stays.
    story.namespace = "shared";
    story.api::<StatefulSet>().delete(APP, &DeleteParams::orphan()).await?;
    story.interrupt().await?;
    story.until_gone::<StatefulSet>(APP).await?;
    story.namespace = "app-team";
    rest(story).await?;
    for asset in &moved {
        story.is_kept(asset).await?;
    }
    History::since(story, &begin).await?.moves_one_at_a_time(APP, 5)?;
    story.ends_with(&[]).await
}

/// What lets a volume survive its claim.
fn kept() -> Value {
    json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
}

/// A claim made by hand for a volume that is free.
async fn bind(story: &mut Story, name: &str, volume: &str, class: &str) -> Result<()> {
    let mut claim = claim(name, class);
    claim["spec"]["volumeName"] = json!(volume);
    story.create::<PersistentVolumeClaim>(claim).await?;
    let is_bound = |claim: &PersistentVolumeClaim| claim_phase(claim) == "Bound";
    story.until(name, is_bound).await.map(drop)
}

/// "Migrating across clusters": the volumes are made known there by hand, and what is on them is carried over.
async fn slices_move_to_another_cluster(story: &mut Story) -> Result<()> {
    const REPLICAS: u32 = 3;
    let mut there = story.another().await?;
    story.create::<StatefulSet>(stateful_set(APP, REPLICAS)).await?;
    there.create::<StatefulSet>(starting(APP, REPLICAS, 0)).await?;
    let assets = filled(story, APP, 0..REPLICAS).await?;
    for (ordinal, asset) in (0..REPLICAS).zip(assets).rev() {
        story.patch::<PersistentVolume>(&asset.volume, kept()).await?;
        story.patch::<StatefulSet>(APP, json!({"spec": {"replicas": ordinal}})).await?;
        until_run(story, APP, 0..ordinal).await?;
        story.delete::<PersistentVolumeClaim>(&asset.claim).await?;
        story.is_retained(&asset).await?;
        story.delete::<PersistentVolume>(&asset.volume).await?;
        story.until_gone::<PersistentVolume>(&asset.volume).await?;

        let directory = there.volume_by_hand(&asset.volume, "Retain").await?;
        fs::rename(&asset.directory, &directory)?;
        bind(&mut there, &asset.claim, &asset.volume, "").await?;
        there.patch::<StatefulSet>(APP, ordinals(ordinal, REPLICAS - ordinal)).await?;
        until_run(&there, APP, ordinal..REPLICAS).await?;
        let here = pods_of(story, APP).await?;
        ensure!(here.iter().all(|pod| pod.name_any() < pod_of(APP, ordinal)), "an ordinal is in two places");
        there.is_kept(&Asset { directory, ..asset }).await?;
    }
    story.delete::<StatefulSet>(APP).await?;
    story.until_gone::<StatefulSet>(APP).await?;
    story.ends_with(&[]).await?;
    there.ends_with(&[]).await
}

async fn sets_start_anywhere(story: &mut Story) -> Result<()> {
    const STARTS: [(&str, Option<u32>, u32); 6] = [
        ("none", None, 3),
        ("zero", Some(0), 2),
        ("one", Some(1), 3),
        ("four", Some(4), 3),
        ("two-digits", Some(9), 3),
        ("last", Some(i32::MAX as u32 - 2), 2),
    ];
    let make = async |story: &mut Story| {
        for (name, start, replicas) in STARTS {
            let mut set = stateful_set(name, replicas);
            set["spec"]["ordinals"] = start.map_or(json!(null), |start| json!({"start": start}));
            story.create::<StatefulSet>(set).await?;
        }
        Ok(())
    };
    story.at_once(make).await?;
    for (name, start, replicas) in STARTS {
        let start = start.unwrap_or(0);
        until_run(story, name, start..start + replicas).await?;
        for ordinal in start..start + replicas {
            let pod: Pod = story.get(&pod_of(name, ordinal)).await?;
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
    story.ends_with(&[]).await
}

/// New ordinals come up one after the other before others go, and those go from the highest down, wherever they are. What is in
/// both ranges stays as it is, and what comes back finds its data.
async fn sets_are_scaled_and_moved(story: &mut Story) -> Result<()> {
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
    let begin = History::begin(story).await?;
    let mut parallel = starting("parallel", 7, 0);
    parallel["spec"]["podManagementPolicy"] = json!("Parallel");
    story.create::<StatefulSet>(parallel).await?;
    story.create::<StatefulSet>(starting("ordered", 7, 0)).await?;
    let mut assets = BTreeMap::new();
    for (start, replicas, _) in STEPS {
        for set in ["parallel", "ordered"] {
            story.patch::<StatefulSet>(set, ordinals(start, replicas)).await?;
        }
        let start = start.unwrap_or(0);
        for set in ["parallel", "ordered"] {
            until_run(story, set, start..start + replicas).await?;
            for claim in (start..start + replicas).map(|ordinal| claim_of(set, ordinal)) {
                match assets.get(&claim) {
                    None => drop(assets.insert(claim.clone(), story.asset(&claim).await?)),
                    Some(asset) => {
                        let now = story.look(&claim).await?;
                        ensure!(now.volume == asset.volume, "{now:?} is not {asset:?}");
                        story.is_kept(asset).await?;
                    }
                }
            }
        }
        ensure!(assets.values().all(Asset::has_data), "data are lost");
    }
    let order = History::since(story, &begin).await?.order("ordered");
    let want = STEPS.map(|(_, _, order)| order).join(" ");
    ensure!(order == want, "{order}\nand not\n{want}");
    story.ends_with(&[]).await
}

async fn partitions_count_from_the_start(story: &mut Story) -> Result<()> {
    let images = async |story: &Story| -> Result<String> {
        let pods = pods_of(story, APP).await?;
        let image = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.containers.first()?.image.clone());
        let told = pods.iter().map(|pod| format!("{} {}", pod.name_any(), image(pod).unwrap_or_default()));
        Ok(told.collect::<Vec<_>>().join(", "))
    };
    let update = |partition: u32, tag: &str| {
        let mut change = image(tag);
        change["spec"]["updateStrategy"] =
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
        change
    };
    story.create::<StatefulSet>(starting(APP, 5, 3)).await?;
    until_run(story, APP, 5..8).await?;
    for (change, ordinals, want) in [
        // As the design has it, 6 were the first ordinal to be updated, and 3 would be none.
        (update(3, "img:2"), 5..8, "my-app-5 img:1, my-app-6 img:1, my-app-7 img:1"),
        (update(1, "img:2"), 5..8, "my-app-5 img:1, my-app-6 img:2, my-app-7 img:2"),
        (ordinals(4, 3), 4..7, "my-app-4 img:1, my-app-5 img:2, my-app-6 img:2"),
        (update(0, "img:2"), 4..7, "my-app-4 img:2, my-app-5 img:2, my-app-6 img:2"),
    ] {
        story.patch::<StatefulSet>(APP, change).await?;
        until(want, async || images(story).await, |found| found == want).await?;
        until_run(story, APP, ordinals).await?;
        rest(story).await?;
        let found = images(story).await?;
        ensure!(found == want, "{found}, and not {want}");
    }
    story.ends_with(&[]).await
}

async fn claims_come_and_go_with_ordinals(story: &mut Story) -> Result<()> {
    let mut sets = Sets::make(story, 2, |set| set["spec"]["ordinals"] = json!({"start": 1})).await?;
    sets.until_filled(story, 1..3).await?;
    sets.until_owned(story, 1, false).await?;
    // What is below the range goes as what is above it.
    sets.patch(story, |_| ordinals(2, 2)).await?;
    sets.until_run(story, 2..4).await?;
    sets.go(story, &[SCALED, NONE]).await?;
    sets.patch(story, |_| ordinals(1, 2)).await?;
    sets.until_run(story, 1..3).await?;
    sets.are_new(story, &[SCALED, NONE]).await?;
    sets.until_owned(story, 1, false).await?;
    for set in &sets.0 {
        match SCALED(set.policy) {
            true => story.until_gone::<PersistentVolumeClaim>(&set.claim(3)).await?,
            false => until_owned(story, &set.claim(3), &set.owner(3, true)).await.map(drop)?,
        }
    }
    sets.delete(story, &DeleteParams::default()).await?;
    sets.until_gone(story).await?;
    sets.go(story, &[DELETED, DELETED]).await?;
    story.ends_with(&[]).await
}

/// "Versions not implementing this will attempt to re-create all replicas from 0, and terminate any pods of ordinal N or greater";
/// "if reenabled, the set will scale pods to start from this ordinal". Their claims go, or wait for them, as the policy says.
async fn gate_turned_off_and_on(story: &mut Story) -> Result<()> {
    let begin = History::begin(story).await?;
    let mut sets = Sets::make(story, 2, |set| set["spec"]["ordinals"] = json!({"start": 2})).await?;
    sets.until_filled(story, 2..4).await?;
    story.set_gate(GATE, false).await?;
    sets.until_run(story, 0..2).await?;
    for set in &sets.0 {
        let spec = story.get::<StatefulSet>(set.name).await?.spec.unwrap_or_default();
        ensure!(spec.ordinals.and_then(|ordinals| ordinals.start) == Some(2), "the spec is preserved");
    }
    sets.go(story, &[SCALED, SCALED]).await?;
    story.set_gate(GATE, true).await?;
    sets.until_run(story, 2..4).await?;
    sets.are_new(story, &[SCALED, SCALED]).await?;
    let history = History::since(story, &begin).await?;
    for set in &sets.0 {
        let order = history.order(set.name);
        ensure!(order == "+2 +3 +0 +1 -3 -2 +2 +3 -1 -0", "{order}");
    }
    story.ends_with(&[]).await
}

/// "Pods can be orphaned to prevent the set from deleting them until the operator has a chance to react."
async fn pods_are_orphaned_before_the_gate_is_turned_off(story: &mut Story) -> Result<()> {
    let from_two = |set: &mut Value| set["spec"]["ordinals"] = json!({"start": 2});
    let mut sets = Sets::make(story, 2, from_two).await?;
    sets.until_filled(story, 2..4).await?;
    let old = sets.uids(story, 2..4).await?;
    sets.delete(story, &DeleteParams::orphan()).await?;
    sets.until_gone(story).await?;
    story.set_gate(GATE, false).await?;
    sets.go(story, &[NONE, NONE]).await?;
    story.set_gate(GATE, true).await?;
    sets.make_again(story, 2, from_two).await?;
    sets.until_run(story, 2..4).await?;
    sets.until_owned(story, 3, false).await?;
    ensure!(sets.uids(story, 2..4).await? == old, "they are the same pods");
    sets.are_new(story, &[NONE, NONE]).await?;
    story.ends_with(&[]).await
}
