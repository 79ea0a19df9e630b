//! ControllerRevision.

use crate::resources::strategy::Strategy;

/// The rules of ControllerRevision.
pub struct Rules;

impl Strategy for Rules {}
