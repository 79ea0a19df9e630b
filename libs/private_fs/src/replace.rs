//! Atomic replacement of files, as other processes see them and as they are after a power failure.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// Replaces the file at `path`: readers see the old or the new content, never a part. On return the
/// new content is on disk. The file, and the directories that were missing, are accessible by the
/// owner only. A link is replaced, not followed.
///
/// # Errors
/// The directory cannot be created, or the file cannot be written.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    Draft::new(path, content)?.replace()
}

/// Files that are to be replaced, in this order.
#[derive(Default)]
pub struct NewFiles(Vec<(PathBuf, Vec<u8>)>);

impl NewFiles {
    /// Adds a file after the others.
    pub fn add(&mut self, path: PathBuf, content: impl Into<Vec<u8>>) {
        self.0.push((path, content.into()));
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// [Replaces](replace) the files, once the content of all of them is on disk.
    ///
    /// # Errors
    /// The first file that cannot be written, with the cause. Those after it are not replaced, and
    /// none is if the content of one cannot be written.
    pub fn write(self) -> Result<(), (PathBuf, io::Error)> {
        let draft =
            |(path, content): (PathBuf, Vec<u8>)| Draft::new(&path, &content).map_err(|error| (path, error));
        let drafts = self.0.into_iter().map(draft).collect::<Result<Vec<_>, _>>()?;
        let mut renamed: Vec<PathBuf> = Vec::new();
        let done = drafts.into_iter().try_for_each(|draft| {
            let path = draft.path.clone();
            draft.rename().map_err(|error| (path.clone(), error))?;
            renamed.push(path);
            Ok(())
        });
        // One flush for all files of a directory: file systems with a journal keep the order of
        // renames.
        renamed.dedup_by(|a, b| directory(a) == directory(b));
        renamed.iter().try_for_each(|path| sync_directory(path).map_err(|error| (path.clone(), error)))?;
        done
    }
}

/// Shows no content, which may be a key.
impl fmt::Debug for NewFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(path, _)| path)).finish()
    }
}

/// The next content of a file, on disk beside it. It is removed when it is dropped.
#[derive(Debug)]
pub struct Draft {
    draft: NamedTempFile,
    path: PathBuf,
}

impl Draft {
    /// Writes the content to a new file beside `path`, named `.NAME.RANDOM.tmp`.
    ///
    /// # Errors
    /// The directory cannot be created, or the file cannot be written.
    pub fn new(path: &Path, content: &[u8]) -> io::Result<Draft> {
        let directory = directory(path);
        super::create_directory(directory)?;
        let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        // A random name, so that nobody can create a file or a link there beforehand.
        let prefix = format!(".{}.", name.to_string_lossy());
        let mut draft = tempfile::Builder::new().prefix(&prefix).suffix(".tmp").tempfile_in(directory)?;
        draft.write_all(content)?;
        // Before it gets its name, so that a file that exists after a power failure has its
        // content.
        draft.as_file().sync_all()?;
        Ok(Draft { draft, path: path.to_owned() })
    }

    /// Gives the draft the owner of another file, and of the owner's rights those that the other
    /// file has.
    ///
    /// # Errors
    /// The process may not give files to that owner.
    #[cfg(unix)]
    pub fn set_owner(&self, from: &Metadata) -> io::Result<()> {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
        let file = self.draft.as_file();
        let own = file.metadata()?;
        // The group has no rights, and need not be one of this process's.
        if own.uid() != from.uid() {
            fchown(file, Some(from.uid()), Some(from.gid()))?;
        }
        file.set_permissions(std::fs::Permissions::from_mode(from.mode() & 0o600))
    }

    /// Puts the draft in the place of the file.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn replace(self) -> io::Result<()> {
        let path = self.path.clone();
        self.rename()?;
        sync_directory(&path)
    }

    /// Puts the draft in the place of the file. The directory is not flushed to disk.
    fn rename(self) -> io::Result<()> {
        self.draft.persist(&self.path)?;
        Ok(())
    }

    /// Makes the draft the file, if there is none.
    ///
    /// # Errors
    /// `AlreadyExists`: there is a file, or a link. Or it cannot be renamed.
    pub fn create(self) -> io::Result<()> {
        self.draft.persist_noclobber(&self.path)?;
        sync_directory(&self.path)
    }
}

/// Returns the directory of a file.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Flushes the directory's new entry to disk.
fn sync_directory(path: &Path) -> io::Result<()> {
    match File::open(directory(path))?.sync_all() {
        // Some file systems neither support nor need this.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_have_content_and_mode() {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in [("new/key", "secret"), ("new/key", "other"), ("crt", "")] {
            let path = directory.path().join(name);
            replace(&path, content.as_bytes()).expect(name);
            assert_eq!(fs::read_to_string(&path).expect(name), content);
            let mode = fs::metadata(&path).expect(name).permissions().mode() & 0o777;
            // The umask may take rights away, never add any.
            assert_eq!(mode & !0o600, 0, "{name}: {mode:o}");
        }
        let new = directory.path().join("new");
        assert_eq!(fs::read_dir(&new).unwrap().count(), 1, "no drafts left");
        let mode = fs::metadata(&new).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "directories are private");
    }

    #[test]
    fn files_are_replaced_in_their_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("taken")).unwrap();
        let mut files = NewFiles::default();
        ["key", "taken", "crt"].iter().for_each(|name| files.add(path(name), "secret"));
        assert!(!format!("{files:?}").contains("secret") && format!("{files:?}").contains("crt"));
        let (failed, _) = files.write().unwrap_err();
        assert_eq!(failed, path("taken"));
        assert!(path("key").is_file() && !path("crt").exists());
    }

    #[test]
    fn a_directory_in_the_way_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("taken")).unwrap();
        assert!(replace(&directory.path().join("taken"), b"x").is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no drafts left");
    }

    #[test]
    fn a_link_is_replaced_and_nothing_is_created_in_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let outside = directory.path().join("outside");
        fs::write(&outside, "theirs").unwrap();
        let key = directory.path().join("key");
        std::os::unix::fs::symlink(&outside, &key).unwrap();
        let created = Draft::new(&key, b"ours").unwrap().create();
        assert_eq!(created.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        replace(&key, b"ours").unwrap();
        assert_eq!(fs::read_to_string(outside).unwrap(), "theirs");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "no drafts left");
    }
}
