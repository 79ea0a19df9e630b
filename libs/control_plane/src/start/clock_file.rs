//! The time that a manual clock has come to, in the data directory, where a later start finds it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::data_dir::CLOCK;
use crate::error::Error;

/// The longest content of the file: a time and the end of the line.
const LENGTH: usize = 64;

/// The file. What is written to it is with the operating system at once, and on disk some time
/// later.
pub struct ClockFile(File);

impl ClockFile {
    /// Opens the file in a data directory, and creates it if it is missing.
    ///
    /// # Errors
    /// It is a symbolic link, or cannot be opened.
    pub fn open(data_dir: &Path) -> Result<ClockFile, Error> {
        let path = data_dir.join(CLOCK);
        let opened = coracle_private_fs::file_options().open(&path);
        opened.map(ClockFile).map_err(|cause| unusable(path, &cause))
    }

    /// Records a time. A failure is logged: the next start has an earlier time.
    pub fn record(&self, now: Timestamp) {
        // All have the same length, so that a later one covers all of an earlier one.
        if let Err(error) = self.0.write_all_at(format!("{now:.9}\n").as_bytes(), 0) {
            tracing::warn!(%error, "the time of the clock was not recorded");
        }
    }
}

/// Opens the file in the data directory, if there is one, for a clock that is manual; for another
/// clock the file is removed.
///
/// # Errors
/// The file cannot be opened or removed.
pub fn begin(data_dir: Option<&Path>, is_manual: bool) -> Result<Option<ClockFile>, Error> {
    match data_dir {
        Some(data_dir) if is_manual => ClockFile::open(data_dir).map(Some),
        Some(data_dir) => remove(data_dir).map(|()| None),
        None => Ok(None),
    }
}

/// Reads the time in the file in a data directory; None without a file, or if nothing was recorded.
///
/// # Errors
/// The file cannot be read or is invalid.
pub fn read(data_dir: &Path) -> Result<Option<Timestamp>, Error> {
    let path = data_dir.join(CLOCK);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(unusable(path, &cause)),
    };
    let mut content = [0; LENGTH];
    let length = file.read_at(&mut content, 0).map_err(|cause| unusable(path.clone(), &cause))?;
    let text = String::from_utf8_lossy(&content[..length]);
    match text.trim() {
        "" => Ok(None),
        time => time.parse().map(Some).map_err(|_| unusable(path, &"it does not begin with a time")),
    }
}

/// Removes the file, since the machine's time goes on without it. A file that has no time is not
/// ours, and is left alone.
///
/// # Errors
/// It cannot be removed.
fn remove(data_dir: &Path) -> Result<(), Error> {
    if !matches!(read(data_dir), Ok(Some(_))) {
        return Ok(());
    }
    let path = data_dir.join(CLOCK);
    match std::fs::remove_file(&path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(unusable(path, &cause)),
        _ => Ok(()),
    }
}

fn unusable(path: PathBuf, why: &dyn std::fmt::Display) -> Error {
    Error::ClockFile { path, why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_time_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(directory.path()).unwrap(), None);
        let file = ClockFile::open(directory.path()).unwrap();
        assert_eq!(read(directory.path()).unwrap(), None, "nothing was recorded");
        for time in ["2050-01-01T00:00:00.123456789Z", "2050-01-02T00:00:00Z"] {
            let time: Timestamp = time.parse().unwrap();
            file.record(time);
            assert_eq!(read(directory.path()).unwrap(), Some(time));
        }
        remove(directory.path()).unwrap();
        assert_eq!(read(directory.path()).unwrap(), None, "it is removed");
        std::fs::write(directory.path().join(CLOCK), "noon").unwrap();
        remove(directory.path()).unwrap();
        assert!(directory.path().join(CLOCK).exists(), "it is somebody else's");
        let error = read(directory.path()).unwrap_err().to_string();
        assert!(error.ends_with("/clock: it does not begin with a time"), "{error}");
    }
}
