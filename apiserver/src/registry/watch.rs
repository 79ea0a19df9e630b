//! Watches: the log of changes after a revision, filtered for one client.
//!
//! A watch pulls from its cursor when the connection can accept more, and has no queue of its own:
//! a slow client affects only itself, and below the compact revision it gets an ERROR event. The
//! type of an event for the client follows from the object before and after it, each matched
//! against the same filter as a list's.
//!
//! Source: API concepts, "Efficient detection of changes", "Watch bookmarks", "Streaming lists".
#![expect(clippy::disallowed_methods, reason = "the life of a connection, and of its bookmarks")]

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coracle_storage::{Compacted, Event, Revision, Watcher, WatcherName};
use tokio::time::{Instant, Sleep, sleep_until};

use super::read::Filter;
use super::{ObjectIndex, Registry, Stored};
use crate::request::options::{ListOptions, parse_revision};
use crate::resource_info::{ResourceInfo, Retirement};
use crate::{Error, Result};

/// The interval of bookmarks in a quiet watch that allows them.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The time before the end of a watch at which there is another bookmark: clients that go on from
/// it miss little.
const LAST_BOOKMARK_BEFORE: Duration = Duration::from_secs(2);
/// No watch lasts longer: clocks cannot count as far as clients can write.
const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 3600);
/// The largest number of changes in a batch, and of bytes of their objects, except for the last
/// one: a client that does not read keeps a batch in memory.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 128 << 10;

/// The change from the client's perspective.
pub enum Change {
    /// An object was created, or started to match the selector.
    Added(Arc<Stored>),
    /// An object changed.
    Modified(Arc<Stored>),
    /// An object was deleted or stopped to match: its last matching state, and the revision of the
    /// event.
    Deleted(Arc<Stored>, Revision),
    /// There are no further changes up to this revision.
    Bookmark {
        /// The revision.
        revision: Revision,
        /// Whether this bookmark ends the initial events.
        initial_end: bool,
    },
    /// The stream ends with this.
    Error(Error),
}

/// One change for a client.
pub struct Notice {
    /// The change.
    pub change: Change,
    /// The revision of the event; None for other notices, such as the initial objects.
    pub revision: Option<Revision>,
    /// The event, where its frame is the same for all watches.
    pub shared: Option<Arc<Event<ObjectIndex>>>,
}

impl From<Change> for Notice {
    fn from(change: Change) -> Notice {
        Notice { change, revision: None, shared: None }
    }
}

/// The position of a watch among the events of its bucket.
#[derive(Clone)]
pub struct Position {
    /// The bucket.
    pub bucket: Arc<str>,
    seen: Arc<AtomicU64>,
}

impl Position {
    /// Returns the position after the events up to a revision.
    pub fn new(bucket: Arc<str>, seen: Revision) -> Position {
        Position { bucket, seen: Arc::new(AtomicU64::new(seen.0)) }
    }

    /// Returns the revision up to which all events have been processed.
    pub fn seen(&self) -> Revision {
        Revision(self.seen.load(Ordering::Acquire))
    }

    /// Records that the events up to a revision have been processed.
    pub fn advance(&self, seen: Revision) {
        self.seen.store(seen.0, Ordering::Release);
    }
}

/// Returns the time of the next bookmark of a watch; its deadline if there is none before.
fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let last = deadline.checked_sub(LAST_BOOKMARK_BEFORE).filter(|last| *last > now);
    last.map_or(deadline, |last| last.min(now + BOOKMARK_EVERY))
}

/// A running watch.
pub struct Watch {
    filter: Filter,
    watcher: Option<Watcher<ObjectIndex>>,
    /// Initial objects that have not been sent yet.
    initial: VecDeque<Arc<Stored>>,
    /// Events that may have to be converted by a webhook before they are matched.
    pending: Vec<Arc<Event<ObjectIndex>>>,
    /// The change to send once `initial` is empty.
    then: Option<Change>,
    bookmarks: bool,
    next_bookmark: Instant,
    /// The revision of the beginning. Later ones are in a bookmark each time, even if nothing has
    /// happened since the last bookmark.
    began_at: Revision,
    deadline: Instant,
    /// Fires at the deadline or the next bookmark. It lives as long as the watch, since a new timer
    /// for each wait would cost more than the wait.
    timer: Pin<Box<Sleep>>,
    /// Resolves when the definition of a custom resource changes or is deleted.
    retirement: Option<Retirement>,
    /// The revision of the last event that was read, whether or not it is selected.
    read: Revision,
    position: Position,
}

