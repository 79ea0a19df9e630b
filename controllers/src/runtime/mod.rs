//! The one loop that every controller runs in.
//!
//! ```text
//!   caches ──► sources ──► queue ──► worker: observe, plan, act ──► the API ──► caches
//!               (keys)   (each key    │                                          │
//!                          once)      └──── waits until its own writes ◄─────────┘
//!                                           are seen, then gives the key back
//! ```
//!
//! A controller is a [`Controller`]: what wakes it ([`Controller::sources`]) and what it does about a key
//! ([`Controller::reconcile`]). By custom its folder has `mod.rs` for the two, `plan.rs` for the pure decision with its
//! table of tests, and more files only where they are needed. What goes wrong is retried, later each time; a panic starts the controller
//! again ([`supervise`]).

pub mod batch;
pub mod cache;
pub mod clock;
mod context;
mod controller;
pub mod controller_ref;
pub mod events;
pub mod leader;
pub mod metrics;
pub mod queue;
mod requests;
pub mod resources;
mod sources;
pub mod supervise;
#[cfg(test)]
mod tests;
mod turn;

pub use context::Context;
pub use controller::{Controller, Next, Part, run, together, until_one_panics};
pub use requests::{is_namespace_going, only_this, unless};
pub use sources::Sources;
pub use turn::Turn;

/// Why a pass over a key did not reach its end. All of these are tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused or could not be reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// Something is not as it must be yet, and nobody will tell when it is.
    #[error("{0}")]
    Unfinished(String),
}

impl Error {
    /// Whether the API answered with this code.
    pub fn is(&self, code: u16) -> bool {
        matches!(self, Error::Api(kube::Error::Api(status)) if status.code == code)
    }
}
