//! Scenarios of StatefulSets, built on those of [volumes](crate::volumes): sets of each retention
//! policy side by side, with data on the volumes of their pods. A step is applied to all sets
//! before the server is interrupted.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::pin::pin;

use anyhow::{Context, Result, bail, ensure};
use futures::TryStreamExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::volumes::{BoundClaim, Kind, Scenario, claim, is_terminating, scripted};
use crate::wait::{DEADLINE, until};

/// The finalizer by which a scenario blocks the deletion of an object.
pub const HOLD_FINALIZER: &str = "scenario.example/hold";

/// `persistentVolumeClaimRetentionPolicy`, by the names of the first version of KEP-1847.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionPolicy {
    /// Claims are kept; the default.
    Retain,
    /// `whenDeleted: Delete`.
    DeleteOnStatefulSetDeletionOnly,
    /// `whenScaled: Delete`.
    DeleteOnScaledownOnly,
    /// Both are `Delete`.
    DeleteOnScaledownAndStatefulSetDeletion,
}

impl RetentionPolicy {
    /// All policies.
    pub const ALL: [RetentionPolicy; 4] = [
        RetentionPolicy::Retain,
        RetentionPolicy::DeleteOnStatefulSetDeletionOnly,
        RetentionPolicy::DeleteOnScaledownOnly,
        RetentionPolicy::DeleteOnScaledownAndStatefulSetDeletion,
    ];

    /// Returns the name of the set with this policy in scenarios with all policies.
    pub fn set(self) -> &'static str {
        match self {
            RetentionPolicy::Retain => "retain",
            RetentionPolicy::DeleteOnStatefulSetDeletionOnly => "on-deletion",
            RetentionPolicy::DeleteOnScaledownOnly => "on-scaledown",
            RetentionPolicy::DeleteOnScaledownAndStatefulSetDeletion => "on-both",
        }
    }

    /// Returns `true` if claims are deleted with the set.
    pub fn deletes_when_deleted(self) -> bool {
        matches!(
            self,
            RetentionPolicy::DeleteOnStatefulSetDeletionOnly
                | RetentionPolicy::DeleteOnScaledownAndStatefulSetDeletion
        )
    }

    /// Returns `true` if claims are deleted with the pods that a scale-down removes.
    pub fn deletes_when_scaled(self) -> bool {
        matches!(
            self,
            RetentionPolicy::DeleteOnScaledownOnly | RetentionPolicy::DeleteOnScaledownAndStatefulSetDeletion
        )
    }

    /// Returns the value of the field in the API.
    pub fn field(self) -> Value {
        let word = |deletes| if deletes { "Delete" } else { "Retain" };
        json!({"whenDeleted": word(self.deletes_when_deleted()), "whenScaled": word(self.deletes_when_scaled())})
    }
}

/// A condition on the policy: claims are deleted, volumes are empty, ...
pub type PolicyPredicate = fn(RetentionPolicy) -> bool;

/// Every policy.
pub const ALL: PolicyPredicate = |_| true;
/// No policy.
pub const NONE: PolicyPredicate = |_| false;
/// The policies with `whenDeleted: Delete`.
pub const WHEN_DELETED: PolicyPredicate = RetentionPolicy::deletes_when_deleted;
/// The policies with `whenScaled: Delete`.
pub const WHEN_SCALED: PolicyPredicate = RetentionPolicy::deletes_when_scaled;
/// The policies with any `Delete`.
pub const EITHER: PolicyPredicate = |policy| policy != RetentionPolicy::Retain;

/// Builds a set with a claim for each pod, `data`, of the class `delete`.
pub fn stateful_set(name: &str, replicas: u32) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "serviceName": name,
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "img:1"}]},
        },
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim("", "delete")["spec"]}],
    }})
}

/// Builds a patch of the template's image.
pub fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

/// Returns the name of a set's pod.
pub fn pod_of(set: &str, ordinal: u32) -> String {
    format!("{set}-{ordinal}")
}

