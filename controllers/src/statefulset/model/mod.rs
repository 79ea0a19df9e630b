//! Random histories of a set against the plan: users, nodes and the garbage collector change a
//! small world (`world.rs`), the controller reads it through caches that lag, its calls fail, it is
//! stopped in between, and the invariants (`invariants.rs`) hold all the time. Afterwards the set
//! reaches its final state in a bounded number of passes, and once it is deleted its claims are as
//! the policy requires.
//!
//! `PROPTEST_CASES` is the number of histories.

mod invariants;
mod world;

use std::fmt;
use std::sync::Arc;

use coracle_kinds::controller_revision;
use coracle_kinds::controller_revision::RevisionMatch;
use coracle_kinds::pods;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::json;

use super::plan::{ClaimOwners, Gates, Observed, Plan, PodClaims, Revision, Step, plan};
use super::{identity, status};
use invariants::{Checked, Invariants, invariant};
use world::{ANOTHER, Refusal, World};

const SET: &str = "web";

/// The constants of a history.
#[derive(Clone, Debug)]
struct Setting {
    is_parallel: bool,
    claim_templates: usize,
    min_ready_seconds: i32,
    replicas: i32,
}

/// The next event of a history. Its numbers are taken modulo the number of choices.
#[derive(Clone, Debug)]
enum Event {
    /// The controller reconciles the set.
    Pass(Pass),
    /// The controller restarts with these gates: retention, start, maxUnavailable.
    Restart([bool; 3]),
    Scale(i32),
    Start(i32),
    Template(u8),
    Update(Rollout),
    /// Whether claims are deleted with the set, and whether they are deleted when it is scaled
    /// down.
    Policy(bool, bool),
    /// A node executes the next step of a pod.
    Play(usize),
    Unready(usize),
    /// A pod ends, well or not.
    End(usize, bool),
    Kill(usize),
    /// A pod loses the label with its name.
    Strip(usize),
    DeleteClaim(usize),
    /// Another object becomes the controller of a claim.
    Contest(usize),
    Collect,
    Wait,
}

/// The lag of the caches of sets, pods and claims, in states, and the call that fails.
#[derive(Clone, Default)]
struct Pass {
    lag: [usize; 3],
    fault: Option<(usize, Fault)>,
}

impl fmt::Debug for Pass {
    /// Prints a pass on one line, to keep the log short.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [sets, pods, claims] = self.lag;
        write!(f, "behind by {sets} {pods} {claims}, {:?}", self.fault)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// The call was not executed.
    Refused,
    /// The call was executed, but its response was lost.
    Unanswered,
    /// The call was executed, and the controller ended.
    Crash,
}

#[derive(Clone, Debug)]
enum Rollout {
    OnDelete,
    /// Without more words.
    Plain,
    Rolling {
        partition: i32,
        max_unavailable: Option<i32>,
    },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let fault = prop_oneof![Just(Fault::Refused), Just(Fault::Unanswered), Just(Fault::Crash)];
    let lag = prop_oneof![3 => Just(0_usize), 1 => 1_usize..4];
    let pass = ([lag.clone(), lag.clone(), lag], prop::option::weighted(0.15, (0_usize..6, fault)));
    let strategy = prop_oneof![
        1 => Just(Rollout::OnDelete),
        1 => Just(Rollout::Plain),
        4 => (0..4, prop::option::of(1..4))
            .prop_map(|(partition, max_unavailable)| Rollout::Rolling { partition, max_unavailable }),
    ];
    let which = 0_usize..8;
    let event = prop_oneof![
        24 => pass.prop_map(|(lag, fault)| Event::Pass(Pass { lag, fault })),
        1 => any::<[bool; 3]>().prop_map(Event::Restart),
        3 => (0..5).prop_map(Event::Scale),
        1 => (0..4).prop_map(Event::Start),
        2 => (0_u8..3).prop_map(Event::Template),
        1 => strategy.prop_map(Event::Update),
        2 => any::<(bool, bool)>().prop_map(|(deleted, scaled)| Event::Policy(deleted, scaled)),
        20 => which.clone().prop_map(Event::Play),
        1 => which.clone().prop_map(Event::Unready),
        1 => (which.clone(), any::<bool>()).prop_map(|(which, well)| Event::End(which, well)),
        2 => which.clone().prop_map(Event::Kill),
        1 => which.clone().prop_map(Event::Strip),
        1 => which.clone().prop_map(Event::DeleteClaim),
        1 => which.prop_map(Event::Contest),
        4 => Just(Event::Collect),
        1 => Just(Event::Wait),
    ];
    prop::collection::vec(event, 1..80)
}

