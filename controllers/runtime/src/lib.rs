//! The one loop that every controller runs in. Nothing here knows a kind, a driver or a setting of a controller, but for the kinds
//! that the machinery of clients itself reads and writes: Events, Leases, and the objects that change discovery.
//!
//! ```text
//!   caches ──► sources ──► queue ──► worker: observe, plan, apply ─► the API ──► caches
//!               (keys)   (each key    │                                          │
//!                          once)      └──── waits until its own writes ◄─────────┘
//!                                           are observed, then marks the key done
//! ```
//!
//! A controller is a [`Controller`]: what enqueues keys ([`Controller::sources`]) and what it does about a key
//! ([`Controller::reconcile`]). By custom its folder has `mod.rs` for the two, `plan.rs` for the pure decision with its
//! table of tests, and more files only where they are needed. After an error the key is queued again with backoff; a panic
//! restarts the controller ([`supervise`]). A [`ControllerDescriptor`] names a controller and starts it.
#![warn(missing_docs)]

pub mod batch;
pub mod cache;
pub mod clock;
mod context;
mod controller;
pub mod controller_ref;
mod descriptor;
pub mod discovery;
pub mod events;
pub mod leader;
pub mod metrics;
pub mod queue;
mod reconcile_context;
mod recorded_api;
pub mod requests;
mod sources;
pub mod supervise;
#[cfg(test)]
mod tests;

pub use context::Context;
pub use controller::{Action, Controller, Part, propagate_panics, run, run_all};
pub use descriptor::{ControllerDescriptor, Initialize, run_selected, start_part};
pub use reconcile_context::ReconcileContext;
pub use recorded_api::{RecordedApi, Written};
pub use requests::{
    ignore_conflict, ignore_not_found, ignore_status, is_namespace_terminating, uid_precondition,
};
pub use sources::Sources;

/// Why a reconciliation failed. The key is queued again after each of these.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API rejected a request or could not be reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// Something is not yet as it must be, and no watch event will report when it is.
    #[error("{0}")]
    Unfinished(String),
}

impl Error {
    /// Whether the API responded with this status code.
    pub fn is(&self, code: u16) -> bool {
        matches!(self, Error::Api(kube::Error::Api(status)) if status.code == code)
    }

    /// The message for events and conditions: the API server's, if it responded with one.
    pub fn message(&self) -> String {
        match self {
            Error::Api(kube::Error::Api(status)) => status.message.clone(),
            error => error.to_string(),
        }
    }
}
