//! Opened records: the history of a control plane up to one moment, as a store and what else
//! explains it.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use coracle_apiserver::registry::{self, AuthorRequest};
use coracle_apiserver::serve::Refusal;
use coracle_record::{Entry, Limits, Record, Request, Version};
use coracle_storage::log::{self, Change, FixedLog};
use coracle_storage::{CompactRevision, EntryId, Key, Revision};
use jiff::Timestamp;

use coracle_apimachinery::request::Verb;

use crate::error::Error;
use crate::options::range;

/// The reason for which an opened record refuses each change.
pub const READ_ONLY: &str = "this is the record of a control plane, which is read-only; `coracle fork` makes a control plane that goes on from it";

/// The memory of a version beside its object, in bytes.
const VERSION_BYTES: usize = 512;
/// The maximum number of refusals that are held in memory, the newest ones.
const MAX_REFUSALS: usize = 1000;
/// The maximum number of forks of a record.
const MAX_FORKS: usize = 1_000_000;
/// The maximum number of bytes of versions that are held in memory.
const MAX_BYTES: usize = 2 << 30;

/// A record to open.
#[derive(Clone, Debug)]
pub struct OpenRecord {
    /// The file.
    pub path: PathBuf,
    /// The last moment that is shown; None for the end.
    pub at: Option<Moment>,
    /// The fork that is shown; empty for the original control plane.
    pub fork: String,
}

/// A moment of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// After the write of a revision.
    Revision(u64),
    /// At a time.
    Time(Timestamp),
}

/// The error for a text that is neither a revision nor a time.
#[derive(Debug, thiserror::Error)]
#[error("it must be a revision, such as 123, or a time, such as 2026-11-27T10:11:12Z")]
pub struct InvalidMoment;

impl FromStr for Moment {
    type Err = InvalidMoment;

    fn from_str(text: &str) -> Result<Moment, InvalidMoment> {
        if let Ok(revision) = text.parse() {
            return if range::REVISION.contains(revision) {
                Ok(Moment::Revision(revision))
            } else {
                Err(InvalidMoment)
            };
        }
        text.parse().map(Moment::Time).map_err(|_| InvalidMoment)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Revision(revision) => write!(f, "revision {revision}"),
            Moment::Time(time) => write!(f, "{time}"),
        }
    }
}

/// The history of a record up to a moment.
pub struct History {
    /// The versions.
    pub log: FixedLog,
    /// The authors of the changes, by their revisions.
    pub authors: HashMap<Revision, registry::Author>,
    /// The requests that were refused.
    pub refusals: VecDeque<Refusal>,
    /// The moment.
    pub now: Timestamp,
    /// The number of entries that the record lacks.
    pub lost: u64,
}

/// The versions that belong to the history of a control plane: its own, and those of what it is a
/// fork of, up to a revision each.
struct Lineage(HashMap<Arc<str>, u64>);

impl Lineage {
    /// Follows a fork to the original control plane.
    fn of(fork: &str, record: &Record, path: &std::path::Path) -> Result<Lineage, Error> {
        let mut lineage = HashMap::from([(fork.into(), u64::MAX)]);
        if fork.is_empty() {
            return Ok(Lineage(lineage));
        }
        let mut forks: HashMap<Arc<str>, (Arc<str>, u64)> = HashMap::new();
        for entry in record.entries() {
            if let Entry::Fork(fork) = entry?
                && forks.len() < MAX_FORKS
            {
                forks.insert(fork.name.clone(), (fork.parent.clone(), fork.revision));
            }
        }
        let mut name: Arc<str> = fork.into();
        while !name.is_empty() {
            let Some((parent, revision)) = forks.remove(&name) else {
                let mut known: Vec<String> = forks.keys().map(ToString::to_string).collect();
                known.sort_unstable();
                return Err(Error::NoForkInRecord { path: path.to_owned(), fork: name.to_string(), known });
            };
            // A fork sees nothing of its parent that is later, and that nothing of its own parent.
            lineage.insert(parent.clone(), revision);
            name = parent;
        }
        Ok(Lineage(lineage))
    }

