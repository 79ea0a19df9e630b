//! The file of a kubeconfig: locked, read, checked and replaced.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use coracle_apimachinery::codec::yaml;
use coracle_private_fs::Draft;
use serde_json::Value;

use crate::document::{Merged, document, merged, removed, text};
use crate::{Access, Name};

/// The maximum size of a file, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// The maximum number of links from a file to the next.
const MAX_LINKS: usize = 40;

/// The time for which a lock is waited for, and the time between two attempts to take it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// The maximum length of a process ID in a lock.
const MAX_ID: u64 = 20;

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
    /// The file is not a kubeconfig, or not one that a cluster of the name can be merged into.
    #[error("the kubeconfig {} is not changed: {reason}", path.display())]
    Unmergeable {
        /// The file.
        path: PathBuf,
        /// The fault, in one line.
        reason: String,
    },
    /// The file is to be created, and exists.
    #[error("{} exists: remove it, or name another file", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Another program changes the file.
    #[error("{}: another program changes the kubeconfig; if none does, remove this file", lock.display())]
    Locked {
        /// The file of the lock.
        lock: PathBuf,
    },
}

/// Merges a cluster into the kubeconfig at `path` and makes its context current, or creates the
/// file, which then only its owner may read. Returns the context that was current, if it was
/// another.
///
/// Comments and the style of the file are lost, as with kubectl. It blocks while others hold the
/// lock, for 10 s at most.
///
/// - `path`: a link is followed. Readers see the old or the new content, never a part.
///
/// # Errors
/// See [`Error`].
pub fn merge(path: &Path, name: &Name, access: &Access) -> Result<Option<String>, Error> {
    merge_within(path, name, access, LOCK_TIMEOUT)
}

fn merge_within(
    path: &Path,
    name: &Name,
    access: &Access,
    timeout: Duration,
) -> Result<Option<String>, Error> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    directory.map_or(Ok(()), coracle_private_fs::create_directory).map_err(io_error(path))?;
    change(path, timeout, |document| {
        let Merged { document, previous_context } = merged(document, name, access)?;
        Ok((Some(document), previous_context))
    })
}

/// Removes a cluster, its user and its context from the kubeconfig at `path`, if this program wrote
/// them. The current context becomes none if it was the removed one. Returns whether something was
/// removed; otherwise the file is as it was.
///
/// Comments, links and the lock are treated as by [`merge`].
///
/// # Errors
/// See [`Error`].
pub fn remove(path: &Path, name: &Name) -> Result<bool, Error> {
    remove_within(path, name, LOCK_TIMEOUT)
}

fn remove_within(path: &Path, name: &Name, timeout: Duration) -> Result<bool, Error> {
    let target = target(path).map_err(io_error(path))?;
    let remove = |document| {
        let left = removed(document, name)?;
        let is_changed = left.is_some();
        Ok((left, is_changed))
    };
    // Nothing is locked or created for a file without the entries, which may be in a directory that
    // is missing or of others.
    let (document, _) = existing(path, &target)?;
    let (left, _) = remove(document).map_err(refusal(path))?;
    if left.is_none() { Ok(false) } else { change(path, timeout, remove) }
}

/// Replaces the document of a file, under its lock, by the one that `change` returns; with None the
/// file stays as it is.
fn change<T>(
    path: &Path,
    timeout: Duration,
    change: impl FnOnce(Value) -> Result<(Option<Value>, T), String>,
) -> Result<T, Error> {
    let target = target(path).map_err(io_error(path))?;
    // kubectl locks the file under the name that it was given.
    let _lock = Lock::acquire(path, timeout)?;
    let _target_lock = if target == path { None } else { Some(Lock::acquire(&target, timeout)?) };
    let (document, metadata) = existing(path, &target)?;
    let (document, outcome) = change(document).map_err(refusal(path))?;
    let Some(document) = document else { return Ok(outcome) };
    let written = Draft::new(&target, text(&document).as_bytes()).and_then(|draft| {
        metadata.map_or(Ok(()), |metadata| draft.set_owner(&metadata))?;
        draft.replace()
    });
    written.map_err(io_error(path))?;
    Ok(outcome)
}

/// Checks whether [`merge`] can be called for a file, which is not changed.
///
/// # Errors
/// The same as [`merge`] has, but for those of writing.
pub fn check(path: &Path, name: &Name) -> Result<(), Error> {
    let access = Access { server: "", ca_pem: "", certificate_pem: "", key_pem: "" };
    let target = target(path).map_err(io_error(path))?;
    let (document, _) = existing(path, &target)?;
    merged(document, name, &access).map(drop).map_err(refusal(path))
}

/// Checks whether [`create`] can be called for a file.
///
/// # Errors
/// There is a file, or a link.
pub fn check_absent(path: &Path) -> Result<(), Error> {
    match fs::symlink_metadata(path) {
        Ok(_) => Err(Error::Exists { path: path.to_owned() }),
        // The write reports all other errors.
        Err(_) => Ok(()),
    }
}

