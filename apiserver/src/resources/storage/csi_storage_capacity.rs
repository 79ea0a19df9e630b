//! CSIStorageCapacity.

use crate::resources::strategy::Strategy;

/// The rules of CSIStorageCapacity.
pub struct Rules;

impl Strategy for Rules {}
