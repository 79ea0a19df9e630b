//! Namespace.

use crate::resources::strategy::Strategy;

/// The rules of Namespace.
pub struct Rules;

impl Strategy for Rules {}
