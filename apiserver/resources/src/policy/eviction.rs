//! Eviction: deletes a pod within its disruption budgets. It is posted and never stored.

use coracle_apimachinery::strategy::Strategy;

/// The strategy of Eviction.
pub struct EvictionStrategy;

impl Strategy for EvictionStrategy {}
