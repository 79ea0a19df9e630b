//! The reservation of what a write uses in its namespace's quotas.
//!
//! The usage changes in the same commit as the object, so that nothing is counted that was not
//! stored. A lock for each namespace keeps writers from overtaking each other; a write of a quota
//! without the lock makes the reservation be made again.

use std::sync::Arc;

use coracle_storage::{Expect, Write};
use serde_json::Value;

use super::allocation::Allocation;
use super::write::{Writing, stored_bytes};
use super::{Registry, Stored, parse};
use crate::Result;
use crate::admission::Operation;

impl Registry {
    /// Adds to an allocation the writes that reserve in quotas what an object uses, which is ready
    /// to be stored.
    pub(super) async fn reserve_quota<'a>(
        &'a self,
        writing: &Writing<'_>,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
        allocation: &mut Allocation<'a>,
    ) -> Result<()> {
        let namespace = &writing.target.namespace;
        // Most writes do not change what is used, and need not wait for those that do.
        if namespace.is_empty() || self.quota_writes(writing, operation, object, old)?.is_empty() {
            return Ok(());
        }
        allocation.turn = Some(self.quota_locks.lock(namespace).await);
        allocation.writes.extend(self.quota_writes(writing, operation, object, old)?);
        Ok(())
    }

    fn quota_writes(
        &self,
        writing: &Writing<'_>,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Vec<Write>> {
        let Some(reserver) = self.chain.quotas() else { return Ok(Vec::new()) };
        let Some(info) = self.by_resource(reserver.resource()) else { return Ok(Vec::new()) };
        let prefix = format!("{}/", writing.target.namespace);
        let bucket = self.store.snapshot().bucket(&info.storage.bucket);
        let stored: Vec<_> = bucket.prefix(&prefix).cloned().collect();
        if stored.is_empty() {
            return Ok(Vec::new());
        }
        let quotas = stored.iter().map(|quota| parse(quota)).collect::<Result<Vec<Value>>>()?;
        let name = writing.admitted_name(operation, object);
        let reserved = reserver.reserve(&writing.attributes(operation, &name, object, old), &quotas)?;
        let write = |((stored, quota), reserved): ((&Arc<Stored>, &Value), Option<Value>)| {
            let mut reserved = reserved?;
            self.track_status(&info, quota, &mut reserved);
            let expect = Expect::Revision(stored.revision);
            Some(Write::put(stored.key.clone(), expect, stored_bytes(&info, reserved)))
        };
        Ok(stored.iter().zip(&quotas).zip(reserved).filter_map(write).collect())
    }
}
