//! The devices of a search: which ones a request can have, and taking and giving them back.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::DeviceSelector;

use super::{Alternative, Candidate, DeviceResult, Position, Search};
use crate::capacity::{Capacity, has_capacity, is_shareable, share};
use crate::counters::consumes_counters;
use crate::error::AllocationError;
use crate::pools::{has_nodes_of_devices, is_device_for_node};
use crate::requests::Request;

impl<'a> Search<'a, '_> {
    /// Returns `true` if nothing has a device that the request would share with it.
    pub(super) fn is_free(&self, at: Position, candidate: usize) -> bool {
        let has_admin_access = self.alternative(at).is_some_and(|found| found.request.has_admin_access());
        self.candidates.get(candidate).is_some_and(|candidate| match has_admin_access {
            true => !candidate.taken_by.contains(&at.claim),
            false => !candidate.is_in_use(),
        })
    }

    /// Returns `true` if the selectors of a request and of its class match a candidate.
    pub(super) fn is_selectable(&mut self, at: Position, candidate: usize) -> Result<bool, AllocationError> {
        let Some((claim, alternative)) = self.claims.get(at.claim).zip(self.alternative(at)) else {
            return Ok(false);
        };
        if let Some(Some(matches)) = alternative.matches.get(candidate) {
            return Ok(*matches);
        }
        let matches = self.matches(alternative, &claim.name, candidate)?;
        let count = self.candidates.len();
        let request = self.claims.get_mut(at.claim).and_then(|claim| claim.requests.get_mut(at.request));
        let alternatives = request.zip(at.alternative);
        if let Some(alternative) =
            alternatives.and_then(|(request, index)| request.alternatives.get_mut(index))
        {
            alternative.matches.resize(count, None);
            if let Some(known) = alternative.matches.get_mut(candidate) {
                *known = Some(matches);
            }
        }
        Ok(matches)
    }

    /// Returns all candidates of a pool, by index, that a request can have.
    pub fn selectable(
        &self,
        of: &Alternative<'a>,
        claim: &str,
        pool: usize,
    ) -> Result<Vec<usize>, AllocationError> {
        let mut all = Vec::new();
        let of_pool = self.candidates.iter().enumerate().filter(|(_, candidate)| candidate.pool == pool);
        for (index, candidate) in of_pool {
            self.budget.spend(candidate.comparisons(of.request).saturating_add(1))?;
            if self.matches(of, claim, index)? && candidate.has_capacity(of.request) {
                all.push(index);
            }
        }
        Ok(all)
    }

    fn matches(&self, of: &Alternative<'a>, claim: &str, candidate: usize) -> Result<bool, AllocationError> {
        let Some(candidate) = self.candidates.get(candidate) else { return Ok(false) };
        let of_class = of.class.spec.selectors.as_deref().unwrap_or_default();
        let class = of.class.metadata.name.as_deref().unwrap_or_default();
        let matches = self.all_match(of_class, candidate, || format!("class {class}"))?
            && self.all_match(of.request.selectors(), candidate, || format!("claim {claim}"))?;
        let is_anywhere = !has_nodes_of_devices(candidate.slice);
        Ok(matches && (is_anywhere || is_device_for_node(candidate.device, self.node)))
    }

    fn all_match(
        &self,
        selectors: &[DeviceSelector],
        Candidate { device, slice, .. }: &Candidate<'a, '_>,
        of: impl Fn() -> String,
    ) -> Result<bool, AllocationError> {
        for (index, selector) in selectors.iter().enumerate() {
            let at = || format!("{}: selector #{index}", of());
            let Some(cel) = &selector.cel else {
                let text = format!("{}: CEL expression empty (unsupported selector type?)", at());
                return AllocationError::fatal(text);
            };
            match self.selectors.matches(&cel.expression, &slice.spec.driver, device, self.budget)? {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => return AllocationError::fatal(format!("{}: {error}", at())),
            }
        }
        Ok(true)
    }

    /// Takes a device for a request, if it is free, and taints, constraints, capacity and counters
    /// permit it.
    ///
    /// - `must`: no other device will do, so that a violated constraint is an error of the claim
    pub(super) fn take(&mut self, at: Position, index: usize, must: bool) -> Result<bool, AllocationError> {
        let Some(request) = self.alternative(at).map(|alternative| alternative.request) else {
            return Ok(false);
        };
        let free = self.is_free(at, index);
        let (Some(candidate), Some(claim)) = (self.candidates.get_mut(index), self.claims.get_mut(at.claim))
        else {
            return Ok(false);
        };
        let (device, driver) = (candidate.device, candidate.slice.spec.driver.as_str());
        if free {
            let taints = request.comparisons(device);
            self.budget.spend(candidate.comparisons(request).saturating_add(taints))?;
        }
        if !free || !candidate.has_capacity(request) || !request.tolerates(device) {
            return Ok(false);
        }
        // Devices that are shared already have consumed the counters.
        let consumes = consumes_counters(device) && !(is_shareable(device) && candidate.has_shares());
        let mut counters =
            self.counters.get_mut(candidate.pool).and_then(Option::as_mut).filter(|_| consumes);
        let has_counters = counters.is_some();
        if let Some(counters) = &mut counters {
            self.budget.spend(counters.len() as u64)?;
            if !counters.consume(device) {
                return Ok(false);
            }
        }
        let names = request.names();
        let values = claim.constraints.iter().map(|constraint| constraint.len() as u64);
        self.budget.spend(values.fold(0, u64::saturating_add))?;
        // The last check: a distinct attribute is not what it was before once a device is removed.
        let failed =
            claim.constraints.iter_mut().position(|constraint| !constraint.add(names, driver, device));
        if must && failed.is_some() {
            return AllocationError::fatal(format!(
                "claim {}, request {}: cannot add device {driver}/{}/{} because a claim constraint would not be satisfied",
                claim.name,
                request.short_name(),
                candidate.slice.spec.pool.name,
                device.name
            ));
        }
        if let Some(failed) = failed {
            claim.constraints.iter_mut().take(failed).for_each(|constraint| constraint.remove(names));
            counters.into_iter().for_each(|counters| counters.release(device));
            return Ok(false);
        }
        let share = is_shareable(device).then(|| share(device, request.capacity()));
        match &share {
            Some(share) => candidate.shares.push(share.clone()),
            None => candidate.taken_by.push(at.claim),
        }
        claim.results.push(DeviceResult { candidate: index, request, share, has_counters });
        Ok(true)
    }

    /// Gives the last device of a claim back.
    pub(super) fn give_back(&mut self, at: Position) {
        let Some(claim) = self.claims.get_mut(at.claim) else { return };
        let Some(result) = claim.results.pop() else { return };
        claim.constraints.iter_mut().for_each(|constraint| constraint.remove(result.request.names()));
        let Some(candidate) = self.candidates.get_mut(result.candidate) else { return };
        match result.share {
            Some(_) => drop(candidate.shares.pop()),
            None => drop(candidate.taken_by.pop()),
        }
        let counters = self.counters.get_mut(candidate.pool).and_then(Option::as_mut);
        if let Some(counters) = counters.filter(|_| result.has_counters) {
            counters.release(candidate.device);
        }
    }
}

