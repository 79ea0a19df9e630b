//! Kubeconfig files: a cluster is merged into them and removed, and the clusters, users and
//! contexts of others stay.
//!
//! A cluster, its user and a context have one name, [`Name`]. [`merge`] puts them into a file as
//! `kind` does: what others wrote remains, except comments and the style, `current-context` is set,
//! kubectl's lock is honored, links are followed, and a file that is not a kubeconfig, or has the
//! name by another program, is refused. [`remove`] removes only the merged entries. [`create`]
//! writes a new file.
#![warn(missing_docs)]

mod access;
mod document;
mod file;
mod name;

pub use access::Access;
pub use document::{document, document_without_user, text};
pub use file::{Error, check, check_absent, create, merge, remove};
pub use name::{InvalidName, Name};
