//! PodTemplate.

use crate::resources::strategy::Strategy;

/// The rules of PodTemplate.
pub struct Rules;

impl Strategy for Rules {}