/// Returns the name of the claim of a set's pod.
pub fn claim_of(set: &str, ordinal: u32) -> String {
    format!("data-{set}-{ordinal}")
}

/// The uids of pods.
pub type PodUids = BTreeSet<String>;

/// Returns the uids of these pods.
pub fn uids(pods: &[Pod]) -> PodUids {
    pods.iter().filter_map(ResourceExt::uid).collect()
}

/// Lists the pods of a set, by its label.
pub async fn pods_of(scenario: &Scenario, set: &str) -> Result<Vec<Pod>> {
    let selected = ListParams::default().labels(&format!("app={set}"));
    Ok(scenario.api::<Pod>().list(&selected).await?.items)
}

/// Returns `true` if a pod has the condition Ready and is not terminating.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let is_ready = conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    is_ready && !is_terminating(pod)
}

/// Waits until the set has exactly the pods of these ordinals, all of them ready.
pub async fn until_ready(scenario: &Scenario, set: &str, ordinals: Range<u32>) -> Result<Vec<Pod>> {
    until_replaced(scenario, set, ordinals, &PodUids::new()).await
}

/// Waits as [`until_ready`] does; none of the pods may have one of the old uids.
pub async fn until_replaced(
    scenario: &Scenario,
    set: &str,
    ordinals: Range<u32>,
    old: &PodUids,
) -> Result<Vec<Pod>> {
    let names: BTreeSet<String> = ordinals.map(|ordinal| pod_of(set, ordinal)).collect();
    let are_they = |pods: &Vec<Pod>| {
        pods.iter().map(ResourceExt::name_any).collect::<BTreeSet<_>>() == names
            && pods.iter().all(is_ready)
            && uids(pods).is_disjoint(old)
    };
    until(&format!("{names:?} run"), async || pods_of(scenario, set).await, are_they).await
}

/// Waits until the set's pods are ready, and writes data to the volumes of their claims.
pub async fn until_filled(scenario: &Scenario, set: &str, ordinals: Range<u32>) -> Result<Vec<BoundClaim>> {
    until_ready(scenario, set, ordinals.clone()).await?;
    let mut bound_claims = Vec::new();
    for ordinal in ordinals {
        bound_claims.push(scenario.write_data(&claim_of(set, ordinal)).await?);
    }
    Ok(bound_claims)
}

/// Waits until the status of a set has observed its last change.
pub async fn until_observed(scenario: &Scenario, set: &str) -> Result<()> {
    let is_observed = |set: &StatefulSet| {
        set.status.as_ref().is_some_and(|status| status.observed_generation == set.metadata.generation)
    };
    scenario.until(set, is_observed).await.map(drop)
}

/// Returns the owners of an object in order, as `KIND/NAME`.
pub fn owners(object: &impl Resource) -> Vec<String> {
    let owners = object.meta().owner_references.iter().flatten();
    owners.map(|owner| format!("{}/{}", owner.kind, owner.name)).collect()
}

/// Waits until a claim has exactly these owners.
pub async fn until_owned(scenario: &Scenario, claim: &str, want: &[String]) -> Result<PersistentVolumeClaim> {
    let found = scenario.until(claim, |claim: &PersistentVolumeClaim| owners(claim) == want).await;
    found.with_context(|| format!("{claim} is to be owned by {want:?}"))
}

/// Adds the finalizer that blocks the deletion of an object.
pub async fn add_hold_finalizer<K: Kind>(scenario: &Scenario, name: &str) -> Result<()> {
    let add = async || {
        let object: K = scenario.get(name).await?;
        let finalizers = [object.finalizers(), &[HOLD_FINALIZER.to_owned()]].concat();
        let held =
            json!({"metadata": {"finalizers": finalizers, "resourceVersion": object.resource_version()}});
        match scenario.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(held)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            response => Ok(response.map(|_| true)?),
        }
    };
    until(&format!("{name} is held"), add, |is_held| *is_held).await.map(drop)
}

