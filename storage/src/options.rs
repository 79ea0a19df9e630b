//! The options of a store.

use crate::{History, Limits};

/// How a store behaves.
#[derive(Default)]
pub struct Options {
    /// How much of the past is kept.
    pub history: History,
    /// How large writes and the store may be.
    pub limits: Limits,
    /// Called with the number of versions loaded so far, now and then and at the end.
    pub progress: Option<Box<dyn FnMut(u64) + Send>>,
}
