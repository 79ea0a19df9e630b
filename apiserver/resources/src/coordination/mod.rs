//! Strategies of the group coordination, one file a kind.

pub mod lease;

pub use lease::LeaseStrategy;

#[cfg(test)]
mod tests;
