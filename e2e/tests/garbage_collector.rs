//! The garbage collector from outside: random graphs of owners and dependents, and crashes during
//! cascades.
//!
//! `CHURN_SECONDS=600 cargo test -p coracle-e2e --test garbage_collector` runs for ten minutes
//! instead of a few seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use coracle_e2e::random::Rng;
use coracle_e2e::wait::until;
use coracle_e2e::{Cluster, cluster};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Client, ResourceExt};
use serde_json::json;
use tempfile::TempDir;

fn reference(owner: &ConfigMap, blocks: bool) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: owner.name_any(),
        uid: owner.uid().unwrap_or_default(),
        block_owner_deletion: Some(blocks),
        controller: None,
    }
}

async fn create(api: &Api<ConfigMap>, name: &str, owners: Vec<OwnerReference>) -> kube::Result<ConfigMap> {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.owner_references = Some(owners);
    api.create(&PostParams::default(), &object).await
}

fn deletion(policy: PropagationPolicy) -> DeleteParams {
    DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() }
}

/// The changes of an object.
#[derive(Default)]
struct History {
    deleted: bool,
    /// All sets of owners that it ever had, by uid.
    owners: Vec<BTreeSet<String>>,
}

/// A graph of owners and dependents that grows, changes and shrinks.
struct OwnerGraph {
    api: Api<ConfigMap>,
    rng: Rng,
    /// Whether the graph may have cycles. With cycles no deletion is in the foreground. If two
    /// objects of a cycle are both deleted in the foreground, they wait for each other forever, as
    /// in a real cluster.
    circles: bool,
    members: Vec<ConfigMap>,
    histories: BTreeMap<String, History>,
}

impl OwnerGraph {
    fn random_member(&mut self) -> Option<ConfigMap> {
        let index = self.rng.below(self.members.len());
        self.members.get(index).cloned()
    }

    /// Chooses random owners for a member, or for a new one.
    fn owners(&mut self, member: Option<&ConfigMap>) -> Vec<OwnerReference> {
        let older = member
            .filter(|_| !self.circles)
            .and_then(|m| self.members.iter().position(|o| o.uid() == m.uid()));
        let bound = older.unwrap_or(self.members.len());
        let count = self.rng.below(3);
        let indices: Vec<usize> = (0..count).map(|_| self.rng.below(bound)).collect();
        let owners: Vec<ConfigMap> =
            indices.into_iter().filter_map(|index| self.members[..bound].get(index).cloned()).collect();
        let mut references: Vec<OwnerReference> = Vec::new();
        for owner in &owners {
            let blocks = self.rng.one_in(2);
            if references.iter().all(|reference| Some(&reference.uid) != owner.metadata.uid.as_ref()) {
                references.push(reference(owner, blocks));
            }
        }
        references
    }

    fn record(&mut self, uid: &str, owners: &[OwnerReference]) {
        let owners = owners.iter().map(|owner| owner.uid.clone()).collect();
        self.histories.entry(uid.to_owned()).or_default().owners.push(owners);
    }

    /// Runs one random operation. An operation on an object that was just collected may fail.
    async fn operate(&mut self, number: usize) -> Result<()> {
        match self.rng.below(10) {
            0..=4 => {
                let owners = self.owners(None);
                let object = create(&self.api, &format!("m{number}"), owners.clone()).await?;
                let uid = object.uid().context("no uid")?;
                self.record(&uid, &owners);
                self.members.push(object);
            }
            5..=6 => {
                let Some(member) = self.random_member() else { return Ok(()) };
                let owners = self.owners(Some(&member));
                let uid = member.uid().context("no uid")?;
                // Recorded before the operation, since a cascade may follow immediately.
                self.record(&uid, &owners);
                let patch = json!({"metadata": {"uid": uid, "ownerReferences": owners}});
                let (options, patch) = (PatchParams::default(), Patch::Merge(patch));
                ignore_codes(&[404, 409, 422], self.api.patch(&member.name_any(), &options, &patch).await)?;
            }
            _ => {
                let Some(member) = self.random_member() else { return Ok(()) };
                let policy = match self.rng.below(3) {
                    0 => PropagationPolicy::Orphan,
                    1 if !self.circles => PropagationPolicy::Foreground,
                    _ => PropagationPolicy::Background,
                };
                let uid = member.uid().context("no uid")?;
                self.histories.entry(uid.clone()).or_default().deleted = true;
                ignore_codes(&[404, 409], self.api.delete(&member.name_any(), &deletion(policy)).await)?;
                self.members.retain(|other| other.uid().as_ref() != Some(&uid));
            }
        }
        Ok(())
    }

    /// Returns the objects that must exist: not deleted, and never with owners that may all be
    /// collected.
    fn expected_survivors(&self) -> BTreeSet<&str> {
        let mut collectable: BTreeSet<&str> = BTreeSet::new();
        loop {
            let more: Vec<&str> = self
                .histories
                .iter()
                .filter(|(uid, history)| {
                    !collectable.contains(uid.as_str()) && history.may_be_collected(&collectable)
                })
                .map(|(uid, _)| uid.as_str())
                .collect();
            if more.is_empty() {
                break;
            }
            collectable.extend(more);
        }
        self.histories.keys().map(String::as_str).filter(|uid| !collectable.contains(uid)).collect()
    }

