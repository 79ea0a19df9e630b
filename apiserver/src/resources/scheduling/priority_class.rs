//! PriorityClass.

use crate::resources::strategy::Strategy;

/// The rules of PriorityClass.
pub struct Rules;

impl Strategy for Rules {}
