//! Endpoints.

use crate::resources::strategy::Strategy;

/// The rules of Endpoints.
pub struct Rules;

impl Strategy for Rules {}
