//! DeviceClass.

use crate::resources::strategy::Strategy;

/// The rules of DeviceClass.
pub struct Rules;

impl Strategy for Rules {}
