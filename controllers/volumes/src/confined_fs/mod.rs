//! Files below directories of the data directory, accessed without following symbolic links.
//!
//! A [`Root`] is the data directory and fixed names below it. The links in the path of the data
//! directory are the operator's and are followed. From there on every step is relative to the
//! descriptor of the parent directory and refuses links (`O_NOFOLLOW`), so that no access leaves
//! the root, not even if a component is replaced by a link in the meantime.
//!
//! Removal needs neither a stack nor descriptors that grow with the depth of a tree: directories
//! are moved up to the one that is emptied ([`empty`]). It does not enter other file systems.
//!
//! The functions block: asynchronous callers use [`blocking`].

mod copy;
#[cfg(test)]
mod tests;

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

pub use copy::CopyLimits;

/// Opens a directory, and nothing that a link leads to.
const DIRECTORY: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::RDONLY).union(OFlags::CLOEXEC);
/// Only this process accesses the volumes of simulated pods.
const VOLUME_MODE: Mode = Mode::from_raw_mode(coracle_private_fs::DIRECTORY_MODE);
const FILE_MODE: Mode = Mode::from_raw_mode(coracle_private_fs::FILE_MODE);

/// One component of a path: neither empty nor `.` nor `..`, without slashes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name(OsString);

impl Name {
    /// Creates a name; None if it is not valid for a single entry.
    pub fn new(name: impl AsRef<OsStr>) -> Option<Name> {
        let name = name.as_ref();
        let mut parts = Path::new(name).components();
        let is_one =
            matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name);
        (is_one && !name.as_bytes().contains(&0)).then(|| Name(name.to_owned()))
    }

    /// Returns the name as a path of one component.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }
}

/// A directory below the data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    data: PathBuf,
    names: Vec<Name>,
}

impl Root {
    /// Creates a root.
    ///
    /// - `names`: the fixed path below the data directory; names that are not valid for an entry
    ///   are left out
    pub fn new<'a>(data: &Path, names: impl IntoIterator<Item = &'a str>) -> Root {
        Root { data: data.to_owned(), names: names.into_iter().filter_map(Name::new).collect() }
    }

    /// Returns the path, for messages and for the API. It must not be used to open files.
    pub fn path(&self) -> PathBuf {
        self.names.iter().fold(self.data.clone(), |path, name| path.join(name.as_path()))
    }

    /// Returns the name of the entry at a path. Returns `None` if the path is not directly in this
    /// directory, or does not show that it is.
    pub fn entry(&self, path: &Path) -> Option<Name> {
        let mut rest = path.strip_prefix(self.path()).ok()?.components();
        match (rest.next(), rest.next()) {
            (Some(Component::Normal(name)), None) => Name::new(name),
            _ => None,
        }
    }

    /// Creates a directory in the root; it may exist.
    ///
    /// # Errors
    /// The directory cannot be created, or an entry of another type has its name.
    pub fn make_directory(&self, name: &Name) -> io::Result<()> {
        make(&self.create()?, name).map(drop)
    }

    /// Removes an entry and all that is in it. It is no error if it does not exist.
    ///
    /// # Errors
    /// It cannot be removed, is a link, or another file system is mounted there.
    pub fn remove(&self, name: &Name) -> io::Result<()> {
        let Some(root) = self.open()? else { return Ok(()) };
        let path = name.as_path();
        let Some(directory) = open_entry(&root, name)? else {
            return absent(rustix::fs::unlinkat(&root, path, AtFlags::empty()));
        };
        empty(&directory)?;
        absent(rustix::fs::unlinkat(&root, path, AtFlags::REMOVEDIR))
    }

    /// Removes all that is in a directory in here. It is no error if that does not exist.
    ///
    /// # Errors
    /// It cannot be emptied, is not a directory, or another file system is mounted there.
    pub fn empty(&self, name: &Name) -> io::Result<()> {
        let Some(root) = self.open()? else { return Ok(()) };
        match open_entry(&root, name)? {
            Some(directory) => empty(&directory),
            // There is no entry, or not a directory.
            None => match rustix::fs::statat(&root, name.as_path(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::NOTDIR.into()),
                stat => absent(stat.map(drop)),
            },
        }
    }

    /// Returns the names of the entries in the root. There are none if the root does not exist.
    ///
    /// # Errors
    /// The root cannot be read.
    pub fn entries(&self) -> io::Result<Vec<Name>> {
        let Some(root) = self.open()? else { return Ok(Vec::new()) };
        let mut names = Vec::new();
        for entry in Dir::read_from(&root)? {
            names.extend(Name::new(OsStr::from_bytes(entry?.file_name().to_bytes())));
        }
        Ok(names)
    }

    /// Creates the link `FOLDERS/name` to a target, and the folders; replaces a link of that name.
    /// The target is not accessed.
    ///
    /// # Errors
    /// The link cannot be created, or an entry that is not a link has its name.
    pub fn link(&self, folders: &[&Name], name: &Name, target: &Path) -> io::Result<()> {
        let mut folder = self.create()?;
        for name in folders {
            folder = make(&folder, name)?;
        }
        match rustix::fs::readlinkat(&folder, name.as_path(), Vec::new()) {
            Ok(known) if known.to_bytes() == target.as_os_str().as_bytes() => return Ok(()),
            Ok(_) => absent(rustix::fs::unlinkat(&folder, name.as_path(), AtFlags::empty()))?,
            Err(_) => {}
        }
        Ok(rustix::fs::symlinkat(target, &folder, name.as_path())?)
    }

    /// Writes a file in here.
    ///
    /// # Errors
    /// It cannot be written, or its name is that of a link.
    pub fn write(&self, name: &Name, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.create()?, name.as_path(), flags, FILE_MODE)?;
        File::from(file).write_all(bytes)
    }

    /// Reads a file in here, up to a number of bytes. None if it does not exist or is not a file.
    ///
    /// # Errors
    /// It cannot be read, or is longer.
    pub fn read(&self, name: &Name, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(root) = self.open()? else { return Ok(None) };
        // The open must not block if the entry is not a regular file.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&root, name.as_path(), flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
            file => file?,
        };
        if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        File::from(file).take(limit + 1).read_to_end(&mut bytes)?;
        match u64::try_from(bytes.len()) {
            Ok(length) if length <= limit => Ok(Some(bytes)),
            _ => Err(Errno::FBIG.into()),
        }
    }

    /// Opens the root; None if it does not exist.
    fn open(&self) -> io::Result<Option<OwnedFd>> {
        let open = || {
            let data = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
            let data = rustix::fs::openat(CWD, &self.data, data, Mode::empty())?;
            self.names.iter().try_fold(data, |folder, name| {
                rustix::fs::openat(folder, name.as_path(), DIRECTORY, Mode::empty())
            })
        };
        match open() {
            Err(Errno::NOENT) => Ok(None),
            opened => Ok(Some(opened?)),
        }
    }

    fn create(&self) -> io::Result<OwnedFd> {
        coracle_private_fs::create_directory(&self.data)?;
        let data = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let data = rustix::fs::openat(CWD, &self.data, data, Mode::empty())?;
        self.names.iter().try_fold(data, |folder, name| make(&folder, name))
    }
}

