//! The invariants of a StatefulSet controller: of each of its actions, given the objects it has
//! observed, and of a set in its final state.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use coracle_kinds::pods;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use serde_json::json;

use super::super::plan::{Gates, Observed};
use super::super::{identity, rollout};
use super::world::{ANOTHER, World};

/// The violated invariant, if any.
pub type Checked = Result<(), String>;

macro_rules! invariant {
    ($holds:expr, $($broken:tt)+) => {
        if !$holds {
            return Err(format!($($broken)+));
        }
    };
}
pub(super) use invariant;

/// The state kept from earlier passes.
#[derive(Default)]
pub struct Invariants {
    /// The pods whose claims may be deleted with them: those observed outside of the range while
    /// the policy was to delete claims.
    condemned: BTreeSet<String>,
    /// The revision, by ordinal, of pods that an update must not replace.
    held: BTreeMap<i32, String>,
    /// The number of pods that this pass created and deleted.
    done: usize,
    /// The number of those that it replaced for an update.
    updated: usize,
}

impl Invariants {
    /// Begins a pass.
    pub fn begin_pass(&mut self, seen: &Observed) {
        (self.done, self.updated) = (0, 0);
        let view = View(seen);
        if seen.gates.retention && deletes(seen.set, "scaled") {
            let outside = seen.pods.iter().filter(|pod| !view.range().contains(&ordinal(pod)));
            self.condemned.extend(outside.filter_map(|pod| pod.uid()));
        }
        let held: Vec<i32> = view.range().take(view.partition().unwrap_or(0)).collect();
        let current = &seen.current.name;
        self.held.retain(|ordinal, revision| held.contains(ordinal) && revision == current);
        let is_current = |ordinal: &&i32| {
            view.pod(**ordinal)
                .is_some_and(|pod| !pods::is_terminating(pod) && identity::revision(pod) == current)
        };
        self.held.extend(held.iter().filter(is_current).map(|ordinal| (*ordinal, current.clone())));
    }

    /// Checks the creation of a pod.
    pub fn creates(&mut self, seen: &Observed, pod: &Pod) -> Checked {
        let (view, name, ordinal) = (View(seen), pod.name_any(), ordinal(pod));
        invariant!(view.range().contains(&ordinal), "{name} is created outside of the range");
        invariant!(view.pod(ordinal).is_none(), "{name} is created a second time");
        let revision = identity::revision(pod);
        let wanted = match view.partition() {
            Some(partition) if view.index(ordinal) < partition => &seen.current.name,
            _ => &seen.update.name,
        };
        let is_free = seen.set.spec.as_ref().unwrap().update_strategy == Some(without_partition());
        invariant!(is_free || revision == wanted, "{name} is created from {revision}, not from {wanted}");
        let held = self.held.get(&ordinal);
        invariant!(
            held.is_none_or(|held| held == revision),
            "{name} of {held:?} comes back as of {revision}"
        );
        if view.is_ordered() {
            invariant!(self.done == 0, "{name} is created in one pass with another");
            let late = (view.range().start..ordinal).find(|lower| !view.is_fine(*lower));
            invariant!(late.is_none(), "{name} is created before ordinal {late:?} is available");
        }
        for claim in view.claims(ordinal) {
            invariant!(
                claim.metadata.deletion_timestamp.is_none(),
                "{name} is created with a claim that goes"
            );
            let may_go = seen.gates.retention && deletes(seen.set, "scaled");
            let is_earlier = |owner: &OwnerReference| owner.kind == "Pod" && owner.name == name;
            let is_blocked = may_go && claim.owner_references().iter().any(is_earlier);
            invariant!(!is_blocked, "{name} is created with the claim of an earlier pod");
        }
        self.done += 1;
        Ok(())
    }

    /// Checks the deletion of a pod.
    pub fn deletes(&mut self, seen: &Observed, pod: &Pod, world: &World) -> Checked {
        let (view, name, ordinal) = (View(seen), pod.name_any(), ordinal(pod));
        invariant!(pod.uid().is_some(), "{name} is deleted before it is there");
        invariant!(!pods::is_terminating(pod), "{name} is deleted a second time");
        let has_ended = ["Failed", "Succeeded"].contains(&pods::phase(pod));
        match view.range().contains(&ordinal) {
            false => self.check_scale_down(&view, pod, world)?,
            true if has_ended => {
                let late = (view.range().start..ordinal).find(|lower| !view.is_fine(*lower));
                invariant!(late.is_none() || !view.is_ordered(), "{name} is deleted before its turn");
            }
            true => {
                self.updates(&view, pod)?;
                self.updated += 1;
            }
        }
        self.done += 1;
        Ok(())
    }

