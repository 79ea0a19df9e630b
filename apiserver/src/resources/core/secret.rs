//! Secret.

use crate::resources::strategy::Strategy;

/// The rules of Secret.
pub struct Rules;

impl Strategy for Rules {}
