//! VolumeAttachment.

use crate::resources::strategy::Strategy;

/// The rules of VolumeAttachment.
pub struct Rules;

impl Strategy for Rules {}
