//! Objects that a server writes on its own account when it starts: those of every cluster, and
//! those about itself.

mod authentication;
mod bootstrap;
mod identity_lease;
mod keep;
mod service;
mod strategy;

pub use authentication::publish_authentication;
pub use bootstrap::{bootstrap, initial_objects};
pub use identity_lease::IdentityLease;
pub use keep::{ServerObjects, ServerObjectsConfig};
pub use service::{move_service, publish_endpoints};
