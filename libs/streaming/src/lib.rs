//! The streams between a client and a pod, over a connection that left HTTP: of exec and attach
//! ([`Command`]), and of port-forward ([`Forwards`]).
//!
//! [`Handshake::negotiate`] selects one of the protocols that a client offers, and
//! [`serve_command`] and [`serve_forwards`] speak it over the upgraded connection. A client may use
//!
//! - SPDY/3.1 (`spdy/`), with streams that the client opens and names by headers;
//! - the channels of a WebSocket (`channels.rs`): the first byte of a message is the number of its
//!   stream;
//! - for port-forward, SPDY/3.1 within the messages of a WebSocket (`tunnel.rs`).
//!
//! All of them are a [`session`](session::Session) of named streams, of which everything above
//! knows nothing else. Streams are bounded: a peer that does not read is waited for, and no more
//! than a few chunks are kept for it.
//!
//! Nothing here knows pods, or what happens in them.
//!
//! Source: `k8s.io/apimachinery/pkg/util/httpstream`, `k8s.io/kubelet/pkg/cri/streaming`, KEP-4006.
#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait and measure"))]

mod channels;
mod command;
mod forward;
mod handshake;
mod session;
mod spdy;
#[cfg(test)]
mod testing;
mod tunnel;

pub use command::{Command, Outcome, Wanted, serve_command};
pub use forward::{Forward, Forwards, serve_forwards};
pub use handshake::{Handshake, Purpose, Refusal, accept_key};
pub use session::{Closed, Receiver, Sender};
