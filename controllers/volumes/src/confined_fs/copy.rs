//! Copies of directories: of the volumes of a control plane for its forks.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::{Name, Root, is_dots, is_same_device, make, open_entry};

/// The limits of what one copy reads, so that a fork cannot fill the disk by a single mount.
#[derive(Clone, Copy, Debug)]
pub struct CopyLimits {
    /// The number of files, directories and links.
    pub entries: usize,
    /// The length of all files together.
    pub bytes: u64,
    /// The number of directories within one another.
    pub depth: usize,
}

impl Default for CopyLimits {
    fn default() -> CopyLimits {
        CopyLimits { entries: 100_000, bytes: 1 << 30, depth: 64 }
    }
}

impl Root {
    /// Copies a directory of another root, unless there is an entry of its name here. Links are
    /// copied as links; what is neither a file nor a directory nor a link is left out. Files keep
    /// the rights of their owner. Returns `false` if the other root has no such directory.
    ///
    /// - `is_wanted`: the copy fails when this becomes `false`
    ///
    /// # Errors
    /// It cannot be read or written, was replaced in the meantime, or exceeds the limits. Nothing
    /// has its name here then.
    pub fn copy_from(
        &self,
        other: &Root,
        name: &Name,
        limits: CopyLimits,
        is_wanted: &AtomicBool,
    ) -> io::Result<bool> {
        let Some(folder) = other.open()? else { return Ok(false) };
        let Some(source) = open_entry(&folder, name)? else { return Ok(false) };
        if let Some(root) = self.open()?
            && open_entry(&root, name)?.is_some()
        {
            return Ok(true);
        }
        let root = self.create()?;
        let identity = rustix::fs::fstat(&source).map(|stat| (stat.st_dev, stat.st_ino))?;
        // It gets its name when it is complete.
        let draft = format!(".copying-{}", uuid::Uuid::new_v4().simple());
        let draft = Name::new(draft).ok_or(Errno::INVAL)?;
        let copied =
            make(&root, &draft).and_then(|target| copy(source, target, limits, is_wanted)).and_then(|()| {
                // Of a volume that was deleted in the meantime, only a part is copied.
                let stat = rustix::fs::statat(&folder, name.as_path(), AtFlags::SYMLINK_NOFOLLOW);
                match stat.map(|stat| (stat.st_dev, stat.st_ino)) {
                    Ok(now) if now == identity => {}
                    _ => return Err(io::Error::other("it was deleted while it was copied")),
                }
                let (from, to) = (draft.as_path(), name.as_path());
                Ok(rustix::fs::renameat_with(&root, from, &root, to, RenameFlags::NOREPLACE)?)
            });
        if copied.is_err() {
            // The first error counts.
            let _ = self.remove(&draft);
        }
        copied.map(|()| true)
    }
}

/// A directory that is being copied.
struct Copying {
    entries: Dir,
    source: OwnedFd,
    target: OwnedFd,
}

impl Copying {
    fn new(source: OwnedFd, target: OwnedFd) -> io::Result<Copying> {
        Ok(Copying { entries: Dir::read_from(&source)?, source, target })
    }
}

/// Copies what is in a directory to an empty one.
fn copy(source: OwnedFd, target: OwnedFd, mut limits: CopyLimits, is_wanted: &AtomicBool) -> io::Result<()> {
    let device = rustix::fs::fstat(&source)?.st_dev;
    let mut open = vec![Copying::new(source, target)?];
    while let Some(Copying { entries, source, target }) = open.last_mut() {
        let Some(entry) = entries.next() else {
            open.pop();
            continue;
        };
        if !is_wanted.load(Ordering::Relaxed) {
            return Err(Errno::CANCELED.into());
        }
        let entry = entry?;
        let name = entry.file_name();
        if is_dots(name) {
            continue;
        }
        limits.entries = limits.entries.checked_sub(1).ok_or_else(|| exceeded("entries"))?;
        let Some(name) = Name::new(std::ffi::OsStr::from_bytes(name.to_bytes())) else { continue };
        let path = name.as_path();
        let Some(stat) = present(rustix::fs::statat(&*source, path, AtFlags::SYMLINK_NOFOLLOW))? else {
            continue;
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let Some(inner) = open_entry(source, &name)? else { continue };
                is_same_device(&inner, device)?;
                let inner = Copying::new(inner, make(target, &name)?)?;
                open.push(inner);
                if open.len() > limits.depth {
                    return Err(exceeded("directories within one another"));
                }
            }
            FileType::RegularFile => limits.bytes -= copy_file(source, target, &name, limits.bytes)?,
            FileType::Symlink => {
                if let Some(to) = present(rustix::fs::readlinkat(&*source, path, Vec::new()))? {
                    rustix::fs::symlinkat(to, &*target, path)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Treats an entry that was removed or replaced in the meantime as none.
fn present<T>(found: Result<T, Errno>) -> io::Result<Option<T>> {
    match found {
        Err(Errno::NOENT | Errno::LOOP | Errno::INVAL) => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// Copies a file of at most `limit` bytes; returns its length.
fn copy_file(source: &OwnedFd, target: &OwnedFd, name: &Name, limit: u64) -> io::Result<u64> {
    // The open must not block if the entry is not a regular file any more.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Some(from) = present(rustix::fs::openat(source, name.as_path(), flags, Mode::empty()))? else {
        return Ok(0);
    };
    let mode = rustix::fs::fstat(&from)?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::RegularFile {
        return Ok(0);
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let rights = Mode::from_raw_mode(mode) & Mode::RWXU;
    let to = rustix::fs::openat(target, name.as_path(), flags, rights)?;
    let (mut from, mut to) = (File::from(from), File::from(to));
    let length = io::copy(&mut Read::by_ref(&mut from).take(limit), &mut to)?;
    match length == limit && from.read(&mut [0])? > 0 {
        true => Err(exceeded("bytes")),
        false => Ok(length),
    }
}

fn exceeded(of: &str) -> io::Error {
    io::Error::other(format!("it has more {of} than are copied for a fork (docs/limits.md)"))
}
