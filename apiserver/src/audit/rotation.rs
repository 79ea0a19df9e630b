//! The file of the audit log, rotated by its size. Backups have the names that lumberjack gives
//! them, which kube-apiserver uses: `audit-2026-01-02T03-04-05.678.log`, with `.gz` if they are
//! compressed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use coracle_clock::Clock;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// A megabyte of `--audit-log-maxsize`.
const MEGABYTE: u64 = 1 << 20;
/// The default size of a file, in megabytes.
const DEFAULT_SIZE: u64 = 100;
/// The time in the name of a backup.
const TIME: &str = "%Y-%m-%dT%H-%M-%S.%3f";
/// The format of the time in the name of a backup, for parsing.
const READ_TIME: &str = "%Y-%m-%dT%H-%M-%S.%f";
const COMPRESSED: &str = ".gz";

/// The rotation of files and the retention of backups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The size in megabytes at which a new file is started; 0 for 100.
    pub max_size: u64,
    /// The number of backups that are kept; 0 for all.
    pub max_backups: usize,
    /// The number of days for which backups are kept; 0 for ever.
    pub max_age: u32,
    /// Whether backups are compressed.
    pub compress: bool,
}

/// A file that is renamed when it would become too large.
pub struct RotatingFile {
    path: PathBuf,
    rotation: Rotation,
    clock: Clock,
    /// The open file; None until the first write, and after a failed one.
    open: Option<Open>,
}

struct Open {
    file: File,
    size: u64,
    /// Whether the last line is incomplete.
    is_torn: bool,
}

/// Appends to a file, which only its owner may read if it is new.
fn append_to(path: &Path) -> io::Result<Open> {
    let file = coracle_private_fs::options().create(true).append(true).open(path)?;
    let size = file.metadata()?.len();
    Ok(Open { file, size, is_torn: false })
}

impl RotatingFile {
    /// Creates the file, and its directory, if they are missing.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: PathBuf, rotation: Rotation, clock: Clock) -> io::Result<RotatingFile> {
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            coracle_private_fs::create_directory(directory)?;
        }
        let open = Some(append_to(&path)?);
        Ok(RotatingFile { path, rotation, clock, open })
    }

    /// Appends a line, which must end with a line feed.
    ///
    /// # Errors
    /// The line is not, or not completely, in the file. The next line can be appended nevertheless.
    pub fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let size = line.len() as u64;
        let max = MEGABYTE.saturating_mul(if self.rotation.max_size == 0 {
            DEFAULT_SIZE
        } else {
            self.rotation.max_size
        });
        if size > max {
            return Err(io::Error::other(format!("write length {size} exceeds maximum file size {max}")));
        }
        if self.open.as_ref().is_some_and(|open| open.size > 0 && open.size.saturating_add(size) > max) {
            self.rotate()?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(append_to(&self.path)?),
        };
        if open.is_torn {
            open.file.write_all(b"\n")?;
            open.is_torn = false;
        }
        open.is_torn = true;
        open.file.write_all(line)?;
        open.is_torn = false;
        open.size = open.size.saturating_add(size);
        Ok(())
    }

    /// Renames the file and begins a new one.
    fn rotate(&mut self) -> io::Result<()> {
        self.open = None;
        let mut time = self.clock.now();
        let mut backup = self.backup(time);
        // lumberjack would overwrite a backup of the same millisecond.
        while backup.exists() {
            time = time.saturating_add(SignedDuration::from_millis(1)).map_err(io::Error::other)?;
            backup = self.backup(time);
        }
        fs::rename(&self.path, &backup)?;
        self.open = Some(append_to(&self.path)?);
        if let Err(error) = self.clean_up() {
            tracing::warn!(%error, "old audit logs cannot be removed or compressed");
        }
        Ok(())
    }

    /// Returns the parts before and after the time in the name of a backup.
    fn affixes(&self) -> (String, String) {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (stem, extension) = name.split_at(name.rfind('.').unwrap_or(name.len()));
        (format!("{stem}-"), extension.to_owned())
    }

    fn backup(&self, time: Timestamp) -> PathBuf {
        let (prefix, extension) = self.affixes();
        self.path.with_file_name(format!("{prefix}{}{extension}", time.strftime(TIME)))
    }

    /// Removes and compresses backups.
    fn clean_up(&self) -> io::Result<()> {
        let mut backups = self.backups()?;
        // The newest come first; a backup and its compressed copy count once.
        backups.sort_by(|a, b| b.cmp(a));
        let Rotation { max_backups, max_age, .. } = self.rotation;
        let oldest = self.clock.now().saturating_sub(SignedDuration::from_hours(24 * i64::from(max_age)));
        let oldest = oldest.map_err(io::Error::other)?;
        let (mut kept, mut last) = (0, None);
        for (time, path) in backups {
            if last.replace(time) != Some(time) {
                kept += 1;
            }
            if max_backups > 0 && kept > max_backups || max_age > 0 && time < oldest {
                fs::remove_file(&path)?;
            } else if self.rotation.compress && !path.to_string_lossy().ends_with(COMPRESSED) {
                compress(&path)?;
            }
        }
        Ok(())
    }

    /// Returns the backups in the directory, with their times.
    fn backups(&self) -> io::Result<Vec<(Timestamp, PathBuf)>> {
        let (prefix, extension) = self.affixes();
        let directory = self.path.parent().filter(|path| !path.as_os_str().is_empty());
        let mut backups = Vec::new();
        for entry in fs::read_dir(directory.unwrap_or(Path::new(".")))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let name = name.strip_suffix(COMPRESSED).unwrap_or(&name);
            let time = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(&extension));
            let time = time.and_then(|time| jiff::civil::DateTime::strptime(READ_TIME, time).ok());
            if let Some(time) = time.and_then(|time| time.to_zoned(TimeZone::UTC).ok()) {
                backups.push((time.timestamp(), path));
            }
        }
        Ok(backups)
    }
}

