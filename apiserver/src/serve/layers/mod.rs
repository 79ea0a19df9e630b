//! The layers of the stack, a file each. [`super::stack`] has their order, and why each stands
//! where it stands.
//!
//! Layers that wait for nothing are a [`RequestFilter`]; they cost no allocation. The others are a
//! `tower::Service` of their own.

mod annotate;
mod audit;
mod authenticate;
mod authorize;
mod catch_panic;
mod classify;
mod compress;
mod connection;
mod deadline;
mod execute;
mod filter;
mod headers;
mod impersonate;
mod large;
mod omit_body;
mod read_body;
mod record;
mod rescue;
mod seat;
mod span;
mod trace;
mod websocket;
mod work;

pub use annotate::Annotate;
pub use audit::{LogReceipt, LogResponse};
pub use authenticate::Authenticate;
pub use authorize::Authorize;
pub use catch_panic::CatchPanic;
pub use classify::Classify;
pub use compress::Compress;
pub use connection::KeepConnection;
pub use deadline::SetDeadline;
pub use execute::Execute;
pub use filter::{RequestFilter, filter};
pub use headers::{AuditId, cache_control};
pub use impersonate::Impersonate;
pub use large::{LARGE_LIMITS, LargeRequestPermit};
pub use omit_body::OmitBody;
pub use read_body::ReadBody;
pub use record::{RecordRequest, labels};
pub use rescue::Rescue;
pub use seat::take_seats;
pub use span::BeginSpan;
pub use trace::Trace;
pub use websocket::SwitchProtocols;
pub use work::CountWork;
