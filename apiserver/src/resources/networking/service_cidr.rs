//! ServiceCIDR.

use crate::resources::strategy::Strategy;

/// The rules of ServiceCIDR.
pub struct Rules;

impl Strategy for Rules {}
