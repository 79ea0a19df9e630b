//! ValidatingAdmissionPolicyBinding.

use crate::resources::strategy::Strategy;

/// The rules of ValidatingAdmissionPolicyBinding.
pub struct Rules;

impl Strategy for Rules {}
