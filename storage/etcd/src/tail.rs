//! The queue of events that the watch has received and the store has not read yet.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use coracle_storage::log::{LogError, Notification, Notifier};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::{
    error::{failed, location},
    layout::Layout,
};

/// The pause before etcd is asked for the progress of its watch, since the watch does not show
/// changes outside the prefix.
pub const PROGRESS_REQUEST_DELAY: Duration = Duration::from_millis(50);

/// The size of the queued events, in bytes, at which the watch stops reading.
const MAX_BYTES: usize = 64 << 20;

/// One change, in etcd's representation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchEvent {
    pub revision: u64,
    /// The index of the change within its revision.
    pub index: u32,
    /// The revision at which the key was created.
    pub created: u64,
    pub name: Bytes,
    /// The new value; None if the key was deleted.
    pub value: Option<Bytes>,
}

/// The queue between the watch and the store.
pub(crate) struct Tail {
    layout: Arc<dyn Layout>,
    servers: String,
    queue: Mutex<Queue>,
    progress: watch::Sender<Progress>,
    /// Makes the watch request its progress.
    progress_request: Notify,
    /// Notifies the watch that the queue was read.
    read: Notify,
    /// Notifies the store that the watch waits until the queue is read.
    full: Notify,
    /// Notifies the watch of a restart.
    restart: Notify,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<WatchEvent>,
    bytes: usize,
    notifier: Option<Notifier>,
    /// Whether the store has been notified that there are events to read.
    is_notified: bool,
    /// The revision of the newest change of one of the store's keys.
    newest_record: u64,
    /// The reason why the watch cannot be resumed at the moment; None while it runs.
    interruption: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    /// All changes up to here were received.
    revision: u64,
    /// Whether changes after the revision are compacted, so that the watch waits for a
    /// [restart](Tail::restart).
    is_lost: bool,
}

impl Tail {
    pub fn new(layout: Arc<dyn Layout>, servers: String) -> Tail {
        Tail {
            layout,
            servers,
            queue: Mutex::default(),
            progress: watch::Sender::default(),
            progress_request: Notify::new(),
            read: Notify::new(),
            full: Notify::new(),
            restart: Notify::new(),
        }
    }

    /// Starts notifying the store of events after the revision `known`, up to which the store has
    /// loaded everything.
    pub fn start(&self, known: u64, notifier: Notifier) {
        self.queue.lock().notifier = Some(notifier);
        self.advance(known);
    }

    /// Returns the revision up to which all changes were received.
    pub fn progress(&self) -> u64 {
        self.progress.borrow().revision
    }

    /// Adds the changes of whole revisions, in order. Waits while too much is unread.
    pub async fn push(&self, events: Vec<WatchEvent>) {
        let Some(last) = events.last().map(|event| event.revision) else { return };
        while self.queue.lock().bytes > MAX_BYTES {
            self.full.notify_one();
            self.read.notified().await;
        }
        let mut queue = self.queue.lock();
        for event in events {
            let is_record =
                std::str::from_utf8(&event.name).is_ok_and(|name| self.layout.key(name).is_some());
            if is_record {
                queue.newest_record = event.revision;
                queue.bytes += size(&event);
                queue.events.push_back(event);
            }
        }
        let notifier = match queue.is_notified || queue.events.is_empty() {
            true => None,
            false => queue.notifier.clone(),
        };
        queue.is_notified |= notifier.is_some();
        drop(queue);
        self.advance(last);
        if let Some(notifier) = notifier {
            notifier.notify(Notification::Changed);
        }
    }

    /// Records that all changes up to a revision were received.
    pub fn advance(&self, to: u64) {
        self.progress.send_if_modified(|progress| {
            let is_news = progress.revision < to;
            progress.revision = progress.revision.max(to);
            is_news
        });
    }

    /// Returns the reason if the watch cannot be resumed at the moment; None while it runs.
    pub fn interruption(&self) -> Option<String> {
        self.queue.lock().interruption.clone()
    }

    /// Sets or clears the reason for an interruption of the watch.
    pub fn set_interruption(&self, reason: Option<String>) {
        self.queue.lock().interruption = reason;
    }

    /// Reports that the changes after the progress are compacted, and waits until the store has
    /// listed all objects instead.
    pub async fn lose_history(&self) {
        self.progress.send_modify(|progress| progress.is_lost = true);
        let notifier = self.queue.lock().notifier.clone();
        if let Some(notifier) = notifier {
            notifier.notify(Notification::Changed);
        }
        self.restart.notified().await;
    }

