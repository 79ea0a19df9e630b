//! Serving: from an HTTP request to its answer.
//!
//! ```text
//! connection ─► limits ─► authenticate ─► impersonate ─► authorize ─► route ─► verb ─► answer
//!  listener.rs   api.rs ─────────────────────────────────────────►  verbs.rs          respond.rs
//! ```
//!
//! [`Api`] is a `tower::Service` that cannot fail: every path through it ends in a response. It serves connections of the
//! [`listener`], and embedders and controllers in the same process without any socket.

mod api;
mod body;
pub mod listener;
mod respond;
mod verbs;

pub use api::{Api, Config};
pub use body::Body;

/// The largest body of a request, in bytes.
pub const MAX_BODY: usize = 3 * 1024 * 1024;