/// Replaces a file by its compressed copy.
fn compress(path: &Path) -> io::Result<()> {
    let mut copy = path.as_os_str().to_owned();
    copy.push(COMPRESSED);
    let copy = PathBuf::from(copy);
    let compressed = || {
        let target = coracle_private_fs::options().create(true).write(true).truncate(true).open(&copy)?;
        let mut encoder = GzEncoder::new(target, Compression::default());
        io::copy(&mut File::open(path)?, &mut encoder)?;
        encoder.finish().map(drop)
    };
    match compressed() {
        Ok(()) => fs::remove_file(path),
        Err(error) => {
            _ = fs::remove_file(&copy);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Writes half a megabyte each day; returns the files that exist at the end.
    fn rotated(rotation: Rotation, days: i64) -> Vec<String> {
        let directory = tempfile::tempdir().expect("a directory");
        let (clock, mock) = Clock::mock("2026-01-01T00:00:00.5Z".parse().expect("a time"));
        let path = directory.path().join("logs/audit.log");
        let mut file = RotatingFile::create(path.clone(), rotation, clock).expect("a file");
        fs::write(directory.path().join("logs/audit-of-others.log"), "").expect("written");
        for _ in 0..days {
            file.write(&[b'x'; 600 << 10]).expect("written");
            mock.advance(Duration::from_secs(24 * 60 * 60));
        }
        assert_eq!(fs::metadata(&path).expect("there").len(), 600 << 10);
        names(&directory.path().join("logs"))
    }

    #[test]
    fn backups_are_named_as_those_of_kube_apiserver_and_removed_by_number_and_age() {
        let megabyte = Rotation { max_size: 1, ..Rotation::default() };
        let (others, current) = ("audit-of-others.log", "audit.log");
        for (rotation, want) in [
            (
                megabyte,
                vec![
                    "audit-2026-01-02T00-00-00.500.log",
                    "audit-2026-01-03T00-00-00.500.log",
                    "audit-2026-01-04T00-00-00.500.log",
                ],
            ),
            (Rotation { max_backups: 1, ..megabyte }, vec!["audit-2026-01-04T00-00-00.500.log"]),
            (
                Rotation { max_age: 1, ..megabyte },
                vec!["audit-2026-01-03T00-00-00.500.log", "audit-2026-01-04T00-00-00.500.log"],
            ),
            (
                Rotation { compress: true, max_backups: 2, ..megabyte },
                vec!["audit-2026-01-03T00-00-00.500.log.gz", "audit-2026-01-04T00-00-00.500.log.gz"],
            ),
        ] {
            let want: Vec<&str> = want.into_iter().chain([others, current]).collect();
            assert_eq!(rotated(rotation, 4), want, "{rotation:?}");
        }
    }

    #[test]
    fn a_file_that_is_there_is_continued() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit.log");
        let (clock, _mock) = Clock::mock(Timestamp::UNIX_EPOCH);
        for line in ["a\n", "b\n"] {
            let mut file =
                RotatingFile::create(path.clone(), Rotation::default(), clock.clone()).expect("a file");
            file.write(line.as_bytes()).expect("written");
        }
        assert_eq!(fs::read_to_string(&path).expect("text"), "a\nb\n");
        let max_size = Rotation { max_size: 1, ..Rotation::default() };
        let mut file = RotatingFile::create(path, max_size, clock).expect("a file");
        let error = file.write(&[b'x'; (1 << 20) + 1]).expect_err("too long");
        assert_eq!(error.to_string(), "write length 1048577 exceeds maximum file size 1048576");
    }
}
