//! The claims of one pod in a scheduling cycle: the filter, the score and the binding.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use coracle_device_allocation::{AllocationError, Budget};
use coracle_kinds::node_affinity::selects;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequest, ResourceClaim};
use k8s_openapi::jiff::Timestamp;
use uuid::Builder;

use super::extended::{ExtendedClaim, ExtendedResources};
use super::snapshot::DeviceSnapshot;
use super::{Readiness, allocation_of, is_reserved_for, reserved_for, results};
use crate::scheduler::candidate::Rejection;
use crate::scheduler::node_info::NodeInfo;
use crate::scheduler::pod_info::uid;

/// The alternatives of a request: the best one has this score.
const MAX_ALTERNATIVES: usize = 8;

/// The claims of a pod that is being scheduled, and the results of the filter.
pub struct PodDevices<'a> {
    snapshot: &'a DeviceSnapshot,
    uid: String,
    claims: Vec<Arc<ResourceClaim>>,
    extended: Option<ExtendedResources>,
    /// The steps that the searches may do, and those that are left.
    steps: u64,
    budget: Budget,
    /// The results by the names of nodes. They do not depend on the pods of a node.
    outcomes: RefCell<HashMap<String, Outcome>>,
    /// The indexes of allocated claims that are not available on some node.
    unavailable: RefCell<BTreeSet<usize>>,
    error: RefCell<Option<String>>,
    has_timed_out: Cell<bool>,
}

/// The result of the filter for a node. Allocations can be large, so that only the one of the
/// chosen node is made.
#[derive(Clone, Default)]
struct Outcome {
    rejection: Option<String>,
    /// The score of the alternatives of requests, which is not normalized.
    score: usize,
}

/// The writes to the claims of a pod before it is bound.
#[derive(Clone, Debug, Default)]
pub struct DeviceBinding {
    /// The claims that are not reserved for the pod yet.
    pub claims: Vec<ClaimBinding>,
    /// The claim for extended resources, which does not exist yet.
    pub extended: Option<Box<ExtendedClaim>>,
    /// Whether the pod has to wait for conditions of its devices.
    pub has_conditions: bool,
}

/// A claim to be reserved for a pod.
#[derive(Clone, Debug)]
pub struct ClaimBinding {
    pub claim: Arc<ResourceClaim>,
    /// The allocation, if the claim has none.
    pub allocation: Option<AllocationResult>,
}

/// The end of a claim that keeps its pod from being scheduled.
#[derive(Clone, Debug)]
pub enum Cleanup {
    /// The claim loses its allocation.
    Deallocate(Arc<ResourceClaim>),
    /// The claim is deleted.
    Delete(Arc<ResourceClaim>),
}

