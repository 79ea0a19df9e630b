//! Tests of records as their users see them: files that are written, killed, damaged and read.

// Clippy's leave for tests does not reach their helper functions.
#![allow(clippy::unwrap_used)]

mod damage;
mod killed;
mod recorder;
mod redact;
mod round_trip;
mod sample;
mod throughput;
