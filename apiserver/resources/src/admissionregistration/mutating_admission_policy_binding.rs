//! MutatingAdmissionPolicyBinding.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use serde_json::Value;

use super::policies::validate_binding;
use super::rules::validate_mutating_operations;
use super::validating_admission_policy_binding::default_binding;
use super::webhooks::name_warnings;

/// The strategy of MutatingAdmissionPolicyBinding.
pub struct MutatingAdmissionPolicyBindingStrategy;

impl Strategy for MutatingAdmissionPolicyBindingStrategy {
    fn default(&self, object: &mut Value) {
        default_binding(object);
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        let spec = object.get("spec");
        validate_binding(&spec, errors);
        validate_mutating_operations(&spec.get("matchResources"), errors);
    }

    fn warnings(&self, object: &Field<'_>, _: Option<&Field<'_>>) -> Vec<String> {
        name_warnings(object)
    }
}