impl<'a> PodDevices<'a> {
    pub(super) fn new(
        snapshot: &'a DeviceSnapshot,
        pod: &Pod,
        claims: Vec<Arc<ResourceClaim>>,
        extended: Option<ExtendedResources>,
        steps: u64,
    ) -> PodDevices<'a> {
        PodDevices {
            snapshot,
            uid: uid(pod).to_owned(),
            claims,
            extended,
            steps,
            budget: Budget::new(steps),
            outcomes: RefCell::default(),
            unavailable: RefCell::default(),
            error: RefCell::default(),
            has_timed_out: Cell::default(),
        }
    }

    fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.extended.is_none()
    }

    /// Returns `true` if a resource that the pod requests is to be allocated as devices of a class
    /// on nodes that do not have it otherwise.
    pub fn delegates(&self, resource: &str) -> bool {
        self.extended.as_ref().is_some_and(|extended| extended.has(resource))
    }

    /// Returns the error that ended the attempt to schedule the pod.
    pub fn error(&self) -> Option<String> {
        self.error.borrow().clone()
    }

    /// Returns `true` if that error is that the search took too long.
    pub fn has_timed_out(&self) -> bool {
        self.has_timed_out.get()
    }

    /// Returns the rejection if the claims are not available on a node, or no devices are.
    pub fn rejection(&self, info: &NodeInfo) -> Option<Rejection> {
        if self.is_empty() {
            return None;
        }
        if let Some(known) = self.outcomes.borrow().get(info.name()) {
            return known.rejection.as_deref().and_then(Rejection::unresolvable);
        }
        let before = self.budget.left();
        let outcome = match self.check(info) {
            Ok(score) => Outcome { score, ..Outcome::default() },
            Err(reason) => Outcome { rejection: Some(reason), ..Outcome::default() },
        };
        self.snapshot.count_steps(before - self.budget.left());
        let rejection = outcome.rejection.as_deref().and_then(Rejection::unresolvable);
        self.outcomes.borrow_mut().insert(info.name().to_owned(), outcome);
        rejection
    }

    /// Returns the score of a node.
    ///
    /// # Errors
    /// The reason why the pod does not fit it.
    fn check(&self, info: &NodeInfo) -> Result<usize, String> {
        let extended = self.extended_on(info)?;
        let mut unavailable = false;
        for (index, claim) in self.claims.iter().enumerate() {
            if allocation_of(claim).is_some() && !is_available(claim, &info.node, self.snapshot.now()) {
                self.unavailable.borrow_mut().insert(index);
                unavailable = true;
            }
        }
        let claims = self.to_allocate(extended.as_deref());
        let mut score = 0;
        if !claims.is_empty() {
            let chosen = self.snapshot.allocator().choose(&info.node, &claims, &self.budget);
            let chosen = self.found(chosen, &info.node)?;
            let of_all = claims.iter().zip(&chosen).map(|(claim, chosen)| score_of_new(claim, chosen));
            score = of_all.fold(0, usize::saturating_add);
        }
        if unavailable {
            return Err("resourceclaim not available on the node".to_owned());
        }
        Ok(score)
    }

    /// Returns the claim for the extended resources that a node does not have itself.
    fn extended_on(&self, info: &NodeInfo) -> Result<Option<Box<ExtendedClaim>>, String> {
        let extended = self.extended.as_ref().map(|extended| extended.claim_on(info)).transpose()?;
        Ok(extended.flatten().map(Box::new))
    }

    /// Returns the claims without an allocation. The one for extended resources is the last one.
    fn to_allocate<'c>(&'c self, extended: Option<&'c ExtendedClaim>) -> Vec<&'c ResourceClaim> {
        let extended = extended.map(|extended| &extended.claim);
        self.unallocated().map(Arc::as_ref).chain(extended).collect()
    }

    fn unallocated(&self) -> impl Iterator<Item = &Arc<ResourceClaim>> {
        self.claims.iter().filter(|claim| allocation_of(claim).is_none())
    }

    /// Allocates devices of the chosen node. The search is repeated, and has the same result: its
    /// steps are no more than all searches of the filter had.
    fn allocate(&self, claims: &[&ResourceClaim], node: &Node) -> Result<Vec<AllocationResult>, String> {
        let mut count = 0;
        let mut share_id = |claim: &ResourceClaim, request: &str| {
            count += 1;
            let random = || uuid::Uuid::new_v4().as_u128();
            let path = [self.uid.as_str(), claim.metadata.uid.as_deref().unwrap_or_default(), request];
            let bits = self.snapshot.seed.map_or_else(random, |seed| seed.bits("share", &path, count));
            Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string()
        };
        let budget = Budget::new(self.steps);
        let allocated = self.snapshot.allocator().allocate(node, claims, &budget, &mut share_id);
        self.snapshot.count_steps(self.steps.saturating_sub(budget.left()));
        self.found(allocated, node)
    }

    /// Returns the result of a search, or the reason why there is none. An error that does not
    /// depend on the node is recorded.
    fn found<T>(&self, found: Result<Option<T>, AllocationError>, node: &Node) -> Result<T, String> {
        let error = match found {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => return Err("cannot allocate all claims".to_owned()),
            Err(error @ AllocationError::InvalidPools) => return Err(error.to_string()),
            Err(error @ AllocationError::OutOfSteps) => {
                self.has_timed_out.set(true);
                format!("node {}: {error}", node.metadata.name.as_deref().unwrap_or_default())
            }
            Err(error @ AllocationError::Fatal(_)) => error.to_string(),
        };
        *self.error.borrow_mut() = Some(format!("running \"DynamicResources\" filter plugin: {error}"));
        Err(error)
    }

    /// Returns the score of a feasible node: the better the chosen alternatives, the higher. It is
    /// not normalized.
    pub fn score(&self, node: &str) -> i64 {
        let of_new = self.outcomes.borrow().get(node).map_or(0, |outcome| outcome.score);
        let of_known = self.claims.iter().map(|claim| score_of_known(claim));
        i64::try_from(of_known.fold(of_new, usize::saturating_add)).unwrap_or(i64::MAX)
    }

    /// Returns how the plugin helps a pod that fits no node: its text, and the claim that has to
    /// give its devices back.
    pub fn post_filter(&self) -> (&'static str, Option<Cleanup>) {
        if self.is_empty() {
            return (NOTHING_TO_DEALLOCATE, None);
        }
        for index in self.unavailable.borrow().iter() {
            let Some(claim) = self.claims.get(*index) else { continue };
            let is_unused = match reserved_for(claim) {
                [] => true,
                [only] => only.uid == self.uid,
                _ => false,
            };
            if is_unused {
                return ("deallocation of ResourceClaim completed", Some(Cleanup::Deallocate(claim.clone())));
            }
        }
        match self.extended.as_ref().and_then(ExtendedResources::stale_claim) {
            Some(claim) => ("deletion of ResourceClaim completed", Some(Cleanup::Delete(claim.clone()))),
            None => ("still not schedulable", None),
        }
    }

    /// Returns the writes to the claims before the pod is bound to a node; None if it has none.
    ///
    /// # Errors
    /// The reason why there is no allocation on the node, which the filter would have found.
    pub fn binding(&self, pod: &Pod, info: &NodeInfo) -> Result<Option<DeviceBinding>, String> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut extended = self.extended_on(info)?;
        // The node has the extended resources itself.
        if self.claims.is_empty() && extended.is_none() {
            return Ok(None);
        }
        let claims = self.to_allocate(extended.as_deref());
        let mut allocations = match claims.is_empty() {
            true => Vec::new(),
            false => self.allocate(&claims, &info.node)?,
        };
        if let Some(extended) = &mut extended {
            extended.allocation = allocations.pop().unwrap_or_default();
        }
        let mut new = allocations.into_iter();
        let mut binding = DeviceBinding { extended, ..DeviceBinding::default() };
        let waits = |allocation: &AllocationResult| {
            results(allocation)
                .any(|result| result.binding_conditions.as_ref().is_some_and(|all| !all.is_empty()))
        };
        binding.has_conditions =
            binding.extended.as_ref().is_some_and(|extended| waits(&extended.allocation));
        for claim in &self.claims {
            let allocation = match allocation_of(claim) {
                Some(known) => {
                    binding.has_conditions |= waits(known);
                    None
                }
                None => new.next(),
            };
            binding.has_conditions |= allocation.as_ref().is_some_and(waits);
            if !is_reserved_for(claim, pod) {
                binding.claims.push(ClaimBinding { claim: claim.clone(), allocation });
            }
        }
        Ok(Some(binding))
    }
}

