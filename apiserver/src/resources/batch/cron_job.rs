//! CronJob.

use crate::resources::strategy::Strategy;

/// The rules of CronJob.
pub struct Rules;

impl Strategy for Rules {}
