//! The file of a kubeconfig: locked, read, checked and replaced.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use coracle_apimachinery::codec::yaml;
use coracle_private_fs::Draft;
use serde_json::Value;

use crate::document::{document, merged, text};
use crate::{Access, Name};

/// The maximum size of a file, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// The maximum number of links from a file to the next.
const MAX_LINKS: usize = 40;

/// The number of times that a lock is tried, and the time between two of them.
const LOCK_ATTEMPTS: usize = 40;
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// The error of a file that cannot be changed. It remains as it was.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file, or its lock, cannot be read or written.
    #[error("{}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is not a kubeconfig.
    #[error("{}: it is not changed, since it is no kubeconfig: {reason}", path.display())]
    NotKubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another program changes the file.
    #[error("{}: another program changes the kubeconfig; if none does, remove this file", lock.display())]
    Locked {
        /// The file of the lock.
        lock: PathBuf,
    },
}

/// Merges a cluster into the kubeconfig at `path` and makes its context current, or creates the file, which then only its owner
/// may read. Returns the context that was current, if it was another.
///
/// - `path`: a link is followed. Readers see the old or the new content, never a part.
///
/// # Errors
/// See [`Error`].
pub fn merge(path: &Path, name: &Name, access: &Access) -> Result<Option<String>, Error> {
    let target = target(path).map_err(io_error(path))?;
    for file in [path, &target] {
        let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        directory.map_or(Ok(()), coracle_private_fs::create_directory).map_err(io_error(file))?;
    }
    // kubectl locks the file under the name that it was given.
    let _lock = Lock::acquire(path)?;
    let _target_lock = if target == path { None } else { Some(Lock::acquire(&target)?) };
    let refuse = |reason: String| Error::NotKubeconfig { path: path.to_owned(), reason };
    let (existing, metadata) = match read(&target).map_err(io_error(path))? {
        None => (Value::Null, None),
        Some((content, metadata)) => (parse(&content).map_err(refuse)?, Some(metadata)),
    };
    let merged = merged(existing, name, access).map_err(refuse)?;
    let written = Draft::new(&target, text(&merged.document).as_bytes()).and_then(|draft| {
        metadata.map_or(Ok(()), |metadata| draft.copy_attributes(&metadata))?;
        draft.replace()
    });
    written.map_err(io_error(path))?;
    Ok(merged.previous_context)
}

/// Creates a kubeconfig of one cluster, which only its owner may read.
///
/// # Errors
/// There is a file already, or it cannot be written.
pub fn create(path: &Path, name: &Name, access: &Access) -> Result<(), Error> {
    let draft = Draft::new(path, document(name, access).as_bytes());
    draft.and_then(Draft::create).map_err(io_error(path))
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    |source| Error::Io { path, source }
}

/// The file that a chain of links ends in, whether it exists or not.
fn target(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(next) => path = path.parent().unwrap_or(Path::new("")).join(next),
            // It is no link, or there is none.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => {
                return Ok(path);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("too many links"))
}

/// The content and the attributes of a file, if there is one.
fn read(path: &Path) -> io::Result<Option<(Vec<u8>, Metadata)>> {
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata?,
    };
    // A pipe would be waited for, and nobody could read it again.
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut content = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it is larger than {} MiB", MAX_BYTES >> 20)));
    }
    Ok(Some((content, metadata)))
}

/// Reads a document of which nothing is lost when it is written again, except comments and styles.
fn parse(content: &[u8]) -> Result<Value, String> {
    let text = str::from_utf8(content).map_err(|_| "it is not text in UTF-8".to_owned())?;
    let is_empty = |line: &str| line.trim().is_empty() || line.starts_with(['#', '%']);
    let mut lines = text.lines().filter(|line| !is_empty(line)).skip(1);
    if lines.any(|line| line == "---" || line.starts_with("--- ")) {
        return Err("it has several documents".to_owned());
    }
    let document = yaml::to_json(content).map_err(|error| error.to_string())?;
    if let Some(repeated) = document.repeated_keys {
        return Err(repeated.replace('\n', " "));
    }
    serde_json::from_slice(&document.json).map_err(|error| error.to_string())
}

/// The lock that kubectl takes: a file beside the file.
struct Lock(PathBuf);

