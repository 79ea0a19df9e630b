//! Binding.

use crate::resources::strategy::Strategy;

/// The rules of Binding.
pub struct Rules;

impl Strategy for Rules {}
