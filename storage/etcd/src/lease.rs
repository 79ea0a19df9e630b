//! Leases of objects that expire. Writes of about the same time share a lease, as in
//! kube-apiserver.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    client::Client,
    proto::{LeaseGrantRequest, to_wire},
};

/// The longest time for which writes share a lease. It is also limited to a twentieth of their time
/// to live.
const MAX_REUSE: Duration = Duration::from_secs(60);

/// The largest number of writes that share a lease.
const MAX_WRITES: u32 = 1000;

/// The currently shared leases, by time to live.
pub(crate) struct Leases {
    client: Arc<Client>,
    shared: Mutex<HashMap<Duration, Lease>>,
}

#[derive(Clone, Copy)]
struct Lease {
    id: i64,
    shared_until: Instant,
    writes: u32,
}

impl Leases {
    pub fn new(client: Arc<Client>) -> Leases {
        Leases { client, shared: Mutex::default() }
    }

    /// Returns a lease that lasts for at least `ttl` from now, and only a little longer.
    ///
    /// # Errors
    /// etcd's message, if it does not grant a lease.
    pub async fn get(&self, ttl: Duration) -> Result<i64, String> {
        if let Some(id) = self.shared(ttl, Instant::now()) {
            return Ok(id);
        }
        let reuse = MAX_REUSE.min(ttl / 20);
        let now = Instant::now();
        // etcd counts whole seconds.
        let lifetime = ttl + reuse;
        let seconds = lifetime.as_secs() + u64::from(lifetime.subsec_nanos() > 0);
        let request = LeaseGrantRequest { ttl: to_wire(seconds) };
        let granted =
            self.client.lease_grant(&request).await.map_err(|status| status.message().to_owned())?;
        if !granted.error.is_empty() {
            return Err(granted.error);
        }
        let lease = Lease { id: granted.id, shared_until: now + reuse, writes: 1 };
        self.shared.lock().insert(ttl, lease);
        Ok(lease.id)
    }

    fn shared(&self, ttl: Duration, now: Instant) -> Option<i64> {
        let mut shared = self.shared.lock();
        let lease =
            shared.get_mut(&ttl).filter(|lease| now < lease.shared_until && lease.writes < MAX_WRITES)?;
        lease.writes += 1;
        Some(lease.id)
    }
}
