//! The state of a control plane in the background: a directory for each name, with a lock that the
//! process holds while it runs.
//!
//! The lock is the standard input of the process, so it is held exactly as long as the process
//! exists, whatever ends it. The record names the process; it counts only if that process has the
//! locked file, so another program with the same ID is never meant.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use coracle_control_plane::{Name, background};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

/// The maximum size of a record, in bytes.
const MAX_RECORD: u64 = 64 << 10;

/// The maximum number of names that are listed.
const MAX_NAMES: usize = 1_000;

/// The part of a log that is printed after a failed start, in bytes and in lines.
const MAX_TAIL: u64 = 8 << 10;
const TAIL_LINES: usize = 20;

/// The description of a process, which the process writes itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The ID of the process.
    pub process: i32,
    /// The time of its start, in seconds since 1970.
    pub started: u64,
    /// The version of the program.
    pub version: String,
    /// The data directory; None if all data is in memory.
    pub data: Option<PathBuf>,
    /// The servers of the etcd cluster with the objects.
    pub etcd: Vec<String>,
    /// The file into which the kubeconfig is merged.
    pub kubeconfig: PathBuf,
    /// The time between SIGTERM and the shutdown, in seconds.
    pub shutdown_delay: u64,
    /// The address and the context that was current, once the server is ready.
    pub served: Option<Served>,
}

/// The part of a record that is known once the server is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The URL of the server.
    pub url: String,
    /// The context that was current in the kubeconfig before, if it was another.
    pub previous_context: Option<String>,
}

/// The state of the process with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// No process runs; the record is that of the last one.
    Stopped(Option<Record>),
    /// A process starts, and has not written its record.
    Starting,
    /// The process of the record runs.
    Running(Record),
}

/// The directory with the state of a name.
#[derive(Clone, Debug)]
pub struct StateDir(PathBuf);

/// Returns the directory with the directories of all names: `$XDG_STATE_HOME/coracle`, or
/// `~/.local/state/coracle`.
///
/// # Errors Neither `XDG_STATE_HOME` nor `HOME` is set.
pub fn base() -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // As the specification has it, a relative path is ignored.
    let state = variable("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    Ok(state.context("neither XDG_STATE_HOME nor HOME is set")?.join("coracle"))
}

/// Returns the names with a record or a process, sorted.
///
/// # Errors
/// Their directory cannot be read.
pub fn names() -> Result<Vec<Name>> {
    let base = base()?;
    let entries = match fs::read_dir(&base) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| base.display().to_string())?,
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<Name>().ok());
    let is_used = |name: &Name| {
        // Only a stopped one without a record has no state.
        StateDir::find(name)
            .is_ok_and(|found| found.is_some_and(|state| !matches!(state.read(), Ok(State::Stopped(None)))))
    };
    let mut names: Vec<Name> = names.filter(is_used).take(MAX_NAMES).collect();
    names.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    Ok(names)
}

impl StateDir {
    /// Returns the directory of a name.
    ///
    /// # Errors
    /// The name is invalid for the background, or no directory is known.
    pub fn of(name: &Name) -> Result<StateDir> {
        // It is the name of a directory.
        ensure!(!name.as_str().starts_with('.'), "the name {name} begins with a dot: choose another --name");
        Ok(StateDir(base()?.join(name.as_str())))
    }

    /// Returns the existing directory at a path.
    pub fn at(path: PathBuf) -> StateDir {
        StateDir(path)
    }