fn setting() -> impl Strategy<Value = Setting> {
    (any::<bool>(), 0_usize..3, prop_oneof![Just(0), Just(3)], 0..4).prop_map(
        |(is_parallel, claim_templates, min_ready_seconds, replicas)| Setting {
            is_parallel,
            claim_templates,
            min_ready_seconds,
            replicas,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::with_cases(cases(2000)) })]

    #[test]
    fn histories_keep_the_invariants_and_settle(setting in setting(), events in events()) {
        let mut history = History::begin(&setting);
        let outcome = history.run(&events);
        let failure = |broken| TestCaseError::fail(format!("{broken}\nafter\n  {}", history.log.join("\n  ")));
        outcome.map_err(failure)?;
    }
}

fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}

struct History {
    world: World,
    controller: Controller,
    invariants: Invariants,
    /// The steps of the history, for the message of a failure.
    log: Vec<String>,
}

/// The state of a controller process.
struct Controller {
    gates: Gates,
    /// The states that the caches of sets, pods and claims have seen at least.
    seen: [usize; 3],
}

/// The kind of a cache.
#[derive(Clone, Copy)]
enum Kind {
    Sets,
    Pods,
    PodClaims,
}

/// The reason for which a pass ends early.
#[derive(Debug)]
enum Stop {
    Failed(Refusal),
    Crashed,
    Broken(String),
}

impl From<String> for Stop {
    fn from(broken: String) -> Stop {
        Stop::Broken(broken)
    }
}

impl History {
    fn begin(setting: &Setting) -> History {
        let policy = if setting.is_parallel { "Parallel" } else { "OrderedReady" };
        let claim = |number| json!({"metadata": {"name": format!("data{number}")}, "spec": {}});
        let claims: Vec<_> = (0..setting.claim_templates).map(claim).collect();
        let set = json!({
            "metadata": {"name": SET, "namespace": "n", "generation": 1},
            "spec": {
                "replicas": setting.replicas, "selector": {}, "podManagementPolicy": policy, "volumeClaimTemplates": claims,
                "minReadySeconds": setting.min_ready_seconds, "revisionHistoryLimit": 1,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "template": {"spec": {"containers": [{"name": "c", "image": "0"}]}},
            },
        });
        let mut world = World::new();
        world.sets.create(serde_json::from_value(set).unwrap()).unwrap();
        let gates = Gates { retention: true, start: true, max_unavailable: false };
        let controller = Controller { gates, seen: [1, 0, 0] };
        History { world, controller, invariants: Invariants::default(), log: Vec::new() }
    }

    fn run(&mut self, events: &[Event]) -> Checked {
        for event in events {
            self.log.push(format!("{event:?}"));
            self.happens(event)?;
            self.world.wait(1);
        }
        self.settle()?;
        self.end()
    }

