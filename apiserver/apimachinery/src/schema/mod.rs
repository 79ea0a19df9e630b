//! The table of facts about every built-in type, and its readers.
//!
//! Two data files are part of the program: `facts.txt`, written by the Go program in
//! `apiserver/schema` from the published modules of Kubernetes 1.36 (types, fields, their JSON and
//! protobuf layout, list and patch semantics, defaults, enums), and `resources.txt` (what is
//! served: plurals, verbs, subresources, in the order of discovery). Both are read once, at first
//! use; the fields of a struct only when that is needed.
//!
//! There is no second list of fields or resources anywhere. Start at [`schema`].

mod descriptions;
mod embedded;
mod facts;
mod go_types;
mod resources;
mod rules;
mod served;
pub mod structural;
mod table;
mod type_ref;
mod types;

pub use descriptions::Descriptions;
pub use embedded::schema;
pub use served::{Group, Resource, Subresource};
pub use structural::{Structural, StructuralError, StructuralSchema, StructuralType};
pub use table::Schema;
pub use type_ref::TypeRef;
pub use types::{DeclaredString, FieldSchema, List, Struct, StructId, Type, UnionRole};

#[cfg(test)]
mod tests;
