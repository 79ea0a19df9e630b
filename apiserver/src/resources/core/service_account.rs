//! ServiceAccount.

use crate::resources::strategy::Strategy;

/// The rules of ServiceAccount.
pub struct Rules;

impl Strategy for Rules {}
