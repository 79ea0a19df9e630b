//! Directories as volumes. No other code accesses them.
//!
//! Only entries directly in one of two directories of the data directory are ever created, emptied
//! or removed. A path from a client is never opened: it is compared with theirs, and the remainder
//! is the name of an entry ([`crate::confined_fs`]).

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use coracle_controller_runtime::cache::{Cache, Index, NamespacedName};
use coracle_controller_runtime::{Error, ReconcileContext};
use coracle_kinds::storage::{DELETE, VolumeExt};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use tokio::sync::Mutex;

use crate::confined_fs::{CopyLimits, Name, Root, blocking};
use crate::migration::CSI_DRIVER;
use crate::settings::DataDirectories;

/// The directories of volumes: `volumes/host-path/NAME` and `volumes/coracle.csi/HANDLE` in the
/// data directory.
///
/// A fork has a data directory of its own. A directory of the control plane that it is a fork of is
/// copied when the fork first mounts it ([`Directories::inherit`]).
#[derive(Clone, Debug)]
pub struct Directories {
    host_path: Roots,
    csi: Roots,
    /// Held while a directory is copied: one at a time, since many pods may mount it at once.
    copying: Arc<Mutex<()>>,
}

/// Cancels a copy when it is dropped.
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The directory of the volumes of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Roots {
    own: Root,
    /// The directories of the control planes that this one is a fork of, the nearest first.
    origins: Arc<[Root]>,
}

/// A directory that was created here, or in a control plane that this one is a fork of.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Own {
    roots: Roots,
    name: Name,
}

/// The location that the source of a volume refers to.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Own(Own),
    /// Any other path of this machine.
    Host(PathBuf),
}

impl Directories {
    /// Locates the directories of volumes in data directories.
    pub fn new(data: &DataDirectories) -> Directories {
        let roots = |name| {
            let root = |data: &PathBuf| Root::new(data, ["volumes", name]);
            Roots { own: root(&data.own), origins: data.origins.iter().map(root).collect() }
        };
        Directories { host_path: roots("host-path"), csi: roots(CSI_DRIVER), copying: Arc::default() }
    }

    /// Returns the path of a new host path volume.
    pub fn host_path(&self, name: &str) -> PathBuf {
        self.host_path.own.path().join(name)
    }

    /// Copies the directory of a volume, as it is now, from the nearest control plane that this one
    /// is a fork of and that has it, unless it is here. Dropping the future cancels the copy.
    ///
    /// # Errors
    /// The message of the event.
    pub async fn inherit(&self, volume: &PersistentVolume) -> Result<(), String> {
        match self.place(volume) {
            Some(Place::Own(own)) if !own.roots.origins.is_empty() => {
                let _copying = self.copying.lock().await;
                let is_wanted = Arc::new(AtomicBool::new(true));
                let _wanted = Wanted(is_wanted.clone());
                own.with("copy", move |own| {
                    for origin in own.roots.origins.iter() {
                        let limits = CopyLimits::default();
                        if own.roots.own.copy_from(origin, &own.name, limits, &is_wanted)? {
                            return Ok(());
                        }
                    }
                    Ok(())
                })
                .await
            }
            _ => Ok(()),
        }
    }

    /// Returns the directory of a volume as the target of a link, or `None` if the volume is not on
    /// this machine.
    pub fn of(&self, volume: &PersistentVolume) -> Option<PathBuf> {
        Some(match self.place(volume)? {
            Place::Own(own) => own.path(),
            Place::Host(path) => path,
        })
    }

    /// Creates the directory of a volume. It may exist: one left by an unfinished attempt belongs
    /// to the same volume.
    ///
    /// # Errors
    /// The message of the event.
    pub async fn make(&self, volume: &PersistentVolume) -> Result<(), String> {
        let own = match self.place(volume).ok_or(NO_DIRECTORY)? {
            Place::Own(own) => own,
            Place::Host(path) => {
                return Err(format!("mkdir {}: it is not a place for volumes", path.display()));
            }
        };
        own.with("mkdir", |own| own.roots.own.make_directory(&own.name)).await
    }

