//! FlowSchema.

use crate::resources::strategy::Strategy;

/// The rules of FlowSchema.
pub struct Rules;

impl Strategy for Rules {}
