//! Strategies of the group scheduling, one file a kind.

pub mod priority_class;

pub use priority_class::PriorityClassStrategy;

#[cfg(test)]
mod tests;
