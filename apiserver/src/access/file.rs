//! File: one file written whole or not at all, as other processes see it. (After a power failure it may be empty: it is
//! not flushed, since what we write so can be made again.)

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrecy {
    /// The owner only.
    Private,
    Public,
}

/// Replaces the file at `path`: whoever opens it sees the old content or the new, never a part. Missing folders are made.
pub fn write(path: &Path, content: &[u8], secrecy: Secrecy) -> io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let draft = folder.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    let written = write_draft(&draft, content, secrecy).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // The first error is the one to report; a draft left behind harms nobody.
        let _ = fs::remove_file(&draft);
    }
    written
}

fn write_draft(draft: &Path, content: &[u8], secrecy: Secrecy) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
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
    file.write_all(content)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn content_and_mode() {
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
        assert_eq!(fs::read_dir(folder.path().join("new")).expect("a folder").count(), 1, "no drafts left");
    }

    #[test]
    fn a_folder_in_the_way_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("taken")).expect("a folder");
        assert!(write(&folder.path().join("taken"), b"x", Secrecy::Public).is_err());
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "no drafts left");
    }
}