impl Lock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the lock is another program's, which goes by the real time"
    )]
    fn acquire(path: &Path) -> Result<Lock, Error> {
        let mut lock = path.as_os_str().to_owned();
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        for _ in 0..LOCK_ATTEMPTS {
            match coracle_private_fs::options().write(true).create_new(true).open(&lock) {
                Ok(_) => return Ok(Lock(lock)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => sleep(LOCK_INTERVAL),
                Err(source) => return Err(Error::Io { path: lock, source }),
            }
        }
        Err(Error::Locked { lock })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Whoever comes next names a file that is left.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const ACCESS: Access = Access { server: "https://[::1]:1", ca_pem: "", certificate_pem: "", key_pem: "" };
    const PROD: &str = "\
# comments are not kept
apiVersion: v1
kind: Config
current-context: 'on'
users:
- name: prod
  user: {token: \"0x10\", password: 'yes', exec: {args: [a, \"\"], env: null}}
";

    fn name() -> Name {
        Name::default()
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("a directory").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn others_remain_and_readers_of_yaml_1_1_read_them_as_they_were() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        fs::write(&file, PROD).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(merge(&file, &name(), &ACCESS).unwrap().as_deref(), Some("on"));
        assert_eq!(merge(&file, &"b".parse().unwrap(), &ACCESS).unwrap().as_deref(), Some("coracle"));
        let content = fs::read_to_string(&file).unwrap();
        for quoted in
            ["token: \"0x10\"", "password: \"yes\"", "name: coracle", "name: b", "current-context: b"]
        {
            assert!(content.contains(quoted), "{quoted} in {content}");
        }
        let exec = serde_json::json!({"args": ["a", ""], "env": null});
        assert_eq!(parse(content.as_bytes()).unwrap()["users"][0]["user"]["exec"], exec);
        let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o640, "the mode is the user's choice");
        assert_eq!(names(directory.path()), ["config"]);
    }

    #[test]
    fn a_missing_file_is_created_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("new/config");
        assert_eq!(merge(&file, &name(), &ACCESS).unwrap(), None);
        assert_eq!(fs::read_to_string(&file).unwrap(), document(&name(), &ACCESS));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        // An empty one is filled.
        fs::write(&file, "# nothing yet\n").unwrap();
        assert_eq!(merge(&file, &name(), &ACCESS).unwrap(), None);
        assert_eq!(fs::read_to_string(&file).unwrap(), document(&name(), &ACCESS));
    }

    #[test]
    fn links_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("theirs")).unwrap();
        fs::write(path("theirs/config"), PROD).unwrap();
        symlink("theirs/config", path("first")).unwrap();
        symlink(path("first"), path("second")).unwrap();
        symlink("theirs/missing", path("dangling")).unwrap();
        symlink("loop", path("loop")).unwrap();
        merge(&path("second"), &name(), &ACCESS).unwrap();
        assert!(path("second").is_symlink() && path("first").is_symlink());
        assert!(fs::read_to_string(path("theirs/config")).unwrap().contains("name: prod"));
        merge(&path("dangling"), &name(), &ACCESS).unwrap();
        assert!(path("dangling").is_symlink() && path("theirs/missing").is_file());
        let error = merge(&path("loop"), &name(), &ACCESS).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error:?}");
        assert_eq!(names(&path("theirs")), ["config", "missing"]);
    }

    #[test]
    fn what_cannot_be_kept_is_refused_and_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        for (content, want) in [
            (&b"a: [\n"[..], "yaml: "),
            (b"\xff", "UTF-8"),
            (b"just text", "no map"),
            (b"apiVersion: v1\nkind: Pod\n", "kind is not Config"),
            (b"apiVersion: v1\nkind: Config\n---\nkind: Other\n", "several documents"),
            (b"---\nkind: Config\n--- {}\n", "several documents"),
            (b"apiVersion: v1\nkind: Config\nkind: Config\n", "already set"),
        ] {
            fs::write(&file, content).unwrap();
            let error = merge(&file, &name(), &ACCESS).expect_err(want).to_string();
            assert!(error.contains(want) && error.contains("config"), "{error}");
            assert_eq!(fs::read(&file).unwrap(), content);
        }
        fs::write(&file, " ".repeat(MAX_BYTES as usize + 1)).unwrap();
        let Error::Io { source, .. } = merge(&file, &name(), &ACCESS).unwrap_err() else { panic!() };
        assert_eq!(source.to_string(), "it is larger than 4 MiB");
        let socket = directory.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let Error::Io { source, .. } = merge(&socket, &name(), &ACCESS).unwrap_err() else { panic!() };
        assert_eq!(source.to_string(), "it is not a regular file");
        assert_eq!(names(directory.path()), ["config", "socket"]);
    }

    #[test]
    fn the_lock_of_kubectl_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        fs::write(&file, PROD).unwrap();
        let lock = directory.path().join("config.lock");
        fs::write(&lock, "").unwrap();
        let error = merge(&file, &name(), &ACCESS).unwrap_err();
        assert!(matches!(&error, Error::Locked { lock: named } if *named == lock), "{error:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), PROD);
        std::thread::scope(|scope| {
            let merging = scope.spawn(|| merge(&file, &name(), &ACCESS));
            fs::remove_file(&lock).unwrap();
            merging.join().unwrap().unwrap();
        });
        assert_eq!(names(directory.path()), ["config"]);
    }

    #[test]
    fn many_merge_into_one_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        std::thread::scope(|scope| {
            for number in 0..8 {
                let file = &file;
                scope.spawn(move || merge(file, &format!("c{number}").parse().unwrap(), &ACCESS).unwrap());
            }
        });
        let document = parse(&fs::read(&file).unwrap()).unwrap();
        for list in ["clusters", "contexts", "users"] {
            assert_eq!(document[list].as_array().map(Vec::len), Some(8), "{list}");
        }
    }

    #[test]
    fn a_file_of_its_own_replaces_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        create(&file, &name(), &ACCESS).unwrap();
        let Error::Io { source, .. } = create(&file, &"b".parse().unwrap(), &ACCESS).unwrap_err() else {
            panic!()
        };
        assert_eq!(source.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&file).unwrap(), document(&name(), &ACCESS));
        assert_eq!(names(directory.path()), ["config"]);
    }
}
