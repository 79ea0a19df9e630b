//! The environment of the controller: objects and their earlier states, nodes that run pods, and
//! the garbage collector.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_kinds::pods;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::super::identity;

/// Objects by name.
pub type Objects<K> = BTreeMap<String, Arc<K>>;

/// The reason of a rejection by the API.
pub type Refusal = &'static str;

/// The objects of a kind. Earlier states are kept for caches that lag.
pub struct Store<K> {
    states: Vec<Objects<K>>,
}

impl<K: Resource<DynamicType = ()> + Clone> Store<K> {
    fn new() -> Store<K> {
        Store { states: vec![Objects::new()] }
    }

    pub fn now(&self) -> &Objects<K> {
        self.at(self.latest())
    }

    pub fn at(&self, state: usize) -> &Objects<K> {
        &self.states[state]
    }

    pub fn latest(&self) -> usize {
        self.states.len() - 1
    }

    /// Returns the name of the object with this index, modulo the number of objects; `None` if
    /// there are none.
    pub fn any(&self, index: usize) -> Option<String> {
        let names: Vec<_> = self.now().keys().collect();
        (!names.is_empty()).then(|| names[index % names.len()].clone())
    }

    pub fn create(&mut self, mut object: K) -> Result<(), Refusal> {
        if self.now().contains_key(&object.name_any()) {
            return Err("AlreadyExists");
        }
        object.meta_mut().uid = Some(format!("{}{}", K::kind(&()), self.states.len()));
        self.put(object);
        Ok(())
    }

    /// Replaces an object; refused if it was made from an earlier state.
    pub fn replace(&mut self, object: K) -> Result<(), Refusal> {
        let stored = self.now().get(&object.name_any()).ok_or("NotFound")?;
        let is_same = |a: &K, b: &K| (a.uid(), a.resource_version()) == (b.uid(), b.resource_version());
        if !is_same(stored, &object) {
            return Err("Conflict");
        }
        self.put(object);
        Ok(())
    }

    /// Changes an existing object, like a client that retries until it succeeds.
    pub fn update(&mut self, name: &str, change: impl FnOnce(&mut K)) {
        if let Some(object) = self.now().get(name) {
            let mut object = object.as_ref().clone();
            change(&mut object);
            self.put(object);
        }
    }

    pub fn remove(&mut self, name: &str) {
        let mut next = self.now().clone();
        next.remove(name);
        self.states.push(next);
    }

    fn put(&mut self, mut object: K) {
        object.meta_mut().resource_version = Some(self.states.len().to_string());
        let mut next = self.now().clone();
        next.insert(object.name_any(), Arc::new(object));
        self.states.push(next);
    }
}

pub struct World {
    pub now: Timestamp,
    pub sets: Store<StatefulSet>,
    pub pods: Store<Pod>,
    pub claims: Store<PersistentVolumeClaim>,
    pub revisions: Store<ControllerRevision>,
}

impl World {
    pub fn new() -> World {
        World {
            now: Timestamp::UNIX_EPOCH,
            sets: Store::new(),
            pods: Store::new(),
            claims: Store::new(),
            revisions: Store::new(),
        }
    }

