//! Strategies of the group batch.
//!
//! A CronJob contains the spec of its Jobs, so the rules of both are in [`job_spec`].

pub mod cron_job;
mod indexes;
pub mod job;
mod job_spec;
mod job_status;

pub use cron_job::CronJobStrategy;
pub use job::JobStrategy;

#[cfg(test)]
mod tests;
