//! Service.

use crate::resources::strategy::Strategy;

/// The rules of Service.
pub struct Rules;

impl Strategy for Rules {}
