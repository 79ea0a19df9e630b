//! IPAddress.

use crate::resources::strategy::Strategy;

/// The rules of IPAddress.
pub struct Rules;

impl Strategy for Rules {}
