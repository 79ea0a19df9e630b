//! The files that a command writes, as far as later commands and probes see them.

use std::cell::RefCell;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;

/// The changes that are kept; after more, nothing is known of the files.
const MAX_CHANGES: usize = 64;

/// The reads that are noted.
const MAX_NOTED: usize = 16;

/// The volumes beside the paths that are known; with more of them, nothing is known of the files.
const MAX_MOUNTS: usize = 16;

/// The directory that is assumed to be empty in every image.
const TEMPORARY: &str = "/tmp";

/// The file with the termination message, unless a container names another one.
const MESSAGE_PATH: &str = "/dev/termination-log";

/// The directory under which every container has a volume with its token, which no program writes.
const TOKENS: &str = "/var/run/secrets/";

/// The files of a container: its state at the start, and the changes that its first command makes.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// None: nothing is known, and changes are not noted.
    paths: Option<ContainerPaths>,
    /// In the order in which they were noted, which differs from that of their times if some were
    /// made in the background.
    changes: Vec<Change>,
    /// The number of changes that were made by an earlier command.
    earlier: usize,
    /// The time from which on nothing is known.
    known_until: Option<Duration>,
    reads: RefCell<Reads>,
}

/// The files that a command reads, each of them once, with the state that it finds first. Files
/// that it has written itself are not among them.
pub type Reads = Vec<(String, File)>;

/// The part of a container's specification that decides about files.
#[derive(Clone, Debug, Default)]
struct ContainerPaths {
    working_dir: Option<String>,
    /// The volumes above and below the paths that are known. Their files are unknown.
    mounts: Vec<String>,
    /// Whether the working directory may be in a volume.
    may_work_in_volume: bool,
    message_path: String,
    is_read_only: bool,
}

#[derive(Clone, Debug)]
struct Change {
    at: Duration,
    /// The file; None: any file may have changed.
    path: Option<String>,
    file: File,
}

/// The state of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum File {
    /// It exists, with this content.
    Content(String),
    /// It does not exist.
    Absent,
    /// It may exist, with any content.
    Unknown,
}

impl Files {
    /// Returns files of which nothing is known.
    pub fn unknown() -> Files {
        Files::default()
    }

    /// Returns the files of a container that was just started.
    pub fn of(container: &Container) -> Files {
        let security = container.security_context.as_ref();
        // A hook may write any files.
        let has_hook = container.lifecycle.as_ref().is_some_and(|hooks| hooks.post_start.is_some());
        let working_dir = container.working_dir.as_deref().map(|path| path.trim_end_matches('/'));
        let mounts = || {
            let mounts = container.volume_mounts.iter().flatten();
            let mounts = mounts.map(|mount| mount.mount_path.trim_end_matches('/'));
            mounts.filter(|path| !path.starts_with(TOKENS))
        };
        let is_near = |mount: &&str| {
            let known = [Some(TEMPORARY), working_dir];
            known.into_iter().flatten().any(|path| is_within(path, mount) || is_within(mount, path))
        };
        let mounts_near: Vec<String> =
            mounts().filter(is_near).take(MAX_MOUNTS + 1).map(str::to_owned).collect();
        let is_known = !has_hook && mounts_near.len() <= MAX_MOUNTS;
        let paths = ContainerPaths {
            working_dir: working_dir.map(str::to_owned),
            mounts: mounts_near,
            may_work_in_volume: working_dir.is_none() && mounts().next().is_some(),
            message_path: message_path(container).to_owned(),
            is_read_only: security.and_then(|security| security.read_only_root_filesystem) == Some(true),
        };
        Files { paths: is_known.then_some(paths), ..Files::default() }
    }

    /// Returns the files at a time, as what another command starts with.
    pub fn at(&self, time: Duration) -> Files {
        let mut changes: Vec<Change> = self.changes.iter().filter(|one| one.at <= time).cloned().collect();
        changes.sort_by_key(|change| change.at);
        changes.iter_mut().for_each(|change| change.at = Duration::ZERO);
        let is_known = self.known_until.is_none_or(|until| time < until);
        Files {
            paths: self.paths.clone(),
            earlier: changes.len(),
            changes,
            known_until: (!is_known).then_some(Duration::ZERO),
            reads: RefCell::default(),
        }
    }

    /// Returns the start and the times at which files change, in order, each of them once.
    pub fn times_from_start(&self) -> Vec<Duration> {
        let changes = self.changes.iter().map(|change| change.at).chain(self.known_until);
        let mut times: Vec<Duration> = changes.chain([Duration::ZERO]).collect();
        times.sort_unstable();
        times.dedup();
        times
    }

