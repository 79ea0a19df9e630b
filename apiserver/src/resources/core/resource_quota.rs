//! ResourceQuota.

use crate::resources::strategy::Strategy;

/// The rules of ResourceQuota.
pub struct Rules;

impl Strategy for Rules {}
