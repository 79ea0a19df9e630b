//! The files that a command writes, as far as later commands and probes see them.

use std::cell::RefCell;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;

/// The changes that are kept; after more, nothing is known of the files.
const MAX_CHANGES: usize = 64;

/// The file with the termination message, unless a container names another one.
const MESSAGE_PATH: &str = "/dev/termination-log";

/// The directory under which every container has a volume with its token, which no program writes.
const TOKENS: &str = "/var/run/secrets/";

/// The files of a container: those that it starts with, and how its first command changes them.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// None: nothing is known, and what is written is not noted.
    place: Option<Place>,
    /// In the order in which they were noted, which differs from that of their times if some were
    /// made in the background.
    changes: Vec<Change>,
    /// The time from which on nothing is known.
    known_until: Option<Duration>,
    reads: RefCell<Reads>,
}

/// The files that a command reads, each of them once, with the state that it finds first.
pub type Reads = Vec<(String, File)>;

/// The reads that are noted.
const MAX_NOTED: usize = 16;

/// The part of a container's specification that decides about files.
#[derive(Clone, Debug, Default)]
struct Place {
    working_dir: Option<String>,
    /// The paths of volumes, of which nothing is known.
    mounts: Vec<String>,
    message_path: String,
    is_read_only: bool,
}

#[derive(Clone, Debug)]
struct Change {
    at: Duration,
    effect: Effect,
}

#[derive(Clone, Debug)]
enum Effect {
    /// A file has a content; None if it does not exist.
    Set { path: String, content: Option<String> },
    /// Anything may have happened.
    Forget,
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
        let mounts = container.volume_mounts.iter().flatten();
        let mounts = mounts.map(|mount| mount.mount_path.trim_end_matches('/').to_owned());
        let place = Place {
            working_dir: container.working_dir.clone(),
            mounts: mounts.filter(|path| !path.starts_with(TOKENS)).collect(),
            message_path: message_path(container).to_owned(),
            is_read_only: security.and_then(|security| security.read_only_root_filesystem) == Some(true),
        };
        Files { place: (!has_hook).then_some(place), ..Files::default() }
    }

    /// Returns the files that there are at a time, as what a command starts with.
    pub fn at(&self, time: Duration) -> Files {
        let mut changes: Vec<Change> = self.changes.iter().filter(|one| one.at <= time).cloned().collect();
        changes.sort_by_key(|change| change.at);
        changes.iter_mut().for_each(|change| change.at = Duration::ZERO);
        let is_known = self.known_until.is_none_or(|until| time < until);
        Files {
            place: self.place.clone(),
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
        self.place.is_some()
    }

    /// Returns the first files that were read.
    pub fn reads(&self) -> Reads {
        self.reads.borrow().clone()
    }

    /// Reads a file at a time.
    pub fn get(&self, path: &str, at: Duration) -> File {
        let state = self.state(path, at);
        let mut reads = self.reads.borrow_mut();
        if reads.len() < MAX_NOTED && reads.iter().all(|(known, _)| known != path) {
            reads.push((path.to_owned(), state.clone()));
        }
        state
    }

    fn state(&self, path: &str, at: Duration) -> File {
        let Some((place, path)) = self.place.as_ref().and_then(|place| Some((place, place.resolve(path)?)))
        else {
            return File::Unknown;
        };
        if self.known_until.is_some_and(|until| until <= at) {
            return File::Unknown;
        }
        let of_it = |change: &&Change| match &change.effect {
            Effect::Set { path: other, .. } => *other == path,
            Effect::Forget => true,
        };
        // The last one of those with the latest time.
        let last = self.changes.iter().filter(|change| change.at <= at).filter(of_it);
        match last.max_by_key(|change| change.at).map(|change| &change.effect) {
            Some(Effect::Set { content: Some(content), .. }) => File::Content(content.clone()),
            Some(Effect::Set { content: None, .. }) => File::Absent,
            Some(Effect::Forget) => File::Unknown,
            None if path == place.message_path => File::Content(String::new()),
            // It is empty in any image.
            None if path.starts_with("/tmp/") => File::Absent,
            None => File::Unknown,
        }
    }

    /// Returns `true` if a command may create and remove a file of this path: in `/tmp`, in the
    /// working directory, and the file of the termination message.
    pub fn is_writable(&self, path: &str) -> bool {
        let name = path.strip_prefix("/tmp/").or(path.strip_prefix("./")).unwrap_or(path);
        let is_name = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
        match &self.place {
            Some(place) if path == place.message_path => true,
            Some(place) => is_name && !place.is_read_only,
            None => is_name,
        }
    }

    /// Sets the content of a file, or removes it.
    pub fn set(&mut self, path: &str, content: Option<String>, at: Duration) {
        let Some(path) = self.place.as_ref().and_then(|place| place.resolve(path)) else { return };
        let is_same = match (self.state(&path, at), &content) {
            (File::Content(old), Some(new)) => old == *new,
            (File::Absent, None) => true,
            _ => false,
        };
        if !is_same {
            self.note(Change { at, effect: Effect::Set { path, content } });
        }
    }

    /// Notes that any file may have changed.
    pub fn forget(&mut self, at: Duration) {
        if self.place.is_some() {
            self.note(Change { at, effect: Effect::Forget });
        }
    }

    /// Notes that nothing is known any more from a time on.
    pub fn end(&mut self, at: Duration) {
        self.known_until = Some(self.known_until.map_or(at, |until| until.min(at)));
    }

    fn note(&mut self, change: Change) {
        if self.changes.len() == MAX_CHANGES {
            self.end(change.at);
        } else {
            self.changes.push(change);
        }
    }

    /// Returns the termination message at a time; empty if it is not known.
    pub fn message(&self, at: Duration) -> String {
        let path = self.place.as_ref().map(|place| place.message_path.clone()).unwrap_or_default();
        match self.state(&path, at) {
            File::Content(text) => text,
            File::Absent | File::Unknown => String::new(),
        }
    }
}

impl Place {
    /// Returns the absolute path of a file, or one that begins with `./` if the image decides about
    /// the working directory; None if it is in a volume or not plain.
    fn resolve(&self, path: &str) -> Option<String> {
        let relative = path.strip_prefix("./").unwrap_or(path);
        let path = match &self.working_dir {
            _ if path.starts_with('/') => path.to_owned(),
            Some(dir) => format!("{}/{relative}", dir.trim_end_matches('/')),
            // A volume may be mounted there.
            None if !self.mounts.is_empty() => return None,
            None => format!("./{relative}"),
        };
        let is_plain = path.split('/').all(|part| part != "..") && !path.contains("//");
        let is_below = |mount: &String| {
            path.strip_prefix(mount.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let in_volume = self.mounts.iter().any(is_below);
        (is_plain && (!in_volume || path == self.message_path)).then_some(path)
    }
}

/// Returns the path of the file with a container's termination message.
fn message_path(container: &Container) -> &str {
    let path = container.termination_message_path.as_deref().unwrap_or_default();
    if path.is_empty() { MESSAGE_PATH } else { path }
}
