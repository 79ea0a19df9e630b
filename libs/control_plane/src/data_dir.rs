//! The data directory and temporary ones, which only their owner may read.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use coracle_private_fs::{create_directory, restrict_entry};
use tempfile::TempDir;

/// The entries that Coracle creates in a data directory. Those of a control plane in the background
/// are in it by default.
const OWN_ENTRIES: [&str; 11] = [
    CLOCK,
    "kubeconfig",
    "kubeconfig.lock",
    "pki",
    "pods",
    "store",
    "volumes",
    background::LOG,
    background::PREVIOUS_LOG,
    background::RECORD,
    background::LOCK,
];

/// The time that a manual clock has come to.
pub(crate) const CLOCK: &str = "clock";

/// The files of a control plane that runs in the background: `coracle up`.
pub mod background {
    /// The log of the process.
    pub const LOG: &str = "coracle.log";
    /// The log of the process before.
    pub const PREVIOUS_LOG: &str = "coracle.log.1";
    /// The record of the process.
    pub const RECORD: &str = "background.json";
    /// The file that is locked while the process runs.
    pub const LOCK: &str = "background.lock";
}

/// The entries that are directories.
const DIRECTORIES: [&str; 4] = ["pki", "pods", "store", "volumes"];

/// Creates the directory if it is missing, and removes the permissions of group and others on it
/// and on its entries.
///
/// A directory with foreign entries, or with the sticky bit, keeps its mode: it may be a shared
/// one, such as `/tmp`.
pub(crate) fn prepare(path: &Path) -> io::Result<()> {
    create_directory(path)?;
    for directory in DIRECTORIES {
        restrict(&path.join(directory))?;
    }
    restrict(&path.join("kubeconfig"))?;
    for file in entries(&path.join("pki"))? {
        restrict(&file)?;
    }
    let sticky = fs::metadata(path)?.mode() & 0o1000 != 0;
    if !sticky && entries(path)?.all(|entry| is_own_entry(&entry)) {
        restrict(path)?;
    }
    Ok(())
}

/// Removes what Coracle created in a directory, and the directory, unless it is a link. Links in it
/// are removed and not followed. The lock of a control plane in the background is removed last.
///
/// # Errors
/// The directory has foreign entries, and nothing is removed then; or an entry cannot be removed.
pub(crate) fn delete(path: &Path) -> io::Result<()> {
    let mut own: Vec<_> = entries(path)?.collect();
    if let Some(foreign) = own.iter().find(|entry| !is_own_entry(entry)) {
        let name = foreign.file_name().unwrap_or_default().display();
        return Err(io::Error::other(format!("{name} in it is not of coracle; nothing is deleted")));
    }
    own.sort_by_key(|entry| entry.ends_with(background::LOCK));
    for entry in own {
        match fs::symlink_metadata(&entry) {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(&entry)?,
            Ok(_) => fs::remove_file(&entry)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir(path),
        _ => Ok(()),
    }
}

/// Returns `true` if Coracle creates entries with this name, including drafts of files.
fn is_own_entry(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let draft_of = |own: &&str| {
        name.strip_prefix('.')
            .and_then(|name| name.strip_prefix(own))
            .is_some_and(|rest| rest.starts_with('.'))
    };
    OWN_ENTRIES.contains(&name) || (name.ends_with(".tmp") && OWN_ENTRIES.iter().any(draft_of))
}

/// Creates a directory in another one, which is removed when it is dropped.
pub(crate) fn temporary_directory(within: &Path) -> io::Result<TempDir> {
    coracle_private_fs::temporary_directory("coracle-", within)
}

/// Removes the permissions of group and others on an entry. That of another user, who permits its
/// use, is left alone.
fn restrict(path: &Path) -> io::Result<()> {
    match restrict_entry(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            tracing::warn!(%error, path = %path.display(), "cannot take the rights of others");
            Ok(())
        }
        restricted => restricted,
    }
}

fn entries(path: &Path) -> io::Result<impl Iterator<Item = std::path::PathBuf>> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        entries => entries?.collect::<io::Result<Vec<_>>>()?,
    };
    Ok(entries.into_iter().map(|entry| entry.path()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_new_directory_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("a/b");
        prepare(&data).unwrap();
        assert_eq!((mode(&data), mode(&dir.path().join("a"))), (0o700, 0o700));
    }

    #[test]
    fn an_existing_directory_is_made_private() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        for directory in DIRECTORIES {
            fs::create_dir(data.join(directory)).unwrap();
            set_mode(&data.join(directory), 0o755);
        }
        for file in ["kubeconfig", "pki/ca.key", "pki/ca.crt"] {
            fs::write(data.join(file), "").unwrap();
            set_mode(&data.join(file), 0o644);
        }
        set_mode(data, 0o755);
        prepare(data).unwrap();
        for (path, want) in [
            ("", 0o700),
            ("store", 0o700),
            ("pki", 0o700),
            ("volumes", 0o700),
            ("kubeconfig", 0o600),
            ("pki/ca.key", 0o600),
            ("pki/ca.crt", 0o600),
        ] {
            assert_eq!(mode(&data.join(path)), want, "{path:?}");
        }
    }

    #[test]
    fn own_entries_are_deleted_and_foreign_ones_keep_everything() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("outside/kept")).unwrap();
        fs::create_dir_all(path("data/store/log")).unwrap();
        std::os::unix::fs::symlink(path("outside"), path("data/volumes")).unwrap();
        for file in ["background.lock", "coracle.log", ".background.json.1a.tmp", "kubeconfig"] {
            fs::write(path("data").join(file), "").unwrap();
        }
        fs::write(path("data/notes.txt"), "").unwrap();
        let error = delete(&path("data")).unwrap_err().to_string();
        assert_eq!(error, "notes.txt in it is not of coracle; nothing is deleted");
        assert_eq!(entries(&path("data")).unwrap().count(), 7);
        fs::remove_file(path("data/notes.txt")).unwrap();
        delete(&path("data")).unwrap();
        assert!(!path("data").exists() && path("outside/kept").exists());
        delete(&path("data")).unwrap();
        // The target of a link is emptied, and stays.
        fs::create_dir_all(path("elsewhere/pki")).unwrap();
        std::os::unix::fs::symlink("elsewhere", path("data")).unwrap();
        delete(&path("data")).unwrap();
        assert!(path("data").is_symlink() && !path("elsewhere/pki").exists());
    }

    #[test]
    fn a_directory_with_foreign_entries_keeps_its_mode() {
        for (case, name, rights) in [("another's file", "file", 0o755), ("like /tmp", "store", 0o1777)] {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join(name)).unwrap();
            set_mode(dir.path(), rights);
            prepare(dir.path()).unwrap();
            assert_eq!(mode(dir.path()), rights, "{case}");
        }
    }
}
