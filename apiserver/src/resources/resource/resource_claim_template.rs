//! ResourceClaimTemplate.

use crate::resources::strategy::Strategy;

/// The rules of ResourceClaimTemplate.
pub struct Rules;

impl Strategy for Rules {}
