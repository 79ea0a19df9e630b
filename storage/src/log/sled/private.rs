//! Directories and files that only their owner may read.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io,
    path::Path,
};

#[cfg(unix)]
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};

/// Makes a directory and its missing parents.
pub(super) fn create_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    builder.mode(0o700);
    builder.create(path)
}

/// How a file is opened, which is made if it is missing. A symbolic link is not followed.
pub(super) fn file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// Takes the rights of others to a directory and all that is in it. Symbolic links are left alone.
pub(super) fn restrict(path: &Path) -> io::Result<()> {
    let mut rest = vec![path.to_path_buf()];
    while let Some(path) = rest.pop() {
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_symlink() {
            continue;
        }
        if metadata.is_dir() {
            for entry in fs::read_dir(&path)? {
                rest.push(entry?.path());
            }
        }
        #[cfg(unix)]
        if metadata.permissions().mode() & 0o077 != 0 {
            let mode = if metadata.is_dir() { 0o700 } else { 0o600 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn rights_of_others_are_taken_but_links_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
        let outside = dir.path().join("outside");
        fs::write(&outside, "").unwrap();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o644)).unwrap();
        let store = dir.path().join("new/store");
        create_directory(&store).unwrap();
        assert_eq!(mode(&store), 0o700);
        assert_eq!(mode(&dir.path().join("new")), 0o700);
        fs::create_dir(store.join("log")).unwrap();
        fs::write(store.join("log/db"), "").unwrap();
        std::os::unix::fs::symlink(&outside, store.join("link")).unwrap();
        for (path, loose) in [("", 0o755), ("log", 0o777), ("log/db", 0o644)] {
            fs::set_permissions(store.join(path), fs::Permissions::from_mode(loose)).unwrap();
        }
        restrict(&store).unwrap();
        for (path, want) in [("", 0o700), ("log", 0o700), ("log/db", 0o600)] {
            assert_eq!(mode(&store.join(path)), want, "{path:?}");
        }
        assert_eq!(mode(&outside), 0o644);
        assert!(file_options().open(store.join("link")).is_err(), "a link is not followed");
    }
}
