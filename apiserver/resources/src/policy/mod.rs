//! Strategies of the group policy, one file a kind.

pub mod eviction;
pub mod pod_disruption_budget;

pub use eviction::EvictionStrategy;
pub use pod_disruption_budget::PodDisruptionBudgetStrategy;

#[cfg(test)]
mod tests;
