//! The directory that contains the volumes.

use std::io;
use std::path::{Path, PathBuf};

use coracle_storage::StoreError;
use futures::future::{BoxFuture, FutureExt};

use super::phase::{Phase, Started};

/// A directory that is removed when it is stopped or dropped. The first volume makes it, since most
/// control planes have none.
struct Temporary(PathBuf);

impl Phase for Temporary {
    fn stop(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        async move {
            drop(self);
            Ok(())
        }
        .boxed()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        match std::fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::error!(%error, "the directory of the volumes is not removed");
            }
            _ => {}
        }
    }
}

/// Returns the directory of the volumes: the data directory, or a new one in `temporary` with an
/// unpredictable name.
pub fn directory(data_dir: Option<&Path>, temporary: &Path, started: &mut Started) -> PathBuf {
    match data_dir {
        None => {
            let path = temporary.join(format!("coracle-{}", uuid::Uuid::new_v4().simple()));
            started.push(Temporary(path.clone()));
            path
        }
        Some(path) => std::path::absolute(path).unwrap_or(path.to_owned()),
    }
}
