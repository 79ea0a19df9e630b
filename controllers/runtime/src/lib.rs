//! The one loop that every controller runs in. Nothing here knows a kind, a driver or a setting of
//! a controller, but for the kinds that the machinery of clients itself reads and writes: Events,
//! Leases, and the objects that change discovery.
//!
//! ```text
//!   caches ──► sources ──► queue ──► worker: observe, plan, apply ─► the API ──► caches
//!               (keys)   (each key    │                                          │
//!                          once)      └──── waits until its own writes ◄─────────┘
//!                                           are observed, then marks the key done
//! ```
//!
//! A controller is a [`Controller`]: what enqueues keys ([`Controller::sources`]) and what it does
//! about a key ([`Controller::reconcile`]). By custom its folder has `mod.rs` for the two, a module
//! `plan` for the pure decision with its table of tests, and more files only where they are needed.
//! After an error the key is queued again with backoff; a panic restarts the controller
//! ([`supervise`]). A [`ControllerDescriptor`] names a controller and starts it.
#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait and measure"))]

pub mod batch;
pub mod cache;
mod context;
mod controller;
pub mod controller_ref;
mod current;
mod demand;
mod descriptor;
pub mod discovery;
mod error;
pub mod events;
pub mod leader;
pub mod metrics;
mod pass;
pub mod queue;
mod reconcile_context;
mod recorded_api;
pub mod requests;
mod sources;
pub mod supervise;
#[cfg(test)]
mod tests;
pub mod timers;
mod workers;

pub use context::Context;
pub use controller::{Action, Controller, Part, propagate_panics, run, run_all};
pub use current::current_controller;
pub use demand::Demand;
pub use descriptor::{ControllerDescriptor, Initialize, run_selected, start_part};
pub use error::Error;
pub use pass::{ObservePasses, Pass};
pub use reconcile_context::ReconcileContext;
pub use recorded_api::{RecordedApi, Written};
pub use requests::{
    ignore_conflict, ignore_not_found, ignore_status, is_namespace_terminating, uid_precondition,
};
pub use sources::Sources;
pub use workers::work;
