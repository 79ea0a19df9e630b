//! A store's directory on disk: used by one process at a time, and checked for changes by others.
//!
//! ```text
//! DIR/store     locked while in use; one line: how the store was left, see `state.rs`
//! DIR/log/      the log's own files
//! DIR/log.copy/ the live part of the log, while it is copied (see `shrink.rs`)
//! DIR/journal.* what sled has not flushed yet, see `journal.rs`
//! DIR/reserve   space for a full disk, see `reserve.rs`
//! ```
//!
//! sled repairs a file that looks torn by truncating it, which is right after a crash and a silent
//! loss otherwise. So a store that was closed is sealed with a checksum of its files, which is
//! checked before sled reads them; and one that was not closed records the revision up to which
//! everything was on disk.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    failure::failed,
    private,
    state::{self, State, StateFile},
};
use crate::{Revision, log::error::LogError};

/// A directory that this process has locked until the value is dropped.
pub(super) struct Directory {
    path: PathBuf,
    state: Arc<StateFile>,
    was: State,
}

impl Directory {
    /// Locks the directory, creating it if necessary, and checks its seal. Changes no existing file
    /// except for access rights of others.
    pub fn take(path: &Path) -> Result<Directory, LogError> {
        let failed = |action| move |cause: io::Error| failed(action, path, cause);
        private::create_directory(path).map_err(failed("cannot make the directory"))?;
        let store = private::file_options().open(path.join("store"));
        let mut store = store.map_err(failed("cannot open the store"))?;
        lock(&store, path)?;
        if let Err(error) = private::restrict(path) {
            tracing::warn!(%error, path = %path.display(), "cannot take the rights of others to the store");
        }
        let mut line = Vec::new();
        store.read_to_end(&mut line).map_err(failed("cannot read the store"))?;
        let damaged = |reason: &str| LogError::Damaged { location: path.into(), reason: reason.into() };
        let was = State::parse(&line).ok_or_else(|| damaged(state::FOREIGN))?;
        let directory = Directory { path: path.into(), state: StateFile::new(store, was).into(), was };
        match was {
            State::New => {}
            State::Open { .. } if directory.log().join("db").exists() => {}
            State::Open { .. } => return Err(damaged("its log is gone")),
            State::Sealed { sum, .. }
                if directory.checksum().map_err(failed("cannot read the log"))? == sum => {}
            State::Sealed { .. } => return Err(damaged("its files are not those that were closed")),
        }
        Ok(directory)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the state that the directory had when it was opened.
    pub fn was(&self) -> State {
        self.was
    }

    /// Returns the path of the log's files.
    pub fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Returns the path of the copy of the log's files.
    pub fn copy(&self) -> PathBuf {
        self.path.join("log.copy")
    }

    /// Removes a complete or partial copy.
    pub fn remove_copy(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.copy()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Exchanges the log and its copy atomically.
    pub fn exchange_logs(&self) -> Result<(), LogError> {
        let exchanged = exchange(&self.log(), &self.copy()).and_then(|()| File::open(&self.path)?.sync_all());
        exchanged.map_err(|cause| failed("cannot put the copy in place", &self.path, cause))
    }

    /// Returns the file that records the state of the store.
    pub fn state(&self) -> &Arc<StateFile> {
        &self.state
    }

    /// Records that the log's files may change from now on.
    pub fn unseal(&self) -> Result<(), LogError> {
        self.state.unseal().map_err(|cause| failed("cannot write the store", &self.path, cause))
    }

    /// Records that the log's files do not change until the directory is locked again, and that
    /// they contain everything up to a revision.
    pub fn seal(&self, newest: Revision) -> Result<(), LogError> {
        let sum = self.checksum().map_err(|cause| failed("cannot read the log", &self.path, cause))?;
        self.state.seal(newest, sum).map_err(|cause| failed("cannot write the store", &self.path, cause))
    }

    /// Removes an unfinished snapshot that a killed sled left behind, which it would take for a
    /// damaged one.
    pub fn remove_unfinished(&self) -> io::Result<()> {
        let entries = match fs::read_dir(self.log()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "generating") {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn checksum(&self) -> io::Result<u32> {
        checksum(&self.log())
    }
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Locks the store in a directory, without opening it. The lock is held until the file is dropped;
/// None if there is no store.
///
/// # Errors
/// [`LogError::InUse`] if another process has it, or the cause if it cannot be opened.
pub fn lock_store(path: &Path) -> Result<Option<File>, LogError> {
    let mut options = private::file_options();
    match options.create(false).open(path.join("store")) {
        Ok(store) => lock(&store, path).map(|()| Some(store)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(failed("cannot open the store", path, cause)),
    }
}

/// Locks the file `store` of a directory, until it is closed.
pub(super) fn lock(store: &File, path: &Path) -> Result<(), LogError> {
    match store.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(LogError::InUse { location: path.into() }),
        Err(TryLockError::Error(cause)) => Err(failed("cannot lock the store", path, cause)),
    }
}

/// Returns a checksum of the names and contents of all files below a directory.
pub(super) fn checksum(log: &Path) -> io::Result<u32> {
    let mut sum = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut folders = vec![log.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(|entry| entry.file_name());
        for entry in entries {
            sum.update(entry.file_name().as_encoded_bytes());
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
                continue;
            }
            let mut file = File::open(entry.path())?;
            loop {
                let length = file.read(&mut buffer)?;
                if length == 0 {
                    break;
                }
                sum.update(&buffer[..length]);
            }
        }
    }
    Ok(sum.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(path: &Path) -> Result<State, String> {
        Directory::take(path).map(|directory| directory.was()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_state_is_found_as_it_was_left() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let directory = Directory::take(dir.path()).unwrap();
        assert_eq!(directory.was(), State::New);
        fs::create_dir_all(log.join("blobs")).unwrap();
        fs::write(log.join("db"), "data").unwrap();
        directory.unseal().unwrap();
        directory.state().advance(Revision(7)).unwrap();
        drop(directory);

        let directory = Directory::take(dir.path()).unwrap();
        assert_eq!(directory.was(), State::Open { synced: Revision(7), boot: None });
        directory.unseal().unwrap();
        drop(directory);
        assert_eq!(take(dir.path()), Ok(State::Open { synced: Revision(7), boot: None }), "still remembered");

        let directory = Directory::take(dir.path()).unwrap();
        directory.seal(Revision(9)).unwrap();
        drop(directory);
        assert!(matches!(take(dir.path()), Ok(State::Sealed { synced: Revision(9), .. })));
    }

    #[test]
    fn unfinished_snapshots_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::take(dir.path()).unwrap();
        directory.remove_unfinished().unwrap();
        fs::create_dir_all(directory.log()).unwrap();
        for name in ["db", "snap.00A", "snap.00B.generating"] {
            fs::write(directory.log().join(name), "").unwrap();
        }
        directory.remove_unfinished().unwrap();
        let mut names: Vec<_> =
            fs::read_dir(directory.log()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["db", "snap.00A"]);
    }

    #[test]
    fn damage_to_a_closed_store_is_reported() {
        type Damage = fn(&Path);
        let cases: [(&str, Damage); 6] = [
            ("a bit flipped", |dir| fs::write(dir.join("log/db"), "dat`").unwrap()),
            ("cut short", |dir| fs::write(dir.join("log/db"), "dat").unwrap()),
            ("a file gone", |dir| fs::remove_file(dir.join("log/db")).unwrap()),
            ("a file more", |dir| fs::write(dir.join("log/blobs/1"), "").unwrap()),
            ("the log gone", |dir| fs::remove_dir_all(dir.join("log")).unwrap()),
            ("another format", |dir| {
                fs::write(dir.join("store"), "coracle store 9 open            \n").unwrap()
            }),
        ];
        for (case, damage) in cases {
            let dir = tempfile::tempdir().unwrap();
            let directory = Directory::take(dir.path()).unwrap();
            fs::create_dir_all(directory.log().join("blobs")).unwrap();
            fs::write(directory.log().join("db"), "data").unwrap();
            directory.seal(Revision(1)).unwrap();
            drop(directory);
            assert!(take(dir.path()).is_ok(), "{case}: before");
            damage(dir.path());
            let error = take(dir.path()).unwrap_err();
            assert!(error.contains(&dir.path().display().to_string()), "{case}: {error}");
        }
    }

    #[test]
    fn a_second_holder_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let first = Directory::take(dir.path()).unwrap();
        assert!(matches!(Directory::take(dir.path()), Err(LogError::InUse { .. })));
        drop(first);
        assert!(Directory::take(dir.path()).is_ok());
    }
}
