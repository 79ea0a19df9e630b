//! ResourceSlice.

use crate::resources::strategy::Strategy;

/// The rules of ResourceSlice.
pub struct Rules;

impl Strategy for Rules {}
