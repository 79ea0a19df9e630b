//! ClusterRole.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::labels::{
    SelectorOptions, has_invalid_values, validate_label_selector,
};
use serde_json::Value;

use super::role::validate_policy_rules;

/// The strategy of ClusterRole.
pub struct ClusterRoleStrategy;

impl Strategy for ClusterRoleStrategy {
    fn validate(&self, role: &Field<'_>, errors: &mut Errors) {
        validate(role, SelectorOptions::default(), errors);
    }

    fn validate_update(&self, role: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let mut selectors = old.walk("aggregationRule.clusterRoleSelectors").items();
        let allow_invalid_values = selectors.any(|selector| has_invalid_values(&selector));
        validate(role, SelectorOptions { allow_invalid_values, ..SelectorOptions::default() }, errors);
    }
}

fn validate(role: &Field<'_>, options: SelectorOptions, errors: &mut Errors) {
    validate_policy_rules(role, false, errors);
    let aggregation = role.get("aggregationRule");
    let selectors = aggregation.get("clusterRoleSelectors");
    errors.push_if(aggregation.exists() && selectors.is_empty(), || {
        selectors.required("at least one clusterRoleSelector required if aggregationRule is non-nil")
    });
    for selector in selectors.items() {
        validate_label_selector(&selector, options, errors);
        // The selector must also be valid without the tolerance for existing objects.
        let mut found = Errors::new();
        validate_label_selector(&selector, SelectorOptions::default(), &mut found);
        errors.push_if(!found.is_empty(), || selector.invalid_value(Value::Null, "invalid label selector."));
    }
}
