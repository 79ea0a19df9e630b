//! clusterrole-aggregation-controller: the rules of a ClusterRole with an `aggregationRule` are
//! those of the ClusterRoles that it selects.
//!
//! When any ClusterRole changes, each aggregated one is reconciled:
//! 1. the rules of the selected roles are united, in the order of the selectors and of the names;
//! 2. if they differ from the role's, they are applied as a whole, whoever wrote the others.
//!
//! A role that aggregates aggregated roles settles after several reconciliations.

use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_not_found,
};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::Patch;
use kube::core::Selector;
use serde_json::json;

use crate::settings::{Context, Settings};

const MANAGER: &str = "clusterrole-aggregation-controller";

pub struct ClusterRoleAggregationController {
    roles: Arc<Cache<ClusterRole>>,
}

impl Initialize<Settings> for ClusterRoleAggregationController {
    fn new(context: &Context) -> ClusterRoleAggregationController {
        ClusterRoleAggregationController { roles: context.cache() }
    }
}

impl Controller for ClusterRoleAggregationController {
    const NAME: &'static str = MANAGER;
    const QUEUE_NAME: &'static str = "ClusterRoleAggregator";
    /// The name of a ClusterRole.
    type Key = String;

    fn sources(&self, sources: &mut Sources<String>) {
        let roles = self.roles.clone();
        sources.on(&self.roles, move |_, queue| {
            let all = roles.all();
            let aggregated = all.iter().filter(|role| role.aggregation_rule.is_some());
            aggregated.filter_map(|role| role.metadata.name.clone()).for_each(|name| queue.add(name));
        });
    }

    async fn reconcile(&self, name: &String, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(role) = self.roles.get(&NamespacedName::new("", name)) else {
            return Ok(Action::AwaitChange);
        };
        let Some(rules) = aggregate(&role, &self.roles.all())? else { return Ok(Action::AwaitChange) };
        // Without any rule the field is absent from what is applied.
        let rules = (!rules.is_empty()).then_some(rules);
        let mut applied = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        });
        if let Some(rules) = rules {
            applied["rules"] = json!(rules);
        }
        let roles = ctx.api(&self.roles).managed_by(MANAGER);
        ignore_not_found(roles.patch(&NamespacedName::of(role.as_ref()), Patch::Apply(applied)).await)?;
        Ok(Action::AwaitChange)
    }
}

/// Returns the rules that a role has to have; None if it has them or is not aggregated. `all` are
/// ordered by name.
///
/// # Errors
/// A selector is invalid.
fn aggregate(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Result<Option<Vec<PolicyRule>>, Error> {
    let Some(rule) = &role.aggregation_rule else { return Ok(None) };
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in rule.cluster_role_selectors.iter().flatten() {
        let selector =
            Selector::try_from(selector.clone()).map_err(|error| Error::Unfinished(error.to_string()))?;
        let selected = all.iter().filter(|other| {
            other.metadata.name != role.metadata.name
                && coracle_object_meta::selector_matches(&selector, &other.metadata)
        });
        for rule in selected.flat_map(|other| other.rules.iter().flatten()) {
            if !rules.iter().any(|known| is_same(known, rule)) {
                rules.push(rule.clone());
            }
        }
    }
    let present = role.rules.as_deref().unwrap_or_default();
    let is_known = present.len() == rules.len() && present.iter().zip(&rules).all(|(a, b)| is_same(a, b));
    Ok((!is_known).then_some(rules))
}

/// Returns `true` if two rules are equal. An empty list equals an absent one.
fn is_same(one: &PolicyRule, other: &PolicyRule) -> bool {
    fn list(list: &Option<Vec<String>>) -> &[String] {
        list.as_deref().unwrap_or_default()
    }
    one.verbs == other.verbs
        && list(&one.api_groups) == list(&other.api_groups)
        && list(&one.resources) == list(&other.resources)
        && list(&one.resource_names) == list(&other.resource_names)
        && list(&one.non_resource_urls) == list(&other.non_resource_urls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn role(name: &str, labels: Value, rules: &[&str]) -> ClusterRole {
        let rules: Vec<Value> = rules.iter().map(|verb| json!({"verbs": [verb]})).collect();
        let role = json!({"metadata": {"name": name, "labels": labels}, "rules": rules});
        serde_json::from_value(role).unwrap()
    }

    fn aggregated(labels: &[&str], rules: &[&str]) -> ClusterRole {
        let mut role = role("m", json!({"all": "true"}), rules);
        let selectors: Vec<Value> =
            labels.iter().map(|label| json!({"matchLabels": {*label: "true"}})).collect();
        role.aggregation_rule = serde_json::from_value(json!({"clusterRoleSelectors": selectors})).unwrap();
        role
    }

    #[test]
    fn rules_are_united_by_selector_and_name() {
        let others = [
            role("a", json!({"x": "true", "all": "true"}), &["get", "list"]),
            role("b", json!({"y": "true", "all": "true"}), &["watch", "get"]),
            role("c", json!({}), &["delete"]),
        ];
        for (case, role, want) in [
            ("not aggregated", role("m", json!({}), &["get"]), None),
            ("one", aggregated(&["x"], &[]), Some(vec!["get", "list"])),
            ("in the order of selectors", aggregated(&["y", "x"], &[]), Some(vec!["watch", "get", "list"])),
            ("not itself", aggregated(&["all"], &["patch"]), Some(vec!["get", "list", "watch"])),
            ("as they are", aggregated(&["x"], &["get", "list"]), None),
            ("in another order", aggregated(&["x"], &["list", "get"]), Some(vec!["get", "list"])),
            ("nothing selected", aggregated(&["z"], &["get"]), Some(vec![])),
            ("nothing selected, no rules", aggregated(&["z"], &[]), None),
        ] {
            let all: Vec<Arc<ClusterRole>> =
                others.iter().chain([&role]).map(|role| Arc::new(role.clone())).collect();
            let rules = aggregate(&role, &all).unwrap();
            let verbs =
                rules.map(|rules| rules.into_iter().map(|rule| rule.verbs.concat()).collect::<Vec<_>>());
            let want = want.map(|verbs| verbs.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(verbs, want, "{case}");
        }
    }
}
