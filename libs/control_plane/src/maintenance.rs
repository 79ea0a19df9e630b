//! The maintenance of a store that no server uses: checking it, restoring it from a backup, and
//! deleting it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coracle_apimachinery::resource_info::SharedResourceTable;
use coracle_apiserver::registry::ObjectIndex;
pub use coracle_storage::backup::Summary;
use coracle_storage::backup::{self, BackupError, Monotonicity, RestoreError};
pub use coracle_storage::log::CheckReport;
use coracle_storage::log::{Log, SledLog, lock_store};
use coracle_storage::{Index, Revision};
use tempfile::TempDir;

use crate::data_dir;
use crate::error::Error;
use crate::kinds::Kinds;
use crate::options::{Etcd, Options};

/// The default distance of new revisions above those of a restored backup: more than a server
/// assigns in months, as recommended by Kubernetes' documentation for etcd.
pub const BUMP_REVISION: u64 = 1_000_000_000;

/// The name of a store in its data directory.
pub(crate) const STORE: &str = "store";

/// The result of a restoration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The number of objects.
    pub objects: u64,
    /// The revision of the backup.
    pub backup: Revision,
    /// The newest revision of the store.
    pub store: Revision,
}

/// Checks the store in a data directory without changing it. A copy of it is made in the directory
/// for temporary files.
///
/// # Errors
/// [`Error::Log`] if a server uses it or if it cannot be read, [`Error::File`] if it cannot be
/// copied. Damage is in the report.
pub fn check(data_dir: &Path, kinds: Kinds) -> Result<CheckReport, Error> {
    let copy = scratch("coracle-check-", &std::env::temp_dir())?;
    let report = SledLog::check(&data_dir.join(STORE), &index(kinds), copy.path())?;
    copy.close().map_err(|cause| file_error(&std::env::temp_dir(), cause))?;
    Ok(report)
}

/// Creates a store from a backup in a data directory that has none.
///
/// - `bump_revision`: the distance of new revisions above the backup's, so that revisions which
///   clients have seen are never assigned again. Watches from before get 410.
///
/// # Errors
/// [`Error::Backup`] if the file is not a sound backup, [`Error::HasStore`], or the failed
/// operation. No store is created then.
pub fn restore(file: &Path, data_dir: &Path, bump_revision: u64, kinds: Kinds) -> Result<Restored, Error> {
    let store = data_dir.join(STORE);
    if fs::symlink_metadata(&store).is_ok() {
        return Err(Error::HasStore(data_dir.to_owned()));
    }
    let (source, summary) = open_backup(file, kinds)?;
    let too_high = || Error::Backup {
        path: file.to_owned(),
        cause: BackupError::Damaged { objects: summary.objects, reason: "its revision is too high" },
    };
    let newest = summary.revision.0.checked_add(bump_revision).filter(|newest| *newest <= MAX_REVISION);
    let newest = Revision(newest.ok_or_else(too_high)?);

    data_dir::prepare(data_dir).map_err(|cause| file_error(data_dir, cause))?;
    // The store is completed before it gets the name that a server opens.
    let scratch = scratch(".restore-", data_dir)?;
    let unfinished = scratch.path().join(STORE);
    let log = SledLog::begin_at(&unfinished, newest)?;
    let restored = append(file, source, Box::new(log), Monotonicity::Required)?;
    fs::rename(&unfinished, &store).map_err(|cause| file_error(&store, cause))?;
    File::open(data_dir).and_then(|dir| dir.sync_all()).map_err(|cause| file_error(data_dir, cause))?;
    Ok(restored)
}

/// Stores the objects of a backup in an etcd cluster that has none below the prefix. Its revisions
/// are the cluster's own, which may be below those of the backup: clients have to list again, as
/// after any restoration of etcd.
///
/// # Errors
/// [`Error::Backup`] if the file is not a sound backup, or the failed operation. Some of the
/// objects may be in the cluster then.
pub fn restore_to_etcd(file: &Path, etcd: &Etcd, kinds: Kinds) -> Result<Restored, Error> {
    let (source, _) = open_backup(file, kinds)?;
    let log = etcd.log(resources(kinds), Options::default().event_ttl)?;
    append(file, source, Box::new(log), Monotonicity::Waived)
}

/// Deletes everything that Coracle created in a data directory, and the directory itself unless it
/// is a link. Objects in an etcd cluster are kept.
///
/// # Errors
/// [`Error::Log`] if a server uses it, [`Error::File`] if it has foreign entries, and nothing is
/// deleted then; or an entry cannot be deleted.
pub fn delete(data_dir: &Path) -> Result<(), Error> {
    let _lock = lock_store(&data_dir.join(STORE))?;
    data_dir::delete(data_dir).map_err(|cause| file_error(data_dir, cause))
}

/// Opens a backup, after reading it once to verify it.
fn open_backup(file: &Path, kinds: Kinds) -> Result<(File, Summary), Error> {
    let read_error = |cause| file_error(file, cause);
    let mut source = open_regular(file).map_err(read_error)?;
    let damaged = |cause| Error::Backup { path: file.to_owned(), cause };
    let summary = verify(BufReader::new(&source), &index(kinds)).map_err(damaged)?;
    source.rewind().map_err(read_error)?;
    Ok((source, summary))
}

fn append(
    file: &Path,
    source: File,
    log: Box<dyn Log>,
    monotonicity: Monotonicity,
) -> Result<Restored, Error> {
    let restored = backup::restore(BufReader::new(source), log, monotonicity);
    let (Summary { revision: backup, objects }, store) = restored.map_err(|error| match error {
        RestoreError::Backup(cause) => Error::Backup { path: file.to_owned(), cause },
        RestoreError::Log(error) => Error::Log(error),
        error => Error::Restore(error),
    })?;
    Ok(Restored { objects, backup, store })
}

/// Clients read revisions as signed numbers of 64 bits; half of these are left to the store.
const MAX_REVISION: u64 = 1 << 62;

/// Reads all of a backup, and each object as a server will read it.
fn verify(source: impl Read, index: &ObjectIndex) -> Result<Summary, BackupError> {
    let mut reader = backup::Reader::new(source)?;
    let mut objects = 0;
    while let Some(object) = reader.next_object()? {
        if index.index(&object.key, &object.stored).is_err() {
            return Err(BackupError::Damaged { objects, reason: "an object cannot be read" });
        }
        objects += 1;
    }
    Ok(reader.summary())
}

/// Opens a regular file. A symbolic link is not followed, and a pipe is not waited for.
fn open_regular(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = match opened {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(io::Error::other("it is a symbolic link"));
        }
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

fn resources(kinds: Kinds) -> Arc<SharedResourceTable> {
    SharedResourceTable::new((kinds.built_in)())
}

fn index(kinds: Kinds) -> ObjectIndex {
    ObjectIndex::new(resources(kinds))
}

fn scratch(prefix: &str, within: &Path) -> Result<TempDir, Error> {
    coracle_private_fs::temporary_directory(prefix, within).map_err(|cause| file_error(within, cause))
}

fn file_error(path: &Path, cause: io::Error) -> Error {
    Error::File { path: PathBuf::from(path), cause }
}