    fn happens(&mut self, event: &Event) -> Checked {
        let pod = |which: &usize| self.world.pods.any(*which).unwrap_or_default();
        let claim = |which: &usize| self.world.claims.any(*which).unwrap_or_default();
        match event {
            Event::Pass(pass) => return self.pass(pass).map(drop),
            Event::Restart([retention, start, max_unavailable]) => {
                let (retention, start, max_unavailable) = (*retention, *start, *max_unavailable);
                self.controller.gates = Gates { retention, start, max_unavailable };
                self.controller.restart(&self.world);
            }
            Event::Scale(replicas) => self.edit(json!({"replicas": replicas})),
            Event::Start(start) => self.edit(json!({"ordinals": {"start": start}})),
            Event::Template(image) => {
                let containers = json!([{"name": "c", "image": image.to_string()}]);
                self.edit(json!({"template": {"spec": {"containers": containers}}}));
            }
            Event::Update(strategy) => self.edit(json!({"updateStrategy": match strategy {
                Rollout::OnDelete => json!({"type": "OnDelete"}),
                Rollout::Plain => json!({"type": "RollingUpdate"}),
                Rollout::Rolling { partition, max_unavailable } => json!({
                    "type": "RollingUpdate", "rollingUpdate": {"partition": partition, "maxUnavailable": max_unavailable},
                }),
            }})),
            Event::Policy(deleted, scaled) => {
                let word = |deletes: &bool| if *deletes { "Delete" } else { "Retain" };
                let policy = json!({"whenDeleted": word(deleted), "whenScaled": word(scaled)});
                self.edit(json!({"persistentVolumeClaimRetentionPolicy": policy}));
            }
            Event::Play(which) => self.world.play(&pod(which)),
            Event::Unready(which) => {
                let name = pod(which);
                if self.world.pods.now().get(&name).is_some_and(|pod| pods::is_ready(pod)) {
                    self.world.set_status(&name, "Running", false);
                }
            }
            Event::End(which, well) => {
                self.world.set_status(&pod(which), if *well { "Succeeded" } else { "Failed" }, false);
            }
            Event::Kill(which) => self.world.kill(&pod(which)),
            Event::Strip(which) => {
                self.world.pods.update(&pod(which), |pod| {
                    pod.metadata.labels.iter_mut().for_each(|labels| drop(labels.remove(identity::POD_NAME_LABEL)));
                });
            }
            Event::DeleteClaim(which) => self.world.delete_claim(&claim(which)),
            Event::Contest(which) => {
                let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": ANOTHER, "controller": true});
                let owner = serde_json::from_value(owner).unwrap();
                self.world.claims.update(&claim(which), |claim| {
                    let owners = claim.metadata.owner_references.get_or_insert_default();
                    if !owners.contains(&owner) {
                        owners.push(owner);
                    }
                });
            }
            Event::Collect => {
                let collected = self.world.collect();
                return self.invariants.collects(&collected);
            }
            Event::Wait => self.world.wait(5),
        }
        Ok(())
    }

    fn edit(&mut self, spec: serde_json::Value) {
        self.world.sets.update(SET, |set| {
            let mut edited = json!(set);
            edited["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            *set = serde_json::from_value(edited).unwrap();
            set.metadata.generation = set.metadata.generation.map(|generation| generation + 1);
        });
    }

    /// Runs a pass of the controller. Returns `true` if it changed nothing and waits for nothing.
    fn pass(&mut self, pass: &Pass) -> Result<bool, String> {
        let before = self.world.age();
        let outcome = self.controller.pass(pass, &mut self.world, &mut self.invariants);
        self.log.push(format!("    {:?}: {outcome:?}", self.world.shown()));
        match outcome {
            Err(Stop::Broken(invariant)) => Err(invariant),
            Err(Stop::Failed(_)) => Ok(false),
            Err(Stop::Crashed) => {
                self.controller.restart(&self.world);
                Ok(false)
            }
            Ok(waits) => Ok(self.world.age() == before && !waits),
        }
    }

    /// Runs passes without further disturbances until the set is in its final state.
    fn settle(&mut self) -> Checked {
        let set = self.world.sets.now()[SET].clone();
        let most =
            10 + 6 * (self.world.pods.now().len() + usize::try_from(identity::replicas(&set)).unwrap());
        for _ in 0..most {
            let mut collected = self.world.calm();
            self.clear(&set);
            collected.extend(self.world.calm());
            self.invariants.collects(&collected)?;
            if self.pass(&Pass::default())? {
                let set = self.world.sets.now()[SET].clone();
                return invariants::check_final_state(&self.world, &set, self.controller.gates);
            }
            self.world.wait(1);
        }
        Err(format!("no rest in {most} passes"))
    }

    /// Deletes a pod that blocks an ordered set. Such a set keeps a pod outside of the range that
    /// will never be available (it ended, or its claims do not exist) while a lower one is
    /// unavailable too, as in kube-controller-manager: it has to be deleted by a user. The set
    /// deletes the lowest one by itself.
    fn clear(&mut self, set: &StatefulSet) {
        let range = invariants::range(set, self.controller.gates);
        let is_lost = |pod: &Pod| {
            !pods::is_ready(pod) && identity::ordinal(pod).is_some_and(|ordinal| !range.contains(&ordinal))
        };
        let pods = self.world.pods.now();
        let lost: Vec<_> =
            pods.iter().filter(|(_, pod)| is_lost(pod)).map(|(name, _)| name.clone()).collect();
        lost.iter().skip(1).for_each(|name| self.world.kill(name));
    }

    /// Deletes the set with its dependents, including the claims that the policy does not retain.
    fn end(&mut self) -> Checked {
        let claims = self.world.claims.now().clone();
        let goes = |claim: &PersistentVolumeClaim| {
            let owners = claim.owner_references();
            claim.metadata.deletion_timestamp.is_some()
                || !owners.is_empty() && owners.iter().all(|owner| owner.uid != ANOTHER)
        };
        self.world.sets.remove(SET);
        self.world.calm();
        invariant!(self.world.pods.now().is_empty(), "pods stay without their set");
        for (name, claim) in claims {
            let is_there = self.world.claims.now().contains_key(&name);
            invariant!(
                is_there != goes(&claim),
                "{name} after its set: {is_there}, {:?}",
                claim.owner_references()
            );
        }
        Ok(())
    }
}

impl Controller {
    /// Fills all caches with the newest state.
    fn restart(&mut self, world: &World) {
        self.seen = [world.sets.latest(), world.pods.latest(), world.claims.latest()];
    }

