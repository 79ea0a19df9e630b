//! Role.

use crate::resources::strategy::Strategy;

/// The rules of Role.
pub struct Rules;

impl Strategy for Rules {}
