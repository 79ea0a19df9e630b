//! Scale: how many replicas a workload shall have, read from it and written to it under its `/scale`.

use crate::field::{Errors, Field};
use crate::resources::strategy::Strategy;
use crate::validation::numbers;

/// The rules of Scale.
pub struct ScaleStrategy;

impl Strategy for ScaleStrategy {
    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        numbers::not_negative(&object.walk("spec.replicas"), errors);
    }
}
