//! MutatingAdmissionPolicy.

use crate::resources::strategy::Strategy;

/// The rules of MutatingAdmissionPolicy.
pub struct Rules;

impl Strategy for Rules {}
