//! The source of the current time.

use std::sync::Arc;

use jiff::Timestamp;

/// Returns the current time. Tests pass a clock of their own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