impl Registry {
    /// Opens a watch. A revision that history no longer covers is not an error here: the stream
    /// reports it and ends.
    pub async fn watch(&self, info: &ResourceInfo, filter: Filter, options: &ListOptions) -> Result<Watch> {
        let asked =
            parse_revision(&options.resource_version).map_err(|e| Error::Unclassified(e.in_query()))?;
        self.check_readable(info)?;
        let timeout = options.timeout_seconds.filter(|t| *t > 0).map(Duration::from_secs);
        let timeout = timeout.unwrap_or_else(|| self.default_watch_timeout()).min(MAX_DURATION);
        let now = Instant::now();
        let mut watch = Watch {
            filter,
            watcher: None,
            initial: VecDeque::new(),
            pending: Vec::new(),
            then: None,
            bookmarks: options.bookmarks,
            next_bookmark: next_bookmark(now, now + timeout),
            began_at: Revision(asked),
            deadline: now + timeout,
            timer: Box::pin(sleep_until(now + timeout)),
            retirement: info.retirement.clone(),
            read: Revision(asked),
            position: Position::new(info.storage.bucket.clone(), Revision(asked)),
        };
        let initial = options.send_initial_events;
        let from_now = asked == 0 || initial == Some(true);
        if initial == Some(true)
            && let Err(future) = self.wait_for(Revision(asked)).await
        {
            watch.then = Some(Change::Error(future));
            return Ok(watch);
        }
        if !from_now {
            match self.store.watch(&info.storage.bucket, Revision(asked)) {
                Ok(watcher) => watch.watcher = Some(watcher),
                Err(compacted) => watch.then = Some(Change::Error(expired(compacted))),
            }
            return Ok(watch);
        }
        // The snapshot and the watch after it must meet: if history moved on in between, take a
        // newer snapshot.
        loop {
            let snapshot = self.store.snapshot();
            let Ok(watcher) = self.store.watch(&info.storage.bucket, snapshot.revision()) else { continue };
            watch.watcher = Some(watcher);
            watch.began_at = snapshot.revision();
            watch.read = snapshot.revision();
            if initial != Some(false) {
                let bucket = snapshot.bucket(&info.storage.bucket);
                if watch.filter.needs_conversion() {
                    watch.filter.convert(bucket.iter().cloned().collect()).await?;
                }
                watch.initial = bucket.iter().filter(|o| watch.filter.matches(o)).cloned().collect();
            }
            if initial == Some(true) && options.bookmarks {
                watch.then = Some(Change::Bookmark { revision: snapshot.revision(), initial_end: true });
            }
            return Ok(watch);
        }
    }
}