    /// Returns `true` unless nothing is known of any file.
    pub fn are_known(&self) -> bool {
        self.paths.is_some()
    }

    /// Returns the first files that were read.
    pub fn reads(&self) -> Reads {
        self.reads.borrow().clone()
    }

    /// Reads a file at a time.
    pub fn get(&self, path: &str, at: Duration) -> File {
        let (state, index) = self.state(path, at);
        let is_own = index.is_some_and(|index| index >= self.earlier);
        let mut reads = self.reads.borrow_mut();
        if !is_own && reads.len() < MAX_NOTED && reads.iter().all(|(known, _)| known != path) {
            reads.push((path.to_owned(), state.clone()));
        }
        state
    }

    /// Returns the state of a file, and the index of the change that made it.
    fn state(&self, path: &str, at: Duration) -> (File, Option<usize>) {
        let Some((paths, path)) = self.paths.as_ref().and_then(|paths| Some((paths, paths.resolve(path)?)))
        else {
            return (File::Unknown, None);
        };
        if self.known_until.is_some_and(|until| until <= at) {
            return (File::Unknown, None);
        }
        let concerns_it = |change: &Change| change.path.as_ref().is_none_or(|other| *other == path);
        let changes = self.changes.iter().enumerate();
        // The last one of those with the latest time.
        let last = changes.filter(|(_, change)| change.at <= at && concerns_it(change));
        if let Some((index, change)) = last.max_by_key(|(_, change)| change.at) {
            return (change.file.clone(), Some(index));
        }
        let first = match path {
            path if path == paths.message_path => File::Content(String::new()),
            path if is_within(&path, TEMPORARY) => File::Absent,
            _ => File::Unknown,
        };
        (first, None)
    }

    /// Returns `true` if a command may create and remove a file of this path: in `/tmp`, in the
    /// working directory, and the file of the termination message.
    pub fn is_writable(&self, path: &str) -> bool {
        let name = path.strip_prefix("/tmp/").or(path.strip_prefix("./")).unwrap_or(path);
        let is_name = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
        match &self.paths {
            Some(paths) if path == paths.message_path => true,
            Some(paths) => is_name && !paths.is_read_only,
            None => is_name,
        }
    }

    /// Sets the state of a file from a time on.
    pub fn set(&mut self, path: &str, file: File, at: Duration) {
        let Some(path) = self.paths.as_ref().and_then(|paths| paths.resolve(path)) else { return };
        if file == File::Unknown || self.state(&path, at).0 != file {
            self.note(Change { at, path: Some(path), file });
        }
    }

    /// Notes that any file may have changed.
    pub fn forget(&mut self, at: Duration) {
        if self.paths.is_some() {
            self.note(Change { at, path: None, file: File::Unknown });
        }
    }

    /// Notes that nothing is known any more from a time on.
    pub fn forget_from(&mut self, at: Duration) {
        self.known_until = Some(self.known_until.map_or(at, |until| until.min(at)));
    }

    fn note(&mut self, change: Change) {
        // Those of an earlier command do not count.
        if self.changes.len() - self.earlier == MAX_CHANGES {
            self.forget_from(change.at);
        } else {
            self.changes.push(change);
        }
    }

    /// Returns the termination message at a time; empty if it is not known.
    pub fn message(&self, at: Duration) -> String {
        let path = self.paths.as_ref().map_or("", |paths| &paths.message_path);
        match self.state(path, at).0 {
            File::Content(text) => text,
            File::Absent | File::Unknown => String::new(),
        }
    }
}

impl ContainerPaths {
    /// Returns the absolute path of a file, or one that begins with `./` if the image decides about
    /// the working directory; None if it is in a volume or not plain.
    fn resolve(&self, path: &str) -> Option<String> {
        let relative = path.strip_prefix("./").unwrap_or(path);
        let is_plain = relative
            .strip_prefix('/')
            .unwrap_or(relative)
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..");
        let path = match &self.working_dir {
            _ if path.starts_with('/') => path.to_owned(),
            Some(dir) => format!("{dir}/{relative}"),
            None if self.may_work_in_volume => return None,
            None => format!("./{relative}"),
        };
        let in_volume = self.mounts.iter().any(|mount| is_within(&path, mount));
        (is_plain && (!in_volume || path == self.message_path)).then_some(path)
    }
}

/// Returns `true` if a path is that of a directory or below it.
fn is_within(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the path of the file with a container's termination message.
fn message_path(container: &Container) -> &str {
    let path = container.termination_message_path.as_deref().unwrap_or_default();
    if path.is_empty() { MESSAGE_PATH } else { path }
}
