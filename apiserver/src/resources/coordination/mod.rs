//! Strategies of the group coordination, one file a kind.

pub mod lease;

#[cfg(test)]
mod tests;
