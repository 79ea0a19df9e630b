//! Field ownership: which manager set which fields of an object (`metadata.managedFields`).
//!
//! | file | owns |
//! | --- | --- |
//! | `set.rs` | sets of fields and their algebra; `FieldsV1`, their JSON form |
//! | `shape.rs` | what can be owned inside of a value, by its type |
//! | `walk.rs` | the fields of an object, and those in which two objects differ, by their types |
//! | `entry.rs` | one manager's entry, and the list of them |
//! | `manage.rs` | how a plain write changes the entries |
//! | `apply.rs` | server-side apply |
//! | `typed.rs`, `merge.rs`, `remove.rs` | its steps: checking a configuration by its type, merging it, removing fields |
//! | `versions.rs`, `reconcile.rs` | fields of other versions, and of earlier schemas |
//! | `atomics.rs` | what a mutating policy may not apply |
//! | `conflict.rs` | its conflicts with other managers |
//! | `last_applied.rs` | how kubectl gets from client-side apply to it |
//!
//! Nothing here accesses a store: the caller stores the new object and the new entries.
//! Start at [`manage::update`] and [`apply::ApplyTo::apply`].
//!
//! Source: KEP-555 (server-side apply).

pub mod apply;
pub mod atomics;
pub mod conflict;
pub mod entry;
pub mod last_applied;
pub mod manage;
pub mod merge;
pub mod reconcile;
mod remove;
pub mod set;
mod shape;
pub mod typed;
pub mod versions;
pub mod walk;

pub use set::FieldPathSet;
