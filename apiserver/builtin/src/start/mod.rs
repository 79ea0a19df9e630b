//! Objects that a server writes about itself when it starts.

mod advertisement;
mod authentication;

pub use advertisement::Advertisement;
pub use authentication::publish_authentication;
