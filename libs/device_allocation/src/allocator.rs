//! The allocator: the entry point, and the preparation of a search.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim};

use crate::MAX_RESULTS;
use crate::allocated::AllocatedState;
use crate::allocation::{ShareId, allocation, check_nodes};
use crate::budget::Budget;
use crate::constraints::Constraint;
use crate::error::AllocationError;
use crate::inventory::Inventory;
use crate::pools::{PoolState, gather_pools};
use crate::requests::Request;
use crate::search::{Alternative, ClaimState, RequestState, Search};
use crate::selectors::SelectorCache;

/// DeviceClasses by name.
pub type DeviceClasses = BTreeMap<String, Arc<DeviceClass>>;

/// Allocates devices for claims.
#[derive(Clone, Copy, Debug)]
pub struct Allocator<'a> {
    /// The devices of the cluster.
    pub inventory: &'a Inventory,
    /// The classes that requests name.
    pub classes: &'a DeviceClasses,
    /// The devices that other claims have.
    pub allocated: &'a AllocatedState,
    /// The compiled selectors.
    pub selectors: &'a SelectorCache,
}

impl Allocator<'_> {
    /// Returns an allocation for each claim, so that all of them are available on a node; None if
    /// the devices do not suffice.
    ///
    /// - `share_id`: returns a new uid, for an allocation of a device that several claims share,
    ///   from a claim and the name of its request
    ///
    /// # Errors
    /// [`AllocationError`], if the devices do not suffice for another reason than their number.
    pub fn allocate(
        &self,
        node: &Node,
        claims: &[&ResourceClaim],
        budget: &Budget,
        share_id: ShareId<'_>,
    ) -> Result<Option<Vec<AllocationResult>>, AllocationError> {
        let Some(search) = self.search(node, claims, budget)? else { return Ok(None) };
        let results = claims.iter().zip(&search.claims);
        let results = results.map(|(claim, state)| allocation(claim, state, &search, share_id));
        results.collect::<Result<_, _>>().map(Some)
    }

    /// Returns the index of the alternative that [`Allocator::allocate`] chooses for each request
    /// of each claim; None if the devices do not suffice.
    ///
    /// # Errors
    /// The same as those of [`Allocator::allocate`].
    pub fn choose(
        &self,
        node: &Node,
        claims: &[&ResourceClaim],
        budget: &Budget,
    ) -> Result<Option<Vec<Vec<usize>>>, AllocationError> {
        let Some(search) = self.search(node, claims, budget)? else { return Ok(None) };
        let mut chosen = Vec::new();
        for claim in &search.claims {
            check_nodes(claim, &search)?;
            chosen.push(claim.requests.iter().map(|request| request.chosen).collect());
        }
        Ok(Some(chosen))
    }

    /// Searches devices. None: they do not suffice.
    fn search<'a, 's>(
        &'s self,
        node: &'s Node,
        claims: &[&'a ResourceClaim],
        budget: &'s Budget,
    ) -> Result<Option<Search<'a, 's>>, AllocationError>
    where
        's: 'a,
    {
        let pools = gather_pools(self.inventory, node, budget)?;
        let has_invalid = pools.iter().any(|pool| pool.state == PoolState::Invalid);
        let mut search = Search::new(node, pools, self.allocated, self.selectors, budget)?;
        let mut states = Vec::new();
        for claim in claims {
            let state = self.prepare(claim, &search)?;
            states.push(state);
        }
        search.claims = states;
        if !search.run()? {
            return if has_invalid { Err(AllocationError::InvalidPools) } else { Ok(None) };
        }
        Ok(Some(search))
    }

    /// Resolves the requests and the constraints of a claim.
    fn prepare<'a>(
        &self,
        claim: &'a ResourceClaim,
        search: &Search<'a, '_>,
    ) -> Result<ClaimState<'a>, AllocationError>
    where
        Self: 'a,
    {
        let name = claim_name(claim);
        let devices = claim.spec.devices.as_ref();
        let mut state = ClaimState { name, ..ClaimState::default() };
        let mut least: usize = 0;
        for request in devices.iter().flat_map(|devices| devices.requests.iter().flatten()) {
            let mut alternatives = Vec::new();
            for alternative in Request::alternatives(request) {
                alternatives.push(self.resolve(alternative, &state.name, search)?);
            }
            let counts = alternatives.iter().map(|alternative| alternative.count);
            let Some(fewest) = counts.min() else {
                let text = format!("claim {}, request {}: unknown request type", state.name, request.name);
                return AllocationError::fatal(text);
            };
            least = least.saturating_add(fewest);
            state.requests.push(RequestState {
                has_choice: request.exactly.is_none(),
                alternatives,
                chosen: 0,
            });
        }
        if least > MAX_RESULTS {
            return AllocationError::fatal(format!(
                "claim {}: number of requested devices {least} exceeds the claim limit of {MAX_RESULTS}",
                state.name
            ));
        }
        let constraints = devices.iter().flat_map(|devices| devices.constraints.iter().flatten());
        for (index, constraint) in constraints.enumerate() {
            let Some(constraint) = Constraint::new(constraint) else {
                return AllocationError::fatal(format!(
                    "claim {}, constraint #{index}: empty constraint (unsupported constraint type?)",
                    state.name
                ));
            };
            state.constraints.push(constraint);
        }
        Ok(state)
    }

    /// Resolves the class of a request and the number of its devices.
    fn resolve<'a>(
        &self,
        request: Request<'a>,
        claim: &str,
        search: &Search<'a, '_>,
    ) -> Result<Alternative<'a>, AllocationError> {
        let at = || format!("claim {claim}, request {}", request.short_name());
        let name = request.class();
        let Some(class) = self.classes.get(name) else {
            return AllocationError::fatal(format!(
                "{}: could not retrieve device class {name}: deviceclass.resource.k8s.io {name:?} not found",
                at()
            ));
        };
        let mut alternative = Alternative::new(request, class.clone());
        match request.mode() {
            "ExactCount" => alternative.count = request.count(),
            "All" => {
                let mut all = Vec::new();
                for (index, pool) in search.pools.iter().enumerate() {
                    let state = match pool.state {
                        PoolState::Complete => {
                            all.extend(search.selectable(&alternative, claim, index)?);
                            continue;
                        }
                        PoolState::Incomplete => "being updated",
                        PoolState::Invalid => "invalid",
                    };
                    return AllocationError::fatal(format!(
                        "{}: asks for all devices, but resource pool {}/{} is currently {state}",
                        at(),
                        pool.driver,
                        pool.name
                    ));
                }
                alternative.count = all.len();
                alternative.all = Some(all);
            }
            mode => return AllocationError::fatal(format!("{}: unsupported count mode {mode}", at())),
        }
        Ok(alternative)
    }
}

/// Returns the name of a claim with its namespace.
fn claim_name(claim: &ResourceClaim) -> String {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    match claim.metadata.namespace.as_deref() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}
