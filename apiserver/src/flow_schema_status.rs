//! The condition `Dangling` of FlowSchemas: whether the PriorityLevelConfiguration to which one
//! refers exists.
//!
//! Source: `k8s.io/apiserver/pkg/util/flowcontrol`, `apf_controller.go`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Delay;
use futures::future::{self, BoxFuture};
use serde_json::{Value, json};

use crate::field::quote;
use crate::flow_control::{FLOW_SCHEMAS, GROUP, PRIORITY_LEVELS};
use crate::names::GroupResource;
use crate::object_meta::ObjectMeta;
use crate::registry::deletion::rfc3339;
use crate::registry::{Reconcile, Registry, Target, parse};
use crate::timers::FLOW_SCHEMA_RETRY;
use crate::{Error, Result};

const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";

/// The wait before the next try after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Keeps the conditions.
#[derive(Clone)]
pub struct FlowSchemaStatus {
    registry: Arc<Registry>,
}

impl Reconcile for FlowSchemaStatus {
    async fn reconcile(&mut self) -> Option<Delay> {
        self.reconcile_all().await.then(|| FLOW_SCHEMA_RETRY.after(RETRY))
    }
}

impl FlowSchemaStatus {
    /// Creates the controller for the FlowSchemas of a registry.
    pub fn new(registry: Arc<Registry>) -> FlowSchemaStatus {
        FlowSchemaStatus { registry }
    }

    /// Follows FlowSchemas and PriorityLevelConfigurations until the future is dropped.
    pub fn run(self) -> BoxFuture<'static, ()> {
        let follow = |plural| self.registry.clone().run_reconciler(bucket(plural), self.clone());
        let (schemas, levels) = (follow(FLOW_SCHEMAS), follow(PRIORITY_LEVELS));
        Box::pin(async move { _ = future::join(schemas, levels).await })
    }

    /// Returns the conditions that must change, by the names of their FlowSchemas.
    fn due(&self) -> Vec<(String, Value)> {
        let snapshot = self.registry.store.snapshot();
        let mut levels = HashSet::new();
        for level in snapshot.bucket(&bucket(PRIORITY_LEVELS)).iter() {
            levels.insert(level.key.name().to_string());
        }
        let mut due = Vec::new();
        for stored in snapshot.bucket(&bucket(FLOW_SCHEMAS)).iter() {
            let Ok(schema) = parse(stored) else { continue };
            due.extend(outdated(&schema, &levels).map(|condition| (schema.name().to_owned(), condition)));
        }
        due
    }

    /// Writes the conditions that have changed. Returns whether one could not be written.
    async fn reconcile_all(&self) -> bool {
        let mut retry = false;
        for (name, condition) in self.due() {
            match self.update_status(&name, condition).await {
                Ok(()) => {}
                Err(error) if error.code() == 404 => {}
                Err(error) => {
                    tracing::warn!(%name, %error, "the status of a FlowSchema is not up to date");
                    retry = true;
                }
            }
        }
        retry
    }

    async fn update_status(&self, name: &str, mut condition: Value) -> Result<()> {
        let info = self.registry.find(GROUP, "v1", FLOW_SCHEMAS).ok_or(Error::UnknownResource)?;
        let now = rfc3339(self.registry.now());
        condition["lastTransitionTime"] = now.as_str().into();
        let target = Target { info, namespace: String::new(), name: name.to_owned() };
        let status = json!({"conditions": [condition]});
        self.registry.apply_status(&target, MANAGER, &status).await
    }
}

fn bucket(plural: &str) -> Arc<str> {
    GroupResource::new(GROUP, plural).to_string().into()
}

/// Returns the condition that a FlowSchema should have; None if it has that one.
fn outdated(schema: &Value, levels: &HashSet<String>) -> Option<Value> {
    let name = schema.pointer("/spec/priorityLevelConfiguration/name").and_then(Value::as_str).unwrap_or("");
    let subject =
        format!("This FlowSchema references the PriorityLevelConfiguration object named {}", quote(name));
    let wanted = match levels.contains(name) {
        true => json!({
            "type": "Dangling", "status": "False", "reason": "Found", "message": format!("{subject} and it exists"),
        }),
        false => json!({
            "type": "Dangling", "status": "True", "reason": "NotFound",
            "message": format!("{subject} but there is no such object"),
        }),
    };
    let conditions = schema.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let is_wanted = |condition: &Value| {
        ["type", "status", "reason", "message"].iter().all(|member| condition[member] == wanted[member])
    };
    if conditions.into_iter().any(is_wanted) { None } else { Some(wanted) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_schemas_say_whether_their_priority_level_exists() {
        let levels = HashSet::from(["here".to_owned()]);
        let schema = |level: &str, conditions: Value| json!({"spec": {"priorityLevelConfiguration": {"name": level}}, "status": {"conditions": conditions}});
        for (level, status, reason) in [("here", "False", "Found"), ("gone", "True", "NotFound")] {
            let condition = outdated(&schema(level, json!([])), &levels).expect("there was none");
            assert_eq!((&condition["status"], &condition["reason"]), (&json!(status), &json!(reason)));
            assert_eq!(outdated(&schema(level, json!([condition])), &levels), None, "{level} is up to date");
        }
    }
}
