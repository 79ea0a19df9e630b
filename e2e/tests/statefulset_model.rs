//! A random search for violations of a StatefulSet's guarantees: users scale it, move its range,
//! update it, change its policies and disturb its pods and claims at random, in bursts, and the
//! server is ended at random in between. After each burst, once the set is stable:
//! - its pods are those of the range, ready, and of the revisions that the partition demands;
//! - they were created and deleted in order, if the pod management is ordered;
//! - each claim exists exactly if the policy keeps it, and the data on the volumes are as old as
//!   their claims.
//!
//! Finally the set is deleted, and only the directories of the remaining claims exist.
//! `HUNT_SECONDS=600 cargo test -p coracle-e2e --test statefulset_model` runs for ten minutes; a
//! failure names its seed, and `HUNT_SEED=N` starts with it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use coracle_e2e::cluster::Termination;
use coracle_e2e::random::{self, Rng};
use coracle_e2e::statefulsets::{
    History, claim_of, image, is_ready, owners, pod_of, pods_of, stateful_set, until_settled,
};
use coracle_e2e::volumes::{BoundClaim, Driver, Kind, Scenario, is_terminating, run_scenario};
use coracle_e2e::wait::until;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

const SET: &str = "web";
const ROUNDS: usize = 12;

#[tokio::test]
async fn ordered() -> Result<()> {
    run_seeds("OrderedReady").await
}

#[tokio::test]
async fn parallel() -> Result<()> {
    run_seeds("Parallel").await
}

async fn run_seeds(management: &'static str) -> Result<()> {
    let run = async |rng, end| {
        let run = async |scenario: &mut Scenario| RandomRun::new(management, rng).run(scenario, end).await;
        run_scenario(Driver::Csi, None, run).await
    };
    random::run_seeds(management, run).await
}

/// The desired state of the set.
#[derive(Clone, Debug)]
struct DesiredSet {
    start: u32,
    replicas: u32,
    image: usize,
    /// None: the update strategy OnDelete.
    partition: Option<u32>,
    deletes_when_deleted: bool,
    deletes_when_scaled: bool,
}

impl DesiredSet {
    fn range(&self) -> Range<u32> {
        self.start..self.start + self.replicas
    }

    fn spec(&self) -> Value {
        let word = |deletes: bool| if deletes { "Delete" } else { "Retain" };
        let strategy = match self.partition {
            Some(partition) => json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}),
            None => json!({"type": "OnDelete", "rollingUpdate": null}),
        };
        let mut spec = image(&self.image.to_string())["spec"].take();
        spec["replicas"] = json!(self.replicas);
        spec["ordinals"] = json!({"start": self.start});
        spec["updateStrategy"] = strategy;
        spec["persistentVolumeClaimRetentionPolicy"] = json!({
            "whenDeleted": word(self.deletes_when_deleted), "whenScaled": word(self.deletes_when_scaled),
        });
        spec
    }
}

struct RandomRun {
    management: &'static str,
    rng: Rng,
    wanted: DesiredSet,
    /// All operations, for the report of a failure.
    log: Vec<String>,
    /// The claims that existed when the set was stable last, by their uids.
    bound_claims: BTreeMap<String, BoundClaim>,
    /// Claims that users deleted, by their uids.
    deleted: BTreeSet<String>,
    /// The revisions of the pods below the partition at that time, by ordinal.
    pinned_revisions: BTreeMap<u32, String>,
}

/// The changes of one burst that the checks depend on.
struct Burst {
    /// The desired state before each change, and the last one.
    wanted: Vec<DesiredSet>,
    /// Whether pods were disturbed.
    disturbs_pods: bool,
}

impl RandomRun {
    fn new(management: &'static str, mut rng: Rng) -> RandomRun {
        let wanted = DesiredSet {
            start: 0,
            replicas: 1 + u32::try_from(rng.below(3)).unwrap_or_default(),
            image: 0,
            partition: Some(0),
            deletes_when_deleted: rng.one_in(2),
            deletes_when_scaled: rng.one_in(2),
        };
        RandomRun {
            management,
            rng,
            wanted,
            log: Vec::new(),
            bound_claims: BTreeMap::new(),
            deleted: BTreeSet::new(),
            pinned_revisions: BTreeMap::new(),
        }
    }

