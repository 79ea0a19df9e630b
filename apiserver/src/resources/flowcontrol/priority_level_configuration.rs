//! PriorityLevelConfiguration.

use crate::resources::strategy::Strategy;

/// The rules of PriorityLevelConfiguration.
pub struct Rules;

impl Strategy for Rules {}
