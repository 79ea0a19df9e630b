//! Field ownership: who set which fields of an object, as `metadata.managedFields` tells.
//!
//! | file | owns |
//! | --- | --- |
//! | `set.rs` | sets of fields and their algebra; `FieldsV1`, their JSON form |
//! | `walk.rs` | the fields of an object, and those in which two objects differ, by the schema table |
//! | `entry.rs` | one manager's entry, and the list of them |
//! | `reset.rs` | which fields an endpoint does not write, whatever a body says |
//! | `manage.rs` | what a write does to the entries |
//!
//! Nothing here changes an object or knows a store: a write asks for the new entries and puts them into the object itself.
//! Start at [`manage::update`].
//!
//! Source: KEP-555 (server-side apply).

mod entry;
pub mod manage;
mod reset;
pub mod set;
pub mod walk;

pub use set::Set;