    /// Reconciles the set as the controller does; returns whether to repeat that after a time.
    fn pass(&mut self, pass: &Pass, world: &mut World, invariants: &mut Invariants) -> Result<bool, Stop> {
        let latest = [world.sets.latest(), world.pods.latest(), world.claims.latest()];
        for ((seen, latest), lag) in self.seen.iter_mut().zip(latest).zip(pass.lag) {
            *seen = (*seen).max(latest - lag.min(latest));
        }
        let [sets, pods, claims] = self.seen;
        let set = world.sets.at(sets)[SET].clone();
        let pods: Vec<Arc<Pod>> = world.pods.at(pods).values().cloned().collect();
        let claims = world.claims.at(claims).clone();
        let (current, update) = self.revisions(&set, world);
        let known = |revision: &ControllerRevision| Revision {
            name: revision.name_any(),
            template: Arc::new(controller_revision::template(revision).unwrap()),
        };
        let (current, update) = (known(&current), known(&update));
        let (gates, now) = (self.gates, world.now);
        let seen = Observed {
            set: &set,
            current,
            update,
            collisions: 0,
            pods: &pods,
            find_claim: &|name| claims.get(name).cloned(),
            now,
            gates,
        };
        invariants.begin_pass(&seen);
        let plan = plan(&seen);
        let mut executor =
            Executor { seen: &seen, world, invariants, cached: &mut self.seen, fault: pass.fault };
        let (status, outcome) = executor.execute(&plan);
        if matches!(outcome, Err(Stop::Crashed | Stop::Broken(_))) {
            return outcome.map(|()| false);
        }
        executor.update_status(status)?;
        outcome?;
        let is_live = |name: &str| {
            [&seen.current.name, &seen.update.name].iter().any(|live| *live == name)
                || pods.iter().any(|pod| identity::revision(pod) == name)
        };
        let mut revisions: Vec<_> = world.revisions.now().values().cloned().collect();
        controller_revision::sort(&mut revisions);
        for excess in controller_revision::excess(&revisions, is_live, 1) {
            world.revisions.remove(&excess.name_any());
        }
        Ok(plan.requeue_after.is_some())
    }

    /// Returns the current revision, and the revision of the template.
    fn revisions(
        &self,
        set: &StatefulSet,
        world: &mut World,
    ) -> (Arc<ControllerRevision>, Arc<ControllerRevision>) {
        let mut revisions: Vec<_> = world.revisions.now().values().cloned().collect();
        controller_revision::sort(&mut revisions);
        let update = match controller_revision::match_template(
            set,
            &set.spec.as_ref().unwrap().template,
            &revisions,
            0,
        ) {
            RevisionMatch::Latest(last) => last.name_any(),
            RevisionMatch::Earlier(earlier, number) => {
                world.revisions.update(&earlier.name_any(), |revision| revision.revision = number);
                earlier.name_any()
            }
            RevisionMatch::New(new) => {
                let name = new.name_any();
                world.revisions.create(*new).unwrap();
                name
            }
        };
        let update = world.revisions.now()[&update].clone();
        let current = set.status.as_ref().and_then(|status| status.current_revision.clone());
        let current = revisions.into_iter().find(|revision| revision.metadata.name == current);
        (current.unwrap_or(update.clone()), update)
    }
}

/// Executes a plan on the world, as `executor.rs` does on the API.
struct Executor<'a> {
    seen: &'a Observed<'a>,
    world: &'a mut World,
    invariants: &'a mut Invariants,
    cached: &'a mut [usize; 3],
    fault: Option<(usize, Fault)>,
}

