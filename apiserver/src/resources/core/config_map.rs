//! ConfigMap.

use crate::resources::strategy::Strategy;

/// The rules of ConfigMap.
pub struct Rules;

impl Strategy for Rules {}
