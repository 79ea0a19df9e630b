//! CustomResourceDefinition.

use crate::resources::strategy::Strategy;

/// The rules of CustomResourceDefinition.
pub struct Rules;

impl Strategy for Rules {}