    /// Returns the directory of a name if it exists.
    ///
    /// # Errors
    /// The name is invalid for the background, or the directory is a link or of another user.
    pub fn find(name: &Name) -> Result<Option<StateDir>> {
        let state = StateDir::of(name)?;
        let path = state.0.display();
        match fs::symlink_metadata(&state.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| path.to_string()),
            Ok(metadata) if !metadata.is_dir() => bail!("{path} is no directory: remove it"),
            Ok(metadata) if !is_own(&metadata) => bail!("{path} is of another user: choose another --name"),
            Ok(_) => Ok(Some(state)),
        }
    }

    /// Returns the directory of a name. Creates it if it is missing, and makes it private.
    ///
    /// # Errors
    /// The errors of [`StateDir::find`], or the directory cannot be created.
    pub fn create(name: &Name) -> Result<StateDir> {
        let state = StateDir::of(name)?;
        let in_path = || state.0.display().to_string();
        match StateDir::find(name)? {
            Some(_) => {}
            None => coracle_private_fs::create_directory(&state.0).with_context(in_path)?,
        }
        coracle_private_fs::restrict_entry(&state.0).with_context(in_path)?;
        Ok(state)
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of the log.
    pub fn log(&self) -> PathBuf {
        self.0.join(background::LOG)
    }

    /// Returns the path of the kubeconfig that reaches the server from here, independent of the
    /// user's.
    pub fn kubeconfig(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }

    fn record(&self) -> PathBuf {
        self.0.join(background::RECORD)
    }

    /// Takes the lock; None if it is held.
    ///
    /// # Errors
    /// The file of the lock cannot be used.
    pub fn lock(&self) -> Result<Option<File>> {
        let path = self.0.join(background::LOCK);
        let lock = || -> io::Result<Option<File>> {
            loop {
                let file = coracle_private_fs::file_options().open(&path)?;
                let metadata = file.metadata()?;
                if !metadata.is_file() {
                    return Err(io::Error::other("it is not a regular file"));
                }
                match file.try_lock() {
                    Err(TryLockError::WouldBlock) => return Ok(None),
                    Err(TryLockError::Error(error)) => return Err(error),
                    // The previous holder may have deleted the directory: then this lock is of a
                    // deleted file.
                    Ok(()) if fs::symlink_metadata(&path).is_ok_and(|now| is_same(&now, &metadata)) => {
                        return Ok(Some(file));
                    }
                    Ok(()) => coracle_private_fs::create_directory(&self.0)?,
                }
            }
        };
        lock().with_context(|| path.display().to_string())
    }

    /// Returns the metadata of the lock file if a process holds the lock, and `None` otherwise.
    fn holder(&self) -> io::Result<Option<Metadata>> {
        let options = coracle_private_fs::file_options().create(false).write(false).clone();
        let file = match options.open(self.0.join(background::LOCK)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        // A shared one is in the way of no other that looks.
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => file.metadata().map(Some),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Reads the state of the name.
    ///
    /// # Errors
    /// The lock or the record cannot be read. The record of a stopped process does not matter.
    pub fn read(&self) -> Result<State> {
        let holder = self.holder().with_context(|| self.0.join(background::LOCK).display().to_string())?;
        let Some(holder) = holder else {
            return Ok(State::Stopped(self.last_record()));
        };
        let record = self.read_record().map_err(|error| {
            anyhow!(
                "{error:#}; the process that has {} runs: stop it",
                self.0.join(background::LOCK).display()
            )
        })?;
        Ok(match record {
            Some(record) if has_as_input(record.process, &holder) => State::Running(record),
            // The last one is of the process before.
            _ => State::Starting,
        })
    }

    /// Returns the record of the last process; None if there is none, or if it cannot be read.
    pub fn last_record(&self) -> Option<Record> {
        self.read_record().unwrap_or_default()
    }

    /// Reads the record; None if there is none.
    fn read_record(&self) -> Result<Option<Record>> {
        let path = self.record();
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let read = || -> io::Result<Option<Vec<u8>>> {
            let opened = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(&path);
            let file = match opened {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                    return Err(io::Error::other("it is a symbolic link"));
                }
                opened => opened?,
            };
            let metadata = file.metadata()?;
            if !metadata.is_file() || !is_own(&metadata) {
                return Err(io::Error::other("it is not a regular file of this user"));
            }
            let mut content = Vec::new();
            file.take(MAX_RECORD + 1).read_to_end(&mut content)?;
            if content.len() as u64 > MAX_RECORD {
                return Err(io::Error::other("it is too large"));
            }
            Ok(Some(content))
        };
        let Some(content) = read().with_context(|| path.display().to_string())? else { return Ok(None) };
        let record: Record = serde_json::from_slice(&content)
            .map_err(|_| anyhow!("{}: it is no record of coracle", path.display()))?;
        Ok(Some(record))
    }

    /// Writes the record.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_record(&self, record: &Record) -> Result<()> {
        let path = self.record();
        let text = serde_json::to_vec(record).with_context(|| path.display().to_string())?;
        coracle_private_fs::replace(&path, &text).with_context(|| path.display().to_string())
    }

    /// Removes the record.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_record(&self) -> Result<()> {
        match fs::remove_file(self.record()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| self.record().display().to_string())
            }
            _ => Ok(()),
        }
    }

    /// Creates an empty log. That of the last process is kept under another name, and the one
    /// before it is removed.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn begin_log(&self) -> Result<File> {
        let path = self.log();
        let begin = || -> io::Result<File> {
            match fs::rename(&path, self.0.join(background::PREVIOUS_LOG)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            coracle_private_fs::options().append(true).create_new(true).open(&path)
        };
        begin().with_context(|| path.display().to_string())
    }

    /// Returns the last lines of the log.
    pub fn log_tail(&self) -> Vec<String> {
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(self.log())?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(MAX_TAIL)))?;
            let mut content = Vec::new();
            file.take(MAX_TAIL).read_to_end(&mut content)?;
            Ok(content)
        };
        let content = read().unwrap_or_default();
        let text = String::from_utf8_lossy(&content);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].iter().map(|line| plain(line)).collect()
    }
}

impl Record {
    /// Sends a signal to the process, if it is still the one that has the lock.
    ///
    /// # Errors
    /// The process is of another user.
    pub fn signal(&self, state: &StateDir, signal: Signal) -> Result<()> {
        let is_holder = matches!(state.read()?, State::Running(record) if record.process == self.process);
        let Some(process) = Pid::from_raw(self.process).filter(|_| is_holder) else { return Ok(()) };
        match rustix::process::kill_process(process, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot stop process {}", self.process)),
        }
    }
}

/// Returns `true` if the standard input of a process is this file. Without `/proc` it returns
/// `true` for any valid process id, since the lock has been checked.
fn has_as_input(process: i32, file: &Metadata) -> bool {
    if !Path::new("/proc/self/fd").exists() {
        return process > 1;
    }
    process > 1 && fs::metadata(format!("/proc/{process}/fd/0")).is_ok_and(|input| is_same(&input, file))
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn is_own(metadata: &Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw()
}

/// Returns a text without control characters, which a terminal would interpret.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