impl Executor<'_> {
    fn execute(&mut self, plan: &Plan) -> (StatefulSetStatus, Result<(), Stop>) {
        let mut status = plan.status.clone();
        for stage in &plan.stages {
            if let Err(stop) = self.stage(stage, plan.is_burst) {
                return (status, Err(stop));
            }
        }
        for pod in &plan.outdated {
            if let Err(stop) = self.delete(pod) {
                return (status, Err(stop));
            }
            status::deleted(&mut status, pod);
        }
        (status, Ok(()))
    }

    /// Applies a stage. In a burst, a failed step does not stop the other ones.
    fn stage(&mut self, steps: &[Step], is_burst: bool) -> Result<(), Stop> {
        let mut outcome = Ok(());
        for step in steps {
            match self.apply(step) {
                Err(Stop::Failed(why)) if is_burst => outcome = Err(Stop::Failed(why)),
                done => done?,
            }
        }
        outcome
    }

    fn apply(&mut self, step: &Step) -> Result<(), Stop> {
        match step {
            Step::Create { pod, template, claims, owners } => {
                let ordinal = identity::ordinal(pod).unwrap();
                let pod = identity::pod(self.seen.set, ordinal, template, identity::revision(pod));
                self.create_missing_claims(claims)?;
                self.invariants.creates(self.seen, &pod)?;
                self.call(Kind::Pods, |world| world.create_pod(&pod))?;
                self.update_claim_owners(owners)
            }
            Step::ProvideClaims { claims, owners, .. } => {
                self.create_missing_claims(claims)?;
                self.update_claim_owners(owners)
            }
            Step::Update { pod, claims, owners } => {
                self.create_missing_claims(claims)?;
                self.update_claim_owners(owners)?;
                self.call(Kind::Pods, |world| world.pods.replace(pod.as_ref().clone()))
            }
            Step::UpdateClaimOwners(owners) => self.update_claim_owners(owners),
            Step::Delete(pod) => self.delete(pod),
        }
    }

    fn delete(&mut self, pod: &Arc<Pod>) -> Result<(), Stop> {
        self.invariants.deletes(self.seen, pod, self.world)?;
        self.call(Kind::Pods, |world| world.delete_pod(pod))
    }

    fn create_missing_claims(&mut self, claims: &PodClaims) -> Result<(), Stop> {
        for claim in &claims.missing {
            self.call(Kind::PodClaims, |world| world.claims.create(claim.clone()))?;
        }
        if claims.terminating.is_empty() { Ok(()) } else { Err(Stop::Failed("pvc is being deleted")) }
    }

    fn update_claim_owners(&mut self, owners: &ClaimOwners) -> Result<(), Stop> {
        for claim in owners.iter().filter_map(|(_, update)| update.change.as_deref()) {
            self.invariants.owns(self.seen, claim)?;
            self.call(Kind::PodClaims, |world| world.claims.replace(claim.clone()))?;
        }
        Ok(())
    }

    fn update_status(&mut self, status: StatefulSetStatus) -> Result<(), Stop> {
        let set = self.seen.set;
        let status = status::complete(set, status);
        self.invariants.updates_status(self.seen, &status)?;
        if !status::has_changed(set, &status) {
            return Ok(());
        }
        let updated = StatefulSet { status: Some(status), ..set.clone() };
        self.call(Kind::Sets, |world| world.sets.replace(updated))
    }

    /// Executes a call, with a fault if one is due. A successful write makes the cache of its kind
    /// wait for it.
    fn call(&mut self, kind: Kind, call: impl FnOnce(&mut World) -> Result<(), Refusal>) -> Result<(), Stop> {
        let fault = match &mut self.fault {
            Some((0, fault)) => Some(*fault),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        };
        if fault.is_some() {
            self.fault = None;
        }
        if fault == Some(Fault::Refused) {
            return Err(Stop::Failed("refused"));
        }
        let answer = call(self.world);
        match fault {
            Some(Fault::Crash) => return Err(Stop::Crashed),
            Some(_) => return Err(Stop::Failed("no answer")),
            None => answer.map_err(Stop::Failed)?,
        }
        self.cached[kind as usize] = match kind {
            Kind::Sets => self.world.sets.latest(),
            Kind::Pods => self.world.pods.latest(),
            Kind::PodClaims => self.world.claims.latest(),
        };
        Ok(())
    }
}
