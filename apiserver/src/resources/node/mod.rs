//! Strategies of the group node, one file a kind.

pub mod runtime_class;

#[cfg(test)]
mod tests;