impl Candidate<'_, '_> {
    fn is_in_use(&self) -> bool {
        self.allocated.is_some_and(|allocated| allocated.is_dedicated) || !self.taken_by.is_empty()
    }

    fn has_shares(&self) -> bool {
        self.allocated.is_some_and(|allocated| allocated.consumed.is_some()) || !self.shares.is_empty()
    }

    /// Returns the number of amounts that [`Candidate::has_capacity`] compares and adds.
    fn comparisons(&self, request: Request<'_>) -> u64 {
        let requested = request.capacity().and_then(|capacity| capacity.requests.as_ref());
        let amounts = [1, requested.map_or(0, BTreeMap::len), self.shares.len()];
        let capacities = self.device.capacity.as_ref().map_or(0, BTreeMap::len) as u64;
        capacities.saturating_mul(amounts.iter().map(|count| *count as u64).sum())
    }

    fn has_capacity(&self, request: Request<'_>) -> bool {
        let others = self.allocated.and_then(|allocated| allocated.consumed.as_ref());
        let mut of_search = Capacity::new();
        for (name, amount) in self.shares.iter().flatten() {
            let sum = of_search.get(name).map_or(*amount, |sum| sum.plus(amount));
            of_search.insert(name.clone(), sum);
        }
        has_capacity(self.device, request.capacity(), [others, Some(&of_search)])
    }
}
