//! YAML 1.1 as kube-apiserver reads and writes it: bare `y` and `on` are booleans, `010` is eight.
//!
//! A document is converted to JSON text, which is then decoded like any other; only the first
//! document is read. Start at [`to_json`] and [`from_json`].

mod read;
mod scalar;
mod subset;
mod write;

#[cfg(test)]
mod tests;

pub use read::{Document, REPEATED_KEYS, is_single_document, to_json};
pub use subset::is_read_as_json;
pub use write::from_json;
