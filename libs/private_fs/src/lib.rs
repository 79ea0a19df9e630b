//! Files and directories that only their owner may read: modes 0600 and 0700, whatever the umask.
//!
//! Everything that Coracle creates on a disk is created here: the store and its copies hold every
//! Secret, and the keys in a data directory make an administrator of whoever reads them. What
//! exists keeps its mode, unless [`restrict`] is called for it.
#![warn(missing_docs)]

mod replace;

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::path::Path;

#[cfg(unix)]
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};

use tempfile::TempDir;

pub use replace::{Draft, NewFiles, replace};

/// The mode of directories.
pub const DIRECTORY_MODE: u32 = 0o700;
/// The mode of files.
pub const FILE_MODE: u32 = 0o600;

/// Creates a directory and its missing parents.
///
/// # Errors
/// One of them cannot be created.
pub fn create_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    builder.mode(DIRECTORY_MODE);
    builder.create(path)
}

/// Creates a temporary directory, which is removed when the value is dropped.
///
/// # Errors
/// It cannot be created in `within`.
pub fn temporary_directory(prefix: &str, within: &Path) -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix);
    #[cfg(unix)]
    builder.permissions(fs::Permissions::from_mode(DIRECTORY_MODE));
    builder.tempdir_in(within)
}

/// Returns options for files, which are private if they are created.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    options.mode(FILE_MODE);
    options
}

/// Returns options for a file that is read and written, and created if it is missing. A symbolic
/// link is not followed.
pub fn file_options() -> OpenOptions {
    let mut options = options();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// Removes the permissions of group and others on a directory and on everything in it. Symbolic
/// links are left alone.
///
/// # Errors
/// A directory cannot be read, or a mode cannot be changed.
pub fn restrict(path: &Path) -> io::Result<()> {
    let mut rest = vec![path.to_path_buf()];
    while let Some(path) = rest.pop() {
        if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
            for entry in fs::read_dir(&path)? {
                rest.push(entry?.path());
            }
        }
        restrict_entry(&path)?;
    }
    Ok(())
}

/// Removes the permissions of group and others on a file or on a directory, without its entries. A
/// symbolic link or a missing file is left alone.
///
/// # Errors
/// The mode cannot be changed.
pub fn restrict_entry(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata?,
    };
    #[cfg(unix)]
    if !metadata.is_symlink() {
        let mode = if metadata.is_dir() { DIRECTORY_MODE } else { FILE_MODE };
        let now = metadata.permissions().mode() & 0o7777;
        if now & !mode != 0 {
            fs::set_permissions(path, fs::Permissions::from_mode(now & mode))?;
        }
    }
    #[cfg(not(unix))]
    let _ = metadata;
    Ok(())
}

/// Sets the umask of the process to one that only leaves the rights of the owner, and returns the
/// old one.
///
/// For programs of their own, with libraries that create files too. It does not concern what this crate
/// creates.
#[cfg(unix)]
pub fn set_private_umask() -> rustix::fs::Mode {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO)
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
        let temporary = temporary_directory("a-", dir.path()).unwrap();
        file_options().open(temporary.path().join("file")).unwrap();
        assert_eq!(mode(temporary.path()), 0o700);
        assert_eq!(mode(&temporary.path().join("file")), 0o600);
    }
}
