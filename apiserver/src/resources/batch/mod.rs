//! Strategies of the group batch, one file a kind.

pub mod cron_job;
pub mod job;