    fn has(&self, fork: &str, revision: u64) -> bool {
        self.0.get(fork).is_some_and(|last| revision <= *last)
    }
}

/// Reads a record. Blocks.
///
/// # Errors
/// The file is not an intact record, has no such fork, is later than the moment or ends before the
/// revision, or has more than fits in memory.
pub fn read(OpenRecord { path, at, fork }: &OpenRecord) -> Result<History, Error> {
    let record = Record::open(path, Limits::default())?;
    let lineage = Lineage::of(fork, &record, path)?;
    let last = match at {
        None => u64::MAX,
        Some(Moment::Revision(at)) => *at,
        Some(Moment::Time(at)) => last_revision(&record, &lineage, *at)?,
    };
    let (mut versions, mut refusals) = (Vec::new(), VecDeque::new());
    let (mut bytes, mut base, mut lost, mut now) = (0, 0, 0, record.header().run.started);
    let (mut seen, mut is_over) = (0, false);
    for entry in record.entries() {
        match entry? {
            Entry::Version(version) if lineage.has(&version.fork, version.revision) => {
                seen = version.revision.max(seen);
                is_over = seen > last;
                if version.revision > last {
                    continue;
                }
                bytes += VERSION_BYTES + version.object.as_ref().map_or(0, bytes::Bytes::len);
                if bytes > MAX_BYTES {
                    return Err(Error::LargeRecord { path: path.clone(), limit: MAX_BYTES });
                }
                now = now.max(version.time);
                versions.push(*version);
            }
            Entry::Request(request) if *request.fork == **fork && !is_over => {
                now = if at.is_none() { now.max(request.time) } else { now };
                if refusals.len() == MAX_REFUSALS {
                    refusals.pop_front();
                }
                refusals.extend(refusal(*request, seen));
            }
            Entry::Base { revision } => base = revision,
            Entry::Gap(gap) => lost += gap.entries,
            Entry::End { dropped } => lost = lost.max(dropped),
            _ => {}
        }
    }
    if versions.is_empty() || last < base {
        let at = at.map_or_else(|| "its end".to_owned(), |at| at.to_string());
        return Err(Error::EmptyRecord { path: path.clone(), at, base });
    }
    match at {
        Some(Moment::Time(at)) => now = now.max(*at),
        Some(Moment::Revision(at)) if *at > seen.max(base) => {
            return Err(Error::LateRevision { path: path.clone(), at: *at, last: seen.max(base) });
        }
        _ => {}
    }
    let (entries, authors) = history(versions, base);
    let log = FixedLog::new(CompactRevision::at(Revision(base)), entries, READ_ONLY);
    Ok(History { log, authors, refusals, now, lost })
}

/// Returns the newest revision that was written up to a time.
fn last_revision(record: &Record, lineage: &Lineage, at: Timestamp) -> Result<u64, Error> {
    let mut last = 0;
    for entry in record.entries() {
        if let Entry::Version(version) = entry?
            && version.time <= at
            && lineage.has(&version.fork, version.revision)
        {
            last = version.revision.max(last);
        }
    }
    Ok(last)
}

