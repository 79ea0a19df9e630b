//! ResourceClaim.

use crate::resources::strategy::Strategy;

/// The rules of ResourceClaim.
pub struct Rules;

impl Strategy for Rules {}
