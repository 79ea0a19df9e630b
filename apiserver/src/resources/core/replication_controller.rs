//! ReplicationController.

use crate::resources::strategy::Strategy;

/// The rules of ReplicationController.
pub struct Rules;

impl Strategy for Rules {}