    /// Returns whether changes after the current progress are compacted, so that the watch has lost
    /// them.
    pub fn is_lost(&self) -> bool {
        self.progress.borrow().is_lost
    }

    /// Resumes the watch after the revision `known` and drops the queued events: the store has
    /// everything up to that revision.
    pub fn restart(&self, known: u64) {
        let mut queue = self.queue.lock();
        queue.events.clear();
        queue.bytes = 0;
        queue.is_notified = false;
        drop(queue);
        self.read.notify_one();
        self.progress.send_modify(|progress| *progress = Progress { revision: known, is_lost: false });
        self.restart.notify_one();
    }

    /// Waits until all changes up to a revision were received, or listed. The caller bounds the
    /// wait.
    pub async fn reached(&self, until: u64) -> Result<(), LogError> {
        self.reached_with(until, PROGRESS_REQUEST_DELAY).await
    }

    /// Waits as [`reached`](Self::reached) does; `delay` is the pause before etcd is asked for the
    /// progress of its watch.
    pub async fn reached_with(&self, until: u64, delay: Duration) -> Result<(), LogError> {
        let mut progress = self.progress.subscribe();
        loop {
            match tokio::time::timeout(delay, progress.wait_for(|progress| progress.revision >= until)).await
            {
                // The sender is not dropped while this exists.
                Ok(Err(_)) => return Err(self.failed("the watch has ended")),
                Ok(Ok(_)) => return Ok(()),
                Err(_) => self.progress_request.notify_one(),
            }
        }
    }

    /// Waits as [`reached_with`](Self::reached_with) does, but returns false as soon as the queue
    /// has to be read first.
    ///
    /// # Errors
    /// [`LogError::HistoryLost`] as soon as changes are compacted.
    pub async fn reached_or_full(&self, until: u64, delay: Duration) -> Result<bool, LogError> {
        let mut progress = self.progress.subscribe();
        tokio::select! {
            biased;
            Ok(_) = progress.wait_for(|progress| progress.is_lost) => Err(self.history_lost()),
            reached = self.reached_with(until, delay) => reached.map(|()| true),
            () = self.full.notified() => Ok(false),
        }
    }

    /// Waits until the progress of the watch is needed.
    pub async fn progress_requested(&self) {
        self.progress_request.notified().await;
    }

    /// Notifies the store of a revision that was received, unless it is about to read a change of
    /// that revision.
    pub fn report_progress(&self, revision: u64) {
        let queue = self.queue.lock();
        let notifier = queue.notifier.clone().filter(|_| queue.newest_record < revision);
        drop(queue);
        if let Some(notifier) = notifier {
            notifier.notify(Notification::Changed);
        }
    }

    /// Takes the events up to a revision: at least all up to the progress before the call.
    pub fn drain(&self, up_to: u64) -> Vec<WatchEvent> {
        let mut queue = self.queue.lock();
        let count = queue.events.partition_point(|event| event.revision <= up_to);
        let drained: Vec<_> = queue.events.drain(..count).collect();
        queue.bytes = queue.bytes.saturating_sub(drained.iter().map(size).sum());
        queue.is_notified &= !queue.events.is_empty();
        drop(queue);
        self.read.notify_one();
        drained
    }

    /// Returns the revision of the transaction that made exactly these changes (names and values).
    /// Only the first unread change of the first name can match: a later one was made against a
    /// newer state than the one that the store read.
    pub fn find(&self, changes: &[(Bytes, Option<Bytes>)]) -> Option<u64> {
        let (first, _) = changes.first()?;
        let queue = self.queue.lock();
        let revision = queue.events.iter().find(|event| event.name == first)?.revision;
        let made: Vec<_> = queue.events.iter().filter(|event| event.revision == revision).collect();
        let is_made = |(name, value): &(Bytes, Option<Bytes>)| {
            made.iter().any(|event| event.name == name && event.value == *value)
        };
        (made.len() == changes.len() && changes.iter().all(is_made)).then_some(revision)
    }

    pub fn history_lost(&self) -> LogError {
        LogError::HistoryLost { location: location(&self.servers) }
    }

    pub fn failed(&self, reason: &str) -> LogError {
        failed("cannot follow the changes", &self.servers, reason)
    }
}

fn size(event: &WatchEvent) -> usize {
    event.name.len() + event.value.as_ref().map_or(0, Bytes::len) + size_of::<WatchEvent>()
}
