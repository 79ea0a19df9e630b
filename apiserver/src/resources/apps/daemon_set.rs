//! DaemonSet.

use crate::resources::strategy::Strategy;

/// The rules of DaemonSet.
pub struct Rules;

impl Strategy for Rules {}
