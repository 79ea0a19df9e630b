//! Node.

use crate::resources::strategy::Strategy;

/// The rules of Node.
pub struct Rules;

impl Strategy for Rules {}
