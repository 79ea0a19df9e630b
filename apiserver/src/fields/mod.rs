//! Field ownership: which manager set which fields of an object (`metadata.managedFields`).
//!
//! | file | owns |
//! | --- | --- |
//! | `set.rs` | sets of fields and their algebra; `FieldsV1`, their JSON form |
//! | `walk.rs` | the fields of an object, and those in which two objects differ, by their types |
//! | `entry.rs` | one manager's entry, and the list of them |
//! | `manage.rs` | how a write changes the entries |
//!
//! Nothing here changes an object or accesses a store: the caller gets the new entries and stores them in the object.
//! Start at [`manage::update`].
//!
//! Source: KEP-555 (server-side apply).

mod entry;
pub mod manage;
pub mod set;
pub mod walk;

pub use set::FieldPathSet;