/// Waits until the blocking finalizer is the only one, and removes it.
pub async fn remove_hold_finalizer<K: Kind>(scenario: &Scenario, name: &str) -> Result<()> {
    scenario.until(name, |object: &K| object.finalizers() == [HOLD_FINALIZER]).await?;
    let free = json!({"metadata": {"finalizers": null}});
    scenario.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(free)).await?;
    Ok(())
}

/// Waits until the controllers have processed everything before: creates another set, waits for its
/// pod, and deletes it with its claim.
pub async fn until_settled(scenario: &Scenario) -> Result<()> {
    const CANARY: &str = "canary";
    let sets = scenario.api::<StatefulSet>();
    sets.create(&PostParams::default(), &serde_json::from_value(stateful_set(CANARY, 1))?).await?;
    until_ready(scenario, CANARY, 0..1).await?;
    let claim = claim_of(CANARY, 0);
    let volume = scenario.get_bound_claim(&claim).await?.volume;
    sets.delete(CANARY, &DeleteParams::default()).await?;
    scenario.until_deleted::<Pod>(&pod_of(CANARY, 0)).await?;
    scenario.api::<PersistentVolumeClaim>().delete(&claim, &DeleteParams::default()).await?;
    scenario.until_deleted::<PersistentVolumeClaim>(&claim).await?;
    scenario.until_deleted::<PersistentVolume>(&volume).await
}

/// The history of all pods: each version of each pod, in order.
pub struct History(Vec<PodChange>);

struct PodChange {
    pod: Pod,
    is_gone: bool,
}

impl PodChange {
    /// Returns the namespace, the set and the ordinal of the pod.
    fn set_and_ordinal(&self) -> Option<(String, String, u32)> {
        let name = self.pod.name_any();
        let (set, ordinal) = name.rsplit_once('-')?;
        Some((self.pod.namespace()?, set.to_owned(), ordinal.parse().ok()?))
    }
}

impl History {
    /// Returns the resourceVersion at which a history starts.
    pub async fn begin(scenario: &Scenario) -> Result<String> {
        let pods = Api::<Pod>::all(scenario.client()).list(&ListParams::default().limit(1)).await?;
        pods.metadata.resource_version.context("no revision")
    }

