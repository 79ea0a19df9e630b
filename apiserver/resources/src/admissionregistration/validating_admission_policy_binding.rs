//! ValidatingAdmissionPolicyBinding.

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use serde_json::Value;

use super::policies::validate_binding;
use super::rules::{default_match_resources, validate_enum};
use super::webhooks::name_warnings;

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

/// The strategy of ValidatingAdmissionPolicyBinding.
pub struct ValidatingAdmissionPolicyBindingStrategy;

impl Strategy for ValidatingAdmissionPolicyBindingStrategy {
    fn default(&self, object: &mut Value) {
        default_binding(object);
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        let spec = object.get("spec");
        validate_binding(&spec, errors);
        validate_actions(&spec.get("validationActions"), errors);
    }

    fn warnings(&self, object: &Field<'_>, _: Option<&Field<'_>>) -> Vec<String> {
        name_warnings(object)
    }
}

/// Sets the defaults of the bindings of both kinds of policy.
pub fn default_binding(object: &mut Value) {
    let resources = object.get_mut("spec").and_then(|spec| spec.get_mut("matchResources"));
    if let Some(resources) = resources.and_then(Value::as_object_mut) {
        default_match_resources(resources);
    }
}

fn validate_actions(actions: &Field<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for action in actions.items() {
        validate_enum(&action, &ACTIONS, errors);
        errors.push_if(!seen.insert(action.str()), || action.duplicate());
    }
    errors.push_if(seen.contains(&"Deny") && seen.contains(&"Warn"), || {
        actions.invalid("must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)")
    });
    errors.push_if(seen.is_empty(), || actions.required("at least one validation action is required"));
}
