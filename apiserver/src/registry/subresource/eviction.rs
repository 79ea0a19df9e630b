//! `pods/eviction`: a deletion that asks the pod's disruption budget first.
//!
//! Source: "API-initiated Eviction"; policy/v1.

use serde_json::Value;

use super::super::body::Body;
use super::super::delete::check_preconditions;
use super::super::deletion::rfc3339;
use super::super::object::ObjectMeta;
use super::super::{Caller, Outcome, Registry, Target, parse};
use crate::admission::Cluster;
use crate::codec::body::Expected;
use crate::error::Cause;
use crate::names::GroupResource;
use crate::request::options::{DeleteOptions, WriteOptions};
use crate::resources::policy::eviction;
use crate::selector::LabelSelector;
use crate::{Error, Result};

impl Registry {
    pub async fn evict(
        &self,
        target: &Target,
        body: &Body,
        options: &WriteOptions,
        caller: Caller<'_>,
    ) -> Result<Outcome> {
        let expected = Expected { group: "policy", version: "v1", kind: "Eviction" };
        let decoded = body.decode(expected, options.field_validation)?;
        let delete = eviction::delete_options(&target.name, &decoded.object, options.dry_run)?;
        let mut delete = DeleteOptions::from_value(&delete)?;
        let Some(stored) = self.current(&target.served, &target.namespace, &target.name) else {
            return Err(Error::not_found(&target.served.group_resource, &target.name));
        };
        let pod = parse(&stored);
        if !ignores_budgets(&pod) {
            self.spend_budget(target, &pod, delete.dry_run).await?;
        }
        self.mark_evicted(target, &mut delete).await?;
        self.delete(target, &delete, caller).await?;
        Ok(Outcome::success(201, decoded.warnings))
    }

    /// Says on the pod why it goes, under the conditions under which it may go.
    async fn mark_evicted(&self, target: &Target, delete: &mut DeleteOptions) -> Result<()> {
        let now = rfc3339(self.now());
        self.rewrite(target, delete.dry_run, |pod| {
            check_preconditions(&target.served, pod, delete)?;
            let mut marked = pod.clone();
            eviction::mark(&mut marked, &now);
            Ok(marked)
        })
        .await?;
        if delete.resource_version.is_some()
            && !delete.dry_run
            && let Some(marked) = self.current(&target.served, &target.namespace, &target.name)
        {
            // The change was ours, not one that the caller must know of.
            delete.resource_version = Some(marked.revision.to_string());
        }
        Ok(())
    }

    /// Takes one disruption from the pod's budget, if it has one.
    async fn spend_budget(&self, target: &Target, pod: &Value, dry_run: bool) -> Result<()> {
        let resource = GroupResource::new("policy", "poddisruptionbudgets");
        let budgets = Cluster::list(self, &resource, &target.namespace);
        let matching: Vec<&Value> = budgets.iter().filter(|budget| selects(budget, pod)).collect();
        let budget = match matching.as_slice() {
            [] => return Ok(()),
            [budget] => *budget,
            _ => {
                return Err(Error::Unclassified(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
                        .to_owned(),
                ));
            }
        };
        // A pod that is not ready disrupts nobody, where the budget says so or has enough healthy pods.
        if !is_ready(pod) && unhealthy_may_go(budget) {
            return Ok(());
        }
        let Some(served) = self.table.by_resource(&resource) else { return Ok(()) };
        let budget = Target {
            served: served.clone(),
            namespace: target.namespace.clone(),
            name: budget.name().to_owned(),
        };
        let now = rfc3339(self.now());
        self.rewrite(&budget, dry_run, |budget| spend(budget, pod.name(), &now)).await.map(drop)
    }
}

/// Nothing is lost with a pod that has not begun, has ended, or is already going.
fn ignores_budgets(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or("");
    matches!(phase, "Succeeded" | "Failed" | "Pending") || pod.is_terminating()
}

fn selects(budget: &Value, pod: &Value) -> bool {
    LabelSelector::from_object(budget.pointer("/spec/selector"))
        .is_some_and(|selector| selector.matches_map(pod.meta("labels")))
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn unhealthy_may_go(budget: &Value) -> bool {
    if budget.pointer("/spec/unhealthyPodEvictionPolicy").and_then(Value::as_str) == Some("AlwaysAllow") {
        return true;
    }
    let (healthy, desired) =
        (number(budget, "/status/currentHealthy"), number(budget, "/status/desiredHealthy"));
    desired > 0 && healthy >= desired
}

/// The budget with one disruption less.
fn spend(budget: &Value, pod: &str, now: &str) -> Result<Value> {
    let allowed = number(budget, "/status/disruptionsAllowed");
    let refuse = |retry_after: u32, message: String| {
        Err(Error::TooManyRequests {
            message: "Cannot evict pod as it would violate the pod's disruption budget.".to_owned(),
            retry_after,
            causes: vec![Cause { reason: "DisruptionBudget".to_owned(), message, field: String::new() }],
        })
    };
    if number(budget, "/status/observedGeneration") < budget.generation() {
        return refuse(
            10,
            format!("The disruption budget {} is still being processed by the server.", budget.name()),
        );
    }
    if allowed < 0 {
        return Err(Error::forbidden(
            &GroupResource::new("policy", "poddisruptionbudget"),
            budget.name(),
            "pdb disruptions allowed is negative",
        ));
    }
    if allowed == 0 {
        return refuse(
            0,
            format!(
                "The disruption budget {} needs {} healthy pods and has {} currently",
                budget.name(),
                number(budget, "/status/desiredHealthy"),
                number(budget, "/status/currentHealthy")
            ),
        );
    }
    let mut spent = budget.clone();
    spent["status"]["disruptionsAllowed"] = (allowed - 1).into();
    spent["status"]["disruptedPods"][pod] = now.into();
    Ok(spent)
}
