//! The data directory and temporary ones, which only their owner may read.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use coracle_private_fs::{create_directory, restrict_entry};
use tempfile::TempDir;

/// The entries that Coracle creates in a data directory.
const OWN_ENTRIES: [&str; 6] = ["kubeconfig", "kubeconfig.lock", "pki", "pods", "store", "volumes"];

/// The entries that are directories.
const DIRECTORIES: [&str; 4] = ["pki", "pods", "store", "volumes"];

/// Creates the directory if it is missing, and removes the permissions of group and others on it and on its entries.
///
/// A directory with foreign entries, or with the sticky bit, keeps its mode: it may be a shared one, such as `/tmp`.
pub(crate) fn prepare(path: &Path) -> io::Result<()> {
    create_directory(path)?;
    for directory in DIRECTORIES {
        restrict(&path.join(directory))?;
    }
    restrict(&path.join("kubeconfig"))?;
    for file in entries(&path.join("pki"))? {
        restrict(&file)?;
    }
    let is_own_entry = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        OWN_ENTRIES.contains(&name) || (name.starts_with(".kubeconfig.") && name.ends_with(".tmp"))
    };
    let sticky = fs::metadata(path)?.mode() & 0o1000 != 0;
    if !sticky && entries(path)?.all(|entry| is_own_entry(&entry)) {
        restrict(path)?;
    }
    Ok(())
}

/// Creates a directory in another one, which is removed when it is dropped.
pub(crate) fn temporary_directory(within: &Path) -> io::Result<TempDir> {
    coracle_private_fs::temporary_directory("coracle-", within)
}

/// Removes the permissions of group and others on an entry. That of another user, who permits its use, is left alone.
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
