//! Admission of writes by the space that is left.
//!
//! Like etcd above its quota, a full store accepts writes that free space: deletions, and updates
//! that shrink an object. Unlike etcd it also accepts small updates, as long as a reserve lasts: a
//! deletion may need some before it can finish (a deletion timestamp, a finalizer's controller that
//! writes a status).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::{Event, Index, Limits, Object, Revision, StoreError};

/// The growth of an object, in bytes, up to which an update is small.
const SMALL_UPDATE_BYTES: u64 = 1 << 10;

/// The divisor of the quota that gives the reserve: small updates may exceed the quota by this
/// much.
const RESERVE_DIVISOR: u64 = 64;

/// The effect of a transaction on the bytes of live objects.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Growth {
    before: u64,
    /// The part of these bytes that belongs to a fork alone.
    own_before: u64,
    after: u64,
    creates: bool,
    writes: u64,
}

impl Growth {
    /// Adds one write.
    ///
    /// - `current`: the object before it
    /// - `after`: the cost in bytes after it; None for a deletion
    /// - `began`: the revision that a fork began with
    pub fn add<I: Index>(
        &mut self,
        current: Option<&Arc<Object<I>>>,
        after: Option<u64>,
        began: Option<Revision>,
    ) {
        self.before += current.map_or(0, |object| object.cost());
        self.own_before += began.map_or(0, |began| own_cost(current, began));
        self.after += after.unwrap_or(0);
        self.creates |= current.is_none() && after.is_some();
        self.writes += 1;
    }

    /// Returns the size of all live objects after the transaction.
    pub fn applied_to(self, used: u64) -> u64 {
        used.saturating_sub(self.before).saturating_add(self.after)
    }

    fn shrinks(self) -> bool {
        self.after <= self.before
    }

    fn is_small(self) -> bool {
        !self.creates && self.after.saturating_sub(self.before) <= SMALL_UPDATE_BYTES * self.writes
    }
}

/// Returns the cost of an object that belongs to a fork alone; 0 for one that it inherited, and for
/// none.
///
/// - `began`: the revision that the fork began with
fn own_cost<I: Index>(object: Option<&Arc<Object<I>>>, began: Revision) -> u64 {
    object.filter(|object| object.revision > began).map_or(0, |object| object.cost())
}

/// The space of the forks of a store: a quota of the bytes of live objects that they do not share
/// with what they are forks of. Each fork has a [`Part`] of it.
///
/// It does not count what a parent deletes while a fork still has it, nor history.
pub(crate) struct ForkSpace {
    whole: Arc<Whole>,
    /// The part of the store itself, as long as it or a fork of it is open; None if it is no fork.
    own: Option<Weak<Part>>,
}

struct Whole {
    quota: u64,
    used: AtomicU64,
}

/// The part of a fork in the space of all. Its bytes are counted until the fork and all forks of it
/// are closed.
pub(crate) struct Part {
    whole: Arc<Whole>,
    /// The bytes of this fork.
    used: AtomicU64,
    /// The part of the parent.
    _parent: Option<Arc<Part>>,
}

impl ForkSpace {
    /// Creates the space of the forks of a store that is no fork.
    ///
    /// - `quota`: in bytes, by [`Object::cost`]
    pub fn new(quota: u64) -> ForkSpace {
        ForkSpace { whole: Arc::new(Whole { quota, used: AtomicU64::new(0) }), own: None }
    }

    /// Returns the part of a fork, and the same space for forks of it; None if the store is a fork
    /// that is closed with all forks of it, so that its bytes are given back.
    pub fn fork(&self) -> Option<(Arc<Part>, ForkSpace)> {
        let parent = match &self.own {
            None => None,
            Some(own) => Some(own.upgrade()?),
        };
        let (whole, used) = (self.whole.clone(), AtomicU64::new(0));
        let part = Arc::new(Part { whole: whole.clone(), used, _parent: parent });
        let own = Some(Arc::downgrade(&part));
        Some((part, ForkSpace { whole, own }))
    }

    /// Returns the quota in bytes if so little of it is left that the first objects of another fork
    /// may find no place: as little as the reserve.
    pub fn full(&self) -> Option<u64> {
        let quota = self.whole.quota;
        (self.whole.used() >= quota - quota / RESERVE_DIVISOR).then_some(quota)
    }
}

impl Whole {
    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

impl Part {
    /// Replaces bytes of the part.
    fn replace(&self, before: u64, after: u64) {
        // The difference may wrap around; the sums do not, since only what was added is taken away.
        let more = after.wrapping_sub(before);
        self.used.fetch_add(more, Ordering::Relaxed);
        self.whole.used.fetch_add(more, Ordering::Relaxed);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.whole.used.fetch_sub(*self.used.get_mut(), Ordering::Relaxed);
    }
}

/// The part of a fork, and the objects that are in it.
struct OwnSpace {
    part: Arc<Part>,
    /// The revision that the fork began with. Later objects are its own.
    began: Revision,
    /// The bytes of transactions that are admitted and not stored yet.
    pending: u64,
}

impl OwnSpace {
    /// Checks that a transaction is admitted. Returns the bytes that it needs.
    ///
    /// # Errors
    /// [`StoreError::Full`].
    fn admit(&self, growth: Growth) -> Result<u64, StoreError> {
        let (quota, used) = (self.part.whole.quota, self.part.whole.used());
        let more = growth.after.saturating_sub(growth.own_before);
        let after = used.saturating_add(self.pending).saturating_add(more);
        let reserve = if growth.is_small() { quota / RESERVE_DIVISOR } else { 0 };
        if more > 0 && after > quota.saturating_add(reserve) {
            return Err(StoreError::Full { bytes: used, quota });
        }
        Ok(more)
    }