    /// Checks the deletion of a pod outside of the range: from the highest ordinal down, once all
    /// desired pods exist, and after the owners of its claims are set.
    fn check_scale_down(&self, view: &View, pod: &Pod, world: &World) -> Checked {
        let (name, number) = (pod.name_any(), ordinal(pod));
        if view.is_ordered() {
            invariant!(self.done == 0, "{name} is deleted in one pass with another");
            invariant!(
                view.range().all(|wanted| view.is_fine(wanted)),
                "{name} is deleted while others are not available"
            );
            let others = || view.outside().filter(|other| other.metadata.uid != pod.metadata.uid);
            invariant!(
                others().all(|other| ordinal(other) < number),
                "{name} is deleted before a higher one"
            );
            let is_first = others().all(|other| view.is_fine(ordinal(other)));
            invariant!(
                view.is_fine(number) || is_first,
                "{name} is deleted while lower ones are not available"
            );
        }
        if !view.0.gates.retention || !deletes(view.0.set, "scaled") {
            return Ok(());
        }
        for claim in view.claims(number) {
            let is_stale =
                |owner: &OwnerReference| owner.kind == "Pod" && Some(&owner.uid) != pod.metadata.uid.as_ref();
            let live = world.claims.now().get(&claim.name_any()).filter(|live| live.uid() == claim.uid());
            let owners = live.map(|live| live.owner_references()).unwrap_or_default();
            let is_others =
                has_conflicting_controller(&claim) || claim.owner_references().iter().any(is_stale);
            let goes_with_it = owners.iter().any(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref());
            invariant!(
                live.is_none() || is_others || goes_with_it,
                "{name} is deleted without its claim: {owners:?}"
            );
        }
        Ok(())
    }

    /// Checks the deletion of a pod for an update: from the highest ordinal down to the partition,
    /// within `maxUnavailable`.
    fn updates(&self, view: &View, pod: &Pod) -> Checked {
        let (seen, name, number) = (view.0, pod.name_any(), ordinal(pod));
        invariant!(rollout::is_rolling(seen.set), "{name} is updated");
        invariant!(identity::revision(pod) != seen.update.name, "{name} is deleted for nothing");
        let partition = view.partition().unwrap_or(0);
        invariant!(view.index(number) >= partition, "{name} is updated below the partition");
        invariant!(
            !view.is_ordered() || view.outside().next().is_none(),
            "{name} is updated before others are gone"
        );
        let is_updated = |wanted: i32| {
            view.is_fine(wanted)
                && view.pod(wanted).is_some_and(|pod| identity::revision(pod) == seen.update.name)
        };
        match seen.gates.max_unavailable {
            false => {
                let late = (number + 1..view.range().end).find(|higher| !is_updated(*higher));
                invariant!(late.is_none(), "{name} is updated before {late:?}");
            }
            true => {
                let unavailable = view.range().filter(|wanted| !view.is_fine(*wanted)).count() + self.updated;
                let most = usize::try_from(rollout::max_unavailable(seen.set)).unwrap();
                invariant!(
                    unavailable < most,
                    "{name} is updated while {unavailable} of {most} are not available"
                );
            }
        }
        Ok(())
    }

    /// Checks the change of a claim's owners.
    pub fn owns(&self, seen: &Observed, after: &PersistentVolumeClaim) -> Checked {
        invariant!(seen.gates.retention, "the gate is off");
        let mut before = (seen.find_claim)(&after.name_any()).unwrap().as_ref().clone();
        let of_others = |claim: &PersistentVolumeClaim| -> Vec<OwnerReference> {
            let owners = claim.owner_references().iter().filter(|owner| owner.uid == ANOTHER);
            owners.cloned().collect()
        };
        invariant!(
            of_others(&before) == of_others(after),
            "the owners of {} by others change",
            after.name_any()
        );
        before.metadata.owner_references.clone_from(&after.metadata.owner_references);
        invariant!(before == *after, "more of {} changes than its owners", after.name_any());
        Ok(())
    }