    async fn run(mut self, scenario: &mut Scenario, end: Instant) -> Result<()> {
        let outcome = self.run_rounds(scenario, end).await;
        outcome.with_context(|| format!("after\n  {}", self.log.join("\n  ")))
    }

    async fn run_rounds(&mut self, scenario: &mut Scenario, end: Instant) -> Result<()> {
        let mut set = stateful_set(SET, self.wanted.replicas);
        set["spec"]["podManagementPolicy"] = json!(self.management);
        scenario.create::<StatefulSet>(set).await?;
        scenario.patch::<StatefulSet>(SET, json!({"spec": self.wanted.spec()})).await?;
        self.until_stable(scenario).await?;
        self.assert_data_kept(scenario).await?;
        for round in 0..ROUNDS {
            if round > 1 && Instant::now() > end {
                break;
            }
            self.round(scenario).await?;
        }
        self.finish(scenario).await
    }

    /// Runs a burst of operations, and the checks after it.
    async fn round(&mut self, scenario: &mut Scenario) -> Result<()> {
        let (begin, before) = (History::begin(scenario).await?, pods_of(scenario, SET).await?);
        let mut burst = Burst { wanted: vec![self.wanted.clone()], disturbs_pods: false };
        for _ in 0..1 + self.rng.below(5) {
            self.act(scenario, &mut burst).await?;
        }
        burst.disturbs_pods |= self.until_stable(scenario).await?;
        self.log.push("rest".to_owned());
        let history = History::since(scenario, &begin).await?;
        let are_starts_equal = burst.wanted.iter().all(|wanted| wanted.start == self.wanted.start);
        if self.management == "OrderedReady" && are_starts_equal {
            history.assert_created_in_order(SET, self.wanted.start, &before)?;
        }
        self.assert_scaled_in_order(&history, &burst)?;
        self.assert_claims_retained_or_deleted(scenario, &burst).await?;
        self.assert_data_kept(scenario).await?;
        self.assert_partition_respected(scenario, &burst).await
    }

    async fn act(&mut self, scenario: &mut Scenario, burst: &mut Burst) -> Result<()> {
        let act = match self.rng.below(20) {
            act @ 0..=10 => {
                let number = |rng: &mut Rng, below| u32::try_from(rng.below(below)).unwrap_or_default();
                let rng = &mut self.rng;
                match act {
                    0..=3 => self.wanted.replicas = number(rng, 5),
                    4 => self.wanted.start = number(rng, 4),
                    5 | 6 => self.wanted.image = rng.below(3),
                    7 => self.wanted.partition = (!rng.one_in(4)).then(|| number(rng, 4)),
                    8 | 9 => self.wanted.deletes_when_scaled ^= true,
                    _ => self.wanted.deletes_when_deleted ^= true,
                }
                scenario.patch::<StatefulSet>(SET, json!({"spec": self.wanted.spec()})).await?;
                burst.wanted.push(self.wanted.clone());
                format!("{:?}", self.wanted)
            }
            11 | 12 => {
                let Some(pod) = self.any::<Pod>(scenario).await? else { return Ok(()) };
                let now = if self.rng.one_in(3) { Some(0) } else { None };
                let params = DeleteParams { grace_period_seconds: now, ..DeleteParams::default() };
                ignore_not_found(scenario.api::<Pod>().delete(&pod, &params).await.map(drop))?;
                burst.disturbs_pods = true;
                format!("deleted {pod}, {now:?}")
            }
            13 => {
                let Some(pod) = self.any::<Pod>(scenario).await? else { return Ok(()) };
                let mut status = ready("False");
                if self.rng.one_in(2) {
                    status["phase"] = json!("Failed");
                }
                set_status(scenario, &pod, &status).await?;
                burst.disturbs_pods = true;
                format!("{pod}: {status}")
            }
            14 => {
                let Some(claim) = self.any::<PersistentVolumeClaim>(scenario).await? else { return Ok(()) };
                let there = scenario.api::<PersistentVolumeClaim>().get_opt(&claim).await?;
                self.deleted.extend(there.and_then(|claim| claim.uid()));
                let params = DeleteParams::default();
                ignore_not_found(
                    scenario.api::<PersistentVolumeClaim>().delete(&claim, &params).await.map(drop),
                )?;
                format!("deleted {claim}")
            }
            15 | 16 => {
                let end = if self.rng.one_in(3) { Termination::Stop } else { Termination::Crash };
                scenario.restart(end).await?;
                format!("{end:?}")
            }
            _ => {
                // With or without time for the controllers to react.
                let number = self.rng.below(4);
                for _ in 0..number {
                    pods_of(scenario, SET).await?;
                }
                return Ok(());
            }
        };
        self.log.push(act);
        Ok(())
    }

