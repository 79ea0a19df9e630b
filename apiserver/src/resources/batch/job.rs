//! Job.

use crate::resources::strategy::Strategy;

/// The rules of Job.
pub struct Rules;

impl Strategy for Rules {}