    /// Follows a change.
    fn observe<I: Index>(&self, event: &Event<I>) {
        let cost = |object: &Option<Arc<Object<I>>>| own_cost(object.as_ref(), self.began);
        self.part.replace(cost(&event.before), cost(&event.after));
    }
}

/// The space of a store and its log.
pub(crate) struct Space {
    quota: u64,
    /// None for a store that is no fork.
    own: Option<OwnSpace>,
    /// Whether the log lacks disk space.
    pub disk_is_full: bool,
    /// Set while writes are refused, so that it is logged once.
    is_full: bool,
}

impl Space {
    pub fn new(limits: Limits) -> Space {
        Space { quota: limits.store_bytes, own: None, disk_is_full: false, is_full: false }
    }

    /// Returns the space of a fork.
    ///
    /// - `began`: the revision that it begins with
    pub fn of_fork(limits: Limits, part: Arc<Part>, began: Revision) -> Space {
        Space { own: Some(OwnSpace { part, began, pending: 0 }), ..Space::new(limits) }
    }

    /// Returns the revision that a fork began with; None for a store that is no fork.
    pub fn began(&self) -> Option<Revision> {
        self.own.as_ref().map(|own| own.began)
    }

    /// Begins another group of transactions: those before it are stored, or will not be.
    pub fn begin_group(&mut self) {
        if let Some(own) = &mut self.own {
            own.pending = 0;
        }
    }

    /// Follows a change.
    pub fn observe<I: Index>(&self, event: &Event<I>) {
        if let Some(own) = &self.own {
            own.observe(event);
        }
    }

    /// Checks that a transaction is admitted while live objects occupy `used` bytes.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::NoSpace`].
    pub fn admit(&mut self, used: u64, growth: Growth) -> Result<(), StoreError> {
        let own = self.own.as_ref().map(|own| own.admit(growth)).transpose()?;
        self.admit_by_quota(used, growth)?;
        if let (Some(own), Some(more)) = (&mut self.own, own) {
            own.pending = own.pending.saturating_add(more);
        }
        Ok(())
    }

    /// Checks that the disk and the quota of this store admit a transaction.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::NoSpace`].
    fn admit_by_quota(&mut self, used: u64, growth: Growth) -> Result<(), StoreError> {
        let after = growth.applied_to(used);
        if self.disk_is_full && !growth.shrinks() && !growth.is_small() {
            return Err(StoreError::NoSpace);
        }
        if after <= self.quota {
            self.is_full = false;
            return Ok(());
        }
        if growth.shrinks()
            || (growth.is_small() && after <= self.quota.saturating_add(self.quota / RESERVE_DIVISOR))
        {
            return Ok(());
        }
        if !self.is_full {
            self.is_full = true;
            tracing::warn!(
                bytes = used,
                quota = self.quota,
                "the store is full; writes that grow it are refused"
            );
        }
        Err(StoreError::Full { bytes: used, quota: self.quota })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_store_takes_what_gives_room_back() {
        let growth =
            |before, after, creates| Growth { before, after, creates, writes: 1, ..Growth::default() };
        for (case, used, growth, admitted) in [
            ("a creation that fits", 900_000, growth(0, 100_000, true), true),
            ("a creation that does not", 900_001, growth(0, 100_000, true), false),
            ("a small creation in a full store", 1_000_000, growth(0, 1, true), false),
            ("a deletion", 2_000_000, growth(5_000, 0, false), true),
            ("an update that shrinks an object", 2_000_000, growth(5_000, 4_999, false), true),
            ("an update that changes no size", 2_000_000, growth(5_000, 5_000, false), true),
            ("an update that grows an object a little", 1_000_000, growth(5_000, 6_024, false), true),
            ("an update that grows an object more", 1_000_000, growth(5_000, 6_025, false), false),
            ("a small growth when the reserve is used up", 1_015_625, growth(5_000, 5_001, false), false),
        ] {
            let mut space = Space::new(Limits { store_bytes: 1_000_000, ..Limits::default() });
            assert_eq!(space.admit(used, growth).is_ok(), admitted, "{case}");
        }
    }

    #[test]
    fn a_full_disk_takes_the_same() {
        let growth =
            |before, after, creates| Growth { before, after, creates, writes: 1, ..Growth::default() };
        for (case, growth, admitted) in [
            ("a creation", growth(0, 1, true), false),
            ("a deletion", growth(5_000, 0, false), true),
            ("an update that changes no size", growth(5_000, 5_000, false), true),
            ("a small update", growth(5_000, 6_024, false), true),
            ("a large update", growth(5_000, 6_025, false), false),
        ] {
            let mut space = Space { disk_is_full: true, ..Space::new(Limits::default()) };
            assert_eq!(space.admit(1_000, growth).is_ok(), admitted, "{case}");
        }
    }
}
