//! Admission of writes by the space that is left.
//!
//! Like etcd above its quota, a full store accepts writes that free space: deletions, and updates
//! that shrink an object. Unlike etcd it also accepts small updates, as long as a reserve lasts: a
//! deletion may need some before it can finish (a deletion timestamp, a finalizer's controller that
//! writes a status).

use std::sync::Arc;

use crate::{Index, Limits, Object, StoreError};

/// The growth of an object, in bytes, up to which an update is small.
const SMALL_UPDATE_BYTES: u64 = 1 << 10;

/// The divisor of the quota that gives the reserve: small updates may exceed the quota by this
/// much.
const RESERVE_DIVISOR: u64 = 64;

/// The effect of a transaction on the bytes of live objects.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Growth {
    before: u64,
    after: u64,
    creates: bool,
    writes: u64,
}

impl Growth {
    /// Adds one write: the current object, and the cost in bytes after the write (None for a
    /// deletion).
    pub fn add<I: Index>(&mut self, current: Option<&Arc<Object<I>>>, after: Option<u64>) {
        self.before += current.map_or(0, |object| object.cost());
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
        !self.creates && self.after - self.before <= SMALL_UPDATE_BYTES * self.writes
    }
}

/// The space of a store and its log.
pub(crate) struct Space {
    quota: u64,
    /// Whether the log lacks disk space.
    pub disk_is_full: bool,
    /// Set while writes are refused, so that it is logged once.
    is_full: bool,
}

impl Space {
    pub fn new(limits: Limits) -> Space {
        Space { quota: limits.store_bytes, disk_is_full: false, is_full: false }
    }

    /// Checks that a transaction is admitted while live objects occupy `used` bytes.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::NoSpace`].
    pub fn admit(&mut self, used: u64, growth: Growth) -> Result<(), StoreError> {
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
        let growth = |before, after, creates| Growth { before, after, creates, writes: 1 };
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
        let growth = |before, after, creates| Growth { before, after, creates, writes: 1 };
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
