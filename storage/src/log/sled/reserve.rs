//! Space on the disk that is reserved for the time when the disk is full.
//!
//! A log grows even when objects are deleted. So a file is kept that has no use but to be made
//! smaller when the disk is full: then deletions can continue, and free space.
//!
//! Nobody else may take that space. A refused write leaves the reserve alone; a write that frees
//! objects takes the little that it needs, and what it leaves is put back as soon as it is on disk.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::private;

/// The size of the file. On a small disk it takes half of what is free at most.
const SIZE: u64 = 8 << 20;

/// The bytes that must be left beside those that are about to be written: for sled's own files, and
/// for other processes' sake.
const MARGIN: u64 = 1 << 20;

/// The margin while the reserve is in use.
const LAST_MARGIN: u64 = 256 << 10;

/// The bytes that are given up at a time.
const PART: u64 = SIZE / 8;

/// The bytes that must be free before all writes are admitted again: more than the margin, so that
/// the next write is not refused.
const RECOVERED: u64 = 2 * MARGIN;

/// Measures the free bytes on the disk that holds a directory.
pub(super) type Available = Box<dyn Fn(&Path) -> io::Result<u64> + Send>;

/// The reserve of a store's directory.
pub(super) struct Reserve {
    path: PathBuf,
    available: Available,
    /// The size of the file.
    held: u64,
    /// Whether writes may take space from the reserve, because the disk is full and they delete
    /// objects.
    is_in_use: bool,
}

impl Reserve {
    /// Opens the reserve as an earlier process left it. If there is so little space that sled may
    /// fail to open its files, frees some of it for them.
    pub fn open(directory: &Path, available: Available) -> Reserve {
        let path = directory.join("reserve");
        let held = fs::symlink_metadata(&path).map_or(0, |file| file.len());
        let mut reserve = Reserve { path, available, held, is_in_use: true };
        reserve.make_space(0);
        reserve.is_in_use = false;
        reserve
    }

    /// Returns the function that asks the operating system for the available space.
    pub fn available() -> Available {
        Box::new(|path| {
            let disk = statvfs(path)?;
            Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
        })
    }

    /// Returns `true` if writes may take space from the reserve. Each such write must be flushed,
    /// and followed by [`restore`](Self::restore).
    pub fn is_in_use(&self) -> bool {
        self.is_in_use
    }

    /// Permits writes to take from the reserve, until it is [held](Self::hold) again.
    pub fn begin_use(&mut self) {
        self.is_in_use = true;
    }

    /// Makes space for `bytes`, and returns whether they can be written. It takes missing space
    /// from the reserve, if that is permitted. If the free space is unknown, it returns `true`, so
    /// that writing is tried.
    pub fn make_space(&mut self, bytes: u64) -> bool {
        let Some(free) = self.free() else { return true };
        // sled writes a page anew from time to time, so that each byte may take two; the journal
        // has it, too.
        let needed = bytes.saturating_mul(3) + if self.is_in_use { LAST_MARGIN } else { MARGIN };
        let missing = needed.saturating_sub(free);
        if missing == 0 {
            return true;
        }
        // Too little would be lost to others. It may do where nothing is about to be written but
        // sled's own.
        let is_enough = self.held >= missing;
        if !self.is_in_use || self.held == 0 || (!is_enough && bytes > 0) {
            return false;
        }
        let left = self.held.saturating_sub(missing);
        self.resize(left);
        is_enough && self.held == left
    }

    /// Gives a part of the reserve up, because writing failed although there seemed to be space.
    /// Returns whether there was any, and it could be given up.
    pub fn give_up(&mut self) -> bool {
        let before = self.held;
        if before > 0 {
            self.resize(before.saturating_sub(PART));
        }
        self.held < before
    }

    /// Puts back what a flushed write has left of the space that was made for it.
    pub fn restore(&mut self) {
        if self.is_in_use
            && let Some(free) = self.free()
        {
            self.grow(self.held.saturating_add(free.saturating_sub(LAST_MARGIN)));
        }
    }

    /// Fills the reserve as far as there is space. Returns whether there is enough beside it for
    /// all writes; then nothing is taken from it any more.
    pub fn hold(&mut self) -> bool {
        let size = self.free().map_or(SIZE, |free| self.held.saturating_add(free) / 2);
        let has_recovered = self.grow(size) && self.free().is_none_or(|free| free >= RECOVERED);
        self.is_in_use &= !has_recovered;
        has_recovered
    }

