//! HorizontalPodAutoscaler.

use crate::resources::strategy::Strategy;

/// The rules of HorizontalPodAutoscaler.
pub struct Rules;

impl Strategy for Rules {}
