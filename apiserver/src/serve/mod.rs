//! Serving: from an HTTP request to its answer.
//!
//! ```text
//! connection ─► layers ─► router ─► verb ─► answer ─► transfer
//! listener.rs   stack.rs  router.rs verbs.rs respond.rs body.rs
//! ```
//!
//! `route.rs` decides which verb the path and the method of a `call.rs` name.
//!
//! [`Api`] is a `tower::Service` that cannot fail: every path through it ends in a response. It serves connections of the
//! [`listener`], and embedders and controllers in the same process without any socket. Start at `stack.rs`, which has all layers
//! in their order; `layers/` has a file for each.
//!
//! Watches may go over WebSockets: `websocket.rs` takes over the connection once hyper has upgraded it. `upgrade.rs` does so for all
//! that leaves HTTP altogether: tunnels to other servers (`tunnel.rs`), and the streams of pods.
//!
//! What a client may use up is bounded in each of these steps:
//!
//! | file | bounds |
//! | --- | --- |
//! | `connections.rs` | how many connections there are, and how long they may be silent or idle (`listener.rs`) |
//! | `turns.rs` | how much a connection reads before others have their turn |
//! | `control_frames.rs` | how many control frames of HTTP/2 a connection sends |
//! | `lingering.rs` | how long a connection that ends waits for the end of its client |
//! | `shares.rs` | requests, watches and bytes of bodies of a user |
//! | `deadline.rs` | how long a request may take |
//! | `crate::flow_control` | how many requests of which users are executed at once |
//! | `crate::background` | what takes long keeps no other request waiting |
//! | `transfers.rs` | what a response holds on to that its client does not read |
#![expect(clippy::disallowed_methods, reason = "deadlines of requests and connections protect the server")]

mod api;
mod backup;
mod body;
mod call;
mod connections;
mod control_frames;
mod deadline;
mod delay;
mod event_stream;
mod exchange;
mod extensions;
mod flushes;
mod goaway;
mod incoming;
mod layers;
mod lingering;
pub mod listener;
mod observed;
mod order;
mod proxy;
mod rarely;
mod refusals;
mod respond;
mod route;
mod router;
mod shares;
mod stack;
mod streams;
#[cfg(test)]
mod testing;
mod traffic;
mod transfers;
mod tunnel;
mod turns;
mod upgrade;
mod verbs;
mod websocket;

pub use api::{Api, Config};
pub use backup::BACKUP_PATH;
pub use body::Body;
pub use extensions::{
    Action, ActionDeclaration, ActionRequest, Connect, ConnectRequest, Connected, EXTENSION_PATHS,
    Extensions, FindBelow, PathRequest, Paths, RespondToPath,
};
pub use goaway::GoawayChance;
pub use proxy::Upstream;
pub use refusals::{Refusal, Refusals};
pub use traffic::{Observation, Traffic, Writer};
pub use upgrade::ServeUpgraded;

/// The largest body of a request, in bytes.
pub const MAX_BODY: usize = 3 * 1024 * 1024;
