//! A store's directory on disk: one process at a time, and nothing changed behind its back.
//!
//! ```text
//! DIR/store   locked while in use; one line: the format, and `open` or `sealed` with a checksum of everything in log/
//! DIR/log/    the log's own files
//! ```
//! sled mends what looks torn to it by cutting it off, which is right after a crash and a silent loss otherwise. So a store
//! that was closed is sealed, and a seal is checked before sled sees the files.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use crate::log::LogError;

/// A directory that this process holds until the value is dropped.
pub(super) struct Directory {
    path: PathBuf,
    store: File,
    was: Was,
}

/// How the directory was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Was {
    /// Never used, or never so far that anything was acknowledged.
    New,
    /// Not closed: the process that had it crashed.
    Open,
    Sealed(u32),
}

/// Lines of one length, so that each overwrites the other whole.
const OPEN: &str = "coracle store 1 open            \n";
const SEALED: &str = "coracle store 1 sealed ";

impl Directory {
    /// Takes the directory, making it if need be, and checks its seal. Changes nothing that is there.
    pub fn take(path: &Path) -> Result<Directory, LogError> {
        let failed = |action| move |cause: io::Error| failed(action, path, cause);
        fs::create_dir_all(path).map_err(failed("cannot make the directory"))?;
        let store =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path.join("store"));
        let mut store = store.map_err(failed("cannot open the store"))?;
        match store.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LogError::InUse { path: path.into() }),
            Err(TryLockError::Error(cause)) => return Err(failed("cannot lock the store")(cause)),
        }
        let mut line = Vec::new();
        store.read_to_end(&mut line).map_err(failed("cannot read the store"))?;
        let damaged = |reason: &str| LogError::Damaged { path: path.into(), reason: reason.into() };
        let was = parse(&line).ok_or_else(|| damaged("its file `store` is not of this format"))?;
        let directory = Directory { path: path.into(), store, was };
        match was {
            Was::New => {}
            Was::Open if directory.log().join("db").exists() => {}
            Was::Open => return Err(damaged("its log is gone")),
            Was::Sealed(sum) if directory.checksum().map_err(failed("cannot read the log"))? == sum => {}
            Was::Sealed(_) => return Err(damaged("its files are not those that were closed")),
        }
        Ok(directory)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn was(&self) -> Was {
        self.was
    }

    /// Where the log's files are.
    pub fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Says that the log's files may change from now on.
    pub fn unseal(&mut self) -> Result<(), LogError> {
        self.write(OPEN)
    }

    /// Says that the log's files will not change any more until the directory is taken again.
    pub fn seal(&mut self) -> Result<(), LogError> {
        let sum = self.checksum().map_err(|cause| failed("cannot read the log", &self.path, cause))?;
        self.write(&format!("{SEALED}{sum:08x} \n"))
    }

    fn write(&mut self, line: &str) -> Result<(), LogError> {
        let written = self
            .store
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.store.write_all(line.as_bytes()))
            .and_then(|()| self.store.sync_data());
        written.map_err(|cause| failed("cannot write the store", &self.path, cause))
    }

    fn checksum(&self) -> io::Result<u32> {
        let mut sum = crc32fast::Hasher::new();
        let mut buffer = vec![0; 1 << 20];
        let mut folders = vec![self.log()];
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
}

fn parse(line: &[u8]) -> Option<Was> {
    if line.is_empty() {
        return Some(Was::New);
    }
    if line == OPEN.as_bytes() {
        return Some(Was::Open);
    }
    let sum = std::str::from_utf8(line).ok()?.strip_prefix(SEALED)?.strip_suffix(" \n")?;
    u32::from_str_radix(sum, 16).ok().map(Was::Sealed)
}

fn failed(action: &'static str, path: &Path, cause: io::Error) -> LogError {
    LogError::Failed { action, path: path.into(), cause: cause.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(path: &Path) -> Result<Was, String> {
        Directory::take(path).map(|directory| directory.was()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_line_tells_how_it_was_left() {
        assert_eq!(OPEN.len(), format!("{SEALED}{:08x} \n", 0).len());
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut directory = Directory::take(dir.path()).unwrap();
        assert_eq!(directory.was(), Was::New);
        fs::create_dir_all(log.join("blobs")).unwrap();
        fs::write(log.join("db"), "data").unwrap();
        directory.unseal().unwrap();
        drop(directory);

        let mut directory = Directory::take(dir.path()).unwrap();
        assert_eq!(directory.was(), Was::Open);
        directory.seal().unwrap();
        drop(directory);
        assert!(matches!(take(dir.path()), Ok(Was::Sealed(_))));
    }

    #[test]
    fn damage_to_a_closed_store_is_told() {
        type Harm = fn(&Path);
        let cases: [(&str, Harm); 6] = [
            ("a bit flipped", |dir| fs::write(dir.join("log/db"), "dat`").unwrap()),
            ("cut short", |dir| fs::write(dir.join("log/db"), "dat").unwrap()),
            ("a file gone", |dir| fs::remove_file(dir.join("log/db")).unwrap()),
            ("a file more", |dir| fs::write(dir.join("log/blobs/1"), "").unwrap()),
            ("the log gone", |dir| fs::remove_dir_all(dir.join("log")).unwrap()),
            ("another format", |dir| {
                fs::write(dir.join("store"), "coracle store 2 open            \n").unwrap()
            }),
        ];
        for (case, harm) in cases {
            let dir = tempfile::tempdir().unwrap();
            let mut directory = Directory::take(dir.path()).unwrap();
            fs::create_dir_all(directory.log().join("blobs")).unwrap();
            fs::write(directory.log().join("db"), "data").unwrap();
            directory.seal().unwrap();
            drop(directory);
            assert!(take(dir.path()).is_ok(), "{case}: before");
            harm(dir.path());
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