    async fn any<K: Kind>(&mut self, scenario: &Scenario) -> Result<Option<String>> {
        let all = scenario.api::<K>().list(&ListParams::default()).await?.items;
        let index = self.rng.below(all.len());
        Ok(all.get(index).map(ResourceExt::name_any))
    }

    /// Waits until set, pods and status agree. Where a user has to intervene, the test does;
    /// returns whether it did.
    async fn until_stable(&self, scenario: &Scenario) -> Result<bool> {
        let names: BTreeSet<String> = self.wanted.range().map(|ordinal| pod_of(SET, ordinal)).collect();
        let has_intervened = Cell::new(false);
        let observe = async || {
            let set: StatefulSet = scenario.get(SET).await?;
            let pods = pods_of(scenario, SET).await?;
            let terminating =
                scenario.api::<PersistentVolumeClaim>().list(&ListParams::default()).await?.items;
            let terminating: Vec<String> = terminating
                .iter()
                .filter(|claim| is_terminating(*claim))
                .map(ResourceExt::name_any)
                .collect();
            for pod in pods.iter().filter(|pod| !is_ready(pod) && !is_terminating(*pod)) {
                let name = pod.name_any();
                // In Kubernetes a user has to intervene here too: a node does not start a pod with
                // a terminating claim, and the claim is kept because of the pod; and ordered sets
                // leave several pods that never become ready.
                let is_stuck = is_placed(pod) && terminating.contains(&format!("data-{name}"));
                if is_unready(pod) {
                    set_status(scenario, &name, &ready("True")).await?;
                } else if is_stuck || !names.contains(&name) {
                    ignore_not_found(
                        scenario.api::<Pod>().delete(&name, &DeleteParams::default()).await.map(drop),
                    )?;
                    has_intervened.set(true);
                }
            }
            Ok((set, pods))
        };
        let is_stable = |(set, pods): &(StatefulSet, Vec<Pod>)| {
            let status = set.status.clone().unwrap_or_default();
            let count = i32::try_from(pods.len()).unwrap_or(-1);
            let counts = [Some(status.replicas), status.ready_replicas, status.available_replicas];
            let revision = |pod: &Pod| pod.labels().get("controller-revision-hash").cloned();
            let is_updated = |pod: &&Pod| revision(pod) == status.update_revision;
            let updated = i32::try_from(pods.iter().filter(is_updated).count()).unwrap_or(-1);
            pods.iter().map(ResourceExt::name_any).collect::<BTreeSet<_>>() == names
                && pods.iter().all(is_ready)
                && pods.iter().filter(|pod| self.is_to_be_updated(pod)).all(|pod| is_updated(&pod))
                && counts.map(Option::unwrap_or_default) == [count; 3]
                && status.updated_replicas.unwrap_or(0) == updated
                && status.observed_generation == set.metadata.generation
        };
        if let Err(late) = until("the set comes to rest", observe, is_stable).await {
            let set: StatefulSet = scenario.get(SET).await?;
            let all = ListParams::default();
            let claims = scenario.api::<PersistentVolumeClaim>().list(&all).await?.items;
            let claims: Vec<_> = claims.iter().map(|claim| (&claim.metadata, &claim.status)).collect();
            let pods = pods_of(scenario, SET).await?;
            let pods: Vec<_> = pods.iter().map(|pod| (&pod.metadata, &pod.status)).collect();
            return Err(late).with_context(|| json!([set.status, pods, claims]).to_string());
        }
        Ok(has_intervened.get())
    }

