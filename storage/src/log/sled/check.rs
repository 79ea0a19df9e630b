//! The check of a store without changing it: a copy of its files is opened and every row of it is
//! read.
//!
//! sled has no way to open its files without repairing them, so a copy is checked. The original is
//! only read, and locked in the meantime.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use super::{
    directory::{self, Directory},
    failure::{catch, failed},
    journal,
    log::SledLog,
    private,
    rows::{self, Assembler, Header},
    state::{self, State},
    tree::{COMPACT_REVISION, RESERVED, Tree},
};
use crate::{
    CompactRevision, Index, Key, Revision,
    index::read,
    log::{
        error::LogError,
        transaction::{Change, Entry},
    },
};

/// The number of findings that are described; further ones are only counted.
const MAX_FINDINGS: usize = 1000;

/// The result of a check of a store.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The defects, one line each, up to the first thousand; empty for a sound store.
    pub findings: Vec<String>,
    /// The number of further defects.
    pub more_findings: u64,
    /// The newest revision in the log.
    pub newest: Revision,
    /// The compact revision.
    pub compact_revision: CompactRevision,
    /// The entries that were read.
    pub entries: u64,
    /// The number of live objects.
    pub objects: u64,
    /// Whether the store was closed after its last use. If not, its process crashed, which is not
    /// damage.
    pub is_closed: bool,
}

