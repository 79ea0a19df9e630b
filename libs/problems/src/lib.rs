//! The objects of a cluster that are not ready, have failed or are terminating, and their newest
//! events: the facts to look at after a failed test.
//!
//! [`collect`] reads a cluster. The rest is pure: `object.rs` decides what is wrong with an object,
//! `event.rs` describes an event, and `problems.rs` selects and bounds the lines.

#![warn(missing_docs)]

mod collect;
mod event;
mod object;
mod problems;
mod resource;
#[cfg(test)]
mod tests;
mod text;

pub use collect::{Error, collect};
pub use problems::Problems;
