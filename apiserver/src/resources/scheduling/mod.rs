//! Strategies of the group scheduling, one file a kind.

pub mod priority_class;

#[cfg(test)]
mod tests;
