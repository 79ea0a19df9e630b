//! RoleBinding.

use crate::resources::strategy::Strategy;

/// The rules of RoleBinding.
pub struct Rules;

impl Strategy for Rules {}
