//! Objects that a server writes on its own account when it starts: those of every cluster, and
//! those about itself.

mod advertisement;
mod authentication;
mod bootstrap;
mod service;
mod strategy;

pub use advertisement::Advertisement;
pub use authentication::publish_authentication;
pub use bootstrap::{bootstrap, initial_objects};
pub use service::move_service;
