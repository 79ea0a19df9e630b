//! Eviction.

use crate::resources::strategy::Strategy;

/// The rules of Eviction.
pub struct Rules;

impl Strategy for Rules {}
