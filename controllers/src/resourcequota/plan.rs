//! The decision: a quota's status from what was found to be used.

use std::collections::BTreeMap;

use coracle_pod_resources::ResourceList;
use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::evaluators::amounts;

/// Returns the status that the quota should have, or `None` if it has that status. The usage of a
/// resource that could not be counted is kept.
pub(super) fn status(quota: &ResourceQuota, found: &ResourceList) -> Option<ResourceQuotaStatus> {
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default();
    let old = quota.status.clone().unwrap_or_default();
    let (was_hard, was_used) = (old.hard.unwrap_or_default(), old.used.unwrap_or_default());
    let used: BTreeMap<String, Quantity> = hard
        .keys()
        .filter_map(|name| {
            let found = found.get(name).map(|amount| Quantity(amount.to_string()));
            Some((name.clone(), found.or_else(|| was_used.get(name).cloned())?))
        })
        .collect();
    let has_changed = was_hard != hard || amounts(Some(&was_used)) != amounts(Some(&used));
    has_changed.then_some(ResourceQuotaStatus { hard: Some(hard), used: Some(used) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_status_has_limits_and_usage() {
        let found = ResourceList::from([
            ("pods".to_owned(), "2".parse().unwrap()),
            ("limits.memory".to_owned(), "1.5Gi".parse().unwrap()),
        ]);
        let hard = json!({"pods": "5", "limits.memory": "2Gi", "count/widgets.example.com": "1"});
        for (case, status, want) in [
            ("new", json!({}), json!({"hard": hard, "used": {"pods": "2", "limits.memory": "1536Mi"}})),
            (
                "other limits",
                json!({"hard": {"pods": "7", "secrets": "1"}, "used": {"pods": "2", "secrets": "1"}}),
                json!({"hard": hard, "used": {"pods": "2", "limits.memory": "1536Mi"}}),
            ),
            (
                "less used, and something not to be looked at",
                json!({"hard": hard, "used": {"pods": "3", "limits.memory": "1536Mi", "count/widgets.example.com": "4"}}),
                json!({"hard": hard, "used": {"pods": "2", "limits.memory": "1536Mi", "count/widgets.example.com": "4"}}),
            ),
            (
                "as it is, if written in another way",
                json!({"hard": hard, "used": {"pods": "2", "limits.memory": "1572864Ki"}}),
                Value::Null,
            ),
        ] {
            let quota = json!({"metadata": {}, "spec": {"hard": hard}, "status": status});
            let quota: ResourceQuota = serde_json::from_value(quota).unwrap();
            let got = serde_json::to_value(super::status(&quota, &found)).unwrap();
            assert_eq!(got, want, "{case}");
        }
    }
}