impl CheckReport {
    /// Returns whether the store has no defects.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    fn add(&mut self, finding: impl Into<String>) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding.into());
        } else {
            self.more_findings += 1;
        }
    }

    /// Records damage as a finding.
    ///
    /// # Errors
    /// Any error other than damage.
    fn note<T>(&mut self, result: Result<T, LogError>) -> Result<Option<T>, LogError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(LogError::Damaged { reason, .. }) => {
                self.add(reason);
                Ok(None)
            }
            // sled's own errors, except those of the system, concern the data it reads.
            Err(LogError::Failed { cause, .. }) if cause.is::<sled::Error>() => {
                self.add(cause.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl SledLog {
    /// Checks the log in a directory without changing it: every entry is decoded and read by the
    /// index, and the revisions above the compact revision must be without a gap.
    ///
    /// - `copy`: an empty directory on a file system with space for a copy of the log's files.
    ///
    /// # Errors
    /// [`LogError::InUse`] if another process has it, or the cause if it cannot be read or copied.
    /// Defects of the log are not errors but findings in the report.
    pub fn check(path: &Path, index: &impl Index, copy: &Path) -> Result<CheckReport, LogError> {
        let failed = |action| move |cause: io::Error| failed(action, path, cause);
        let mut line = Vec::new();
        let mut options = OpenOptions::new();
        options.read(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(
            &mut options,
            rustix::fs::OFlags::NOFOLLOW.bits().cast_signed(),
        );
        let mut store = options.open(path.join("store")).map_err(failed("cannot open the store"))?;
        directory::lock(&store, path)?;
        store.read_to_end(&mut line).map_err(failed("cannot read the store"))?;
        let mut report = CheckReport::default();
        let Some(state) = State::parse(&line) else {
            report.add(state::FOREIGN);
            return Ok(report);
        };
        report.is_closed = matches!(state, State::Sealed { .. } | State::New);
        copy_directory(&path.join("log"), &copy.join("log"), &mut report).map_err(failed("cannot copy"))?;
        journal::copy(path, copy).map_err(failed("cannot copy"))?;
        if state == State::New && !copy.join("log/db").exists() {
            return Ok(report);
        }
        if let State::Sealed { sum, .. } = state
            && directory::checksum(&copy.join("log")).map_err(failed("cannot read the log"))? != sum
        {
            report.add("its files are not those that were closed");
        }
        // The seal has been evaluated; from here on the copy is a store that was not closed.
        let boot = if let State::Open { boot, .. } = state { boot } else { None };
        let line = State::Open { synced: state.synced(), boot }.line();
        let mut store = private::file_options().open(copy.join("store")).map_err(failed("cannot copy"))?;
        store.write_all(line.as_bytes()).map_err(failed("cannot copy"))?;
        drop(store);
        let Some(directory) = report.note(Directory::take(copy))? else { return Ok(report) };
        let checked = catch(copy, || check_tree(&directory, state, index, &mut report));
        report.note(checked)?;
        Ok(report)
    }
}

fn check_tree(
    directory: &Directory,
    state: State,
    index: &impl Index,
    report: &mut CheckReport,
) -> Result<(), LogError> {
    let tree = Tree::open(directory)?;
    let reserved = tree.mark(RESERVED);
    let reserved = report.note(reserved)?.flatten();
    if reserved.is_none() && state != State::New {
        report.add("its log is empty, or its mark of reserved revisions is missing");
    }
    let floor = tree.mark(COMPACT_REVISION);
    let floor = report.note(floor)?.flatten().unwrap_or_default();
    report.compact_revision = CompactRevision::at(floor);
    let last = report.note(tree.last_revision(report.compact_revision))?;
    let newest = last.unwrap_or_default().max(floor);
    let synced = state.synced();
    if newest < synced {
        report
            .add(format!("it ends at revision {newest}, but everything up to revision {synced} was on disk"));
    }
    if let Some(last) = last {
        tree.drop_after(last)?;
    }
    let replayed = tree.replay_journal(directory, state, newest);
    let newest = report.note(replayed)?.unwrap_or(newest);
    report.newest = newest;
    match state {
        State::Sealed { .. } if reserved.is_some_and(|reserved| reserved > newest) => {
            report.add(format!("nothing after revision {newest}"));
        }
        State::New if newest > Revision::ZERO => report.add("its file `store` is empty"),
        _ => {}
    }
    // If the log does not end with a whole transaction, all rows are checked.
    let last = last.map(|last| last.max(newest));
    check_rows(&tree, index, floor, last, report)
}

/// Reads every row up to the last whole transaction: a transaction after it that a crash cut short
/// is not damage.
fn check_rows(
    tree: &Tree,
    index: &impl Index,
    floor: Revision,
    last: Option<Revision>,
    report: &mut CheckReport,
) -> Result<(), LogError> {
    let mut live: HashSet<Key> = HashSet::new();
    let mut known = floor;
    let mut previous: Option<Header> = None;
    let mut assembler = Assembler::default();
    for row in tree.db.scan_prefix(rows::PREFIX) {
        let (key, value) = row.map_err(|cause| tree.sled_failed("cannot read", cause))?;
        tree.touch(&key)?;
        let Some(header) = rows::read(&key, &value) else {
            report.add(format!("unreadable after revision {known}"));
            continue;
        };
        let id = header.id;
        if last.is_some_and(|last| id.revision > last) {
            break;
        }
        if id.revision > floor {
            report.note(tree.check_order(previous, header, floor))?;
            previous = Some(header);
        } else if header.part > 0 && !assembler.is_incomplete() {
            // A crash happened between the deletion of its first row and of this one.
            continue;
        }
        match assembler.take(&key, &value) {
            Ok(None) => {}
            Ok(Some(entry)) => {
                known = known.max(entry.id.revision);
                check_entry(entry, index, &mut live, report);
            }
            Err(_) => report.add(format!("the entry at {id} cannot be decoded")),
        }
    }
    if assembler.is_incomplete() || known != report.newest {
        report.add(format!("nothing after revision {known}"));
    }
    report.objects = live.len() as u64;
    Ok(())
}

fn check_entry(entry: Entry, index: &impl Index, live: &mut HashSet<Key>, report: &mut CheckReport) {
    report.entries += 1;
    let Entry { id, key, change } = entry;
    match change {
        Change::Delete => {
            live.remove(&key);
        }
        Change::Put { created, stored } => {
            if let Err(reason) = read(index, &key, &stored) {
                report.add(format!("{key} at revision {}: {reason}", id.revision));
            }
            if let Some(created) = created.filter(|created| *created >= id.revision) {
                report.add(format!(
                    "{key} at revision {}: an update of what was created later, at revision {created}",
                    id.revision
                ));
            }
            live.insert(key);
        }
    }
}

/// Copies the regular files of a directory and of its subdirectories.
fn copy_directory(from: &Path, to: &Path, report: &mut CheckReport) -> io::Result<()> {
    let mut rest: Vec<(PathBuf, PathBuf)> = vec![(from.into(), to.into())];
    while let Some((from, to)) = rest.pop() {
        let entries = match fs::read_dir(&from) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        private::create_directory(&to)?;
        for entry in entries {
            let entry = entry?;
            let (kind, to) = (entry.file_type()?, to.join(entry.file_name()));
            if kind.is_dir() {
                rest.push((entry.path(), to));
            } else if kind.is_file() {
                io::copy(&mut File::open(entry.path())?, &mut private::file_options().open(to)?)?;
            } else {
                report.add(format!("{} is neither a file nor a directory", entry.path().display()));
            }
        }
    }
    Ok(())
}
