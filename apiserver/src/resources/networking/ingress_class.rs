//! IngressClass.

use crate::resources::strategy::Strategy;

/// The rules of IngressClass.
pub struct Rules;

impl Strategy for Rules {}
