//! PersistentVolume.

use crate::resources::strategy::Strategy;

/// The rules of PersistentVolume.
pub struct Rules;

impl Strategy for Rules {}
