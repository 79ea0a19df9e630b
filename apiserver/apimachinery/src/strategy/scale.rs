//! Scale: the desired number of replicas of a workload, read and written through its `/scale`.

use super::Strategy;
use crate::field::{Errors, Field};
use crate::validation::numbers;

/// The strategy of Scale.
pub struct ScaleStrategy;

impl Strategy for ScaleStrategy {
    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        numbers::not_negative(&object.walk("spec.replicas"), errors);
    }
}
