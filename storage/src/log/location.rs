//! The place of a log.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// The place of a log, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// The memory of this process.
    Memory,
    /// A directory of its own.
    Directory(PathBuf),
    /// A service, as a message names it: `etcd at https://127.0.0.1:2379`.
    Service(String),
}

impl From<&Path> for Location {
    fn from(directory: &Path) -> Location {
        Location::Directory(directory.into())
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Memory => f.write_str("memory"),
            Location::Directory(directory) => directory.display().fmt(f),
            Location::Service(name) => f.write_str(name),
        }
    }
}
