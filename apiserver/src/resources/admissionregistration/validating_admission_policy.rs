//! ValidatingAdmissionPolicy.

use crate::resources::strategy::Strategy;

/// The rules of ValidatingAdmissionPolicy.
pub struct Rules;

impl Strategy for Rules {}
