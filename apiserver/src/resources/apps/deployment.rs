//! Deployment.

use crate::resources::strategy::Strategy;

/// The rules of Deployment.
pub struct Rules;

impl Strategy for Rules {}
