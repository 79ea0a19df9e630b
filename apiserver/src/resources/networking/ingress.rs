//! Ingress.

use crate::resources::strategy::Strategy;

/// The rules of Ingress.
pub struct Rules;

impl Strategy for Rules {}
