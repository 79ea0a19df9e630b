//! Passes: reconciliations with their outcomes, as an observer receives them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::controller::Action;
use super::error::Error;

/// A reconciliation of a key.
pub struct Pass<'a> {
    /// The name of the controller.
    pub controller: &'static str,
    /// The key, as it is printed.
    pub key: String,
    /// The time of the start, by the clock of the controllers.
    pub started: Timestamp,
    /// The time that it took, by the machine's clock.
    pub took: Duration,
    /// The outcome.
    pub outcome: &'a Result<Action, Error>,
}

/// Observes the passes of all controllers. It must not block for long.
pub type ObservePasses = Arc<dyn Fn(&Pass<'_>) + Send + Sync>;
