//! Strategies of the group batch.
//!
//! A CronJob holds the spec of the Jobs it makes, so what both share is in [`job_spec`].

pub mod cron_job;
mod indexes;
pub mod job;
mod job_spec;
mod job_status;
mod schedule;

#[cfg(test)]
mod tests;
