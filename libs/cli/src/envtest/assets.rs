//! `coracle envtest-assets`: a folder with the entries that envtest looks for, which are links.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::{apiserver, etcd};

/// Marks a folder that Coracle made, so that no other folder is changed.
const MARKER: &str = ".coracle-envtest";
const KUBECTL: &str = "kubectl";
/// A plugin of kubectl: `kubectl coracle` is `coracle`.
const PLUGIN: &str = "kubectl-coracle";

/// An error about the folder of envtest's programs, in one line.
#[derive(Debug, thiserror::Error)]
pub enum AssetsError {
    /// A file or folder cannot be used.
    #[error("{path}: {cause}", path = .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// No default folder is known.
    #[error("neither XDG_CACHE_HOME nor HOME is set: name a folder")]
    NoCache,
    /// Something else has the folder's name, or one of an entry.
    #[error("{path} {what}: it is left alone", path = .path.display())]
    Foreign {
        /// The path.
        path: PathBuf,
        /// A description of what was found.
        what: &'static str,
    },
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> AssetsError {
    move |cause| AssetsError::Io { path: path.to_owned(), cause }
}

/// The locations that determine the folder and the programs that its entries link to.
pub struct AssetLocations {
    /// `XDG_CACHE_HOME`
    pub cache: Option<PathBuf>,
    /// `HOME`
    pub home: Option<PathBuf>,
    /// The folders of `PATH`.
    pub path: Vec<PathBuf>,
    /// The running program.
    pub program: PathBuf,
}

impl AssetLocations {
    /// Returns the locations in the environment of this process.
    ///
    /// # Errors
    /// The system does not know the program's path.
    pub fn of_process() -> Result<AssetLocations, AssetsError> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Ok(AssetLocations {
            // As the specification has it, a relative path is ignored.
            cache: variable("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()),
            home: variable("HOME").map(PathBuf::from),
            path: variable("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default(),
            program: std::env::current_exe().map_err(failed(Path::new("coracle")))?,
        })
    }

    fn default_folder(&self) -> Result<PathBuf, AssetsError> {
        let cache = self.cache.clone().or_else(|| self.home.as_ref().map(|home| home.join(".cache")));
        Ok(cache.ok_or(AssetsError::NoCache)?.join("coracle/envtest").join(env!("CARGO_PKG_VERSION")))
    }

    /// Returns the first kubectl on the path that is not an entry of the folder itself.
    fn kubectl(&self, folder: &Path) -> Option<PathBuf> {
        let is_program = |file: &PathBuf| {
            fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        let folders = self.path.iter().filter(|path| path.is_absolute() && *path != folder);
        folders.map(|path| path.join(KUBECTL)).find(is_program)
    }
}

/// Makes the folder, or brings it up to date, and returns its absolute path.
///
/// # Errors
/// The folder or one of its entries is not ours, or cannot be written.
pub fn make(folder: Option<&Path>, locations: &AssetLocations) -> Result<PathBuf, AssetsError> {
    let folder = match folder {
        Some(folder) => std::path::absolute(folder).map_err(failed(folder))?,
        None => locations.default_folder()?,
    };
    claim(&folder)?;
    for (name, target) in [
        (apiserver::NAME, Some(locations.program.clone())),
        (etcd::NAME, Some(locations.program.clone())),
        (KUBECTL, locations.kubectl(&folder)),
        (PLUGIN, Some(locations.program.clone())),
    ] {
        link(&folder.join(name), target.as_deref())?;
    }
    Ok(folder)
}

/// Makes the folder if it is missing, and marks it as ours if it is empty.
fn claim(folder: &Path) -> Result<(), AssetsError> {
    let foreign = |what| Err(AssetsError::Foreign { path: folder.to_owned(), what });
    coracle_private_fs::create_directory(folder).map_err(failed(folder))?;
    let metadata = fs::symlink_metadata(folder).map_err(failed(folder))?;
    if !metadata.is_dir() {
        return foreign("is a link");
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return foreign("belongs to another user");
    }
    let marker = folder.join(MARKER);
    match fs::symlink_metadata(&marker) {
        Ok(metadata) if metadata.is_file() => return Ok(()),
        Ok(_) => return foreign("was not made by coracle envtest-assets"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(&marker)(error)),
    }
    // Another process may be making the same folder at this moment: it marks it first.
    if fs::read_dir(folder).map_err(failed(folder))?.next().is_some() && !marker.exists() {
        return foreign("was not made by coracle envtest-assets, and is not empty");
    }
    coracle_private_fs::file_options().open(&marker).map(drop).map_err(failed(&marker))
}

/// Lets the entry be a link to `target`, or be absent. Only links are replaced.
fn link(entry: &Path, target: Option<&Path>) -> Result<(), AssetsError> {
    let is_present = match fs::symlink_metadata(entry) {
        Ok(metadata) if metadata.is_symlink() => true,
        Ok(_) => return Err(AssetsError::Foreign { path: entry.to_owned(), what: "is no link" }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(failed(entry)(error)),
    };
    let Some(target) = target else {
        return if is_present { fs::remove_file(entry).map_err(failed(entry)) } else { Ok(()) };
    };
    if is_present && fs::read_link(entry).is_ok_and(|now| now == target) {
        return Ok(());
    }
    // Replaced by a rename, since a suite may be starting the entry at this moment.
    let draft = entry.with_extension(format!("{}.tmp", uuid::Uuid::new_v4().simple()));
    symlink(target, &draft).map_err(failed(&draft))?;
    fs::rename(&draft, entry).map_err(|cause| {
        // Reports the first error; a leftover link is harmless.
        let _ = fs::remove_file(&draft);
        failed(entry)(cause)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locations(base: &Path) -> AssetLocations {
        AssetLocations {
            cache: Some(base.join("cache")),
            home: Some(base.join("home")),
            path: vec![base.join("bin")],
            program: PathBuf::from("/opt/coracle"),
        }
    }

    fn entries(folder: &Path) -> Vec<(String, Option<PathBuf>)> {
        let mut entries: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_link(entry.path()).ok()))
            .collect();
        entries.sort();
        entries
    }

    fn add_kubectl(base: &Path, mode: u32) {
        fs::create_dir_all(base.join("bin")).unwrap();
        fs::write(base.join("bin/kubectl"), "").unwrap();
        fs::set_permissions(base.join("bin/kubectl"), fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_folder_has_links_and_kubectl_where_there_is_one() {
        let base = tempfile::tempdir().unwrap();
        let mut locations = locations(base.path());
        let folder = make(None, &locations).unwrap();
        assert_eq!(folder, base.path().join("cache/coracle/envtest").join(env!("CARGO_PKG_VERSION")));
        let program = |path: &str| Some(PathBuf::from(path));
        let names = |target: &str, kubectl: Option<PathBuf>| {
            let mut want = vec![
                (MARKER.to_owned(), None),
                ("etcd".to_owned(), program(target)),
                ("kube-apiserver".to_owned(), program(target)),
            ];
            want.extend(kubectl.map(|kubectl| ("kubectl".to_owned(), Some(kubectl))));
            want.push(("kubectl-coracle".to_owned(), program(target)));
            want
        };
        assert_eq!(entries(&folder), names("/opt/coracle", None));
        add_kubectl(base.path(), 0o644);
        make(None, &locations).unwrap();
        assert_eq!(entries(&folder), names("/opt/coracle", None), "kubectl is no program");
        add_kubectl(base.path(), 0o755);
        locations.program = "/opt/new/coracle".into();
        // The folder itself may be on the path.
        locations.path.insert(0, folder.clone());
        for _ in 0..2 {
            assert_eq!(make(None, &locations).unwrap(), folder);
            assert_eq!(entries(&folder), names("/opt/new/coracle", Some(base.path().join("bin/kubectl"))));
        }
        fs::remove_file(base.path().join("bin/kubectl")).unwrap();
        make(None, &locations).unwrap();
        assert_eq!(entries(&folder), names("/opt/new/coracle", None));
    }

    #[test]
    fn the_default_folder_is_in_the_users_cache() {
        let base = tempfile::tempdir().unwrap();
        let mut locations = locations(base.path());
        locations.cache = None;
        assert!(make(None, &locations).unwrap().starts_with(base.path().join("home/.cache/coracle")));
        locations.home = None;
        assert!(matches!(make(None, &locations), Err(AssetsError::NoCache)));
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        let base = tempfile::tempdir().unwrap();
        let locations = locations(base.path());
        let path = |name: &str| base.path().join(name);
        fs::create_dir(path("foreign")).unwrap();
        fs::write(path("foreign/etcd"), "etcd").unwrap();
        fs::create_dir(path("empty")).unwrap();
        symlink(path("empty"), path("link")).unwrap();
        fs::write(path("file"), "").unwrap();
        make(Some(&path("ours")), &locations).unwrap();
        fs::remove_file(path("ours/etcd")).unwrap();
        fs::write(path("ours/etcd"), "etcd").unwrap();
        for (folder, want) in [
            ("foreign", "was not made by coracle envtest-assets, and is not empty: it is left alone"),
            ("link", "is a link: it is left alone"),
            ("file", "File exists"),
            ("file/below", "Not a directory"),
            ("ours", "ours/etcd is no link: it is left alone"),
        ] {
            let error = make(Some(&path(folder)), &locations).expect_err(folder).to_string();
            assert!(error.contains(want) && !error.contains('\n'), "{folder}: {error}");
        }
        assert_eq!(entries(&path("empty")), []);
        assert_eq!(entries(&path("foreign")), [("etcd".to_owned(), None)]);
        for file in ["foreign/etcd", "ours/etcd"] {
            assert_eq!(fs::read_to_string(path(file)).unwrap(), "etcd");
        }
    }
}