    pub fn wait(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// Returns the number of changes so far.
    pub fn age(&self) -> usize {
        [self.sets.latest(), self.pods.latest(), self.claims.latest(), self.revisions.latest()].iter().sum()
    }

    pub fn create_pod(&mut self, pod: &Pod) -> Result<(), Refusal> {
        let mut pod = pod.clone();
        pod.status.get_or_insert_default().phase = Some("Pending".to_owned());
        self.pods.create(pod)
    }

    /// Deletes a pod; refused if the pod of that name is another one.
    pub fn delete_pod(&mut self, pod: &Pod) -> Result<(), Refusal> {
        let name = pod.name_any();
        if self.pods.now().get(&name).is_some_and(|there| there.uid() != pod.uid()) {
            return Err("Conflict");
        }
        self.kill(&name);
        Ok(())
    }

    /// Deletes a pod. A pod without a node is deleted at once.
    pub fn kill(&mut self, name: &str) {
        let now = self.now;
        match self.pods.now().get(name) {
            Some(pod) if pods::phase(pod) == "Pending" => self.pods.remove(name),
            Some(pod) if !pods::is_terminating(pod) => {
                self.pods.update(name, |pod| pod.metadata.deletion_timestamp = Some(Time(now)));
            }
            _ => {}
        }
    }

    pub fn delete_claim(&mut self, name: &str) {
        let now = self.now;
        if self.claims.now().get(name).is_some_and(|claim| claim.metadata.deletion_timestamp.is_none()) {
            self.claims.update(name, |claim| claim.metadata.deletion_timestamp = Some(Time(now)));
        }
    }

    /// Executes the next step of the pod's node.
    pub fn play(&mut self, name: &str) {
        let Some(pod) = self.pods.now().get(name).cloned() else { return };
        if pods::is_terminating(&pod) {
            return self.pods.remove(name);
        }
        let is_usable = |claim: &&str| {
            self.claims.now().get(*claim).is_some_and(|claim| claim.metadata.deletion_timestamp.is_none())
        };
        match pods::phase(&pod) {
            "Pending" if claims_of(&pod).all(|claim| is_usable(&claim)) => {
                self.set_status(name, "Running", true)
            }
            "Running" if !pods::is_ready(&pod) => self.set_status(name, "Running", true),
            _ => {}
        }
    }

    pub fn set_status(&mut self, name: &str, phase: &str, is_ready: bool) {
        let ready = if is_ready { "True" } else { "False" };
        let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": Time(self.now)});
        let status = json!({"phase": phase, "conditions": [condition]});
        self.pods.update(name, |pod| pod.status = serde_json::from_value(status).unwrap());
    }

    /// Runs the garbage collector and the protection of claims once over all objects. Returns the
    /// claims that were collected.
    pub fn collect(&mut self) -> Vec<Arc<PersistentVolumeClaim>> {
        let sets = self.sets.now().values().filter_map(|set| set.uid());
        let mut living: Vec<String> =
            sets.chain(self.pods.now().values().filter_map(|pod| pod.uid())).collect();
        living.push(ANOTHER.to_owned());
        for (name, pod) in self.pods.now().clone() {
            if pod.owner_references().iter().all(|owner| !living.contains(&owner.uid)) {
                self.kill(&name);
            }
        }
        let mut collected = Vec::new();
        for (name, claim) in self.claims.now().clone() {
            let (alive, dead): (Vec<_>, Vec<_>) =
                claim.owner_references().iter().cloned().partition(|owner| living.contains(&owner.uid));
            match (alive.is_empty(), dead.is_empty()) {
                (_, true) => {}
                (false, false) => {
                    self.claims.update(&name, |claim| claim.metadata.owner_references = Some(alive))
                }
                (true, false) => {
                    self.delete_claim(&name);
                    collected.push(claim.clone());
                }
            }
            let pods = self.pods.now().values();
            let is_used = pods
                .filter(|pod| pods::phase(pod) != "Pending")
                .any(|pod| claims_of(pod).any(|claim| claim == name));
            if self.claims.now()[&name].metadata.deletion_timestamp.is_some() && !is_used {
                self.claims.remove(&name);
            }
        }
        collected
    }

    /// Runs nodes and the collector until they have nothing left to do. Returns the claims that are
    /// deleted with their owners.
    pub fn calm(&mut self) -> Vec<Arc<PersistentVolumeClaim>> {
        let mut collected = Vec::new();
        loop {
            let before = self.age();
            let names: Vec<String> = self.pods.now().keys().cloned().collect();
            names.iter().for_each(|name| self.play(name));
            collected.extend(self.collect());
            if self.age() == before {
                return collected;
            }
        }
    }

    /// Returns pods and claims on one line, such as `web-0:Running web-1` with the revision after
    /// the phase; `~` marks a terminating object.
    pub fn shown(&self) -> String {
        let terminating = |meta: &ObjectMeta| if meta.deletion_timestamp.is_some() { "~" } else { "" };
        let pods = self.pods.now().values().map(|pod| {
            let phase = if pods::is_ready(pod) { "Ready" } else { pods::phase(pod) };
            format!("{}:{phase}{} {}", pod.name_any(), terminating(&pod.metadata), identity::revision(pod))
        });
        let claims = self.claims.now().values().map(|claim| {
            let owners: Vec<_> = claim.owner_references().iter().map(|owner| owner.uid.as_str()).collect();
            format!("{}{} {}", claim.name_any(), terminating(&claim.metadata), owners.join(","))
        });
        pods.chain(claims).collect::<Vec<_>>().join("; ")
    }
}

/// The uid of an owner that is never deleted.
pub const ANOTHER: &str = "another";

fn claims_of(pod: &Pod) -> impl Iterator<Item = &str> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()))
}
