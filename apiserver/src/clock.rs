//! Where the time comes from.

#![warn(missing_docs)]

use std::sync::Arc;

use jiff::Timestamp;

/// The current time; tests bring their own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
