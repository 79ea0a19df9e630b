//! Serving: from an HTTP request to its response.
//!
//! ```text
//! connection ─► layers ─► router ─► verb ─► answer ─► transfer
//! listener.rs   stack.rs  router.rs verbs.rs respond.rs body.rs
//! ```
//!
//! `route.rs` determines the verb from the path and the method of a `call.rs`.
//!
//! [`Api`] is a `tower::Service` that cannot fail: every path through it ends in a response. It
//! serves connections of the [`listener`], and embedders and controllers in the same process
//! without a socket. Start at `stack.rs`, which has all layers in their order; `layers/` has a file
//! for each.
//!
//! Watches can use WebSockets: `websocket.rs` takes over the connection once hyper has upgraded it.
//! `upgrade.rs` does so for all protocols other than HTTP: tunnels to other servers (`tunnel.rs`),
//! and the streams of pods.
//!
//! Each of these steps limits the resources that a client may use:
//!
//! | file | bounds |
//! | --- | --- |
//! | `connections.rs` | the number of connections, and the time they may be silent or idle (`listener.rs`) |
//! | `turns.rs` | the amount a connection reads before others are served |
//! | `control_frames.rs` | the number of HTTP/2 control frames of a connection |
//! | `lingering.rs` | the time that an ending connection waits for its client |
//! | `shares.rs` | requests, watches and bytes of bodies of a user |
//! | `deadline.rs` | the duration of a request |
//! | `crate::flow_control` | the number of concurrent requests, by user |
//! | `crate::background` | the threads that costly requests occupy |
//! | `transfers.rs` | the memory held by responses whose clients do not read |
#![expect(clippy::disallowed_methods, reason = "deadlines of requests and connections protect the server")]

mod api;
mod backup;
mod body;
mod call;
mod completed;
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
mod openid;
mod order;
mod poll_when_woken;
mod proxy;
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
mod unread;
mod upgrade;
mod verbs;
mod websocket;

pub use api::{Api, Config};
pub use backup::BACKUP_PATH;
pub use body::Body;
pub use completed::{CompletedRequest, ObserveRequests};
pub use extensions::{
    Action, ActionDeclaration, ActionRequest, Connect, ConnectRequest, Connected, EXTENSION_PATHS,
    Extensions, FindBelow, PathRequest, Paths, RespondToPath,
};
pub use goaway::GoawayChance;
pub use openid::OPENID_PATHS;
pub use proxy::Upstream;
pub use refusals::{Refusal, Refusals};
pub use router::INDICATORS_PATH;
pub use traffic::{Observation, Traffic, Writer};
pub use upgrade::ServeUpgraded;

/// The largest body of a request, in bytes.
pub const MAX_BODY: usize = 3 * 1024 * 1024;
