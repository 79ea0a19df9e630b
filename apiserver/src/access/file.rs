//! File: writes one file atomically, as other processes see it and as it is after a power failure.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Replaces the file at `path`: readers see the old or the new content, never a part. On return the new content is on
/// disk. The file, and the folders that were missing, are accessible by the owner only.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    coracle_private_fs::create_directory(folder)?;
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    // An unpredictable name, so that nobody can create a file or a link there beforehand.
    let draft = folder.join(format!(".{}.{}.tmp", name.to_string_lossy(), uuid::Uuid::new_v4().simple()));
    let written = write_draft(&draft, content).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // Reports the first error; a leftover temporary file is harmless.
        let _ = fs::remove_file(&draft);
    }
    written.and_then(|()| sync_folder(folder))
}

fn write_draft(draft: &Path, content: &[u8]) -> io::Result<()> {
    // Creates a new file only: anything that exists under the name, a link included, is an error.
    let mut file = coracle_private_fs::options().write(true).create_new(true).open(draft)?;
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
        let mode = 0o600;
        for (name, content) in [("new/key", "secret"), ("new/key", "other"), ("crt", "")] {
            let path = folder.path().join(name);
            write(&path, content.as_bytes()).expect(name);
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
        assert!(write(&folder.path().join("taken"), b"x").is_err());
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
        write(&folder.path().join("key"), b"ours").expect("written");
        assert!(write_draft(&folder.path().join("draft"), b"ours").is_err());
        assert_eq!(fs::read_to_string(outside).expect("a file"), "theirs");
    }
}
