//! Shares: the resources that one user may occupy at once, besides the seats of flow control.
//!
//! A request uses memory from its first byte on: its body while it arrives, its response until the
//! client has received it, a watch for as long as it lasts. None of that occupies a seat, so it is
//! limited here, by user and for all users together. Members of exempt priority levels
//! (system:masters, the controllers in this process) have no limit.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::{Error, Result};

/// The limits of all users together, and of one user.
#[derive(Clone, Copy, Debug)]
pub struct ShareLimits {
    pub requests: usize,
    pub watches: usize,
    pub body_bytes: usize,
}

/// The limits of all users together.
pub const TOTAL: ShareLimits = ShareLimits { requests: 4000, watches: 20_000, body_bytes: 96 << 20 };
/// The limits of one user.
pub const PER_USER: ShareLimits = ShareLimits { requests: 1000, watches: 5000, body_bytes: 16 << 20 };

/// Counts the resources of each user.
pub struct Shares {
    limits: [ShareLimits; 2],
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    total: Usage,
    users: HashMap<Arc<str>, Usage>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    requests: usize,
    watches: usize,
    body_bytes: usize,
}

/// The resources of one request, released when it is dropped.
pub struct Share {
    shares: Arc<Shares>,
    user: Arc<str>,
    held: Usage,
}

impl Default for Shares {
    fn default() -> Shares {
        Shares::new(TOTAL, PER_USER)
    }
}

impl Shares {
    /// Creates shares with limits for all users together, and for each user.
    pub fn new(total: ShareLimits, per_user: ShareLimits) -> Shares {
        Shares { limits: [total, per_user], held: Mutex::default() }
    }

    /// Begins a request or a watch.
    ///
    /// # Errors
    /// 429 if the user, or all users together, have reached the limit.
    pub fn begin(self: &Arc<Shares>, user: &str, watch: bool) -> Result<Share> {
        let mut share = Share { shares: self.clone(), user: user.into(), held: Usage::default() };
        let more = match watch {
            true => Usage { watches: 1, ..Usage::default() },
            false => Usage { requests: 1, ..Usage::default() },
        };
        share.add(more)?;
        Ok(share)
    }

    // Each change is completed under the lock, and cannot panic.
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }
}

impl Share {
    /// Takes more memory for the body that is being read.
    ///
    /// # Errors
    /// 429 as in [`Shares::begin`].
    pub fn add_body_bytes(&mut self, bytes: usize) -> Result<()> {
        self.add(Usage { body_bytes: bytes, ..Usage::default() })
    }

    /// Releases the memory of the body.
    pub fn release_body_bytes(&mut self) {
        let bytes = std::mem::take(&mut self.held.body_bytes);
        self.shares.held().remove(&self.user, Usage { body_bytes: bytes, ..Usage::default() });
    }

    fn add(&mut self, more: Usage) -> Result<()> {
        let [total_limits, user_limits] = self.shares.limits;
        let mut held = self.shares.held();
        let of_user = held.users.get(&self.user).copied().unwrap_or_default() + more;
        let total = held.total + more;
        if !of_user.fits(user_limits) || !total.fits(total_limits) {
            return Err(Error::too_many_requests());
        }
        held.total = total;
        held.users.insert(self.user.clone(), of_user);
        drop(held);
        self.held = self.held + more;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shares.held().remove(&self.user, self.held);
    }
}

impl Held {
    fn remove(&mut self, user: &Arc<str>, less: Usage) {
        self.total = self.total - less;
        if let Some(usage) = self.users.get_mut(user) {
            *usage = *usage - less;
            if *usage == Usage::default() {
                self.users.remove(user);
            }
        }
    }
}

impl Usage {
    fn fits(&self, limits: ShareLimits) -> bool {
        self.requests <= limits.requests
            && self.watches <= limits.watches
            && self.body_bytes <= limits.body_bytes
    }
}

impl std::ops::Add for Usage {
    type Output = Usage;

    fn add(self, more: Usage) -> Usage {
        Usage {
            requests: self.requests + more.requests,
            watches: self.watches + more.watches,
            body_bytes: self.body_bytes + more.body_bytes,
        }
    }
}

impl std::ops::Sub for Usage {
    type Output = Usage;

    fn sub(self, less: Usage) -> Usage {
        Usage {
            requests: self.requests - less.requests,
            watches: self.watches - less.watches,
            body_bytes: self.body_bytes - less.body_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_cannot_exhaust_the_limit() {
        let limits = |n| ShareLimits { requests: n, watches: n, body_bytes: 100 * n };
        let shares = Arc::new(Shares::new(limits(3), limits(2)));
        let begin = |user: &str| shares.begin(user, false);
        let (mut first, second) = (begin("a").unwrap(), begin("a").unwrap());
        assert_eq!(begin("a").err().map(|e| e.code()), Some(429), "more than one user may have");
        let other = begin("b").unwrap();
        assert!(begin("c").is_err(), "more than all may have");
        assert!(shares.begin("c", true).is_ok(), "watches are counted apart");
        first.add_body_bytes(200).unwrap();
        assert!(first.add_body_bytes(1).is_err());
        first.release_body_bytes();
        first.add_body_bytes(1).unwrap();
        drop((first, second, other));
        assert!(shares.held().users.is_empty() && shares.held().total == Usage::default());
    }
}
