//! The backtracking search for devices that meet all requests.
//!
//! The devices of a request are chosen in their order, so that each set of devices is tried once.
//! Constraints are monotonic: a set that does not meet one needs no more devices. The choices
//! are kept in a stack of [`Frame`]s, since a pod can have more of them than a thread's stack.

mod devices;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, DeviceClass, ResourceSlice};

use crate::MAX_RESULTS;
use crate::allocated::{AllocatedState, DeviceState};
use crate::budget::Budget;
use crate::capacity::Capacity;
use crate::constraints::Constraint;
use crate::counters::PoolCounters;
use crate::error::AllocationError;
use crate::pools::Pool;
use crate::requests::Request;
use crate::selectors::SelectorCache;

/// A search for devices on a node. `'a` is the lifetime of slices and claims.
pub(crate) struct Search<'a, 's> {
    node: &'s Node,
    pub pools: Vec<Pool<'a>>,
    /// The devices of complete pools, in the order in which they are tried.
    pub candidates: Vec<Candidate<'a, 's>>,
    pub claims: Vec<ClaimState<'a>>,
    counters: Vec<Option<PoolCounters<'a>>>,
    selectors: &'s SelectorCache,
    budget: &'s Budget,
}

/// A device of a pool.
pub(crate) struct Candidate<'a, 's> {
    pub device: &'a Device,
    pub slice: &'a ResourceSlice,
    pool: usize,
    /// The allocations to other claims.
    allocated: Option<&'s DeviceState>,
    /// The claims of this search that have it for themselves, by index.
    taken_by: Vec<usize>,
    /// The shares of the claims of this search, the newest last.
    shares: Vec<Capacity>,
}

/// A claim, with the devices that were chosen for it so far.
#[derive(Default)]
pub(crate) struct ClaimState<'a> {
    pub name: String,
    pub requests: Vec<RequestState<'a>>,
    pub constraints: Vec<Constraint<'a>>,
    pub results: Vec<DeviceResult<'a>>,
}

/// A request of a claim.
pub(crate) struct RequestState<'a> {
    /// Whether it is a prioritized list.
    pub has_choice: bool,
    pub alternatives: Vec<Alternative<'a>>,
    /// The index of the chosen alternative.
    pub chosen: usize,
}

/// A request, or an alternative in a prioritized list.
pub(crate) struct Alternative<'a> {
    pub request: Request<'a>,
    pub class: Arc<DeviceClass>,
    /// The number of devices that it needs.
    pub count: usize,
    /// The devices, by index, if all are requested.
    pub all: Option<Vec<usize>>,
    /// Whether the selectors match the candidate of an index; empty until one is checked.
    matches: Vec<Option<bool>>,
}

/// A chosen device.
pub(crate) struct DeviceResult<'a> {
    /// The index of the candidate.
    pub candidate: usize,
    pub request: Request<'a>,
    /// The consumed capacity of a device that others may share.
    pub share: Option<Capacity>,
    has_counters: bool,
}

/// A position in the search: the next device of an alternative of a request of a claim.
#[derive(Clone, Copy, Default)]
struct Position {
    claim: usize,
    request: usize,
    /// None: the alternative is still to be chosen.
    alternative: Option<usize>,
    device: usize,
    /// The index of the first candidate to try.
    start: usize,
}

/// A choice that can be taken back.
enum Frame {
    /// The end of a claim.
    Claim,
    /// The alternative of a request: the next one, and whether all so far were too large.
    Choice { at: Position, is_too_large: bool },
    /// One of all devices. There is no other choice.
    All { at: Position },
    /// A device: the candidate that was tried last.
    Device { at: Position, candidate: usize },
}

/// The end of a part of the search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Failed,
    /// The claim has too many devices. Other devices of the same requests do not help.
    TooLarge,
}

enum Next {
    Enter(Position),
    /// Tries the candidates from `start` on.
    Try(Position),
    Return(Ended),
    Done,
}

impl<'a> RequestState<'a> {
    /// Returns the chosen alternative.
    pub fn chosen(&self) -> Option<&Alternative<'a>> {
        self.alternatives.get(self.chosen)
    }
}

impl<'a> Alternative<'a> {
    pub fn new(request: Request<'a>, class: Arc<DeviceClass>) -> Alternative<'a> {
        Alternative { request, class, count: 0, all: None, matches: Vec::new() }
    }
}

impl<'a, 's> Search<'a, 's> {
    pub fn new(
        node: &'s Node,
        pools: Vec<Pool<'a>>,
        allocated: &'s AllocatedState,
        selectors: &'s SelectorCache,
        budget: &'s Budget,
    ) -> Result<Search<'a, 's>, AllocationError> {
        let mut candidates = Vec::new();
        for (index, pool) in pools.iter().enumerate() {
            for slice in &pool.slices {
                // To list devices is several times faster than to consider them.
                budget.spend(slice.spec.devices.as_ref().map_or(0, Vec::len) as u64 / 8)?;
                candidates.extend(slice.spec.devices.iter().flatten().map(|device| Candidate {
                    device,
                    slice,
                    pool: index,
                    allocated: allocated.get(pool.driver, pool.name, &device.name),
                    taken_by: Vec::new(),
                    shares: Vec::new(),
                }));
            }
        }
        for pool in pools.iter().filter(|pool| !pool.counter_sets.is_empty()) {
            budget.spend(pool.work_of_counters())?;
        }
        let counters = pools.iter().map(|pool| {
            let is_allocated =
                |device: &Device| allocated.get(pool.driver, pool.name, &device.name).is_some();
            let has_counters = !pool.counter_sets.is_empty();
            has_counters.then(|| PoolCounters::new(pool, is_allocated))
        });
        let counters = counters.collect();
        Ok(Search { node, pools, candidates, claims: Vec::new(), counters, selectors, budget })
    }

