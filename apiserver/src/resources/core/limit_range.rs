//! LimitRange.

use crate::resources::strategy::Strategy;

/// The rules of LimitRange.
pub struct Rules;

impl Strategy for Rules {}
