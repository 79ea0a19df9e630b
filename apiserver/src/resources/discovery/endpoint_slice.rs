//! EndpointSlice.

use crate::resources::strategy::Strategy;

/// The rules of EndpointSlice.
pub struct Rules;

impl Strategy for Rules {}
