//! Label and field selectors: what of a list or watch the client wants to see.
//!
//! A selector is parsed once into requirements and asked many times; asking allocates nothing. List and watch share it.

pub mod fields;
pub mod labels;

pub use fields::FieldSelector;
pub use labels::LabelSelector;
