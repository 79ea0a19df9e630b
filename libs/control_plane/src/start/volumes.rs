//! The directory that contains the volumes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use coracle_storage::StoreError;
use coracle_volumes::DataDirectories;
use futures::future::{BoxFuture, FutureExt};

use super::blocking::blocking;
use super::origin::Origin;
use super::phase::{Phase, Started};
use crate::options::Options;

/// A directory that is removed when it is dropped. The first volume makes it, since most control
/// planes have none.
pub struct Temporary(PathBuf);

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

/// The temporary directories that a control plane reads: its own, and those of what it is a fork
/// of.
struct Kept(Vec<Arc<Temporary>>);

impl Phase for Kept {
    fn stop(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        // Forks read the others.
        let unread: Vec<Temporary> = self.0.into_iter().filter_map(Arc::into_inner).collect();
        // Other forks work on this thread.
        async move {
            // The removal does not fail; it logs what it cannot remove.
            let remove = move || {
                drop(unread);
                Ok(())
            };
            let _ = blocking(remove).await;
            Ok(())
        }
        .boxed()
    }
}

/// The directories of the volumes of a control plane.
#[derive(Clone)]
pub struct VolumeDirectories {
    pub directories: DataDirectories,
    /// The temporary directories, as long as the control plane or a fork of it needs them.
    temporary: Vec<Weak<Temporary>>,
}

impl VolumeDirectories {
    /// Returns the directories of a control plane, which are kept until it stops.
    ///
    /// - `default`: the directory of temporary directories
    pub fn new(
        options: &Options,
        default: &Path,
        origin: Option<&Origin>,
        started: &mut Started,
    ) -> VolumeDirectories {
        let mut kept = Vec::new();
        let own = match &options.data_dir {
            None => {
                // The name is unpredictable.
                let path = default.join(format!("coracle-{}", uuid::Uuid::new_v4().simple()));
                kept.push(Arc::new(Temporary(path.clone())));
                path
            }
            Some(path) => std::path::absolute(path).unwrap_or(path.clone()),
        };
        let mut origins = Vec::new();
        if let Some(VolumeDirectories { directories, temporary }) = origin.map(|origin| &origin.volumes) {
            origins.push(directories.own.clone());
            origins.extend(directories.origins.iter().cloned());
            kept.extend(temporary.iter().filter_map(Weak::upgrade));
        }
        let temporary = kept.iter().map(Arc::downgrade).collect();
        started.push(Kept(kept));
        VolumeDirectories { directories: DataDirectories { own, origins }, temporary }
    }
}
