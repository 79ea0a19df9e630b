//! Charging a write to its namespace's quotas.
//!
//! What is used changes in the same commit as the object, so that nothing is counted that was not stored. A lock keeps
//! writers from overtaking each other with it; who writes a quota without the lock makes the charge be made again.

use coracle_storage::{Expect, Write};
use serde_json::Value;

use super::allocate::Allocation;
use super::write::{Writing, stored_bytes};
use super::{Registry, parse};
use crate::Result;
use crate::admission::{Operation, resource_quota};

const QUOTAS: &str = "resourcequotas";

impl Registry {
    /// The writes that charge an object, which is ready to be stored, to the quotas that mind it.
    pub(super) async fn charge(
        &self,
        writing: &Writing<'_>,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Allocation<'_>> {
        let prefix = format!("{}/", writing.target.namespace);
        let bucket = || self.store.snapshot().bucket(QUOTAS);
        if !self.chain.charges_quotas()
            || writing.target.namespace.is_empty()
            || bucket().prefix(&prefix).next().is_none()
        {
            return Ok(Allocation::default());
        }
        let exclusive = self.charging.lock().await;
        let stored: Vec<_> = bucket().prefix(&prefix).cloned().collect();
        let quotas: Vec<Value> = stored.iter().map(|quota| parse(quota)).collect();
        let charged = writing
            .attributes(operation, object, old, |attributes| resource_quota::charge(&attributes, &quotas))?;
        let Some(served) = self.table.find("", "v1", QUOTAS) else { return Ok(Allocation::default()) };
        let writes = stored.iter().zip(charged).filter_map(|(stored, quota)| {
            Some(Write::put(
                stored.key.clone(),
                Expect::Revision(stored.revision),
                stored_bytes(served, quota?),
            ))
        });
        Ok(Allocation::new(writes.collect(), exclusive))
    }
}
