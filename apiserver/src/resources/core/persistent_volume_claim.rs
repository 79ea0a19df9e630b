//! PersistentVolumeClaim.

use crate::resources::strategy::Strategy;

/// The rules of PersistentVolumeClaim.
pub struct Rules;

impl Strategy for Rules {}
