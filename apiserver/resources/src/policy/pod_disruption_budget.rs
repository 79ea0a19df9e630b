//! PodDisruptionBudget.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::conditions::validate_conditions;
use coracle_apimachinery::validation::labels::{SelectorOptions, validate_label_selector};
use coracle_apimachinery::validation::{numbers, printed};

const EVICTION_POLICIES: [&str; 2] = ["AlwaysAllow", "IfHealthyBudget"];

/// The strategy of PodDisruptionBudget.
pub struct PodDisruptionBudgetStrategy;

impl Strategy for PodDisruptionBudgetStrategy {
    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        validate_spec(&object.get("spec"), SelectorOptions::default(), errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let mut old_errors = Errors::new();
        validate_label_selector(&old.walk("spec.selector"), SelectorOptions::default(), &mut old_errors);
        let options = SelectorOptions { allow_invalid_values: !old_errors.is_empty(), ..Default::default() };
        validate_spec(&object.get("spec"), options, errors);
    }

    fn validate_status_update(&self, object: &Field<'_>, _: &Field<'_>, errors: &mut Errors) {
        let status = object.get("status");
        validate_conditions(&status.get("conditions"), errors);
        for name in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            numbers::not_negative(&status.get(name), errors);
        }
    }
}

fn validate_spec(spec: &Field<'_>, options: SelectorOptions, errors: &mut Errors) {
    let (least, most) = (spec.get("minAvailable"), spec.get("maxUnavailable"));
    errors.push_if(least.exists() && most.exists(), || {
        printed::invalid(
            spec,
            "policy.PodDisruptionBudgetSpec",
            "minAvailable and maxUnavailable cannot be both set",
        )
    });
    for field in [least, most] {
        numbers::int_or_percent(&field, errors);
        numbers::at_most_100_percent(&field, errors);
    }
    validate_label_selector(&spec.get("selector"), options, errors);
    let policy = spec.get("unhealthyPodEvictionPolicy");
    errors.push_if(policy.exists() && !EVICTION_POLICIES.contains(&policy.str()), || {
        policy.not_supported(&EVICTION_POLICIES)
    });
}
