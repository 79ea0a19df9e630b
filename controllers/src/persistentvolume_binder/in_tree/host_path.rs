//! Directories as volumes.

use std::io;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::PersistentVolume;
use tokio::fs;

/// Where the plugin makes its directories, and which others it may remove.
#[derive(Clone, Debug)]
pub struct HostPath {
    root: PathBuf,
}

/// The directory that a volume is.
pub fn path(volume: &PersistentVolume) -> Option<&str> {
    volume.spec.as_ref()?.host_path.as_ref().map(|source| source.path.as_str())
}

impl HostPath {
    pub fn new(root: PathBuf) -> HostPath {
        HostPath { root }
    }

    /// Makes a directory, which may be there: a volume that was begun and not finished is the same volume.
    ///
    /// # Errors
    /// The system's.
    pub async fn provision(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.root.join(name);
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o750);
        builder.create(&path).await?;
        Ok(path)
    }

    /// Removes a directory and what is in it. That it is gone is no error.
    ///
    /// # Errors
    /// Why not, in the words of the event.
    pub async fn delete(&self, path: &str) -> Result<(), String> {
        self.check(path)?;
        match fs::remove_dir_all(path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                fs::remove_file(path).await.map_err(|error| format!("remove {path}: {error}"))
            }
            done => done.map_err(|error| format!("remove {path}: {error}")),
        }
    }

    /// Removes what is in a directory.
    ///
    /// # Errors
    /// Why not, in the words of the event.
    pub async fn recycle(&self, path: &str) -> Result<(), String> {
        self.check(path)?;
        let failed = |error: io::Error| format!("scrub {path}: {error}");
        let mut entries = match fs::read_dir(path).await {
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

    /// Nothing of the machine's own is removed: only what the plugin made, or somebody put below /tmp.
    fn check(&self, text: &str) -> Result<(), String> {
        let path = Path::new(text);
        let is_plain = path.components().all(|part| part != Component::ParentDir);
        let is_below =
            |root: &Path| path.strip_prefix(root).is_ok_and(|rest| rest.components().next().is_some());
        match is_plain && (is_below(Path::new("/tmp")) || is_below(&self.root)) {
            true => Ok(()),
            false => Err(format!("host_path deleter only supports /tmp/.+ but received provided {text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_directories_and_those_below_tmp_are_removed() {
        let plugin = HostPath::new("/data/volumes".into());
        for (path, want) in [
            ("/tmp/a", true),
            ("/tmp/a/b", true),
            ("/tmp", false),
            ("/tmp/", false),
            ("/tmp/../etc", false),
            ("/tmpfoo/a", false),
            ("/mnt/a", false),
            ("/data/volumes/a", true),
            ("/data/volumes", false),
            ("/data", false),
        ] {
            assert_eq!(plugin.check(path).is_ok(), want, "{path}");
        }
    }
}
