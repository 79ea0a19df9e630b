//! validatingadmissionpolicy-status-controller: the status of ValidatingAdmissionPolicies, with the
//! warnings of type checking.
//!
//! It is part of the server because it checks expressions against the served types.
//!
//! Source: `pkg/controller/validatingadmissionpolicystatus`.

mod object_type;
mod type_check;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Delay;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::background::in_background;
use crate::names::GroupResource;
use crate::object_meta::ObjectMeta;
use crate::registry::{Reconcile, Registry, Target, parse};
use crate::timers::VALIDATING_ADMISSION_POLICY_RETRY;
use crate::{Error, Result};

const GROUP: &str = "admissionregistration.k8s.io";
const PLURAL: &str = "validatingadmissionpolicies";

/// The manager of the statuses.
const MANAGER: &str = "validatingadmissionpolicy-status";

/// The delay before a failed update is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Maintains the statuses of policies.
pub struct PolicyStatus {
    registry: Arc<Registry>,
    bucket: Arc<str>,
    /// The generations that were checked, by name and uid.
    checked: HashMap<String, (String, i64)>,
    /// A permit of its own for work in the background.
    permits: Arc<Semaphore>,
}

impl Reconcile for PolicyStatus {
    async fn reconcile(&mut self) -> Option<Delay> {
        self.reconcile_all().await.then(|| VALIDATING_ADMISSION_POLICY_RETRY.after(RETRY))
    }
}

impl PolicyStatus {
    /// Creates the controller for the policies of a registry.
    pub fn new(registry: Arc<Registry>) -> PolicyStatus {
        let bucket = GroupResource::new(GROUP, PLURAL).to_string().into();
        PolicyStatus { registry, bucket, checked: HashMap::new(), permits: Arc::new(Semaphore::new(1)) }
    }

    /// Follows the stored policies until the future is dropped.
    pub fn run(self) -> BoxFuture<'static, ()> {
        self.registry.clone().run_reconciler(self.bucket.clone(), self)
    }

    /// Writes the statuses that are not of the newest generation. Returns whether a write failed.
    async fn reconcile_all(&mut self) -> bool {
        let mut known = std::mem::take(&mut self.checked);
        let mut due = Vec::new();
        for stored in self.registry.store.snapshot().bucket(&self.bucket).iter() {
            let Ok(policy) = parse(stored) else { continue };
            let generation = policy.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
            let observed = policy.pointer("/status/observedGeneration").and_then(Value::as_i64);
            let entry = (policy.meta("uid").and_then(Value::as_str).unwrap_or("").to_owned(), generation);
            let name = policy.name().to_owned();
            if known.remove(&name).as_ref() != Some(&entry) && observed != Some(generation) {
                due.push((name.clone(), policy));
            }
            self.checked.insert(name, entry);
        }
        let mut retry = false;
        for (name, policy) in due {
            match self.update_status(&name, &policy).await {
                Ok(()) => {}
                Err(error) if error.code() == 404 => {}
                Err(error) => {
                    tracing::warn!(%name, %error, "the status of a ValidatingAdmissionPolicy is not up to date");
                    self.checked.remove(&name);
                    retry = true;
                }
            }
        }
        retry
    }

    async fn update_status(&self, name: &str, policy: &Value) -> Result<()> {
        // Checking a large policy against all of its types takes long.
        let resources = self.registry.resources.load_full();
        let check = async { type_check::warnings(&policy["spec"], &resources) };
        let warnings = in_background(&self.permits, check).await;
        let generation = policy.pointer("/metadata/generation").cloned().unwrap_or_default();
        let type_checking =
            if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
        let status = json!({"observedGeneration": generation, "typeChecking": type_checking});
        let info = self.registry.find(GROUP, "v1", PLURAL).ok_or(Error::UnknownResource)?;
        let target = Target { info, namespace: String::new(), name: name.to_owned() };
        self.registry.apply_status(&target, MANAGER, &status).await
    }
}
