//! RuntimeClass.

use crate::resources::strategy::Strategy;

/// The rules of RuntimeClass.
pub struct Rules;

impl Strategy for Rules {}
