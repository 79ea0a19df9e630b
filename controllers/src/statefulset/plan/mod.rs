//! The decision: from a set, its revisions, pods and claims to the steps, in order, and the status.
//!
//! The order is: the desired pods, from the lowest ordinal up; the claims of the other pods, and
//! then those pods, from the highest down; the pods of older revisions. Ordered sets stop at the
//! first pod that is not as desired, parallel ones skip it.
//!
//! The cost of a plan is proportional to the existing pods and the few that are created next, not
//! to the desired number.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use coracle_kinds::pods;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec};
use k8s_openapi::jiff::Timestamp;

use super::retention::{self, OwnerUpdate};
use super::{identity, rollout, status};
use crate::workload::pacing;

/// The maximum number of pods that one plan creates. The next ones follow once these are observed.
const MAX_CREATIONS: usize = 1000;

#[derive(Clone, Copy, Debug)]
pub(super) struct Gates {
    /// StatefulSetAutoDeletePVC.
    pub retention: bool,
    /// StatefulSetStartOrdinal.
    pub start: bool,
    /// MaxUnavailableStatefulSet.
    pub max_unavailable: bool,
}

pub(super) struct Revision {
    pub name: String,
    pub template: Arc<PodTemplateSpec>,
}

/// Finds a claim of the set's namespace by its name.
pub(super) type FindClaim<'a> = &'a dyn Fn(&str) -> Option<Arc<PersistentVolumeClaim>>;

/// All that a decision depends on.
pub(super) struct Observed<'a> {
    pub set: &'a StatefulSet,
    pub current: Revision,
    pub update: Revision,
    pub collisions: i32,
    /// The set's own.
    pub pods: &'a [Arc<Pod>],
    pub find_claim: FindClaim<'a>,
    pub now: Timestamp,
    pub gates: Gates,
}

#[derive(Debug)]
pub(super) struct Plan {
    /// The stages of the plan. An error ends the stages: each of them requires the previous ones.
    pub stages: Vec<Vec<Step>>,
    /// Whether the steps of a stage need not wait for each other.
    pub is_burst: bool,
    /// The pods to delete last, for the update. The status no longer counts them.
    pub outdated: Vec<Arc<Pod>>,
    pub status: StatefulSetStatus,
    /// The time until a pod becomes available.
    pub requeue_after: Option<Duration>,
}

#[derive(Debug)]
pub(super) enum Step {
    /// Creates a missing pod: [`identity::placeholder`], and the template from which it is made
    /// before its creation.
    Create {
        pod: Arc<Pod>,
        template: Arc<PodTemplateSpec>,
        claims: PodClaims,
        owners: ClaimOwners,
    },
    /// Creates the missing claims of a pod that waits for them.
    ProvideClaims {
        pod: Arc<Pod>,
        claims: PodClaims,
        owners: ClaimOwners,
    },
    /// The pod, as it should be.
    Update {
        pod: Arc<Pod>,
        claims: PodClaims,
        owners: ClaimOwners,
    },
    UpdateClaimOwners(ClaimOwners),
    Delete(Arc<Pod>),
}

/// The claims of a pod that cannot be used.
#[derive(Debug, Default)]
pub(super) struct PodClaims {
    pub missing: Vec<PersistentVolumeClaim>,
    /// The names of the claims that are terminating.
    pub terminating: Vec<String>,
}

/// The names of claims, and the updates of their owners.
pub(super) type ClaimOwners = Vec<(String, OwnerUpdate)>;

pub(super) fn plan(seen: &Observed) -> Plan {
    let set = seen.set;
    let names = (seen.current.name.as_str(), seen.update.name.as_str());
    let status = status::count(set, names, seen.collisions, seen.pods, seen.now);
    let requeue_after = seen.requeue_after(&status);
    let is_parallel =
        set.spec.as_ref().and_then(|spec| spec.pod_management_policy.as_deref()) == Some("Parallel");
    let mut plan =
        Plan { stages: Vec::new(), is_burst: is_parallel, outdated: Vec::new(), status, requeue_after };
    if set.metadata.deletion_timestamp.is_none() {
        seen.decide(&mut plan, !is_parallel);
    }
    plan
}

