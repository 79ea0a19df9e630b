//! Directories as volumes, whoever made them. Nothing else touches those.

use std::io;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::PersistentVolume;
use tokio::fs;

use crate::runtime::Settings;
use crate::volume::CSI_DRIVER;

/// The directories below the root: `volumes/host-path/NAME` and `volumes/coracle.csi/HANDLE`; and the others that volumes of
/// the host may be.
#[derive(Clone, Debug)]
pub struct Directories {
    host_path: PathBuf,
    csi: PathBuf,
}

impl Directories {
    pub fn new(settings: &Settings) -> Directories {
        let volumes = settings.data.join("volumes");
        Directories { host_path: volumes.join("host-path"), csi: volumes.join(CSI_DRIVER) }
    }

    /// Where a new volume of the host is to be.
    pub fn host_path(&self, name: &str) -> PathBuf {
        self.host_path.join(name)
    }

    /// The directory that a volume is. None: it is none of this machine's.
    pub fn of(&self, volume: &PersistentVolume) -> Option<PathBuf> {
        let spec = volume.spec.as_ref()?;
        match (&spec.host_path, &spec.csi) {
            (Some(source), _) => Some(PathBuf::from(&source.path)),
            (None, Some(source)) if source.driver == CSI_DRIVER => {
                let handle = Path::new(&source.volume_handle);
                let mut parts = handle.components();
                let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
                is_name.then(|| self.csi.join(handle))
            }
            _ => None,
        }
    }

    /// Makes the directory of a volume, which may be there: one that was begun and not finished is the same volume.
    ///
    /// # Errors
    /// Why not, in the words of the event.
    pub async fn make(&self, volume: &PersistentVolume) -> Result<(), String> {
        let path = self.of(volume).ok_or(NO_DIRECTORY)?;
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o750);
        builder.create(&path).await.map_err(|error| format!("mkdir {}: {error}", path.display()))
    }

    /// Removes the directory of a volume and what is in it. That it is gone is no error.
    ///
    /// # Errors
    /// Why not, in the words of the event.
    pub async fn delete(&self, volume: &PersistentVolume) -> Result<(), String> {
        self.remove(&self.own(volume)?).await
    }

    /// Removes a directory that was made here.
    ///
    /// # Errors
    /// Why not, in the words of the event.
    pub async fn remove(&self, path: &Path) -> Result<(), String> {
        let removed = match fs::remove_dir_all(path).await {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => fs::remove_file(path).await,
            removed => removed,
        };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|error| format!("remove {}: {error}", path.display())),
        }
    }

    /// Removes what is in the directory of a volume.
    ///
    /// # Errors
    /// Why not, in the words of the event.
    pub async fn recycle(&self, volume: &PersistentVolume) -> Result<(), String> {
        let path = self.own(volume)?;
        let failed = |error: io::Error| format!("scrub {}: {error}", path.display());
        let mut entries = match fs::read_dir(&path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(failed)?,
        };
        while let Some(entry) = entries.next_entry().await.map_err(failed)? {
            let is_directory = entry.file_type().await.map_err(failed)?.is_dir();
            match is_directory {
                true => fs::remove_dir_all(entry.path()).await,
                false => fs::remove_file(entry.path()).await,
            }
            .map_err(failed)?;
        }
        Ok(())
    }

    /// The directory of a volume, if it may be removed: nothing of the machine's own is, only what was made here, or what
    /// somebody put below /tmp.
    fn own(&self, volume: &PersistentVolume) -> Result<PathBuf, String> {
        let path = self.of(volume).ok_or(NO_DIRECTORY)?;
        let is_plain = path.components().all(|part| part != Component::ParentDir);
        let is_below =
            |root: &Path| path.strip_prefix(root).is_ok_and(|rest| rest.components().next().is_some());
        match is_plain && [Path::new("/tmp"), &self.host_path, &self.csi].into_iter().any(is_below) {
            true => Ok(path),
            false => Err(format!(
                "host_path deleter only supports /tmp/.+ but received provided {}",
                path.display()
            )),
        }
    }
}

/// What is said of a volume whose source names no directory.
pub const NO_DIRECTORY: &str = "the volume's source names no directory";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn only_own_directories_and_those_below_tmp_are_removed() {
        let directories = Directories::new(&Settings { data: "/data".into(), ..Settings::default() });
        let host = |path: &str| json!({"hostPath": {"path": path}});
        let csi = |driver: &str, handle: &str| json!({"csi": {"driver": driver, "volumeHandle": handle}});
        for (source, want) in [
            (host("/tmp/a"), Some("/tmp/a")),
            (host("/tmp/a/b"), Some("/tmp/a/b")),
            (host("/tmp"), None),
            (host("/tmp/"), None),
            (host("/tmp/../etc"), None),
            (host("/tmpfoo/a"), None),
            (host("/mnt/a"), None),
            (host("/data/volumes/host-path/a"), Some("/data/volumes/host-path/a")),
            (host("/data/volumes/host-path"), None),
            (host("/data"), None),
            (csi(CSI_DRIVER, "a"), Some("/data/volumes/coracle.csi/a")),
            (csi(CSI_DRIVER, ".."), None),
            (csi(CSI_DRIVER, "../host-path"), None),
            (csi(CSI_DRIVER, "/etc"), None),
            (csi(CSI_DRIVER, ""), None),
            (csi("another", "a"), None),
        ] {
            assert_eq!(directories.own(&volume(&source)).ok(), want.map(PathBuf::from), "{source}");
        }
    }

    fn volume(source: &Value) -> PersistentVolume {
        serde_json::from_value(json!({"spec": source})).unwrap()
    }
}