    fn is_to_be_updated(&self, pod: &Pod) -> bool {
        let first = self.wanted.partition.map(|partition| self.wanted.start + partition);
        first.is_some_and(|first| ordinal(pod).is_some_and(|ordinal| ordinal >= first))
    }

    /// Asserts that the pods were deleted from the highest ordinal down, if a burst only scaled an
    /// ordered set down.
    fn assert_scaled_in_order(&self, history: &History, burst: &Burst) -> Result<()> {
        let [before, after] = burst.wanted.as_slice() else { return Ok(()) };
        let is_scaled = before.start == after.start && before.replicas > after.replicas;
        if self.management == "OrderedReady" && is_scaled && !burst.disturbs_pods {
            let order = history.transitions(SET);
            let went: Vec<&str> = order.split(' ').filter(|part| part.starts_with('-')).collect();
            let want: Vec<String> =
                (after.range().end..before.range().end).rev().map(|o| format!("-{o}")).collect();
            ensure!(went == want, "went {order}, not {want:?}");
        }
        Ok(())
    }

    /// Asserts that claims that the policy kept all the time exist, and that those that it deleted
    /// all the time do not.
    async fn assert_claims_retained_or_deleted(&mut self, scenario: &Scenario, burst: &Burst) -> Result<()> {
        let is_kept = burst.wanted.iter().all(|wanted| !wanted.deletes_when_scaled);
        // If pods were deleted for other reasons too, a claim may remain without a pod to be
        // deleted with.
        let scaled = match burst.wanted.as_slice() {
            [before, after] if !burst.disturbs_pods && before.image == after.image => Some((before, after)),
            _ => None,
        };
        let has =
            |wanted: &DesiredSet, claim: &str| wanted.range().any(|ordinal| claim_of(SET, ordinal) == claim);
        let is_left = |claim: &str| {
            scaled.is_some_and(|(before, after)| {
                before.deletes_when_scaled
                    && after.deletes_when_scaled
                    && has(before, claim)
                    && !has(after, claim)
            })
        };
        for (uid, bound_claim) in &self.bound_claims {
            let is_there = async || {
                let claim = scenario.api::<PersistentVolumeClaim>().get_opt(&bound_claim.claim).await?;
                Ok(claim.is_some_and(|claim| claim.uid().as_ref() == Some(uid)))
            };
            if is_left(&bound_claim.claim) {
                until(&format!("{} goes", bound_claim.claim), is_there, |is_there| !is_there).await?;
            } else if is_kept && !self.deleted.contains(uid) {
                scenario.assert_kept(bound_claim).await?;
                ensure!(is_there().await?, "{} is another", bound_claim.claim);
            }
        }
        Ok(())
    }

    /// Checks that every pod has its claim, with the expected owner, and every volume its data.
    async fn assert_data_kept(&mut self, scenario: &Scenario) -> Result<()> {
        let mut bound_claims = BTreeMap::new();
        for ordinal in self.wanted.range() {
            let claim: PersistentVolumeClaim = scenario.get(&claim_of(SET, ordinal)).await?;
            let uid = claim.uid().context("no uid")?;
            let bound_claim = match self.bound_claims.remove(&uid) {
                Some(bound_claim) => bound_claim,
                None => scenario.write_data(&claim.name_any()).await?,
            };
            ensure!(bound_claim.has_data(), "{} has lost its data", bound_claim.claim);
            if !is_terminating(&claim) {
                let want: &[String] =
                    if self.wanted.deletes_when_deleted { &[format!("StatefulSet/{SET}")] } else { &[] };
                // The status is written although an update of another claim conflicts.
                let has_owners = |claim: &PersistentVolumeClaim| owners(claim) == want;
                scenario.until(&claim.name_any(), has_owners).await?;
            }
            bound_claims.insert(uid, bound_claim);
        }
        // The other claims remain, and may be deleted later.
        for (uid, bound_claim) in std::mem::take(&mut self.bound_claims) {
            let claim = scenario.api::<PersistentVolumeClaim>().get_opt(&bound_claim.claim).await?;
            if claim.is_some_and(|claim| claim.uid().as_ref() == Some(&uid) && !is_terminating(&claim)) {
                bound_claims.insert(uid, bound_claim);
            }
        }
        self.bound_claims = bound_claims;
        Ok(())
    }