/// Returns the score of the alternatives that were chosen for a claim.
fn score_of_new(claim: &ResourceClaim, chosen: &[usize]) -> usize {
    let with_choice = requests(claim).zip(chosen).filter(|(request, _)| request.first_available.is_some());
    with_choice.map(|(_, index)| MAX_ALTERNATIVES.saturating_sub(*index)).fold(0, usize::saturating_add)
}

/// Returns the score of the alternatives of which an allocated claim has devices.
fn score_of_known(claim: &ResourceClaim) -> usize {
    let Some(allocation) = allocation_of(claim) else { return 0 };
    let mut score: usize = 0;
    for request in requests(claim) {
        for (index, alternative) in request.first_available.iter().flatten().enumerate() {
            let reference = format!("{}/{}", request.name, alternative.name);
            if results(allocation).any(|result| result.request == reference) {
                score = score.saturating_add(MAX_ALTERNATIVES.saturating_sub(index));
            }
        }
    }
    score
}

fn requests(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequest> {
    claim.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten())
}

/// The text for pods without claims.
pub const NOTHING_TO_DEALLOCATE: &str = "no new claims to deallocate";

/// Returns `true` if an allocated claim is available on a node, and its devices have not failed.
fn is_available(claim: &ResourceClaim, node: &Node, now: Timestamp) -> bool {
    let Some(allocation) = allocation_of(claim) else { return true };
    let is_for_node = allocation.node_selector.as_ref().is_none_or(|selector| selects(selector, node));
    is_for_node && !matches!(Readiness::of(claim, now), Readiness::Failed(_))
}
