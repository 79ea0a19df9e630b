//! VolumeAttributesClass.

use crate::resources::strategy::Strategy;

/// The rules of VolumeAttributesClass.
pub struct Rules;

impl Strategy for Rules {}
