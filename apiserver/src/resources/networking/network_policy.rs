//! NetworkPolicy.

use crate::resources::strategy::Strategy;

/// The rules of NetworkPolicy.
pub struct Rules;

impl Strategy for Rules {}