/// Reads the document of a file and the file's attributes; null and None if there is no file.
fn existing(path: &Path, target: &Path) -> Result<(Value, Option<Metadata>), Error> {
    let refuse = refusal(path);
    let (document, metadata) = match read(target).map_err(io_error(path))? {
        None => return Ok((Value::Null, None)),
        Some((content, metadata)) => (parse(&content).map_err(&refuse)?, metadata),
    };
    if !is_trusted(target, &metadata) {
        return Err(refuse("it is of another user, in a directory of others".to_owned()));
    }
    Ok((document, Some(metadata)))
}

/// Returns the error for a document that is not changed.
fn refusal(path: &Path) -> impl Fn(String) -> Error {
    |reason| Error::Unmergeable { path: path.to_owned(), reason }
}

/// Returns `true` if the owner of a file may get the key of an administrator. That is the user of
/// this process, or the owner of the file's directory if no other user can write there, such as a
/// home directory.
fn is_trusted(file: &Path, metadata: &Metadata) -> bool {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_of_owner =
        |directory: Metadata| directory.uid() == metadata.uid() && directory.mode() & WRITABLE_BY_OTHERS == 0;
    metadata.uid() == rustix::process::geteuid().as_raw() || fs::metadata(directory).is_ok_and(is_of_owner)
}

/// Creates a kubeconfig of one cluster, which only its owner may read.
///
/// # Errors
/// There is a file already, or it cannot be written.
pub fn create(path: &Path, name: &Name, access: &Access) -> Result<(), Error> {
    let draft = Draft::new(path, document(name, access).as_bytes());
    draft.and_then(Draft::create).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists { path: path.to_owned() },
        _ => Error::Io { path: path.to_owned(), source },
    })
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    |source| Error::Io { path, source }
}

/// Returns the file that a chain of links ends in, whether it exists or not.
fn target(path: &Path) -> io::Result<PathBuf> {
    // The kernel refuses links that others have left in a shared directory; the steps below would
    // not.
    match fs::metadata(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(next) => path = path.parent().unwrap_or(Path::new("")).join(next),
            // It is not a link, or does not exist.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => {
                return Ok(path);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("too many links"))
}

/// Reads the content and the attributes of a file, if there is one.
fn read(path: &Path) -> io::Result<Option<(Vec<u8>, Metadata)>> {
    let file = match open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    // Of the file that is read, whatever is at the path meanwhile.
    let metadata = file.metadata()?;
    let mut content = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it is larger than {} MiB", MAX_BYTES >> 20)));
    }
    Ok(Some((content, metadata)))
}

/// Opens a regular file. Others may have put a pipe at the path, which is not waited for.
fn open(path: &Path) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// Reads a document of which nothing is lost when it is written again, except comments and styles.
fn parse(content: &[u8]) -> Result<Value, String> {
    let text = str::from_utf8(content).map_err(|_| "it is not text in UTF-8".to_owned())?;
    let document = yaml::to_json(content).map_err(|error| error.to_string())?;
    if !yaml::is_single_document(text) {
        return Err("it has several documents".to_owned());
    }
    if let Some(repeated) = document.repeated_keys {
        return Err(repeated.replace('\n', " "));
    }
    serde_json::from_slice(&document.json).map_err(|error| error.to_string())
}

/// The lock that kubectl takes: a file beside the file. This program writes its process ID into it,
/// so that a lock that a killed process has left is distinct from one that is held.
struct Lock(PathBuf);

impl Lock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the lock is another program's, which goes by the real time"
    )]
    fn acquire(path: &Path, timeout: Duration) -> Result<Lock, Error> {
        let mut lock = path.as_os_str().to_owned();
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        let deadline = Instant::now() + timeout;
        loop {
            match coracle_private_fs::options().write(true).create_new(true).open(&lock) {
                Ok(mut file) => {
                    let held = Lock(lock);
                    // One without an ID is another program's for those who come next.
                    let _ = write!(file, "{}", std::process::id());
                    return Ok(held);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if is_left(&lock) {
                        // Whether it was removed is found by the next attempt.
                        let _ = fs::remove_file(&lock);
                    } else if Instant::now() >= deadline {
                        return Err(Error::Locked { lock });
                    }
                    sleep(LOCK_INTERVAL);
                }
                Err(source) => return Err(Error::Io { path: lock, source }),
            }
        }
    }
}