    /// Removes the directory of a volume with its content. It may not exist.
    ///
    /// # Errors
    /// The message of the event.
    pub async fn delete(&self, volume: &PersistentVolume) -> Result<(), String> {
        let removed = "host_path deleter only supports directories that it made";
        match self.own(volume, removed).await? {
            Some(own) => own.remove().await,
            None => Ok(()),
        }
    }

    /// Removes a directory that was created here.
    ///
    /// # Errors
    /// The reason for the failure, or that the directory was not created here.
    pub async fn remove(&self, path: &Path) -> Result<(), String> {
        match self.place_of(path) {
            Place::Own(own) => own.remove().await,
            Place::Host(path) => Err(format!("remove {}: it is not a place for volumes", path.display())),
        }
    }

    /// Returns `true` if [`Directories::remove`] may remove a path.
    pub fn is_own(&self, path: &Path) -> bool {
        matches!(self.place_of(path), Place::Own(_))
    }

    /// Removes the content of the directory of a volume.
    ///
    /// # Errors
    /// The message of the event.
    pub async fn recycle(&self, volume: &PersistentVolume) -> Result<(), String> {
        let emptied = "host_path recycler only supports directories that the provisioner made";
        match self.own(volume, emptied).await? {
            Some(own) => {
                own.with("scrub", |own| {
                    if !own.roots.origins.is_empty() {
                        // One that is here is not copied again.
                        own.roots.own.make_directory(&own.name)?;
                    }
                    own.roots.own.empty(&own.name)
                })
                .await
            }
            None => Ok(()),
        }
    }

    /// Returns the name of another volume that has the same directory and is not to be deleted
    /// itself. The content of the directory must then be kept.
    ///
    /// - `volumes`: finds the candidates, which are then read from the server
    ///
    /// # Errors
    /// The request failed.
    pub async fn other_user(
        &self,
        volume: &PersistentVolume,
        volumes: &Arc<Cache<PersistentVolume>>,
        ctx: &ReconcileContext,
    ) -> Result<Option<String>, Error> {
        let place = self.place(volume);
        let is_other = |other: &PersistentVolume| {
            other.metadata.uid != volume.metadata.uid && self.place(other) == place && !is_condemned(other)
        };
        for key in ByDirectory::keys(volume) {
            for known in volumes.by::<ByDirectory>(&key).iter().filter(|other| is_other(other)) {
                let live = ctx.api(volumes).get(&NamespacedName::of(known.as_ref())).await?;
                if let Some(live) = live.filter(is_other) {
                    return Ok(Some(live.name_any()));
                }
            }
        }
        Ok(None)
    }

    /// Returns the directory to remove or to empty. It returns `None` if there is nothing to do,
    /// since upstream's plugin would look for a directory that does not exist.
    ///
    /// # Errors
    /// The volume is in another directory of this machine, which is never changed.
    async fn own(&self, volume: &PersistentVolume, refusal: &str) -> Result<Option<Own>, String> {
        let path = match self.place(volume).ok_or(NO_DIRECTORY)? {
            Place::Own(own) => return Ok(Some(own)),
            Place::Host(path) => path,
        };
        if !is_for_deleter(&path) {
            return Err(format!(
                "host_path deleter only supports /tmp/.+ but received provided {}",
                path.display()
            ));
        }
        let looked_at = path.clone();
        match blocking(move || is_absent(&looked_at)).await {
            Ok(true) => Ok(None),
            _ => Err(format!("{refusal} but received provided {}", path.display())),
        }
    }

    fn place(&self, volume: &PersistentVolume) -> Option<Place> {
        let spec = volume.spec.as_ref()?;
        match (&spec.host_path, &spec.csi) {
            (Some(source), _) => Some(self.in_host_path(Path::new(&source.path))),
            (None, Some(source)) if source.driver == CSI_DRIVER => {
                let name = Name::new(&source.volume_handle)?;
                Some(Place::Own(Own { roots: self.csi.clone(), name }))
            }
            _ => None,
        }
    }