    /// Checks that the pods below the partition keep their revision.
    async fn assert_partition_respected(&mut self, scenario: &Scenario, burst: &Burst) -> Result<()> {
        let places: BTreeSet<_> =
            burst.wanted.iter().map(|wanted| (wanted.start, wanted.partition)).collect();
        let pods = pods_of(scenario, SET).await?;
        let pinned_revisions =
            pods.iter().filter(|pod| self.wanted.partition.is_some() && !self.is_to_be_updated(pod));
        let revision = |pod: &Pod| pod.labels().get("controller-revision-hash").cloned().unwrap_or_default();
        let pinned_revisions: BTreeMap<u32, String> =
            pinned_revisions.filter_map(|pod| Some((ordinal(pod)?, revision(pod)))).collect();
        let set: StatefulSet = scenario.get(SET).await?;
        let current = set.status.and_then(|status| status.current_revision).unwrap_or_default();
        for (ordinal, revision) in pinned_revisions.iter().filter(|_| places.len() == 1) {
            // A pod of another revision than the current one is recreated with the current one.
            let was = self.pinned_revisions.get(ordinal);
            ensure!(
                was.is_none_or(|was| was == revision) || *revision == current,
                "{SET}-{ordinal} was of {was:?} and is of {revision}, not {current}"
            );
        }
        self.pinned_revisions = pinned_revisions;
        Ok(())
    }

    /// Deletes the set. Its pods are deleted, and the claims that the policy does not keep.
    async fn finish(&mut self, scenario: &mut Scenario) -> Result<()> {
        let params = if self.rng.one_in(2) { DeleteParams::foreground() } else { DeleteParams::background() };
        self.log.push(format!("deleted, {:?}", params.propagation_policy));
        scenario.api::<StatefulSet>().delete(SET, &params).await?;
        if self.rng.one_in(2) {
            scenario.restart(Termination::Crash).await?;
        }
        scenario.until_deleted::<StatefulSet>(SET).await?;
        until("the pods go", async || pods_of(scenario, SET).await, Vec::is_empty).await?;
        let of_pods: BTreeSet<String> = self.wanted.range().map(|ordinal| claim_of(SET, ordinal)).collect();
        let mut kept = Vec::new();
        for bound_claim in self.bound_claims.values() {
            match (self.wanted.deletes_when_deleted, of_pods.contains(&bound_claim.claim)) {
                (true, true) => scenario.until_bound_claim_deleted(bound_claim).await?,
                (false, true) => kept.push(bound_claim),
                // The claim may remain from another policy.
                (_, false) => {}
            }
        }
        until_settled(scenario).await?;
        for bound_claim in kept {
            let claim = scenario.api::<PersistentVolumeClaim>().get_opt(&bound_claim.claim).await?;
            // Unless a user deleted it while a pod used it.
            if let Some(claim) = claim {
                ensure!(!is_terminating(&claim), "{} goes", bound_claim.claim);
                scenario.assert_kept(bound_claim).await?;
            }
        }
        scenario.assert_remaining(&[]).await
    }
}

fn ordinal(pod: &Pod) -> Option<u32> {
    pod.name_any().rsplit_once('-')?.1.parse().ok()
}

fn ready(status: &str) -> Value {
    json!({"conditions": [{"type": "Ready", "status": status}]})
}

fn is_placed(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

/// Returns `true` if the pod runs and its status reports that it is not ready.
fn is_unready(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
}

async fn set_status(scenario: &Scenario, pod: &str, status: &Value) -> Result<()> {
    let patch = Patch::Strategic(json!({"status": status}));
    ignore_not_found(scenario.api::<Pod>().patch_status(pod, &PatchParams::default(), &patch).await.map(drop))
}

/// Ignores a 404: the object may have been deleted meanwhile.
fn ignore_not_found(outcome: kube::Result<()>) -> Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        outcome => Ok(outcome?),
    }
}
