//! Strategies of the group flowcontrol.apiserver.k8s.io, one file a kind.

pub mod flow_schema;
pub mod priority_level_configuration;

pub use flow_schema::FlowSchemaStrategy;
pub use priority_level_configuration::PriorityLevelConfigurationStrategy;

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use coracle_apimachinery::bootstrap;
use coracle_apimachinery::field::{Errors, Field};
use serde_json::Value;

/// Returns the mandatory spec of an object with this name; None for other names.
fn mandatory_spec(kind: &str, name: &str) -> Option<Value> {
    if !["exempt", "catch-all"].contains(&name) {
        return None;
    }
    let objects = bootstrap::objects(&bootstrap::Parameters {
        now: "",
        secure_port: 0,
        service_cidr: "",
        kubernetes_ip: "",
        is_selected: &|_| true,
    });
    let mut wanted =
        objects.into_iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)?;
    Some(wanted["spec"].take())
}

fn validate_conditions(status: &Field<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for kind in status.get("conditions").items().map(|condition| condition.get("type")) {
        errors.push_if(!seen.insert(kind.str()), || kind.duplicate());
        errors.push_if(kind.is_empty(), || kind.required(""));
    }
}