    /// Returns the history since a resourceVersion, whether or not the server was restarted in
    /// between.
    pub async fn since(scenario: &Scenario, begin: &str) -> Result<History> {
        const END: &str = "the-end";
        let pods = scenario.api::<Pod>();
        let end = serde_json::from_value(scripted(END, &[], &[("ignore", "true")]))?;
        pods.create(&PostParams::default(), &end).await?;
        let mut events =
            pin!(Api::<Pod>::all(scenario.client()).watch(&WatchParams::default(), begin).await?);
        let mut changes = Vec::new();
        let read = async {
            while let Some(event) = events.try_next().await? {
                match event {
                    WatchEvent::Added(pod) if pod.name_any() == END => return Ok(()),
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                        changes.push(PodChange { pod, is_gone: false });
                    }
                    WatchEvent::Deleted(pod) => changes.push(PodChange { pod, is_gone: true }),
                    WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(status) => bail!("{status:?}"),
                }
            }
            bail!("the watch ended")
        };
        timeout(DEADLINE, read).await.context("no end of the history")??;
        pods.delete(END, &DeleteParams::default()).await?;
        Ok(History(changes))
    }

    /// Returns the order in which the pods of a set became ready (`+ORDINAL`) and terminating
    /// (`-ORDINAL`).
    pub fn transitions(&self, set: &str) -> String {
        let mut seen = BTreeSet::new();
        let mut order = Vec::new();
        for change in &self.0 {
            let Some((_, _, ordinal)) = change.set_and_ordinal().filter(|(_, name, _)| name == set) else {
                continue;
            };
            let sign = match (is_ready(&change.pod), change.is_gone || is_terminating(&change.pod)) {
                (_, true) => '-',
                (true, false) => '+',
                (false, false) => continue,
            };
            if seen.insert((change.pod.uid(), sign)) {
                order.push(format!("{sign}{ordinal}"));
            }
        }
        order.join(" ")
    }

    /// Checks that each pod that is not in `before` was created after all pods of lower ordinals,
    /// from `first` on, had been ready since the previous creation, as far as the controller can
    /// have observed.
    pub fn assert_created_in_order(&self, set: &str, first: u32, before: &[Pod]) -> Result<()> {
        let ordinal = |pod: &Pod| pod.name_any().rsplit_once('-')?.1.parse::<u32>().ok();
        let mut known = uids(before);
        let mut ready: BTreeSet<u32> =
            before.iter().filter(|pod| is_ready(pod)).filter_map(ordinal).collect();
        let mut were_ready = ready.clone();
        for change in &self.0 {
            let Some((_, _, ordinal)) = change.set_and_ordinal().filter(|(_, name, _)| name == set) else {
                continue;
            };
            if known.insert(change.pod.uid().unwrap_or_default()) {
                let late = (first..ordinal).find(|lower| !were_ready.contains(lower));
                ensure!(late.is_none(), "{set}-{ordinal} is made before {set}-{late:?} was ready");
                were_ready.clone_from(&ready);
            }
            if is_ready(&change.pod) && !change.is_gone {
                ready.insert(ordinal);
                were_ready.insert(ordinal);
            } else {
                ready.remove(&ordinal);
            }
        }
        Ok(())
    }

    /// Checks that no ordinal of the sets of a name is ever in two namespaces, and that once
    /// `replicas` pods were ready at most one fewer is ready at any time.
    pub fn assert_moved_one_at_a_time(&self, set: &str, replicas: usize) -> Result<()> {
        let mut there = BTreeMap::new();
        let mut were_all = false;
        for change in &self.0 {
            let Some((namespace, _, ordinal)) = change.set_and_ordinal().filter(|(_, name, _)| name == set)
            else {
                continue;
            };
            if change.is_gone {
                there.remove(&ordinal);
                continue;
            }
            let before = there.insert(ordinal, (namespace.clone(), is_ready(&change.pod)));
            ensure!(before.is_none_or(|(where_, _)| where_ == namespace), "{set}-{ordinal} is in two places");
            let ready = there.values().filter(|(_, is_ready)| *is_ready).count();
            were_all |= ready == replicas;
            ensure!(!were_all || ready + 1 >= replicas, "only {ready} are ready: {there:?}");
        }
        ensure!(were_all, "there were never {replicas}");
        Ok(())
    }
}

/// A set, and the claims of its pods, from its first ordinal on.
#[derive(Debug)]
pub struct TestSet {
    /// The name of the set.
    pub name: &'static str,
    /// The set's retention policy.
    pub policy: RetentionPolicy,
    /// The claims with data, as of the last time that they were filled.
    pub bound_claims: Vec<BoundClaim>,
}

impl TestSet {
    /// Returns the name of the pod of an ordinal.
    pub fn pod(&self, ordinal: u32) -> String {
        pod_of(self.name, ordinal)
    }

    /// Returns the name of the claim of an ordinal.
    pub fn claim(&self, ordinal: u32) -> String {
        claim_of(self.name, ordinal)
    }

    /// Returns the expected owner of a pod's claim, by the table of the KEP.
    pub fn expected_owners(&self, ordinal: u32, is_condemned: bool) -> Vec<String> {
        let owner = match self.policy {
            policy if is_condemned && policy.deletes_when_scaled() => {
                Some(format!("Pod/{}", self.pod(ordinal)))
            }
            policy if policy.deletes_when_deleted() => Some(format!("StatefulSet/{}", self.name)),
            _ => None,
        };
        owner.into_iter().collect()
    }
}

/// One set of each policy.
#[derive(Debug)]
pub struct TestSets(pub Vec<TestSet>);

