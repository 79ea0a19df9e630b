//! Event.

use crate::resources::strategy::Strategy;

/// The rules of Event.
pub struct Rules;

impl Strategy for Rules {}