    /// Waits until no object is terminating or has only missing owners; then all expected objects
    /// must exist.
    async fn check(&self) -> Result<()> {
        let unsettled = |objects: &Vec<ConfigMap>| -> Vec<String> {
            let uids: BTreeSet<String> = objects.iter().filter_map(ResourceExt::uid).collect();
            let is_unsettled = |object: &&ConfigMap| {
                let owners = object.owner_references();
                let is_orphan = !owners.is_empty() && owners.iter().all(|owner| !uids.contains(&owner.uid));
                object.metadata.deletion_timestamp.is_some() || is_orphan
            };
            objects.iter().filter(is_unsettled).map(ResourceExt::name_any).collect()
        };
        let list = async || Ok(self.api.list(&ListParams::default()).await?.items);
        let objects =
            until("everything that should die is gone", list, |objects| unsettled(objects).is_empty())
                .await?;
        let living: BTreeSet<String> = objects.iter().filter_map(ResourceExt::uid).collect();
        let lost: Vec<&str> =
            self.expected_survivors().into_iter().filter(|uid| !living.contains(*uid)).collect();
        ensure!(lost.is_empty(), "died without a reason: {lost:?}");
        Ok(())
    }
}

impl History {
    fn may_be_collected(&self, collectable: &BTreeSet<&str>) -> bool {
        let gone = |owners: &BTreeSet<String>| {
            !owners.is_empty() && owners.iter().all(|owner| collectable.contains(owner.as_str()))
        };
        self.deleted || self.owners.iter().any(gone)
    }
}

fn ignore_codes<T>(codes: &[u16], response: kube::Result<T>) -> kube::Result<()> {
    match response {
        Err(kube::Error::Api(status)) if codes.contains(&status.code) => Ok(()),
        response => response.map(|_| ()),
    }
}

async fn owner_graph(client: &Client, name: &str, seed: u64, circles: bool) -> Result<OwnerGraph> {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok(OwnerGraph {
        api: Api::namespaced(client.clone(), name),
        rng: Rng(seed),
        circles,
        members: Vec::new(),
        histories: BTreeMap::new(),
    })
}

/// Checks that exactly the objects without a remaining owner are collected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_owner_graphs_are_collected() -> Result<()> {
    const GRAPHS: u64 = 4;
    const OPERATIONS: usize = 300;
    let seconds = std::env::var("CHURN_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let cluster = cluster().start().await?;
    let client = cluster.client().await?;
    let began = Instant::now();
    let mut round = 0;
    while round == 0 || began.elapsed() < Duration::from_secs(seconds) {
        let families = (0..GRAPHS).map(async |number| {
            let seed = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(round * GRAPHS + number + 1);
            let mut owner_graph =
                owner_graph(&client, &format!("graph-{round}-{number}"), seed, number % 2 == 0).await?;
            for operate in 0..OPERATIONS {
                owner_graph.operate(operate).await?;
            }
            owner_graph.check().await.with_context(|| format!("round {round}, seed {seed}"))
        });
        try_join_all(families).await?;
        round += 1;
    }
    println!("{} operations in {:?}", round * GRAPHS * OPERATIONS as u64, began.elapsed());
    Ok(())
}

async fn start(data: &Path) -> Result<(Cluster, Api<ConfigMap>)> {
    let cluster = cluster().data_dir(data).flag("--durability", "sync").start().await?;
    let api = Api::namespaced(cluster.client().await?, "default");
    Ok((cluster, api))
}

/// Checks that a cascade completes even if the control plane is killed repeatedly meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cascade_continues_after_crashes() -> Result<()> {
    const ROUNDS: usize = 20;
    const CHILDREN: usize = 60;
    let data = TempDir::new()?;
    for round in 0..ROUNDS {
        let (cluster, api) = start(data.path()).await?;
        let owner = create(&api, &format!("owner-{round}"), Vec::new()).await?;
        // Every third child has a child.
        try_join_all((0..CHILDREN).map(async |number| {
            let name = format!("child-{round}-{number}");
            let child = create(&api, &name, vec![reference(&owner, true)]).await?;
            if number % 3 == 0 {
                create(&api, &format!("grand{name}"), vec![reference(&child, true)]).await?;
            }
            anyhow::Ok(())
        }))
        .await?;
        let policy =
            if round % 2 == 0 { PropagationPolicy::Background } else { PropagationPolicy::Foreground };
        api.delete(&owner.name_any(), &deletion(policy)).await?;
        let ours = async |api: &Api<ConfigMap>| {
            let all = api.list(&ListParams::default()).await?.items;
            anyhow::Ok(all.iter().filter(|object| object.name_any().contains(&format!("-{round}"))).count())
        };
        // A different part of the cascade is left in each round.
        let left = CHILDREN * 4 / 3 * (ROUNDS - round) / ROUNDS;
        until("the cascade goes on", async || ours(&api).await, |count| *count <= left).await?;
        cluster.kill().await?;
        let (cluster, api) = start(data.path()).await?;
        until("the cascade ends", async || ours(&api).await, |count| *count == 0).await?;
        cluster.stop().await?;
    }
    Ok(())
}
