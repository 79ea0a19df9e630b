//! APIService.

use crate::resources::strategy::Strategy;

/// The rules of APIService.
pub struct Rules;

impl Strategy for Rules {}
