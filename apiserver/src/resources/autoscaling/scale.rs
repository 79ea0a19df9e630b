//! Scale.

use crate::resources::strategy::Strategy;

/// The rules of Scale.
pub struct Rules;

impl Strategy for Rules {}
