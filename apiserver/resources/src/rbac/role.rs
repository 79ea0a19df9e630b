//! Role, and the policy rules that a ClusterRole has too.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;

/// The strategy of Role.
pub struct RoleStrategy;

impl Strategy for RoleStrategy {
    fn validate(&self, role: &Field<'_>, errors: &mut Errors) {
        validate_policy_rules(role, true, errors);
    }
}

/// Validates rules. Each is either for resources or, cluster-wide only, for non-resource URLs.
pub fn validate_policy_rules(role: &Field<'_>, namespaced: bool, errors: &mut Errors) {
    for rule in role.get("rules").items() {
        let (verbs, urls) = (rule.get("verbs"), rule.get("nonResourceURLs"));
        let (groups, resources) = (rule.get("apiGroups"), rule.get("resources"));
        errors.push_if(verbs.is_empty(), || verbs.required("verbs must contain at least one value"));
        if urls.is_empty() {
            errors.push_if(groups.is_empty(), || {
                groups.required("resource rules must supply at least one api group")
            });
            errors.push_if(resources.is_empty(), || {
                resources.required("resource rules must supply at least one resource")
            });
            continue;
        }
        errors.push_if(namespaced, || urls.invalid("namespaced rules cannot apply to non-resource URLs"));
        let both = !groups.is_empty() || !resources.is_empty() || !rule.get("resourceNames").is_empty();
        errors.push_if(both, || {
            urls.invalid("rules cannot apply to both regular resources and non-resource URLs")
        });
    }
}