impl TestSets {
    /// Creates the sets; `change` modifies each before.
    pub async fn create(
        scenario: &mut Scenario,
        replicas: u32,
        change: impl Fn(&mut Value),
    ) -> Result<TestSets> {
        let sets = TestSets(
            RetentionPolicy::ALL
                .map(|policy| TestSet { name: policy.set(), policy, bound_claims: Vec::new() })
                .into(),
        );
        sets.recreate(scenario, replicas, change).await?;
        Ok(sets)
    }

    /// Creates the sets again after their deletion; `change` modifies each before.
    pub async fn recreate(
        &self,
        scenario: &mut Scenario,
        replicas: u32,
        change: impl Fn(&mut Value),
    ) -> Result<()> {
        let make = async |scenario: &mut Scenario| {
            for set in &self.0 {
                let mut made = stateful_set(set.name, replicas);
                made["spec"]["persistentVolumeClaimRetentionPolicy"] = set.policy.field();
                change(&mut made);
                scenario.create::<StatefulSet>(made).await?;
            }
            Ok(())
        };
        scenario.uninterrupted(make).await
    }

    /// Creates the sets, waits for their pods, and writes data to their volumes.
    pub async fn running(scenario: &mut Scenario, replicas: u32) -> Result<TestSets> {
        let mut sets = TestSets::create(scenario, replicas, |_| {}).await?;
        sets.until_filled(scenario, 0..replicas).await?;
        Ok(sets)
    }

    /// Waits until the pods are ready, and writes data to their volumes.
    pub async fn until_filled(&mut self, scenario: &Scenario, ordinals: Range<u32>) -> Result<()> {
        for set in &mut self.0 {
            set.bound_claims = until_filled(scenario, set.name, ordinals.clone()).await?;
        }
        Ok(())
    }

    /// Waits until the sets have exactly the pods of these ordinals, all of them ready.
    pub async fn until_ready(&self, scenario: &Scenario, ordinals: Range<u32>) -> Result<()> {
        self.until_replaced(scenario, ordinals, &PodUids::new()).await
    }

    /// Waits as [`TestSets::until_ready`] does; none of the pods may have one of the old uids.
    pub async fn until_replaced(
        &self,
        scenario: &Scenario,
        ordinals: Range<u32>,
        old: &PodUids,
    ) -> Result<()> {
        for set in &self.0 {
            until_replaced(scenario, set.name, ordinals.clone(), old).await?;
        }
        Ok(())
    }

    /// Returns the uids of the pods of these ordinals.
    pub async fn uids(&self, scenario: &Scenario, ordinals: Range<u32>) -> Result<PodUids> {
        let mut all = PodUids::new();
        for set in &self.0 {
            for ordinal in ordinals.clone() {
                all.extend(scenario.get::<Pod>(&set.pod(ordinal)).await?.uid());
            }
        }
        Ok(all)
    }

    /// Waits until the status of each set has observed its last change.
    pub async fn until_observed(&self, scenario: &Scenario) -> Result<()> {
        for set in &self.0 {
            until_observed(scenario, set.name).await?;
        }
        Ok(())
    }

    /// Patches each set, as one step.
    pub async fn patch(&self, scenario: &mut Scenario, patch: impl Fn(&TestSet) -> Value) -> Result<()> {
        let change = async |scenario: &mut Scenario| {
            for set in &self.0 {
                scenario.patch::<StatefulSet>(set.name, patch(set)).await?;
            }
            Ok(())
        };
        scenario.uninterrupted(change).await
    }

    /// Scales all sets, as one step.
    pub async fn scale(&self, scenario: &mut Scenario, replicas: u32) -> Result<()> {
        self.patch(scenario, |_| json!({"spec": {"replicas": replicas}})).await
    }

    /// Deletes all sets, as one step.
    pub async fn delete(&self, scenario: &mut Scenario, options: &DeleteParams) -> Result<()> {
        for set in &self.0 {
            scenario.api::<StatefulSet>().delete(set.name, options).await?;
        }
        scenario.interrupt().await
    }

