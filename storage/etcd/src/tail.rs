//! What the watch has received and the store has not read yet.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use coracle_storage::log::{LogError, Notification, Notifier};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::{
    error::{failed, location},
    layout::Layout,
};

/// How long a wait goes on before etcd is asked how far its watch is: a change outside the prefix is not shown by it.
pub const NUDGE: Duration = Duration::from_millis(50);

/// What may wait to be read before the watch is read no further.
const MAX_BYTES: usize = 64 << 20;

/// One change, as etcd shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchEvent {
    pub revision: u64,
    /// Which change of its revision this is.
    pub index: u32,
    /// The revision at which the key was created.
    pub created: u64,
    pub name: Bytes,
    /// None deletes.
    pub value: Option<Bytes>,
}

/// The queue between the watch and the store.
pub(crate) struct Tail {
    layout: Arc<dyn Layout>,
    servers: String,
    queue: Mutex<Queue>,
    progress: watch::Sender<Progress>,
    /// Asks the watch for its progress.
    nudge: Notify,
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
    /// Does the store know that there is something to read?
    is_notified: bool,
    /// The revision of the newest change of one of the store's keys.
    newest_record: u64,
    /// Why the watch cannot be resumed at the moment.
    interruption: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    /// All changes up to here were received.
    revision: u64,
    /// Whether changes after the revision are compacted, so that the watch waits for a [restart](Tail::restart).
    is_lost: bool,
}

impl Tail {
    pub fn new(layout: Arc<dyn Layout>, servers: String) -> Tail {
        Tail {
            layout,
            servers,
            queue: Mutex::default(),
            progress: watch::Sender::default(),
            nudge: Notify::new(),
            read: Notify::new(),
            full: Notify::new(),
            restart: Notify::new(),
        }
    }

    /// Everything up to a revision is known, and who is notified of more.
    pub fn start(&self, known: u64, notifier: Notifier) {
        self.queue.lock().notifier = Some(notifier);
        self.advance(known);
    }

    /// How far all changes were received.
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

    /// All changes up to a revision were received.
    pub fn advance(&self, to: u64) {
        self.progress.send_if_modified(|progress| {
            let is_news = progress.revision < to;
            progress.revision = progress.revision.max(to);
            is_news
        });
    }

    /// Why the watch cannot be resumed at the moment; None while it goes on.
    pub fn interruption(&self) -> Option<String> {
        self.queue.lock().interruption.clone()
    }

    /// Remembers whether the watch goes on.
    pub fn set_interruption(&self, reason: Option<String>) {
        self.queue.lock().interruption = reason;
    }

    /// Reports that the changes after the progress are compacted, and waits until the store has listed all objects instead.
    pub async fn lose_history(&self) {
        self.progress.send_modify(|progress| progress.is_lost = true);
        let notifier = self.queue.lock().notifier.clone();
        if let Some(notifier) = notifier {
            notifier.notify(Notification::Changed);
        }
        self.restart.notified().await;
    }

    /// Whether changes after the progress are compacted.
    pub fn is_lost(&self) -> bool {
        self.progress.borrow().is_lost
    }

    /// Lets the watch go on after a revision: everything up to there is known, and nothing that it has received is needed.
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

    /// Waits until all changes up to a revision were received, or listed. The caller bounds the wait.
    pub async fn reached(&self, until: u64) -> Result<(), LogError> {
        self.reached_with(until, NUDGE).await
    }

    /// As [`reached`](Self::reached); `nudge` is how long etcd may take before it is asked how far its watch is.
    pub async fn reached_with(&self, until: u64, nudge: Duration) -> Result<(), LogError> {
        let mut progress = self.progress.subscribe();
        loop {
            match tokio::time::timeout(nudge, progress.wait_for(|progress| progress.revision >= until)).await
            {
                // The sender lives as long as this.
                Ok(Err(_)) => return Err(self.failed("the watch has ended")),
                Ok(Ok(_)) => return Ok(()),
                Err(_) => self.nudge.notify_one(),
            }
        }
    }

    /// As [`reached_with`](Self::reached_with), but returns false as soon as the queue has to be read first.
    ///
    /// # Errors
    /// [`LogError::HistoryLost`] as soon as changes are compacted.
    pub async fn reached_or_full(&self, until: u64, nudge: Duration) -> Result<bool, LogError> {
        let mut progress = self.progress.subscribe();
        tokio::select! {
            biased;
            Ok(_) = progress.wait_for(|progress| progress.is_lost) => Err(self.history_lost()),
            reached = self.reached_with(until, nudge) => reached.map(|()| true),
            () = self.full.notified() => Ok(false),
        }
    }

    /// Waits until somebody needs to know how far the watch is.
    pub async fn nudged(&self) {
        self.nudge.notified().await;
    }

    /// Lets the store know of a revision that was received, unless it reads a change of that revision anyway.
    pub fn report_progress(&self, revision: u64) {
        let queue = self.queue.lock();
        let notifier = queue.notifier.clone().filter(|_| queue.newest_record < revision);
        drop(queue);
        if let Some(notifier) = notifier {
            notifier.notify(Notification::Changed);
        }
    }

    /// Takes what was received up to a revision: at least all up to the progress before the call.
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

    /// The revision at which exactly these changes, names and values, were made together. Only the first unread change of the
    /// first name can be it: nothing that is made against the state that was read last can come later.
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
