//! Strategies of the group policy, one file a kind.

pub mod eviction;
pub mod pod_disruption_budget;

#[cfg(test)]
mod tests;