impl Watch {
    /// Returns the size of the initial objects that have not been sent yet, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.initial.iter().map(|object| object.bytes.len()).sum()
    }

    /// Waits for the next changes, at least one; None at the end of the stream. Safe to drop while
    /// waiting.
    pub async fn next(&mut self) -> Option<Vec<Notice>> {
        if !self.initial.is_empty() {
            let mut bytes = 0;
            let fits = |object: &&Arc<Stored>| {
                bytes += object.bytes.len();
                bytes - object.bytes.len() < BATCH_BYTES
            };
            let count = self.initial.iter().take(BATCH).take_while(fits).count();
            return Some(self.initial.drain(..count).map(|o| Change::Added(o).into()).collect());
        }
        if let Some(change) = self.then.take() {
            return Some(vec![change.into()]);
        }
        loop {
            let notices = self.notices().await;
            if !notices.is_empty() {
                return Some(notices);
            }
            self.handed_out();
            let retirement = self.retirement.clone();
            let watcher = self.watcher.as_mut()?;
            let wake = if self.bookmarks { self.deadline.min(self.next_bookmark) } else { self.deadline };
            let retired = async {
                match &retirement {
                    Some(retirement) => retirement.wait().await,
                    None => std::future::pending().await,
                }
            };
            if self.timer.deadline() != wake {
                self.timer.as_mut().reset(wake);
            }
            let outcome = tokio::select! {
                biased;
                outcome = watcher.next() => Some(outcome),
                () = &mut self.timer => None,
                // Earlier events are sent first.
                () = retired => {
                    self.watcher = None;
                    return None;
                }
            };
            let events = match outcome {
                Some(Ok(events)) => events,
                Some(Err(compacted)) => {
                    self.watcher = None;
                    return Some(vec![Change::Error(expired(compacted)).into()]);
                }
                None if Instant::now() >= self.deadline => {
                    self.watcher = None;
                    return None;
                }
                None => {
                    self.next_bookmark = next_bookmark(Instant::now(), self.deadline);
                    let revision = watcher.progress();
                    if revision <= self.began_at {
                        continue;
                    }
                    return Some(vec![Change::Bookmark { revision, initial_end: false }.into()]);
                }
            };
            self.pending = events;
        }
    }

    /// Returns the changes since the last call, without waiting for any. An empty list does not
    /// mean that the watch has ended: only [`next`](Self::next) reports that.
    pub async fn try_next(&mut self) -> Vec<Notice> {
        let is_present = self.initial.is_empty() && self.then.is_none();
        let watcher = self.watcher.as_mut().filter(|_| is_present && self.pending.is_empty());
        if let Some(events) = watcher.and_then(|watcher| watcher.try_next().ok()) {
            self.pending = events;
        }
        self.notices().await
    }

    /// Returns the changes of the pending events. It can be dropped while it waits: no event is
    /// lost.
    async fn notices(&mut self) -> Vec<Notice> {
        if !self.pending.is_empty() && self.filter.needs_conversion() {
            let objects = self.pending.iter().flat_map(|event| [&event.before, &event.after]);
            let objects = objects.flatten().cloned().collect();
            // Objects that cannot be converted are not selected.
            if let Err(error) = self.filter.convert(objects).await {
                tracing::warn!(%error, "a watch cannot select by fields");
            }
        }
        let events = std::mem::take(&mut self.pending);
        self.read = events.last().map_or(self.read, |event| event.revision);
        events.into_iter().filter_map(|event| notice(event, &self.filter)).collect()
    }

    /// Sets the name under which the watch is listed while it has pending events.
    ///
    /// - `is_external`: whether the events are sent to a client, not to a part of the control plane
    pub fn name(&mut self, name: String, is_external: bool) {
        let name = WatcherName { name: name.into(), is_external };
        self.watcher.iter_mut().for_each(|watcher| watcher.name(name.clone()));
    }

    /// Returns the position of the watch, which shows its progress.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Returns the number of running watches of the same kind with any filter, including this one.
    pub fn watchers(&self) -> usize {
        self.watcher.as_ref().map_or(1, Watcher::watchers)
    }

    /// Records that all changes so far have been sent.
    pub fn handed_out(&self) {
        self.position.advance(self.read);
    }
}

/// Converts an event for a selection: entering it is an addition, leaving it a deletion.
fn notice(event: Arc<Event<ObjectIndex>>, filter: &Filter) -> Option<Notice> {
    let before = event.before.as_ref().filter(|o| filter.matches(o));
    let after = event.after.as_ref().filter(|o| filter.matches(o));
    // The shared frame shows the event as sent to a watcher without selectors.
    let plain = before.is_some() == event.before.is_some() && after.is_some() == event.after.is_some();
    let change = match (before, after) {
        (None, Some(object)) => Change::Added(object.clone()),
        (Some(_), Some(object)) => Change::Modified(object.clone()),
        (Some(object), None) => Change::Deleted(object.clone(), event.revision),
        (None, None) => return None,
    };
    Some(Notice { change, revision: Some(event.revision), shared: plain.then_some(event) })
}

fn expired(compacted: Compacted) -> Error {
    Error::Expired {
        message: format!(
            "too old resource version: {} ({})",
            compacted.asked,
            compacted.compact_revision.revision()
        ),
        fresh_continue: None,
    }
}
