//! Strategies of the group node, one file a kind.

pub mod runtime_class;

pub use runtime_class::RuntimeClassStrategy;

#[cfg(test)]
mod tests;
