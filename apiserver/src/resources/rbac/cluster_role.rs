//! ClusterRole.

use crate::resources::strategy::Strategy;

/// The rules of ClusterRole.
pub struct Rules;

impl Strategy for Rules {}
