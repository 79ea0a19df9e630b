//! Lease.

use crate::resources::strategy::Strategy;

/// The rules of Lease.
pub struct Rules;

impl Strategy for Rules {}