    /// Checks a write of the status.
    pub fn updates_status(&self, seen: &Observed, status: &StatefulSetStatus) -> Checked {
        let count = |counts: &dyn Fn(&Pod) -> bool| seen.pods.iter().filter(|pod| counts(pod)).count();
        let is_ready = |pod: &Pod| pods::phase(pod) == "Running" && pods::is_ready(pod);
        let is_available =
            |pod: &Pod| is_ready(pod) && pods::is_available(pod, min_ready(seen.set), seen.now);
        let is_of = |pod: &Pod, name: &str| !pods::is_terminating(pod) && identity::revision(pod) == name;
        let reported =
            |count: Option<i32>| usize::try_from(count.unwrap_or(0)).map_err(|error| error.to_string());
        let counts = [
            reported(Some(status.replicas))?,
            reported(status.ready_replicas)?,
            reported(status.available_replicas)?,
        ];
        let truth = [seen.pods.len(), count(&is_ready), count(&is_available)];
        invariant!(counts == truth, "replicas, ready and available are {truth:?} and reported as {counts:?}");
        let updated = count(&|pod| is_of(pod, &seen.update.name));
        invariant!(reported(status.updated_replicas)? == updated, "{updated} are updated: {status:?}");
        let wanted = usize::try_from(identity::replicas(seen.set)).unwrap();
        let is_current = status.current_revision.as_ref() == Some(&seen.current.name);
        let is_complete = counts[..2] == [wanted; 2] && updated == wanted;
        invariant!(is_current || is_complete, "an update ends too early: {status:?}");
        let current = count(&|pod| is_of(pod, status.current_revision.as_deref().unwrap_or_default()));
        let deleted = if is_current && seen.current.name != seen.update.name { self.done } else { 0 };
        let reported_current = reported(status.current_replicas)?;
        invariant!(
            reported_current <= current && reported_current + deleted >= current,
            "{current} are current, {deleted} deleted: {status:?}"
        );
        invariant!(
            status.observed_generation == seen.set.metadata.generation,
            "another generation: {status:?}"
        );
        Ok(())
    }

    /// Checks that claims are only collected with their owners.
    pub fn collects(&self, claims: &[Arc<PersistentVolumeClaim>]) -> Checked {
        for claim in claims {
            let is_right = claim.owner_references().iter().any(|owner| self.condemned.contains(&owner.uid));
            invariant!(
                is_right,
                "{} goes against the policy: {:?}",
                claim.name_any(),
                claim.owner_references()
            );
        }
        Ok(())
    }
}

/// Checks that a set is in its final state: its pods and claims are as desired, and its status
/// agrees.
pub fn check_final_state(world: &World, set: &StatefulSet, gates: Gates) -> Checked {
    let range = range(set, gates);
    let wanted: BTreeSet<String> =
        range.clone().map(|ordinal| format!("{}-{ordinal}", set.name_any())).collect();
    let found: BTreeSet<String> = world.pods.now().keys().cloned().collect();
    invariant!(found == wanted, "pods {found:?}, not {wanted:?}");
    let status = set.status.clone().unwrap_or_default();
    let update = status.update_revision.clone().unwrap_or_default();
    for pod in world.pods.now().values() {
        let name = pod.name_any();
        invariant!(pods::is_ready(pod) && !pods::is_terminating(pod), "{name} is not ready");
        invariant!(identity::repaired(set, pod).is_none(), "{name} is not what it should be");
        let index = ordinal(pod) - range.start;
        let is_held =
            !rollout::is_rolling(set) || usize::try_from(index).unwrap() < partition(set).unwrap_or(0);
        invariant!(is_held || identity::revision(pod) == update, "{name} is not updated");
        for claim in identity::claim_names(set, ordinal(pod)) {
            let claim = world.claims.now().get(&claim).ok_or(format!("{name} has no {claim}"))?;
            owned_as_wanted(claim, set, pod, gates)?;
        }
    }
    let count = i32::try_from(wanted.len()).unwrap();
    let counts = [Some(status.replicas), status.ready_replicas, status.available_replicas];
    invariant!(counts.map(Option::unwrap_or_default) == [count; 3], "there are {count}: {status:?}");
    let is_complete = !rollout::is_rolling(set)
        || partition(set).unwrap_or(0) > 0
        || status.current_revision == status.update_revision;
    invariant!(is_complete, "the update does not end: {status:?}");
    Ok(())
}

