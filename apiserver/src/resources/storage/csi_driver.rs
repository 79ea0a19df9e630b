//! CSIDriver.

use crate::resources::strategy::Strategy;

/// The rules of CSIDriver.
pub struct Rules;

impl Strategy for Rules {}
