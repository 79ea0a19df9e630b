//! ReplicaSet.

use crate::resources::strategy::Strategy;

/// The rules of ReplicaSet.
pub struct Rules;

impl Strategy for Rules {}
