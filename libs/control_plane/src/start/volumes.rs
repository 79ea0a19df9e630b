//! The directory that contains the volumes.

use std::path::{Path, PathBuf};

use coracle_storage::StoreError;
use futures::future::{BoxFuture, FutureExt};
use tempfile::TempDir;

use super::phase::{Phase, Started};
use crate::data_dir::temporary_directory;
use crate::error::Error;

/// A directory that is removed when it is stopped.
struct Temporary(TempDir);

impl Phase for Temporary {
    fn stop(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        async move {
            if let Err(error) = self.0.close() {
                tracing::error!(%error, "the directory of the volumes is not removed");
            }
            Ok(())
        }
        .boxed()
    }
}

/// The directory of the volumes: the data directory, or a new one in `temporary`.
///
/// # Errors
/// The temporary directory cannot be created.
pub fn directory(data_dir: Option<&Path>, temporary: &Path, started: &mut Started) -> Result<PathBuf, Error> {
    match data_dir {
        None => {
            let failed = |cause| Error::File { path: temporary.to_owned(), cause };
            let scratch = temporary_directory(temporary).map_err(failed)?;
            let path = scratch.path().to_owned();
            started.push(Temporary(scratch));
            Ok(path)
        }
        Some(path) => Ok(std::path::absolute(path).unwrap_or(path.to_owned())),
    }
}