/// Checks the owner of a claim of a desired pod against the retention policy.
fn owned_as_wanted(claim: &PersistentVolumeClaim, set: &StatefulSet, pod: &Pod, gates: Gates) -> Checked {
    let is_ours = |owner: &&OwnerReference| owner.uid != ANOTHER;
    let ours: Vec<&String> =
        claim.owner_references().iter().filter(is_ours).map(|owner| &owner.uid).collect();
    let wanted = (deletes(set, "deleted") && !has_conflicting_controller(claim)).then(|| set.uid().unwrap());
    let wanted: Vec<&String> = wanted.iter().collect();
    // A claim that is deleted with an earlier pod stays owned by that pod.
    let is_free = claim.metadata.deletion_timestamp.is_some() || !gates.retention;
    invariant!(
        is_free || ours == wanted,
        "{} of {} is of {ours:?}, not {wanted:?}",
        claim.name_any(),
        pod.name_any()
    );
    Ok(())
}

/// The objects that a pass has observed, with accessors for the invariants.
struct View<'a>(&'a Observed<'a>);

impl View<'_> {
    fn range(&self) -> Range<i32> {
        range(self.0.set, self.0.gates)
    }

    fn index(&self, ordinal: i32) -> usize {
        usize::try_from(ordinal - self.range().start).unwrap()
    }

    fn partition(&self) -> Option<usize> {
        partition(self.0.set)
    }

    fn is_ordered(&self) -> bool {
        self.0.set.spec.as_ref().unwrap().pod_management_policy.as_deref() != Some("Parallel")
    }

    fn pod(&self, number: i32) -> Option<&Arc<Pod>> {
        self.0.pods.iter().find(|pod| ordinal(pod) == number)
    }

    fn outside(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let range = self.range();
        self.0.pods.iter().filter(move |pod| !range.contains(&ordinal(pod)))
    }

    /// Returns `true` if the pod exists, is available and is not terminating.
    fn is_fine(&self, ordinal: i32) -> bool {
        self.pod(ordinal).is_some_and(|pod| {
            pods::phase(pod) == "Running"
                && !pods::is_terminating(pod)
                && pods::is_available(pod, min_ready(self.0.set), self.0.now)
        })
    }

    fn claims(&self, ordinal: i32) -> impl Iterator<Item = Arc<PersistentVolumeClaim>> {
        identity::claim_names(self.0.set, ordinal).filter_map(|name| (self.0.find_claim)(&name))
    }
}

/// Returns the desired ordinals.
pub fn range(set: &StatefulSet, gates: Gates) -> Range<i32> {
    let spec = set.spec.as_ref().unwrap();
    let start = spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0);
    let start = if gates.start { start } else { 0 };
    start..start + spec.replicas.unwrap()
}

fn ordinal(pod: &Pod) -> i32 {
    identity::ordinal(pod).unwrap()
}

fn min_ready(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
}

/// Returns the partition, or `None` if the strategy does not have one.
fn partition(set: &StatefulSet) -> Option<usize> {
    let strategy = set.spec.as_ref()?.update_strategy.as_ref()?;
    usize::try_from(strategy.rolling_update.as_ref()?.partition.unwrap_or(0)).ok()
}

fn without_partition() -> k8s_openapi::api::apps::v1::StatefulSetUpdateStrategy {
    serde_json::from_value(json!({"type": "RollingUpdate"})).unwrap()
}

fn deletes(set: &StatefulSet, when: &str) -> bool {
    let policy = set.spec.as_ref().and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
    let what = policy.and_then(|policy| match when {
        "scaled" => policy.when_scaled.as_deref(),
        _ => policy.when_deleted.as_deref(),
    });
    what == Some("Delete")
}

/// Returns `true` if another object controls a claim.
fn has_conflicting_controller(claim: &PersistentVolumeClaim) -> bool {
    claim.owner_references().iter().any(|owner| owner.uid == ANOTHER)
}