/// Runs a blocking function on a thread for blocking work.
///
/// # Errors
/// The errors of `work`; it panicked, or the process ends.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Creates a directory, which may exist, and opens it.
fn make(folder: &OwnedFd, name: &Name) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(folder, name.as_path(), VOLUME_MODE) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(rustix::fs::openat(folder, name.as_path(), DIRECTORY, Mode::empty())?)
}

/// Opens a directory of the same file system; None if there is no directory of that name.
fn open_entry(folder: &OwnedFd, name: &Name) -> io::Result<Option<OwnedFd>> {
    let path = name.as_path();
    match rustix::fs::openat(folder, path, DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            let stat = rustix::fs::statat(folder, path, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => Err(io::Error::other("is a symbolic link")),
                _ => Ok(None),
            }
        }
        directory => {
            let directory = directory?;
            is_same_device(&directory, rustix::fs::fstat(folder)?.st_dev)?;
            Ok(Some(directory))
        }
    }
}

fn is_same_device(directory: &OwnedFd, device: u64) -> io::Result<()> {
    match rustix::fs::fstat(directory)?.st_dev == device {
        true => Ok(()),
        false => Err(io::Error::other("another file system is mounted there")),
    }
}

/// Removes all entries of a directory.
///
/// The files of each directory in it are removed and its directories are moved up, so that it can
/// be removed; then the moved ones follow. So the number of rounds is at most the depth of the
/// tree, with no more than three descriptors.
fn empty(top: &OwnedFd) -> io::Result<()> {
    /// The number of rounds that move nothing up. They occur only while another process adds
    /// entries.
    const IDLE_ROUNDS: usize = 16;
    let mut emptying = Emptying { top, device: rustix::fs::fstat(top)?.st_dev, moved: 0 };
    let mut idle = 0;
    while idle < IDLE_ROUNDS {
        let moved = emptying.moved;
        if emptying.round()? {
            return Ok(());
        }
        idle = if emptying.moved == moved { idle + 1 } else { 0 };
    }
    Err(Errno::NOTEMPTY.into())
}

struct Emptying<'a> {
    top: &'a OwnedFd,
    device: u64,
    /// The number of directories that were moved up.
    moved: u64,
}

impl Emptying<'_> {
    /// Removes the entries it finds; returns true if there were none.
    fn round(&mut self) -> io::Result<bool> {
        let mut is_empty = true;
        for entry in Dir::read_from(self.top)? {
            let entry = entry?;
            let name = entry.file_name();
            if !is_dots(name) {
                is_empty = false;
                self.remove(name)?;
            }
        }
        Ok(is_empty)
    }

    fn remove(&mut self, name: &CStr) -> io::Result<()> {
        if is_unlinked(self.top, name)? {
            return Ok(());
        }
        let directory = match rustix::fs::openat(self.top, name, DIRECTORY, Mode::empty()) {
            // The entry was replaced in the meantime; the next round handles the new one.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            directory => directory?,
        };
        is_same_device(&directory, self.device)?;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let inner = entry.file_name();
            if !is_dots(inner) && !is_unlinked(&directory, inner)? && !is_rmdir(&directory, inner)? {
                self.move_up(&directory, inner)?;
            }
        }
        // The next round finds entries that were added in the meantime.
        is_rmdir(self.top, name).map(drop)
    }

    fn move_up(&mut self, from: &OwnedFd, name: &CStr) -> io::Result<()> {
        loop {
            let to = format!(".removing-{}", self.moved);
            self.moved += 1;
            match rustix::fs::renameat(from, name, self.top, to) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                // The name is taken, which can happen at most once for each entry.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// Removes an entry other than a directory, a link without following it. Returns false if it is a
/// directory.
fn is_unlinked(folder: &OwnedFd, name: &CStr) -> io::Result<bool> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        // POSIX' error for a directory, and that of some systems for a file that must not be
        // removed.
        Err(Errno::PERM) => {
            let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => Ok(false),
                _ => Err(Errno::PERM.into()),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes an empty directory. Returns false if it is not empty, or not a directory any more.
fn is_rmdir(folder: &OwnedFd, name: &CStr) -> io::Result<bool> {
    match rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Treats an entry that does not exist as removed.
fn absent(removed: Result<(), Errno>) -> io::Result<()> {
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
