//! One clock for the whole control plane: the time of Kubernetes' semantics, and the timers that
//! wait for it.
//!
//! A [`Clock`] reads the time and waits for it: the machine's time, or a mock's that a test
//! advances. Each wait names its [`Timer`], which is declared with [`timers!`](crate::timers!) and
//! has a [`Class`], so that [`Timers`] lists everything that is pending, the next one first. A
//! queue of delayed keys is a [`Source`] of the list, so that none of its keys is stored twice.
//!
//! One wait of the controllers is not listed: the short rest of a key after its reconciliation.
//!
//! Deadlines that protect the server, such as those of requests and connections, are no business of
//! this clock. They follow the machine's time, by tokio's timers.
#![warn(missing_docs)]

mod activity;
mod clock;
mod interval;
#[cfg(test)]
mod tests;
mod timer;
mod timers;
mod turns;
mod wait;

pub use activity::{Activity, Observation, Work};
pub use clock::{Clock, Hold, ManualClock, MockClock};
pub use interval::Interval;
pub use timer::{Class, Delay, Timer};
pub use timers::{Pending, Source, Timers, UnderWay};
pub use turns::{TakeTurn, TurnOrder, Turns};
pub use wait::Wait;

/// The number of retries in a row that a test waits for: whatever fails once more may fail for
/// ever, and its next retry is a time that the clock may be advanced to.
pub const AWAITED_RETRIES: u32 = 5;
