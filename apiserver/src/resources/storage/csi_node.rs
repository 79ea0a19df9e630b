//! CSINode.

use crate::resources::strategy::Strategy;

/// The rules of CSINode.
pub struct Rules;

impl Strategy for Rules {}
