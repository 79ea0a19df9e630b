//! A full disk: the only failure of the log that may pass.

use std::time::Instant;

use super::Sequencer;
use crate::{Index, StoreError, log::LogError};

impl<I: Index> Sequencer<I> {
    /// Handles a failure of the log. Only a full disk may be temporary.
    pub(super) fn log_failed(&mut self, error: LogError) -> StoreError {
        let LogError::NoSpace { location } = &error else { return self.shared.fail(error) };
        if !self.space.disk_is_full {
            self.space.disk_is_full = true;
            self.shared.set_disk_is_full(true);
            tracing::error!(path = %location, "the disk is full; only what gives room back is written");
            self.recover_space();
            self.publish();
        }
        StoreError::NoSpace
    }

    /// Makes the log try to continue after its disk was full.
    pub(super) fn recover_space(&mut self) {
        self.retried = Instant::now();
        self.compaction_failed = false;
        match self.log.recover_space() {
            Ok(true) => {
                self.space.disk_is_full = false;
                self.shared.set_disk_is_full(false);
                tracing::warn!(path = %self.location, "the disk has room again; all writes are taken");
            }
            Ok(false) => {}
            Err(error) => drop(self.shared.fail(error)),
        }
    }
}