/// Returns `true` if a lock is left over from a process of this program that has ended. If two
/// processes find that at the same time, both may continue. Each replaces the whole file, so that
/// the first cluster is then missing in it.
fn is_left(lock: &Path) -> bool {
    let mut text = String::new();
    let read = open(lock).and_then(|file| file.take(MAX_ID).read_to_string(&mut text));
    let id = read.ok().and_then(|_| rustix::process::Pid::from_raw(text.parse().ok()?));
    id.is_some_and(|id| rustix::process::test_kill_process(id) == Err(rustix::io::Errno::SRCH))
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The next process reports a leftover file.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

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
        assert_eq!(mode, 0o600, "nobody else reads the key");
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
            (b"---\nkind: Config\n---\t{}\n", "several documents"),
            (b"{\"kind\": \"Config\"}\n{\"kind\": \"Config\"}\n", "several documents"),
            (b"kind: Config\n...\nother: 1\n", "several documents"),
            (b"apiVersion: v1\nkind: Config\nkind: Config\n", "already set"),
        ] {
            fs::write(&file, content).unwrap();
            let checked = check(&file, &name()).expect_err(want).to_string();
            let error = merge(&file, &name(), &ACCESS).expect_err(want).to_string();
            assert_eq!(checked, error);
            assert!(error.contains(want) && error.contains("config"), "{error}");
            assert_eq!(fs::read(&file).unwrap(), content);
        }
        fs::write(&file, " ".repeat(MAX_BYTES as usize + 1)).unwrap();
        let Error::Io { source, .. } = merge(&file, &name(), &ACCESS).unwrap_err() else { panic!() };
        assert_eq!(source.to_string(), "it is larger than 4 MiB");
        let pipe = directory.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let Error::Io { source, .. } = merge(&pipe, &name(), &ACCESS).unwrap_err() else { panic!() };
        assert_eq!(source.to_string(), "it is not a regular file");
        assert_eq!(names(directory.path()), ["config", "pipe"]);
    }

    #[test]
    fn the_lock_of_kubectl_is_honored() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        fs::write(&file, PROD).unwrap();
        let lock = directory.path().join("config.lock");
        let own = std::process::id().to_string();
        for held in ["", &own, "text"] {
            fs::write(&lock, held).unwrap();
            let error = merge_within(&file, &name(), &ACCESS, Duration::ZERO).unwrap_err();
            assert!(matches!(&error, Error::Locked { lock: named } if *named == lock), "{held:?}: {error:?}");
            assert_eq!(fs::read_to_string(&file).unwrap(), PROD);
        }
        // Nobody writes into a pipe that others have put there.
        fs::remove_file(&lock).unwrap();
        mknodat(CWD, &lock, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let error = merge_within(&file, &name(), &ACCESS, Duration::ZERO).unwrap_err();
        assert!(matches!(error, Error::Locked { .. }), "{error:?}");
        // A lock that is released in time is waited for.
        std::thread::scope(|scope| {
            let merging = scope.spawn(|| merge(&file, &name(), &ACCESS));
            fs::remove_file(&lock).unwrap();
            merging.join().unwrap().unwrap();
        });
        assert_eq!(names(directory.path()), ["config"]);
        // A process that was killed has left its lock.
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        fs::write(&lock, ended.id().to_string()).unwrap();
        merge_within(&file, &name(), &ACCESS, Duration::ZERO).unwrap();
        assert_eq!(names(directory.path()), ["config"]);
    }

    #[test]
    fn a_cluster_is_removed_from_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("theirs")).unwrap();
        let (file, link) = (path("theirs/config"), path("link"));
        fs::write(&file, PROD).unwrap();
        symlink("theirs/config", &link).unwrap();
        assert!(!remove(&file, &name()).unwrap(), "never merged");
        assert_eq!(fs::read_to_string(&file).unwrap(), PROD, "comments and style");
        merge(&file, &name(), &ACCESS).unwrap();
        // The lock is honored, under both names.
        for lock in ["link.lock", "theirs/config.lock"] {
            fs::write(path(lock), "").unwrap();
            let before = fs::read(&file).unwrap();
            let error = remove_within(&link, &name(), Duration::ZERO).unwrap_err();
            assert!(matches!(&error, Error::Locked { lock: named } if *named == path(lock)), "{error:?}");
            assert_eq!(fs::read(&file).unwrap(), before);
            fs::remove_file(path(lock)).unwrap();
        }
        assert!(remove(&link, &name()).unwrap());
        assert!(link.is_symlink());
        let mut left = parse(PROD.as_bytes()).unwrap();
        left["current-context"] = "".into();
        (left["clusters"], left["contexts"]) = (Value::Array(vec![]), Value::Array(vec![]));
        assert_eq!(parse(&fs::read(&file).unwrap()).unwrap(), left);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!remove(&link, &name()).unwrap(), "once more");
        assert_eq!(
            (names(&path("theirs")), names(directory.path())),
            (vec!["config".into()], vec!["link".into(), "theirs".into()])
        );
    }

    #[test]
    fn there_is_nothing_to_remove_from_a_missing_file_and_a_malformed_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!remove(&directory.path().join("missing/config"), &name()).unwrap());
        assert_eq!(names(directory.path()), Vec::<String>::new());
        let file = directory.path().join("config");
        fs::write(&file, "just text").unwrap();
        let error = remove(&file, &name()).unwrap_err().to_string();
        assert!(error.contains("no map") && error.contains("is not changed"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "just text");
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
        check_absent(&file).unwrap();
        create(&file, &name(), &ACCESS).unwrap();
        for refused in [create(&file, &"b".parse().unwrap(), &ACCESS), check_absent(&file)] {
            assert!(matches!(refused, Err(Error::Exists { .. })), "{refused:?}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), document(&name(), &ACCESS));
        assert_eq!(names(directory.path()), ["config"]);
    }
}