    /// Makes the file as large as it may be, up to a size. Returns whether it is.
    fn grow(&mut self, size: u64) -> bool {
        let size = size.min(SIZE);
        if size > self.held {
            self.resize(size);
        }
        self.held >= size
    }

    /// Changes the size of the file. After a failure, its size is the one it reached.
    fn resize(&mut self, size: u64) {
        let resized = private::file_options().open(&self.path).and_then(|file| {
            match size > self.held {
                true => allocate(&file, size)?,
                false => file.set_len(size)?,
            }
            file.sync_all()
        });
        if let Err(error) = resized {
            tracing::debug!(%error, size, "the reserve has another size than it should have");
        }
        self.held = fs::symlink_metadata(&self.path).map_or(0, |file| file.len());
    }

    fn free(&self) -> Option<u64> {
        (self.available)(self.path.parent()?).ok()
    }
}

/// Allocates all blocks of a file on the disk, up to a size.
fn allocate(mut file: &File, size: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, size) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            // Zeros would do, but a file system without this call may not store them.
            let held = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
            io::copy(&mut io::Read::take(io::repeat(0xff), size.saturating_sub(held)), &mut file).map(drop)
        }
        allocated => Ok(allocated?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    };

    /// Creates a disk with this space for the reserve and for others together.
    fn disk(directory: &Path, space: u64) -> (Arc<AtomicU64>, Reserve) {
        let space = Arc::new(AtomicU64::new(space));
        (space.clone(), Reserve::open(directory, available(directory, space)))
    }

    fn available(directory: &Path, space: Arc<AtomicU64>) -> Available {
        let file = directory.join("reserve");
        Box::new(move |_| {
            Ok(space.load(Relaxed).saturating_sub(fs::metadata(&file).map_or(0, |file| file.len())))
        })
    }

    fn held(directory: &Path) -> u64 {
        fs::metadata(directory.join("reserve")).map_or(0, |file| file.len())
    }

    #[test]
    fn a_small_disk_has_a_reserve_too() {
        for (space, want) in [(1 << 30, SIZE), (3 * SIZE, SIZE), (2 * SIZE, SIZE), (SIZE, SIZE / 2), (0, 0)] {
            let dir = tempfile::tempdir().unwrap();
            let (_, mut reserve) = disk(dir.path(), space);
            assert_eq!(reserve.hold(), space > 0, "{space}");
            assert_eq!(held(dir.path()), want, "{space}");
        }
    }

    #[test]
    fn a_refused_write_leaves_the_reserve_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (space, mut reserve) = disk(dir.path(), 1 << 30);
        assert!(reserve.hold());
        for (free, bytes, has_space) in [(MARGIN, 0, true), (MARGIN - 1, 0, false), (MARGIN + 14, 5, false)] {
            space.store(SIZE + free, Relaxed);
            assert_eq!(reserve.make_space(bytes), has_space, "{bytes} of {free}");
            assert_eq!(held(dir.path()), SIZE);
        }
    }

    #[test]
    fn a_write_takes_what_it_needs_and_the_rest_is_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let (space, mut reserve) = disk(dir.path(), 1 << 30);
        assert!(reserve.hold());
        space.store(SIZE, Relaxed);
        reserve.begin_use();
        assert!(!reserve.hold(), "the disk is full still");
        for _ in 0..100 {
            let before = held(dir.path());
            assert!(reserve.make_space(1000));
            assert!(
                before - held(dir.path()) <= LAST_MARGIN + 3000,
                "another process could take what is given up"
            );
            // The write.
            space.fetch_sub(2000, Relaxed);
            reserve.restore();
        }
        assert!(held(dir.path()) >= SIZE - LAST_MARGIN - 100 * 2000);
        let before = held(dir.path());
        assert!(!reserve.make_space(SIZE), "more than there is");
        assert_eq!(held(dir.path()), before, "it is not given up for nothing");
        space.store(SIZE + RECOVERED, Relaxed);
        assert!(reserve.hold() && held(dir.path()) >= SIZE / 2);
        assert!(!reserve.is_in_use());
    }

    #[test]
    fn a_start_on_a_full_disk_uses_it() {
        for (space, want) in [(1 << 30, SIZE), (SIZE, SIZE - LAST_MARGIN)] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("reserve"), vec![0; SIZE as usize]).unwrap();
            drop(disk(dir.path(), space));
            assert_eq!(held(dir.path()), want, "{space} are there");
        }
    }
}
