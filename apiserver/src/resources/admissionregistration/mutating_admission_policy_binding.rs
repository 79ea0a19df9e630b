//! MutatingAdmissionPolicyBinding.

use crate::resources::strategy::Strategy;

/// The rules of MutatingAdmissionPolicyBinding.
pub struct Rules;

impl Strategy for Rules {}
