//! Rules that many kinds share: the content of single strings, object metadata, label selectors, conditions.

pub mod content;
pub mod labels;
