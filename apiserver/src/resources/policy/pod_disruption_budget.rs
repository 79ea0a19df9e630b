//! PodDisruptionBudget.

use crate::resources::strategy::Strategy;

/// The rules of PodDisruptionBudget.
pub struct Rules;

impl Strategy for Rules {}
