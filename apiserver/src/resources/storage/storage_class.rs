//! StorageClass.

use crate::resources::strategy::Strategy;

/// The rules of StorageClass.
pub struct Rules;

impl Strategy for Rules {}
