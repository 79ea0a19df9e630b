//! ComponentStatus: deprecated, but still asked for. Whoever answers is well, and so is what it runs.

use serde_json::{Value, json};

use super::super::Payload;
use crate::names::GroupResource;
use crate::resource_info::ResourceInfo;
use crate::{Error, Result};

/// The kind that is answered here.
pub const KIND: &str = "ComponentStatus";

const COMPONENTS: [&str; 3] = ["scheduler", "controller-manager", "etcd-0"];

/// One component, or all of them where no name is given.
pub fn answer(info: &ResourceInfo, name: &str) -> Result<Payload> {
    let asked = COMPONENTS.iter().filter(|component| name.is_empty() || **component == name);
    let mut items: Vec<Value> = asked.map(|component| status(component)).collect();
    if name.is_empty() {
        return Ok(Payload::Objects { items, metadata: json!({}) });
    }
    match items.pop() {
        Some(value) => Ok(Payload::Object { value, type_ref: info.type_ref.clone() }),
        // It has no plural here.
        None => Err(Error::not_found(&GroupResource::new("", "componentstatus"), name)),
    }
}

fn status(component: &str) -> Value {
    json!({
        "kind": KIND, "apiVersion": "v1", "metadata": {"name": component},
        "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}],
    })
}