    fn in_host_path(&self, path: &Path) -> Place {
        match self.host_path.entry(path) {
            Some(name) => Place::Own(Own { roots: self.host_path.clone(), name }),
            None => Place::Host(path.to_owned()),
        }
    }

    fn place_of(&self, path: &Path) -> Place {
        match self.csi.entry(path) {
            Some(name) => Place::Own(Own { roots: self.csi.clone(), name }),
            None => self.in_host_path(path),
        }
    }
}

impl Roots {
    /// Returns the name of the entry at a path, here or in an origin.
    fn entry(&self, path: &Path) -> Option<Name> {
        [&self.own].into_iter().chain(self.origins.iter()).find_map(|root| root.entry(path))
    }
}

impl Own {
    fn path(&self) -> PathBuf {
        self.roots.own.path().join(self.name.as_path())
    }

    async fn remove(self) -> Result<(), String> {
        self.with("remove", |own| own.roots.own.remove(&own.name)).await
    }

    async fn with(
        self,
        verb: &str,
        work: impl FnOnce(&Own) -> io::Result<()> + Send + 'static,
    ) -> Result<(), String> {
        let path = self.path();
        let done = blocking(move || work(&self)).await;
        done.map_err(|error| format!("{verb} {}: {error}", path.display()))
    }
}

/// Finds the volumes that may have a directory in common: by its name.
struct ByDirectory;

impl Index<PersistentVolume> for ByDirectory {
    fn keys(volume: &PersistentVolume) -> Vec<NamespacedName> {
        let Some(spec) = volume.spec.as_ref() else { return Vec::new() };
        let name = match (&spec.host_path, &spec.csi) {
            (Some(source), _) => Path::new(&source.path).file_name().and_then(|name| name.to_str()),
            (None, Some(source)) if source.driver == CSI_DRIVER => Some(source.volume_handle.as_str()),
            _ => None,
        };
        name.map(|name| NamespacedName::new("", name)).into_iter().collect()
    }
}

/// Returns `true` if a volume is to be deleted together with its directory.
fn is_condemned(volume: &PersistentVolume) -> bool {
    matches!(volume.phase(), "Released" | "Failed") && volume.policy() == DELETE
}

/// Returns `true` if upstream's deleter accepts a path: one below `/tmp`, without `..`.
fn is_for_deleter(path: &Path) -> bool {
    let is_plain = path.components().all(|part| part != Component::ParentDir);
    is_plain && path.strip_prefix("/tmp").is_ok_and(|rest| rest.components().next().is_some())
}

