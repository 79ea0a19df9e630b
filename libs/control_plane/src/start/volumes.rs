//! The directory that contains the volumes.

use std::io;
use std::path::{Path, PathBuf};

use coracle_storage::StoreError;
use coracle_volumes::DataDirectories;
use futures::future::{BoxFuture, FutureExt};

use super::origin::Origin;
use super::phase::{Phase, Started};
use crate::options::Options;

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

/// Returns the directories of the volumes: its own, and those of what it is a fork of.
pub fn directories(options: &Options, origin: Option<&Origin>, started: &mut Started) -> DataDirectories {
    let own = directory(options.data_dir.as_deref(), &std::env::temp_dir(), started);
    let origins = origin.map_or_else(Vec::new, |origin| {
        let DataDirectories { own, origins } = &origin.volumes;
        [own].into_iter().chain(origins).cloned().collect()
    });
    DataDirectories { own, origins }
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