    /// Waits until the sets are deleted; their pods may remain.
    pub async fn until_deleted(&self, scenario: &Scenario) -> Result<()> {
        for set in &self.0 {
            scenario.until_deleted::<StatefulSet>(set.name).await?;
        }
        Ok(())
    }

    /// Deletes the pods of these ordinals, as one step.
    pub async fn delete_pods(&self, scenario: &mut Scenario, ordinals: Range<u32>) -> Result<()> {
        let delete = async |scenario: &mut Scenario| {
            for set in &self.0 {
                for ordinal in ordinals.clone() {
                    scenario.delete::<Pod>(&set.pod(ordinal)).await?;
                }
            }
            Ok(())
        };
        scenario.uninterrupted(delete).await
    }

    /// Blocks the deletion of the pods of an ordinal.
    pub async fn add_hold_finalizer(&self, scenario: &Scenario, ordinal: u32) -> Result<()> {
        for set in &self.0 {
            add_hold_finalizer::<Pod>(scenario, &set.pod(ordinal)).await?;
        }
        Ok(())
    }

    /// Waits until the pods of an ordinal are terminating, and lets their deletion proceed.
    pub async fn remove_hold_finalizer(&self, scenario: &mut Scenario, ordinal: u32) -> Result<()> {
        for set in &self.0 {
            scenario.until(&set.pod(ordinal), |pod: &Pod| is_terminating(pod)).await?;
            remove_hold_finalizer::<Pod>(scenario, &set.pod(ordinal)).await?;
        }
        scenario.interrupt().await
    }

    /// Waits until the claims of an ordinal have their expected owners.
    pub async fn until_owned(&self, scenario: &Scenario, ordinal: u32, is_condemned: bool) -> Result<()> {
        for set in &self.0 {
            until_owned(scenario, &set.claim(ordinal), &set.expected_owners(ordinal, is_condemned)).await?;
        }
        Ok(())
    }

    /// Checks which claims are deleted with their volumes and which are kept with their data; one
    /// condition for each claim of a set.
    pub async fn assert_claims_deleted(
        &self,
        scenario: &Scenario,
        deleted: &[PolicyPredicate],
    ) -> Result<()> {
        for set in &self.0 {
            for (deleted, bound_claim) in deleted.iter().zip(&set.bound_claims) {
                if deleted(set.policy) {
                    scenario
                        .until_bound_claim_deleted(bound_claim)
                        .await
                        .with_context(|| format!("{:?}", set.policy))?;
                }
            }
        }
        until_settled(scenario).await?;
        for set in &self.0 {
            ensure!(deleted.len() == set.bound_claims.len(), "{:?}", set.bound_claims);
            for (deleted, bound_claim) in deleted.iter().zip(&set.bound_claims) {
                if !deleted(set.policy) {
                    scenario.assert_kept(bound_claim).await.with_context(|| format!("{:?}", set.policy))?;
                }
            }
        }
        Ok(())
    }

    /// Checks which claims of recreated pods are new, with empty volumes, and which are the old
    /// ones with their data.
    pub async fn assert_claims_recreated(
        &mut self,
        scenario: &Scenario,
        are_new: &[PolicyPredicate],
    ) -> Result<()> {
        for set in &mut self.0 {
            for (bound_claim, is_new) in set.bound_claims.iter_mut().zip(are_new) {
                let now = scenario.get_bound_claim(&bound_claim.claim).await?;
                if is_new(set.policy) {
                    ensure!(now.volume != bound_claim.volume, "{:?}: the same {bound_claim:?}", set.policy);
                    ensure!(now.directory.is_dir() && !now.has_data(), "{:?}: not empty", set.policy);
                    now.write()?;
                    *bound_claim = now;
                } else {
                    ensure!(
                        now.volume == bound_claim.volume,
                        "{:?}: {now:?}, no longer {bound_claim:?}",
                        set.policy
                    );
                    scenario.assert_kept(bound_claim).await?;
                }
            }
        }
        Ok(())
    }
}
