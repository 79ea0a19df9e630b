//! Space on the disk that is reserved for the time when the disk is full.
//!
//! A log grows even when objects are deleted. So a file is kept that is of no use but to be removed when the disk is
//! full: then deletions can continue, and free space.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::private;

/// The size of the file.
const SIZE: u64 = 8 << 20;

/// What must be left beside what is about to be written: for sled's own files, and for other processes' sake.
const MARGIN: u64 = 1 << 20;

/// The same, once the reserve is given up.
const LAST_MARGIN: u64 = 256 << 10;

/// What must be left beside the reserve before it is kept again: more than a group of writes takes, so that the next one
/// does not need the reserve.
const COMFORT: u64 = 16 << 20;

/// Returns how many bytes are free on the disk that holds a directory.
pub(super) type Available = Box<dyn Fn(&Path) -> io::Result<u64> + Send>;

/// The reserve of a store's directory.
pub(super) struct Reserve {
    directory: PathBuf,
    available: Available,
    is_held: bool,
}

impl Reserve {
    /// The reserve as an earlier process left it; given up if there is so little space that sled may fail to open its
    /// files.
    pub fn open(directory: &Path, available: Available) -> Reserve {
        let is_held = directory.join("reserve").exists();
        let mut reserve = Reserve { directory: directory.into(), available, is_held };
        if !reserve.has_space(0) {
            reserve.release();
        }
        reserve
    }

    /// What the operating system reports.
    pub fn available() -> Available {
        Box::new(|path| {
            let disk = statvfs(path)?;
            Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
        })
    }

    /// Can so many bytes be written? What cannot be known is tried.
    pub fn has_space(&self, bytes: u64) -> bool {
        // sled writes a page anew from time to time, so that each byte may take two.
        let needed = bytes.saturating_mul(2) + if self.is_held { MARGIN } else { LAST_MARGIN };
        self.free().is_none_or(|free| free >= needed)
    }

    /// Gives the reserve up.
    pub fn release(&mut self) {
        match fs::remove_file(self.path()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, path = %self.path().display(), "the reserve is not given up")
            }
        }
        self.is_held = false;
    }

    /// Keeps the reserve (again), if there is enough space. Returns whether it is kept.
    pub fn hold(&mut self) -> bool {
        if !self.is_held && self.free().is_none_or(|free| free >= SIZE + COMFORT) {
            match self.allocate() {
                Ok(()) => self.is_held = true,
                Err(error) => {
                    tracing::debug!(%error, "no room for the reserve");
                    self.release();
                }
            }
        }
        self.is_held
    }

    fn allocate(&self) -> io::Result<()> {
        let file = private::file_options().open(self.path())?;
        match fallocate(&file, FallocateFlags::empty(), 0, SIZE) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                // Zeros would do, but a file system without this call may not store them.
                io::copy(&mut io::Read::take(io::repeat(0xff), SIZE), &mut &file)?;
            }
            allocated => allocated?,
        }
        file.sync_all()
    }

    fn path(&self) -> PathBuf {
        self.directory.join("reserve")
    }

    fn free(&self) -> Option<u64> {
        (self.available)(&self.directory).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    };

    #[test]
    fn the_reserve_is_given_up_and_kept_again() {
        let dir = tempfile::tempdir().unwrap();
        let free = Arc::new(AtomicU64::new(1 << 30));
        let asked = free.clone();
        let file = dir.path().join("reserve");
        let mut reserve = Reserve::open(dir.path(), Box::new(move |_| Ok(asked.load(Relaxed))));
        assert!(reserve.hold() && reserve.hold());
        assert_eq!(fs::metadata(&file).unwrap().len(), SIZE);
        for (left, bytes, room) in [(MARGIN, 0, true), (MARGIN - 1, 0, false), (MARGIN + 9, 5, false)] {
            free.store(left, Relaxed);
            assert_eq!(reserve.has_space(bytes), room, "{bytes} of {left}");
        }
        reserve.release();
        reserve.release();
        assert!(!file.exists());
        assert!(reserve.has_space(100_000), "the margin is for deletions now");
        free.store(SIZE + COMFORT - 1, Relaxed);
        assert!(!reserve.hold());
        free.store(SIZE + COMFORT, Relaxed);
        assert!(reserve.hold() && file.exists());
    }

    #[test]
    fn a_start_on_a_full_disk_gives_it_up() {
        for (free, kept) in [(1 << 30, true), (0, false)] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("reserve"), "").unwrap();
            let reserve = Reserve::open(dir.path(), Box::new(move |_| Ok(free)));
            assert_eq!((reserve.is_held, dir.path().join("reserve").exists()), (kept, kept), "{free} free");
        }
    }
}
