//! SPDY/3.1, as far as the clients of Kubernetes speak it: streams that the client opens, without
//! flow control.
//!
//! Source: the draft of SPDY/3.1; `github.com/moby/spdystream`, which sends no SETTINGS, and
//! neither sends nor obeys WINDOW_UPDATE.

mod connection;
pub(crate) mod frame;
pub(crate) mod headers;

pub(crate) use connection::serve;
