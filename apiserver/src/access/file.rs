//! File: writes one file atomically, as other processes see it and as it is after a power failure.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrecy {
    /// The owner only.
    Private,
    /// Everybody.
    Public,
}

/// Replaces the file at `path`: readers see the old or the new content, never a part. On return the new content is on
/// disk. Missing folders are created, accessible by the owner only.
pub fn write(path: &Path, content: &[u8], secrecy: Secrecy) -> io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_folder(folder)?;
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    // An unpredictable name, so that nobody can create a file or a link there beforehand.
    let draft = folder.join(format!(".{}.{}.tmp", name.to_string_lossy(), uuid::Uuid::new_v4().simple()));
    let written = write_draft(&draft, content, secrecy).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // Reports the first error; a leftover temporary file is harmless.
        let _ = fs::remove_file(&draft);
    }
    written.and_then(|()| sync_folder(folder))
}

fn create_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn write_draft(draft: &Path, content: &[u8], secrecy: Secrecy) -> io::Result<()> {
    let mut options = OpenOptions::new();
    // Creates a new file only: anything that exists under the name, a link included, is an error.
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(
        &mut options,
        match secrecy {
            Secrecy::Private => 0o600,
            Secrecy::Public => 0o644,
        },
    );
    #[cfg(not(unix))]
    let _ = secrecy;
    let mut file = options.open(draft)?;
    file.write_all(content)?;
    // Before the rename, so that a file that exists after a power failure has its content.
    file.sync_all()
}

/// Flushes the folder's new entry to disk.
fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        // Some file systems neither support nor need this.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_have_content_and_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, content, secrecy, mode) in [
            ("new/key", "secret", Secrecy::Private, 0o600),
            ("new/key", "other", Secrecy::Private, 0o600),
            ("crt", "", Secrecy::Public, 0o644),
        ] {
            let path = folder.path().join(name);
            write(&path, content.as_bytes(), secrecy).expect(name);
            assert_eq!(fs::read_to_string(&path).expect(name), content);
            let got = fs::metadata(&path).expect(name).permissions().mode() & 0o777;
            // The umask may take rights away, never add any.
            assert_eq!(got & !mode, 0, "{name}: {got:o}");
        }
        let new = folder.path().join("new");
        assert_eq!(fs::read_dir(&new).expect("a folder").count(), 1, "no drafts left");
        assert_eq!(
            fs::metadata(&new).expect("a folder").permissions().mode() & 0o077,
            0,
            "folders are private"
        );
    }

    #[test]
    fn a_folder_in_the_way_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("taken")).expect("a folder");
        assert!(write(&folder.path().join("taken"), b"x", Secrecy::Public).is_err());
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "no drafts left");
    }

    #[test]
    fn a_link_in_place_of_the_file_is_replaced_and_one_in_place_of_the_draft_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let outside = folder.path().join("outside");
        fs::write(&outside, "theirs").expect("a file");
        for name in ["key", "draft"] {
            std::os::unix::fs::symlink(&outside, folder.path().join(name)).expect("a link");
        }
        write(&folder.path().join("key"), b"ours", Secrecy::Private).expect("written");
        assert!(write_draft(&folder.path().join("draft"), b"ours", Secrecy::Private).is_err());
        assert_eq!(fs::read_to_string(outside).expect("a file"), "theirs");
    }
}