    /// Returns the name of the node.
    pub fn node_name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }

    /// Chooses devices for all claims. Returns `false` if there is no solution.
    pub fn run(&mut self) -> Result<bool, AllocationError> {
        let mut stack: Vec<Frame> = Vec::new();
        let mut next = Next::Enter(Position::default());
        loop {
            self.budget.spend(1)?;
            next = match next {
                Next::Done => {
                    self.record_choices(&stack);
                    return Ok(true);
                }
                Next::Enter(at) => self.enter(at, &mut stack)?,
                Next::Try(at) => self.try_candidates(at, &mut stack)?,
                Next::Return(ended) => match stack.pop() {
                    Some(frame) => self.backtrack(frame, ended, &mut stack),
                    None => return Ok(false),
                },
            }
        }
    }

    fn enter(&mut self, at: Position, stack: &mut Vec<Frame>) -> Result<Next, AllocationError> {
        let Some(claim) = self.claims.get(at.claim) else { return Ok(Next::Done) };
        let Some(request) = claim.requests.get(at.request) else {
            stack.push(Frame::Claim);
            return Ok(Next::Enter(Position { claim: at.claim + 1, ..Position::default() }));
        };
        let Some(index) = at.alternative else {
            let at = Position { alternative: Some(0), device: 0, start: 0, ..at };
            if request.has_choice {
                stack.push(Frame::Choice { at, is_too_large: true });
            }
            return Ok(Next::Enter(at));
        };
        let Some(alternative) = request.alternatives.get(index) else {
            return Ok(Next::Return(Ended::Failed));
        };
        if alternative.all.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Next::Return(Ended::Failed));
        }
        if at.device >= alternative.count {
            let next = Position { claim: at.claim, request: at.request + 1, ..Position::default() };
            return Ok(Next::Enter(next));
        }
        let missing = alternative.count.saturating_sub(at.device);
        if claim.results.len().saturating_add(missing) > MAX_RESULTS {
            return Ok(Next::Return(Ended::TooLarge));
        }
        let Some(candidate) = alternative.all.as_ref().map(|all| all.get(at.device).copied()) else {
            return Ok(Next::Try(at));
        };
        match candidate {
            Some(candidate) if self.take(at, candidate, true)? => {
                stack.push(Frame::All { at });
                Ok(Next::Enter(Position { device: at.device + 1, start: 0, ..at }))
            }
            _ => Ok(Next::Return(Ended::Failed)),
        }
    }

    fn try_candidates(&mut self, at: Position, stack: &mut Vec<Frame>) -> Result<Next, AllocationError> {
        for candidate in at.start..self.candidates.len() {
            self.budget.spend(1)?;
            if self.is_free(at, candidate)
                && self.is_selectable(at, candidate)?
                && self.take(at, candidate, false)?
            {
                stack.push(Frame::Device { at, candidate });
                return Ok(Next::Enter(Position { device: at.device + 1, start: candidate + 1, ..at }));
            }
        }
        Ok(Next::Return(Ended::Failed))
    }

    /// Takes the last choice back, and returns the next one.
    fn backtrack(&mut self, frame: Frame, ended: Ended, stack: &mut Vec<Frame>) -> Next {
        match frame {
            // Another choice for an earlier claim may leave the devices of a smaller alternative.
            Frame::Claim => Next::Return(Ended::Failed),
            Frame::Choice { at, is_too_large } => {
                let is_too_large = is_too_large && ended == Ended::TooLarge;
                let next = at.alternative.map_or(0, |index| index + 1);
                let count = self.request(at).map_or(0, |request| request.alternatives.len());
                if next < count {
                    let at = Position { alternative: Some(next), ..at };
                    stack.push(Frame::Choice { at, is_too_large });
                    return Next::Enter(at);
                }
                Next::Return(if is_too_large { Ended::TooLarge } else { Ended::Failed })
            }
            Frame::All { at } => {
                self.give_back(at);
                Next::Return(ended)
            }
            Frame::Device { at, candidate } => {
                self.give_back(at);
                match ended {
                    Ended::TooLarge => Next::Return(ended),
                    Ended::Failed => Next::Try(Position { start: candidate + 1, ..at }),
                }
            }
        }
    }

    /// Records which alternatives the choices of a solution are.
    fn record_choices(&mut self, stack: &[Frame]) {
        for frame in stack {
            let Frame::Choice { at, .. } = frame else { continue };
            let claim = self.claims.get_mut(at.claim);
            if let Some(request) = claim.and_then(|claim| claim.requests.get_mut(at.request)) {
                request.chosen = at.alternative.unwrap_or_default();
            }
        }
    }

    fn request(&self, at: Position) -> Option<&RequestState<'a>> {
        self.claims.get(at.claim)?.requests.get(at.request)
    }

    fn alternative(&self, at: Position) -> Option<&Alternative<'a>> {
        self.request(at)?.alternatives.get(at.alternative?)
    }
}
