//! Things that a write takes from a common stock, such as addresses (and `quota.rs`: quotas).
//!
//! A write chooses first; once its object is valid and admitted, which may take long, it reserves
//! what it chose until it is stored, so that no write waits for another one. If another write was
//! faster, the choice is repeated.

use coracle_storage::{CommitOutcome, Key, Write};
use serde_json::Value;

use super::locks::NamedGuard;
use super::write::{Writing, store_failed};
use super::{ObjectIndex, Origin, Registry, Target};
use crate::resource_info::{Part, ResourceInfo};
use crate::telemetry::latency::{Phase, measure};
use crate::{Error, Result};

/// The allocator that objects of kinds with [`Behavior::allocation`](crate::strategy::Behavior)
/// take from.
pub trait Allocator: Send + Sync {
    /// Chooses what a new or changed object needs, and writes it into the object. Returns None if
    /// the object needs nothing.
    ///
    /// # Errors
    /// The response to a write that needs something that is not available.
    fn allocate(
        &self,
        registry: &Registry,
        request: &AllocationRequest<'_>,
        object: &mut Value,
    ) -> Result<Option<Allocated>>;

    /// Returns the writes that release what a deleted object had allocated.
    ///
    /// # Errors
    /// A stored object cannot be read.
    fn release(
        &self,
        registry: &Registry,
        info: &ResourceInfo,
        key: &Key,
        object: &Value,
    ) -> Result<Vec<Write>>;
}

/// A write that may take something.
pub struct AllocationRequest<'a> {
    /// The object.
    pub target: &'a Target,
    /// The stored object, if there is one.
    pub old: Option<&'a Value>,
    /// Whether the write is a dry run, which stores nothing.
    pub dry_run: bool,
}

/// The choice for a write.
pub struct Allocated {
    /// The writes to commit together with the object.
    pub writes: Vec<Write>,
    /// Keeps the choice from others.
    pub reservation: Box<dyn Reservation>,
}

/// A choice that can be kept from others, until it is dropped.
pub trait Reservation: Send {
    /// Reserves what was chosen, right before it is stored. Returns false if another was faster.
    ///
    /// # Errors
    /// A stored object cannot be read.
    fn reserve(&mut self, registry: &Registry) -> Result<bool>;
}

/// The writes, reservations and locks that accompany a write.
#[derive(Default)]
pub(super) struct Allocation<'a> {
    /// The writes to commit together with the object.
    pub writes: Vec<Write>,
    reservation: Option<Box<dyn Reservation>>,
    /// The turn at the namespace's quotas.
    pub turn: Option<NamedGuard<'a>>,
}

impl Registry {
    /// Chooses what a new or changed object needs, and writes it into the object.
    pub(super) fn allocate(
        &self,
        writing: &Writing<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Allocation<'_>> {
        let takes = writing.target.info.behavior.allocation.is_some() && writing.part == Part::Main;
        let Some(allocator) = self.allocator.as_ref().filter(|_| takes) else {
            return Ok(Allocation::default());
        };
        let request = AllocationRequest { target: writing.target, old, dry_run: writing.dry_run() };
        Ok(match allocator.allocate(self, &request, object)? {
            Some(Allocated { writes, reservation }) => {
                Allocation { writes, reservation: Some(reservation), turn: None }
            }
            None => Allocation::default(),
        })
    }

    /// Reserves what was chosen, right before it is stored. Returns false if another was faster.
    pub(super) fn reserve(&self, allocation: &mut Allocation<'_>) -> Result<bool> {
        allocation.reservation.as_mut().map_or(Ok(true), |reservation| reservation.reserve(self))
    }

    /// Commits an object with what was allocated for it. What was reserved stays so until the store
    /// has answered, even if the client no longer waits for that.
    pub(super) async fn commit_allocated(
        &self,
        object: Write,
        allocation: Allocation<'_>,
        origin: Origin<'_>,
    ) -> Result<CommitOutcome<ObjectIndex>> {
        let mut writes = vec![object];
        writes.extend(allocation.writes);
        let Some(reservation) = allocation.reservation else {
            return self.commit(writes, origin).await;
        };
        let _timer = measure(Phase::Store);
        let (store, work) = (self.store.clone(), self.clock.activity().begin());
        let author = self.author(origin);
        let commit = tokio::spawn(async move {
            let commit = store.commit_by(writes, Some(author)).await;
            drop((reservation, work));
            commit
        });
        commit.await.map_err(|error| Error::Internal(error.to_string()))?.map_err(store_failed)
    }

    /// Returns the writes that release what an object had allocated.
    pub(super) fn release(&self, info: &ResourceInfo, key: &Key, object: &Value) -> Result<Vec<Write>> {
        match self.allocator.as_ref().filter(|_| info.behavior.allocation.is_some()) {
            Some(allocator) => allocator.release(self, info, key, object),
            None => Ok(Vec::new()),
        }
    }
}
