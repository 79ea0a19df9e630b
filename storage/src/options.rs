//! The options of a store.

use crate::{History, Limits};

/// The behavior of a store.
#[derive(Default)]
pub struct Options {
    /// The amount of history that is kept.
    pub history: History,
    /// The largest size of a write, and of the store.
    pub limits: Limits,
    /// Called with the number of versions loaded so far, now and then and at the end.
    pub progress: Option<Box<dyn FnMut(u64) + Send>>,
}
