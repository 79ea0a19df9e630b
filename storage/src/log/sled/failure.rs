//! The meaning of errors of files and of sled for the store.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use crate::log::error::LogError;

/// Reads what may be damaged: sled trusts some of what it reads, and panics where it should not
/// have.
pub(super) fn catch<T>(path: &Path, read: impl FnOnce() -> Result<T, LogError>) -> Result<T, LogError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        let reason = "sled cannot make sense of its files".into();
        Err(LogError::Damaged { location: path.into(), reason })
    })
}

/// Converts the error of an operation on files.
pub(super) fn failed(action: &'static str, path: &Path, cause: io::Error) -> LogError {
    match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            LogError::NoSpace { location: path.into() }
        }
        _ => LogError::Failed { action, location: path.into(), cause: cause.into() },
    }
}

/// Converts the error of an operation of sled.
pub(super) fn sled_failed(action: &'static str, path: &Path, cause: sled::Error) -> LogError {
    match cause {
        sled::Error::Corruption { .. } => {
            LogError::Damaged { location: path.into(), reason: cause.to_string() }
        }
        sled::Error::Io(cause) => failed(action, path, cause),
        cause => LogError::Failed { action, location: path.into(), cause: cause.into() },
    }
}
