//! The columns of the built-in kinds, one constant each, with the rules that compute their cells;
//! `built_in.rs` gives them to the kinds. Kinds without columns are shown by name and creation
//! time.
//!
//! Cells are computed from the stored version; a HorizontalPodAutoscaler is shown as
//! autoscaling/v2, an Event as v1.

pub mod admissionregistration;
pub mod apps;
pub mod autoscaling;
pub mod batch;
pub mod certificates;
pub mod cluster;
pub mod config;
pub mod event;
pub mod flowcontrol;
pub mod metrics;
pub mod networking;
pub mod pod;
pub mod policy;
pub mod rbac;
pub mod resource;
pub mod storage;
pub mod template;
#[cfg(test)]
mod tests;

use coracle_apimachinery::render::columns::{AGE, Column, NAME};

/// The columns of kinds that have nothing else to show.
pub const NAME_AND_AGE: &[Column] = &[NAME, AGE];

/// Joins at most `max` of `all`, and adds the number of the others.
fn first_few(all: &[String], max: usize) -> String {
    let shown = all.get(..max).unwrap_or(all).join(",");
    match all.len().saturating_sub(max) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}
