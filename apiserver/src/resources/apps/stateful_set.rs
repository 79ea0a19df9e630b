//! StatefulSet.

use crate::resources::strategy::Strategy;

/// The rules of StatefulSet.
pub struct Rules;

impl Strategy for Rules {}
