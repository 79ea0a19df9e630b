//! ClusterRoleBinding.

use crate::resources::strategy::Strategy;

/// The rules of ClusterRoleBinding.
pub struct Rules;

impl Strategy for Rules {}
