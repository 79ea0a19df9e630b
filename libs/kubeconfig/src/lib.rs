//! Kubeconfig files: a cluster is merged into them and removed, and the clusters, users and contexts of others stay.
//!
//! A cluster, its user and a context have one name, [`Name`]. [`merge`] puts them into a file as `kind` does: what others wrote
//! remains, except comments and the style, `current-context` is set, kubectl's lock is honored, links are followed, and what is no
//! kubeconfig, or has the name already by another program, is refused.
//! [`remove`] takes out what was merged, and nothing else. [`create`] makes a file of its own.
#![warn(missing_docs)]

mod access;
mod document;
mod file;
mod name;

pub use access::Access;
pub use document::{document, document_without_user, text};
pub use file::{Error, check, check_absent, create, merge, remove};
pub use name::{InvalidName, Name};