impl Observed<'_> {
    /// Adds stages until one has to be waited for.
    fn decide(&self, plan: &mut Plan, ordered: bool) {
        let (there, condemned) = self.split();
        let (stage, replicas) = self.reconcile_replicas(there, ordered);
        plan.stages.push(stage);
        let Some(replicas) = replicas else { return };
        plan.stages.push(condemned.iter().filter_map(|pod| self.release_claims(pod)).collect());
        let first_unhealthy =
            replicas.iter().chain(condemned.iter().rev()).find(|pod| self.is_unavailable(pod));
        let mut stage = Vec::new();
        for pod in &condemned {
            let is_first = first_unhealthy.is_some_and(|first| Arc::ptr_eq(first, pod));
            let may_go = status::is_running_and_ready(pod) && !self.is_unavailable(pod) || is_first;
            if !pods::is_terminating(pod) && (may_go || !ordered) {
                stage.push(Step::Delete(pod.clone()));
            }
            if ordered {
                plan.stages.push(stage);
                return;
            }
        }
        plan.stages.push(stage);
        let at_most = self.gates.max_unavailable.then(|| rollout::max_unavailable(self.set));
        let is_unavailable = |pod: &Pod| self.is_unavailable(pod);
        let first = identity::ordinals(self.set, self.gates.start).start;
        let is_below_partition = |pod: &&Arc<Pod>| {
            let index = identity::ordinal(pod).and_then(|ordinal| usize::try_from(ordinal - first).ok());
            index.is_some_and(|index| index < rollout::partition(self.set))
        };
        let above = &replicas[replicas.iter().filter(is_below_partition).count()..];
        let unavailable = replicas.iter().filter(|pod| is_unavailable(pod)).count();
        let free = at_most.map(|most| usize::try_from(most).unwrap_or(0).saturating_sub(unavailable));
        plan.outdated = rollout::outdated(self.set, above, &self.update.name, is_unavailable, free);
    }

    /// Returns the steps for the desired pods, and these pods in the order of their ordinals. Pods
    /// that are created are placeholders, and pods that may not be created yet are left out. The
    /// pods are `None` if an ordered set has to wait for one of them.
    fn reconcile_replicas(
        &self,
        mut there: BTreeMap<i32, Arc<Pod>>,
        ordered: bool,
    ) -> (Vec<Step>, Option<Vec<Arc<Pod>>>) {
        let (mut stage, mut replicas) = (Vec::new(), Vec::with_capacity(there.len()));
        let wanted = usize::try_from(identity::replicas(self.set)).unwrap_or(0);
        let mut allowed = pacing::allowed_creations(wanted, self.pods).min(MAX_CREATIONS);
        for (index, ordinal) in identity::ordinals(self.set, self.gates.start).enumerate() {
            let existing = there.remove(&ordinal);
            if existing.is_none() && allowed == 0 {
                if ordered {
                    return (stage, None);
                }
                // In a parallel set neither the pods beyond the gap nor the following stages wait
                // for it.
                stage.extend(there.values().filter_map(|pod| self.reconcile_replica(pod, ordered).0));
                replicas.extend(there.into_values());
                return (stage, Some(replicas));
            }
            let pod = existing.unwrap_or_else(|| {
                Arc::new(identity::placeholder(self.set, ordinal, &self.revision_of(index).name))
            });
            let (step, flow) = match pods::phase(&pod) {
                "" => (self.create(&pod, index), ControlFlow::Break(())),
                _ => self.reconcile_replica(&pod, ordered),
            };
            allowed = allowed.saturating_sub(matches!(step, Some(Step::Create { .. })).into());
            stage.extend(step);
            if ordered && flow.is_break() {
                return (stage, None);
            }
            replicas.push(pod);
        }
        (stage, Some(replicas))
    }

    /// Returns the revision for a missing pod.
    ///
    /// - `index`: the position of the pod, counted from the first ordinal
    fn revision_of(&self, index: usize) -> &Revision {
        if rollout::is_below_partition(self.set, index) { &self.current } else { &self.update }
    }

    /// Returns the existing desired pods by ordinal, and the other pods from the highest ordinal
    /// down.
    fn split(&self) -> (BTreeMap<i32, Arc<Pod>>, Vec<Arc<Pod>>) {
        let mut there = BTreeMap::new();
        let mut condemned = Vec::new();
        let range = identity::ordinals(self.set, self.gates.start);
        for pod in self.pods {
            match identity::ordinal(pod) {
                Some(ordinal) if range.contains(&ordinal) => drop(there.insert(ordinal, pod.clone())),
                Some(ordinal) => condemned.push((ordinal, pod.clone())),
                None => {}
            }
        }
        condemned.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
        (there, condemned.into_iter().map(|(_, pod)| pod).collect())
    }

    /// Returns the step that creates a missing pod, or `None` while a claim of an earlier pod of
    /// the same name blocks it.
    fn create(&self, pod: &Arc<Pod>, index: usize) -> Option<Step> {
        if self.has_blocking_claim(pod) {
            return None;
        }
        let (claims, owners) = (self.claims(pod), self.owners(pod, false));
        Some(Step::Create {
            pod: pod.clone(),
            template: self.revision_of(index).template.clone(),
            claims,
            owners,
        })
    }

    /// Returns the step for a desired pod that exists, and whether the pods after it have to wait.
    fn reconcile_replica(&self, pod: &Arc<Pod>, ordered: bool) -> (Option<Step>, ControlFlow<()>) {
        match pods::phase(pod) {
            // However it ended, it is started again.
            "Failed" | "Succeeded" => {
                return (
                    (!pods::is_terminating(pod)).then(|| Step::Delete(pod.clone())),
                    ControlFlow::Break(()),
                );
            }
            _ => {}
        }
        let is_pending = pods::phase(pod) == "Pending";
        let stop = self.is_unavailable(pod) || !status::is_running_and_ready(pod);
        let repaired = identity::repaired(self.set, pod).filter(|_| !(ordered && stop));
        let owners = self.owners(pod, false);
        let has_wrong_owner = owners.iter().any(|(_, update)| update.change.is_some());
        // A pod that has all its volumes keeps running with a terminating claim.
        let needs_claims = is_pending || !identity::has_volumes(self.set, pod);
        let claims = if needs_claims { self.claims(pod) } else { PodClaims::default() };
        let step = match repaired {
            Some(repaired) => Some(Step::Update { pod: Arc::new(repaired), claims, owners }),
            None if is_pending => {
                let lacks =
                    !claims.missing.is_empty() || !claims.terminating.is_empty() || !owners.is_empty();
                lacks.then(|| Step::ProvideClaims { pod: pod.clone(), claims, owners })
            }
            None if has_wrong_owner && !(ordered && stop) => {
                Some(Step::Update { pod: pod.clone(), claims, owners })
            }
            None => None,
        };
        (step, if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// Returns the step that updates the claims of a pod that is no longer desired.
    fn release_claims(&self, pod: &Pod) -> Option<Step> {
        let owners = self.owners(pod, true);
        owners.iter().any(|(_, update)| update.change.is_some()).then_some(Step::UpdateClaimOwners(owners))
    }

    fn is_unavailable(&self, pod: &Pod) -> bool {
        pods::is_terminating(pod) || !pods::is_available(pod, self.min_ready_seconds(), self.now)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn requeue_after(&self, status: &StatefulSetStatus) -> Option<Duration> {
        let seconds = self.min_ready_seconds();
        if seconds == 0 || status.ready_replicas == status.available_replicas {
            return None;
        }
        let waiting = self.pods.iter().filter_map(|pod| pods::time_until_available(pod, seconds, self.now));
        let first = waiting.filter(|left| !left.is_zero()).min();
        Some(first.unwrap_or(Duration::from_secs(seconds.unsigned_abs().into())))
    }

    fn claims(&self, pod: &Pod) -> PodClaims {
        let Some(ordinal) = identity::ordinal(pod) else { return PodClaims::default() };
        let missing = identity::claims(self.set, ordinal, |name| (self.find_claim)(name).is_some());
        let terminating =
            self.claims_there(pod).filter(|(_, claim)| claim.metadata.deletion_timestamp.is_some());
        PodClaims { missing: missing.collect(), terminating: terminating.map(|(name, _)| name).collect() }
    }

    /// Iterates over the existing claims of a pod.
    fn claims_there(&self, pod: &Pod) -> impl Iterator<Item = (String, Arc<PersistentVolumeClaim>)> {
        let names =
            identity::ordinal(pod).into_iter().flat_map(|ordinal| identity::claim_names(self.set, ordinal));
        names.filter_map(|name| (self.find_claim)(&name).map(|claim| (name, claim)))
    }

    fn owners(&self, pod: &Pod, is_condemned: bool) -> ClaimOwners {
        if !self.gates.retention {
            return Vec::new();
        }
        let judged = self
            .claims_there(pod)
            .map(|(name, claim)| (name, retention::owner_update(&claim, self.set, pod, is_condemned)));
        judged.filter(|(_, update)| *update != OwnerUpdate::default()).collect()
    }

    fn has_blocking_claim(&self, pod: &Pod) -> bool {
        self.gates.retention
            && self.claims_there(pod).any(|(_, claim)| retention::blocks(&claim, self.set, pod))
    }
}

#[cfg(test)]
mod tests;
