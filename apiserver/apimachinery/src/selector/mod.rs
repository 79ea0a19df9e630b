//! Label and field selectors: which objects of a list or watch a client requests.
//!
//! A selector is parsed once into requirements and evaluated many times, without allocations. List
//! and watch share it.

pub mod fields;
pub mod labels;
mod selectable;

pub use fields::FieldSelector;
pub use labels::LabelSelector;
pub use selectable::{FieldSource, Refusal, SelectableFields, Selection};