fn is_absent(path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(false),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// The message for a volume without a directory in its source.
pub const NO_DIRECTORY: &str = "the volume's source names no directory";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The outcome of a change of a volume's directory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Outcome {
        Removed,
        /// The directory did not exist.
        Nothing,
        Refused,
    }
    use Outcome::{Nothing, Refused, Removed};

    /// Creates the directories that a volume's source may lead to, with a file in each.
    fn world() -> (tempfile::TempDir, Directories) {
        let data = tempfile::tempdir_in("/tmp").unwrap();
        for path in
            ["volumes/host-path/a/deep", "volumes/coracle.csi/a/deep", "pods/u/volumes", "outside/deep"]
        {
            let directory = data.path().join(path);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("file"), path).unwrap();
        }
        let link = |target: &str, link: &str| {
            std::os::unix::fs::symlink(data.path().join(target), data.path().join(link)).unwrap();
        };
        link("outside", "volumes/host-path/link");
        link("outside", "volumes/coracle.csi/link");
        link("volumes/host-path/link", "volumes/host-path/link-to-link");
        link("outside", "volumes/host-path/a/inner");
        link("outside", "pods/u/volumes/v");
        let directories = Directories::new(&DataDirectories::new(data.path().to_owned()));
        (data, directories)
    }

    fn files(data: &Path, of: &str) -> usize {
        let Ok(entries) = std::fs::read_dir(data.join(of)) else { return 0 };
        let count = |entry: std::fs::DirEntry| match entry.file_type().unwrap().is_dir() {
            true => files(&entry.path(), ""),
            false => 1,
        };
        entries.flatten().map(count).sum()
    }

    #[tokio::test]
    async fn a_fork_has_copies_of_what_it_mounts() {
        let (origin, _) = world();
        let own = tempfile::tempdir_in("/tmp").unwrap();
        let data = DataDirectories {
            own: own.path().to_owned(),
            // The nearest one has no volumes.
            origins: vec![own.path().join("none"), origin.path().to_owned()],
        };
        let directories = Directories::new(&data);
        let volume = |source: Value| -> PersistentVolume {
            serde_json::from_value(json!({"metadata": {"name": "v", "uid": "u"}, "spec": source})).unwrap()
        };
        let path = origin.path().join("volumes/host-path/a").display().to_string();
        let host = volume(json!({"hostPath": {"path": path}}));
        assert_eq!(directories.of(&host), Some(own.path().join("volumes/host-path/a")));
        let csi = volume(json!({"csi": {"driver": CSI_DRIVER, "volumeHandle": "a"}}));
        for (volume, directory) in [(&host, "volumes/host-path/a"), (&csi, "volumes/coracle.csi/a")] {
            directories.inherit(volume).await.unwrap();
            assert_eq!(files(own.path(), directory), files(origin.path(), directory));
            directories.delete(volume).await.unwrap();
            assert!(!own.path().join(directory).exists() && files(origin.path(), directory) > 0);
            // Its content was removed before it was mounted.
            directories.recycle(volume).await.unwrap();
            directories.inherit(volume).await.unwrap();
            assert_eq!(files(own.path(), directory), 0);
        }
    }

    #[tokio::test]
    async fn only_directories_in_the_roots_are_removed_or_emptied() {
        let host = |path: &str| json!({"hostPath": {"path": path}});
        let csi = |driver: &str, handle: &str| json!({"csi": {"driver": driver, "volumeHandle": handle}});
        for (source, want) in [
            (host("DATA/volumes/host-path/a"), Removed),
            (host("DATA/volumes/host-path/a/"), Removed),
            (host("DATA/volumes//host-path/./a"), Removed),
            (host("DATA/volumes/host-path/none"), Nothing),
            (host("DATA/volumes/host-path/link"), Refused),
            (host("DATA/volumes/host-path/link-to-link"), Refused),
            (host("DATA/volumes/host-path/link/deep"), Refused),
            (host("DATA/volumes/host-path/a/inner"), Refused),
            (host("DATA/volumes/host-path/a/deep"), Refused),
            (host("DATA/volumes/host-path/a/.."), Refused),
            (host("DATA/volumes/host-path/.."), Refused),
            (host("DATA/volumes/host-path/"), Refused),
            (host("DATA/volumes/coracle.csi/a"), Refused),
            (host("DATA/volumes"), Refused),
            (host("DATA/pods"), Refused),
            (host("DATA/pods/u"), Refused),
            (host("DATA/pods/u/volumes/v"), Refused),
            (host("DATA/pods/u/volumes/v/deep"), Refused),
            (host("DATA/outside"), Refused),
            (host("DATA"), Refused),
            (host("DATA/"), Refused),
            (host("/tmp"), Refused),
            (host("/tmp/"), Refused),
            (host("/tmp/."), Refused),
            (host("/tmp/../etc"), Refused),
            (host("/tmp/does-not-exist-at-all/x"), Nothing),
            (host("/tmpfoo/a"), Refused),
            (host("/mnt/does-not-exist-at-all"), Refused),
            (host("/"), Refused),
            (host(""), Refused),
            (host("outside"), Refused),
            (csi(CSI_DRIVER, "a"), Removed),
            (csi(CSI_DRIVER, "none"), Nothing),
            (csi(CSI_DRIVER, "link"), Refused),
            (csi(CSI_DRIVER, "a/"), Refused),
            (csi(CSI_DRIVER, "a/."), Refused),
            (csi(CSI_DRIVER, "./a"), Refused),
            (csi(CSI_DRIVER, "a/deep"), Refused),
            (csi(CSI_DRIVER, "."), Refused),
            (csi(CSI_DRIVER, ".."), Refused),
            (csi(CSI_DRIVER, "../host-path"), Refused),
            (csi(CSI_DRIVER, "/etc"), Refused),
            (csi(CSI_DRIVER, ""), Refused),
            (csi("another", "a"), Refused),
        ] {
            for is_deleted in [true, false] {
                let (data, directories) = world();
                let text = source.to_string().replace("DATA", &data.path().display().to_string());
                let volume = volume(&serde_json::from_str(&text).unwrap());
                let before = files(data.path(), "");
                let done = match is_deleted {
                    true => directories.delete(&volume).await,
                    false => directories.recycle(&volume).await,
                };
                let after = files(data.path(), "");
                let own = match source.get("csi") {
                    Some(_) => "volumes/coracle.csi/a",
                    None => "volumes/host-path/a",
                };
                let outcome = match (&done, before - after) {
                    (Err(_), 0) => Refused,
                    (Ok(()), 0) => Nothing,
                    (Ok(()), gone) => {
                        assert_eq!(files(data.path(), own), 0, "{text}");
                        // A link counts as a file.
                        assert_eq!(gone, if own.ends_with("csi/a") { 1 } else { 2 }, "{text}");
                        assert_eq!(data.path().join(own).exists(), !is_deleted, "{text}");
                        Removed
                    }
                    (Err(error), gone) => panic!("{text}: {gone} files are gone, and {error}"),
                };
                assert_eq!(outcome, want, "{text}: {done:?}");
            }
        }
    }

    #[tokio::test]
    async fn volumes_are_made_in_the_roots_only() {
        let (data, directories) = world();
        let text = |path: &str| data.path().join(path).to_string_lossy().into_owned();
        for (source, want) in [
            (json!({"hostPath": {"path": text("volumes/host-path/new")}}), true),
            (json!({"hostPath": {"path": text("volumes/host-path/a")}}), true),
            (json!({"hostPath": {"path": text("volumes/host-path/link")}}), false),
            (json!({"hostPath": {"path": text("volumes/host-path/link/new")}}), false),
            (json!({"hostPath": {"path": text("new")}}), false),
            (json!({"csi": {"driver": CSI_DRIVER, "volumeHandle": "new"}}), true),
            (json!({"csi": {"driver": CSI_DRIVER, "volumeHandle": "link"}}), false),
            (json!({"csi": {"driver": CSI_DRIVER, "volumeHandle": "../new"}}), false),
        ] {
            assert_eq!(directories.make(&volume(&source)).await.is_ok(), want, "{source}");
        }
        assert_eq!(std::fs::read_dir(data.path().join("outside")).unwrap().count(), 1);
        assert!(!data.path().join("new").exists() && !data.path().join("volumes/new").exists());
    }

    #[test]
    fn a_directory_is_found_by_whatever_names_it() {
        let (data, directories) = world();
        let path = |path: &str| data.path().join(path).to_string_lossy().into_owned();
        let a = volume(&json!({"hostPath": {"path": path("volumes/host-path/a")}}));
        for (source, want) in [
            (json!({"hostPath": {"path": path("volumes//host-path/a/")}}), true),
            (json!({"hostPath": {"path": path("volumes/host-path/b")}}), false),
            (json!({"hostPath": {"path": "/mnt/a"}}), false),
            (json!({"csi": {"driver": CSI_DRIVER, "volumeHandle": "a"}}), false),
        ] {
            let other = volume(&source);
            let is_found = ByDirectory::keys(&other) == ByDirectory::keys(&a);
            assert_eq!(is_found && directories.place(&other) == directories.place(&a), want, "{source}");
        }
    }

    fn volume(source: &Value) -> PersistentVolume {
        serde_json::from_value(json!({"spec": source})).unwrap()
    }
}