/// Makes the entries of a log, and their authors.
///
/// - `base`: the revision of the objects that were there when recording began
fn history(mut versions: Vec<Version>, base: u64) -> (Vec<log::Entry>, HashMap<Revision, registry::Author>) {
    // Changes while the first objects were recorded may precede them. Changes of one transaction
    // keep their order.
    versions.sort_by_key(|version| (version.revision > base, version.revision));
    let mut created: HashMap<Key, Revision> = HashMap::new();
    let mut authors = HashMap::new();
    let mut last = EntryId::first(Revision::ZERO);
    let mut entries = Vec::with_capacity(versions.len());
    for version in versions {
        let revision = Revision(version.revision);
        let index = if revision == last.revision { last.index + 1 } else { 0 };
        last = EntryId { revision, index };
        let key = Key::new(version.bucket, version.key);
        if let Some(author) = version.author {
            let request = AuthorRequest {
                user: author.user,
                user_agent: author.user_agent,
                verb: verb(&author.verb),
                subresource: author.subresource,
            };
            authors.insert(revision, registry::Author { request: Arc::new(request), time: version.time });
        }
        let change = match version.object {
            Some(stored) => {
                let first = *created.entry(key.clone()).or_insert(revision);
                Change::Put { created: Some(first).filter(|first| *first != revision), stored }
            }
            None => {
                created.remove(&key);
                Change::Delete
            }
        };
        entries.push(log::Entry { id: last, key, change });
    }
    (entries, authors)
}

/// Returns the refusal of a request; None if it was not refused or was not for a resource.
///
/// - `revision`: the newest revision at that time
fn refusal(request: Request, revision: u64) -> Option<Refusal> {
    if request.code < 400 || request.resource.is_empty() || request.reason.is_empty() {
        return None;
    }
    Some(Refusal {
        time: request.time,
        revision,
        count: 1,
        request: AuthorRequest {
            user: request.user,
            user_agent: request.user_agent,
            verb: verb(&request.verb),
            subresource: request.subresource,
        },
        group: request.group.to_string(),
        resource: request.resource.to_string(),
        namespace: request.namespace.to_string(),
        name: request.name.to_string(),
        code: request.code,
        reason: request.reason.to_string(),
        message: request.message.to_string(),
    })
}

/// Parses a verb; returns `Verb::None` for an unknown one.
fn verb(word: &str) -> Verb {
    let verbs = [Verb::Create, Verb::Update, Verb::Patch, Verb::Delete, Verb::DeleteCollection];
    verbs.into_iter().find(|verb| verb.as_str() == word).unwrap_or(Verb::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(revision: u64, key: &str, object: Option<&'static str>) -> Version {
        Version {
            fork: "".into(),
            revision,
            time: Timestamp::UNIX_EPOCH,
            bucket: "pods".into(),
            key: key.into(),
            author: None,
            object: object.map(Into::into),
        }
    }

    #[test]
    fn moments_are_revisions_or_times() {
        assert_eq!("12".parse::<Moment>().ok(), Some(Moment::Revision(12)));
        let time = "2026-11-27T10:11:12Z";
        assert_eq!(time.parse::<Moment>().ok(), time.parse().map(Moment::Time).ok());
        assert!("yesterday".parse::<Moment>().is_err() && "-1".parse::<Moment>().is_err());
    }

    #[test]
    fn the_first_objects_come_first_and_changes_of_a_transaction_keep_their_order() {
        // Recording began at revision 4, and 5 was written meanwhile.
        let versions = vec![
            version(5, "b", Some("b5")),
            version(4, "a", Some("a4")),
            version(2, "b", Some("b2")),
            version(6, "a", None),
            version(6, "c", Some("c6")),
            version(7, "a", Some("a7")),
        ];
        let (entries, _) = history(versions, 4);
        let shown: Vec<String> = entries
            .iter()
            .map(|entry| match &entry.change {
                Change::Put { created, .. } => format!("{} {} {created:?}", entry.key.name(), entry.id),
                Change::Delete => format!("{} {} deleted", entry.key.name(), entry.id),
            })
            .collect();
        let id = |revision, index| EntryId { revision: Revision(revision), index };
        let put =
            |name, at: EntryId, created: Option<u64>| format!("{name} {at} {:?}", created.map(Revision));
        let want = [
            put("b", id(2, 0), None),
            put("a", id(4, 0), None),
            put("b", id(5, 0), Some(2)),
            format!("a {} deleted", id(6, 0)),
            put("c", id(6, 1), None),
            put("a", id(7, 0), None),
        ];
        assert_eq!(shown, want);
    }
}
