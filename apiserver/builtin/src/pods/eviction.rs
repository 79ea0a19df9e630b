//! `pods/eviction`: deletes a pod if its disruption budget permits it.
//!
//! Source: "API-initiated Eviction"; policy/v1.

use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::codec::body::Expected;
use coracle_apimachinery::error::Cause;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apimachinery::request::options::DeleteOptions;
use coracle_apimachinery::selector::LabelSelector;
use coracle_apimachinery::{Error, Result, conditions, pods};
use coracle_apiserver::registry::check_preconditions;
use coracle_apiserver::registry::deletion::rfc3339;
use coracle_apiserver::registry::{Origin, Outcome, Registry, Target, parse};
use coracle_apiserver::serve::ActionRequest;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::pods::delete_options::delete_options;

/// The condition of a budget that shows whether pods may be evicted.
const ALLOWED: &str = "DisruptionAllowed";
/// The largest number of evictions that the budget's controller has not observed yet.
const MAX_UNCONFIRMED: usize = 2000;
/// The number of attempts for a pod that changes concurrently.
const TRIES: usize = 20;

/// Executes `pods/NAME/eviction`.
pub fn evict(request: ActionRequest<'_>) -> BoxFuture<'_, Result<Outcome>> {
    Box::pin(perform(request))
}

/// Deletes a Pod, if the PodDisruptionBudgets that select it allow that (API-initiated eviction).
///
/// # Errors
/// 429 while a budget does not allow it; 404; 409 for a precondition that fails.
async fn perform(request: ActionRequest<'_>) -> Result<Outcome> {
    let expected = Expected { group: "policy", version: "v1", kind: "Eviction" };
    let mut eviction = request.decode(expected)?;
    let ActionRequest { registry, target, options, caller, .. } = request;
    let target = &target;
    registry.admit_subresource(target, "eviction", &mut eviction, caller, options).await?;
    let delete = delete_options(&target.name, &eviction, options.dry_run)?;
    let asked = DeleteOptions::from_value(&delete)?;
    let mut tries = 0;
    loop {
        tries += 1;
        let Some(stored) = registry.current(&target.info, &target.namespace, &target.name) else {
            return Err(Error::not_found(&target.info.group_resource, &target.name));
        };
        let pod = parse(&stored)?;
        let permit = permit(registry, target, &pod, asked.dry_run).await?;
        let mut delete = asked.clone();
        if permit != Permit::Allowed && asked.resource_version.is_none() {
            delete.resource_version = Some(pod.resource_version().to_owned());
        }
        let deleted = match mark_evicted(registry, target, &mut delete, caller.origin()).await {
            Ok(()) => registry.delete_evicted(target, &delete, caller).await,
            Err(error) => Err(error),
        };
        match (deleted, permit) {
            (Err(Error::Conflict { .. }), Permit::NotStarted)
                if asked.resource_version.is_none() && tries < TRIES => {}
            (Err(Error::Conflict { .. }), Permit::NotReady(budget)) if asked.resource_version.is_none() => {
                return Err(still_processed(&budget));
            }
            (deleted, _) => return deleted.map(|_| Outcome::success(201)),
        }
    }
}

/// Decides whether a pod may be evicted, and spends its disruption budget if that is needed.
async fn permit(registry: &Registry, target: &Target, pod: &Value, dry_run: bool) -> Result<Permit> {
    match phase(pod) {
        _ if pod.is_terminating() || pods::is_terminal(pod) => Ok(Permit::Allowed),
        "Pending" => Ok(Permit::NotStarted),
        _ => spend_budget(registry, target, pod, dry_run).await,
    }
}

/// Adds a condition with the reason of the eviction to the pod, under the preconditions of the
/// deletion.
async fn mark_evicted(
    registry: &Registry,
    target: &Target,
    delete: &mut DeleteOptions,
    origin: Origin<'_>,
) -> Result<()> {
    let now = rfc3339(registry.now());
    registry
        .rewrite_for(origin, target, delete.dry_run, |pod| {
            check_preconditions(&target.info, pod, delete)?;
            let mut marked = pod.clone();
            conditions::set(
                &mut marked["status"],
                "DisruptionTarget",
                true,
                "EvictionByEvictionAPI",
                "Eviction API: evicting",
                &now,
            );
            Ok(marked)
        })
        .await?;
    if delete.resource_version.is_some()
        && !delete.dry_run
        && let Some(marked) = registry.current(&target.info, &target.namespace, &target.name)
    {
        // The change was ours, not one that the caller must know of.
        delete.resource_version = Some(marked.revision.to_string());
    }
    Ok(())
}

/// Takes one disruption from the pod's budget, if it has one.
async fn spend_budget(registry: &Registry, target: &Target, pod: &Value, dry_run: bool) -> Result<Permit> {
    let resource = GroupResource::new("policy", "poddisruptionbudgets");
    let budgets = Cluster::list(registry, &resource, &target.namespace)?;
    let matching: Vec<&Value> = budgets.iter().filter(|budget| selects(budget, pod)).collect();
    let budget = match matching.as_slice() {
        [] => return Ok(Permit::Allowed),
        [budget] => *budget,
        _ => {
            return Err(Error::Unclassified(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
                    .to_owned(),
            ));
        }
    };
    // A pod that is not ready may be evicted if the budget's policy permits that or enough pods are
    // healthy.
    if !pods::is_ready(pod) && unhealthy_may_go(budget) {
        return Ok(Permit::NotReady(budget.name().to_owned()));
    }
    let Some(info) = registry.by_resource(&resource) else { return Ok(Permit::Allowed) };
    let budget =
        Target { info: info.clone(), namespace: target.namespace.clone(), name: budget.name().to_owned() };
    let now = rfc3339(registry.now());
    registry.rewrite_status(&budget, dry_run, |budget| spend(budget, pod.name(), &now)).await?;
    Ok(Permit::Allowed)
}

/// The result of the checks that permit an eviction.
#[derive(PartialEq)]
enum Permit {
    /// Permitted for any version of the pod: it has ended, is terminating, or its budget, if any,
    /// permits it.
    Allowed,
    /// Permitted for the observed version of the pod, which has not started.
    NotStarted,
    /// Permitted by this budget for the observed version of the pod, which is not ready.
    NotReady(String),
}

fn phase(pod: &Value) -> &str {
    pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or("")
}

fn selects(budget: &Value, pod: &Value) -> bool {
    LabelSelector::from_object(budget.pointer("/spec/selector"))
        .is_some_and(|selector| selector.matches_map(pod.meta("labels")))
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

fn refusal(retry_after: u32, message: String) -> Error {
    Error::TooManyRequests {
        message: "Cannot evict pod as it would violate the pod's disruption budget.".to_owned(),
        retry_after,
        causes: vec![Cause { reason: "DisruptionBudget".to_owned(), message, field: String::new() }],
    }
}

fn still_processed(budget: &str) -> Error {
    refusal(10, format!("The disruption budget {budget} is still being processed by the server."))
}

/// Returns the budget with one allowed disruption less, and the pod among its disrupted pods.
fn spend(budget: &Value, pod: &str, now: &str) -> Result<Value> {
    let name = budget.name();
    let forbid = |detail: &str| {
        let resource = GroupResource::new("policy", "poddisruptionbudget");
        Err(Error::forbidden(&resource, name, detail))
    };
    let allowed = number(budget, "/status/disruptionsAllowed");
    let unconfirmed = budget.pointer("/status/disruptedPods").and_then(Value::as_object).map_or(0, Map::len);
    if number(budget, "/status/observedGeneration") < budget.generation() {
        return Err(still_processed(name));
    }
    if allowed < 0 {
        return forbid("pdb disruptions allowed is negative");
    }
    if unconfirmed > MAX_UNCONFIRMED {
        return forbid("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed == 0 {
        return Err(refusal(0, format!("The disruption budget {name} {}", why_exhausted(budget))));
    }
    let mut spent = budget.clone();
    spent["status"]["disruptionsAllowed"] = (allowed - 1).into();
    spent["status"]["disruptedPods"][pod] = now.into();
    if allowed == 1 {
        set_insufficient(&mut spent, now);
    }
    Ok(spent)
}

fn why_exhausted(budget: &Value) -> String {
    let healthy = number(budget, "/status/currentHealthy");
    let desired = number(budget, "/status/desiredHealthy");
    let conditions = budget.pointer("/status/conditions").and_then(Value::as_array);
    let found = conditions.into_iter().flatten().find(|condition| {
        condition["type"] == ALLOWED
            && condition["status"] == "False"
            && condition["message"].as_str().is_some_and(|message| !message.is_empty())
    });
    let message = found.map(|condition| {
        (condition["reason"].as_str().unwrap_or(""), condition["message"].as_str().unwrap_or(""))
    });
    match message {
        Some(("SyncFailed", message)) => {
            format!("does not allow evicting pods currently because it failed sync: {message}")
        }
        _ if healthy <= desired => format!("needs {desired} healthy pods and has {healthy} currently"),
        Some((reason, message)) => format!("does not allow evicting pods currently ({reason}): {message}"),
        None => "does not allow evicting pods currently".to_owned(),
    }
}

/// Sets the budget's condition for no further disruptions.
fn set_insufficient(budget: &mut Value, now: &str) {
    let mut condition = json!({
        "type": ALLOWED,
        "status": "False",
        "reason": "InsufficientPods",
        "message": "",
        "observedGeneration": budget["status"]["observedGeneration"],
        "lastTransitionTime": now,
    });
    let conditions = &mut budget["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|condition| condition["type"] == ALLOWED) {
        Some(present) => {
            if present["status"] == "False" {
                condition["lastTransitionTime"] = present["lastTransitionTime"].clone();
            }
            *present = condition;
        }
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-02T03:04:05Z";

    #[test]
    fn an_exhausted_budget_says_why() {
        let condition = |reason, message| json!([{"type": ALLOWED, "status": "False", "reason": reason, "message": message}]);
        for (case, status, want) in [
            (
                "too few",
                json!({"currentHealthy": 1, "desiredHealthy": 2}),
                "The disruption budget b needs 2 healthy pods and has 1 currently",
            ),
            (
                "not in sync",
                json!({"conditions": condition("SyncFailed", "no scale")}),
                "The disruption budget b does not allow evicting pods currently because it failed sync: no scale",
            ),
            (
                "for a reason",
                json!({"currentHealthy": 3, "desiredHealthy": 2, "conditions": condition("Other", "wait")}),
                "The disruption budget b does not allow evicting pods currently (Other): wait",
            ),
            (
                "for none",
                json!({"currentHealthy": 3, "desiredHealthy": 2}),
                "The disruption budget b does not allow evicting pods currently",
            ),
        ] {
            let budget = json!({"metadata": {"name": "b"}, "status": status});
            let status = spend(&budget, "p", NOW).expect_err(case).status();
            assert_eq!(status.details.expect(case)["causes"][0]["message"], want, "{case}");
        }
    }

    #[test]
    fn the_last_disruption_changes_the_condition() {
        let budget =
            json!({"metadata": {"name": "b"}, "status": {"disruptionsAllowed": 1, "observedGeneration": 3}});
        let spent = spend(&budget, "p", NOW).expect("one is allowed");
        assert_eq!(spent["status"]["disruptionsAllowed"], 0);
        assert_eq!(spent["status"]["disruptedPods"], json!({"p": NOW}));
        assert_eq!(spent["status"]["conditions"][0]["reason"], "InsufficientPods");
    }
}
