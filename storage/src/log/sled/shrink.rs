//! Giving disk back. sled uses the space of its file again, but never makes the file smaller. When
//! next to nothing of a large file is in use, that is copied to a new one, which takes its place.
//!
//! Always true here:
//! - The two change places in one step, when both are on disk: a crash at any time leaves one whole
//!   log under its name, and the other is removed when the store is opened again.
//! - A log that cannot be copied (no space, a file system that cannot exchange names) stays as it
//!   is.
//! - While the store is in use, only so little is copied that writers hardly notice.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use super::{
    directory::Directory,
    failure::failed,
    tree::{Tree, wait_for_sled},
};
use crate::log::error::LogError;

/// A file that is worth the trouble, and how much of it may be in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Garbage {
    /// The size of the file, in bytes.
    pub file: u64,
    /// The bytes of the rows, at most.
    pub rows: u64,
    /// The file has so many times their bytes, at least.
    pub times: u64,
}

/// While the store is in use: copying takes a tenth of a second.
pub(super) const WHILE_OPEN: Garbage = Garbage { file: 256 << 20, rows: 8 << 20, times: 8 };
/// The threshold when the store is closed.
pub(super) const AT_CLOSE: Garbage = Garbage { file: 64 << 20, rows: u64::MAX, times: 4 };

impl Garbage {
    /// Returns `true` if a log with such a file and such rows is mostly garbage.
    pub fn is_most_of(self, file: u64, rows: u64) -> bool {
        file >= self.file && rows <= self.rows && rows.saturating_mul(self.times) <= file
    }
}

impl Tree {
    /// Copies all rows to the second log of a directory, and closes that.
    pub fn copy(&self, directory: &Directory) -> Result<(), LogError> {
        let path = directory.path();
        directory.remove_copy().map_err(|cause| failed("cannot copy the log", path, cause))?;
        let copy = Tree::open_log(directory, &directory.copy())?;
        for row in self.db.iter() {
            let (key, value) = row.map_err(|cause| self.sled_failed("cannot read", cause))?;
            copy.insert(&key, &value)?;
        }
        copy.db.flush().map_err(|cause| copy.sled_failed("cannot flush", cause))?;
        drop(copy);
        wait_for_sled(&directory.copy(), path)?;
        sync(&directory.copy()).map_err(|cause| failed("cannot copy the log", path, cause))
    }
}

/// Returns the size of sled's file.
pub(super) fn file_bytes(directory: &Directory) -> u64 {
    fs::metadata(directory.log().join("db")).map_or(0, |file| file.len())
}

/// Flushes all files of a directory to disk.
fn sync(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => sync(&entry.path())?,
            false => File::open(entry.path())?.sync_all()?,
        }
    }
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Options, Store,
        log::sled::{Durability, SledLog},
        testing::{Disk, Marked, delete, key, put, render_bucket},
    };

    fn open(disk: &Disk) -> Store<Marked> {
        let log = SledLog::open(disk.path(), Durability::None).unwrap();
        Store::open(Box::new(log), Marked, Options::default()).unwrap()
    }

    fn megabytes(disk: &Disk) -> u64 {
        let files = fs::read_dir(disk.path().join("log")).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>() >> 20
    }

    /// Creates a store with a size in megabytes, then deletes all but one object.
    async fn emptied(disk: &Disk, size: usize) -> Store<Marked> {
        let store = open(disk);
        let value = "x".repeat(1_000_000);
        for n in 0..size {
            put(&store, &key(&format!("n{n}")), &value).await;
        }
        put(&store, &key("kept"), "1").await;
        assert!(megabytes(disk) * 10 > 8 * u64::try_from(size).unwrap(), "{} MB", megabytes(disk));
        for n in 0..size {
            delete(&store, &key(&format!("n{n}"))).await;
        }
        store.compact(store.revision()).await.unwrap();
        store
    }

    #[test]
    fn most_of_a_file_must_be_garbage() {
        let garbage = Garbage { file: 100, rows: 20, times: 8 };
        for (file, rows, want) in
            [(100, 0, true), (99, 0, false), (160, 20, true), (159, 20, false), (1000, 21, false)]
        {
            assert_eq!(garbage.is_most_of(file, rows), want, "{file} {rows}");
        }
    }

    #[tokio::test]
    async fn a_store_that_is_closed_gives_disk_back() {
        let disk = Disk::new();
        let store = emptied(&disk, 80).await;
        let (newest, before) = (store.revision(), render_bucket(&store.snapshot().bucket("things")));
        store.close().await.unwrap();
        assert!(megabytes(&disk) < 8, "{} MB", megabytes(&disk));
        assert!(!disk.path().join("log.copy").exists());
        let store = open(&disk);
        assert_eq!((store.revision(), render_bucket(&store.snapshot().bucket("things"))), (newest, before));
        store.close().await.unwrap();
    }

    #[tokio::test]
    async fn so_does_one_in_use() {
        let disk = Disk::new();
        let store = emptied(&disk, 300).await;
        assert!(megabytes(&disk) < 32, "{} MB", megabytes(&disk));
        let newest = put(&store, &key("later"), "2").await;
        let want = render_bucket(&store.snapshot().bucket("things"));
        store.close().await.unwrap();
        let store = open(&disk);
        assert_eq!((store.revision(), render_bucket(&store.snapshot().bucket("things"))), (newest, want));
    }

    #[tokio::test]
    async fn what_a_crash_left_is_removed() {
        let disk = Disk::new();
        let store = open(&disk);
        put(&store, &key("a"), "1").await;
        store.close().await.unwrap();
        fs::create_dir(disk.path().join("log.copy")).unwrap();
        fs::write(disk.path().join("log.copy/db"), "half").unwrap();
        let store = open(&disk);
        assert!(!disk.path().join("log.copy").exists());
        assert_eq!(render_bucket(&store.snapshot().bucket("things")), "a=1@1");
    }
}
