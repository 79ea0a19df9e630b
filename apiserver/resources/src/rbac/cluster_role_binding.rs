//! ClusterRoleBinding.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use serde_json::Value;

use super::role_binding::{default_binding, validate_binding, validate_same_role};

/// The strategy of ClusterRoleBinding.
pub struct ClusterRoleBindingStrategy;

impl Strategy for ClusterRoleBindingStrategy {
    fn default(&self, binding: &mut Value) {
        default_binding(binding);
    }

    fn validate(&self, binding: &Field<'_>, errors: &mut Errors) {
        validate_binding(binding, false, errors);
    }

    fn validate_update(&self, binding: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        self.validate(binding, errors);
        validate_same_role(binding, old, errors);
    }
}
