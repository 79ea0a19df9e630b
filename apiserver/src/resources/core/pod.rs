//! Pod.

use crate::resources::strategy::Strategy;

/// The rules of Pod.
pub struct Rules;

impl Strategy for Rules {}
