//! The sequencer: the one thread that changes the view, and the only caller of the log.
//!
//! It takes the transactions that wait as a group, checks each against the newest state, appends
//! those that pass as one batch, publishes what the log's tail then has, and replies. A transaction
//! that another writer overtook is checked again, against what that writer wrote. Between groups
//! the sequencer forgets what history no longer keeps.
//!
//! Always true here:
//! - Between messages the published state is the newest one, so a check never sees more than
//!   readers could.
//! - Within a group no key is written twice; the write that would be the second starts the next
//!   group.
//! - A writer gets its result after its change is published.
//! - All events of a revision are published at once, and forgotten at once.
//!
//! Start at [`Sequencer::work`].

mod apply;
mod compaction;
mod disk;
mod pending;
mod relist;
mod shared_thread;

use std::{
    collections::HashSet,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

pub(crate) use self::pending::{PendingTransaction, PendingWrite};
pub(crate) use self::shared_thread::{SharedThread, Wake};
use self::{
    apply::{Applied, Source, apply, forget},
    pending::{Known, Own, Reply},
};
use crate::{
    CommitOutcome, CompactRevision, Event, Index, Key, Options, Revision, Snapshot, StoreError,
    compaction::CompactionQueue,
    history::Timeline,
    log::{
        Conflict, Entry, EphemeralLog, Location, Log, LogError, Notification, Notifier, Outcome, Record,
        Transaction, UnreadableEntry,
    },
    shared::Shared,
    space::{Part, Space},
    view::State,
};

/// A request to the sequencer.
pub(crate) enum Message<I: Index> {
    Commit(PendingTransaction<I>),
    Compact {
        up_to: Revision,
        reply: Reply<()>,
    },
    Close(Option<Reply<()>>),
    Notification(Notification),
    /// Starts the observation of events. The reply is the state before the first observed event.
    Observe {
        observer: Observer<I>,
        reply: oneshot::Sender<Snapshot<I>>,
    },
}

/// Observes each event, in order, before its writer has a response. It must not block for long.
pub type Observer<I> = Box<dyn FnMut(&Arc<Event<I>>) + Send>;

pub(crate) struct Sequencer<I: Index> {
    log: Box<dyn Log>,
    location: Location,
    state: State<I>,
    shared: Arc<Shared<I>>,
    /// Buckets in which something happened that is not published yet.
    changed: Vec<Arc<str>>,
    /// Events that are not published yet.
    unpublished: usize,
    /// Whether there is a newer revision without changes that is not published yet.
    has_progress: bool,
    timeline: Timeline<I>,
    /// The superseded entries that the log may delete, and the revisions up to which it may.
    superseded: CompactionQueue,
    compact_revision: CompactRevision,
    space: Space,
    /// The time at which the log last tried to continue after its disk was full.
    retried: Instant,
    /// Whether the log failed to compact something since then.
    compaction_failed: bool,
    /// The callers that wait until the log has deleted all superseded entries.
    compaction_replies: Vec<Reply<()>>,
    observers: Vec<Observer<I>>,
    mailbox: Receiver<Message<I>>,
    /// A message taken from the mailbox before its time.
    held: Option<Message<I>>,
    /// The history of the state is not in the timeline yet.
    is_to_inherit: bool,
}

/// The result of appending a transaction of a group.
enum Appended<I: Index> {
    Replied(Result<CommitOutcome<I>, StoreError>),
    /// Another writer came first.
    Overtaken,
}

/// The bucket of a record, and its event if it has one.
type Taken<I> = (Arc<str>, Option<Arc<Event<I>>>);

/// Changes in a group, give or take one transaction: bounds how long the first writer waits for the
/// last.
const GROUP: usize = 512;

/// Bytes in a group, give or take one transaction: bounds the same, and how many superseded bytes a
/// group can leave.
const GROUP_BYTES: usize = 4 << 20;

/// The interval at which the log is asked whether its full disk has space again.
const RETRY: Duration = Duration::from_secs(1);

/// The number of versions that are loaded between two reports of progress.
const PROGRESS: u64 = 1000;

impl<I: Index> Sequencer<I> {
    /// Opens the log and loads everything.
    pub fn open(
        mut log: Box<dyn Log>,
        notifier: Notifier,
        index: I,
        mut options: Options,
        authors: &dyn Fn(Revision) -> Option<I::Author>,
        mailbox: Receiver<Message<I>>,
    ) -> Result<Sequencer<I>, LogError> {
        let bounds = log.start(notifier)?;
        let location = log.location();
        let mut state = State::new(bounds.compact_revision);
        let mut timeline = Timeline::new(options.history);
        let mut superseded = CompactionQueue::default();
        let mut progress = options.progress.take().unwrap_or_else(|| Box::new(|_| ()));
        let mut loaded = 0;
        let source = Source { location: &location, has_other_writers: log.has_other_writers() };
        log.load(&mut |record| {
            let id = match &record {
                Record::Entry(entry) => entry.id,
                Record::Unreadable(entry) => entry.id,
            };
            let is_history = id.revision > bounds.compact_revision.revision();
            let known = Known { indexed: None, author: authors(id.revision) };
            match apply(&mut state, &index, record, known, source)? {
                Applied::Event(event) if is_history => timeline.push(event),
                Applied::Event(event) => forget(&mut state, &mut superseded, &event),
                // The deleted object was forgotten before.
                Applied::Nothing if !is_history => superseded.push(id, 0),
                Applied::Nothing | Applied::Quarantined => {}
            }
            loaded += 1;
            if loaded % PROGRESS == 0 {
                progress(loaded);
            }
            Ok(())
        })?;
        progress(loaded);
        state.advance(bounds.newest);
        Ok(Sequencer {
            timeline,
            superseded,
            compact_revision: bounds.compact_revision,
            ..Sequencer::at(state, log, index, &options, mailbox)
        })
    }

    /// Creates a sequencer in memory that continues from the state of another one.
    pub fn fork(
        state: State<I>,
        index: I,
        options: &Options,
        part: Arc<Part>,
        mailbox: Receiver<Message<I>>,
    ) -> Sequencer<I> {
        let log = Box::new(EphemeralLog::after(state.revision()));
        let space = Space::of_fork(options.limits, part, state.revision());
        Sequencer { is_to_inherit: true, space, ..Sequencer::at(state, log, index, options, mailbox) }
    }

    /// Takes the history of the state that a fork begins with, before it handles anything: who
    /// makes a fork does not wait for that.
    fn inherit(&mut self) {
        if std::mem::take(&mut self.is_to_inherit) {
            self.timeline.inherit(self.state.events());
        }
    }

    /// Creates a sequencer at a state, without history.
    fn at(
        state: State<I>,
        log: Box<dyn Log>,
        index: I,
        options: &Options,
        mailbox: Receiver<Message<I>>,
    ) -> Sequencer<I> {
        Sequencer {
            location: log.location(),
            log,
            shared: Arc::new(Shared::new(index, state.clone())),
            state,
            changed: Vec::new(),
            unpublished: 0,
            has_progress: false,
            timeline: Timeline::new(options.history),
            superseded: CompactionQueue::default(),
            compact_revision: CompactRevision::default(),
            space: Space::new(options.limits),
            retried: Instant::now(),
            compaction_failed: false,
            compaction_replies: Vec::new(),
            observers: Vec::new(),
            mailbox,
            held: None,
            is_to_inherit: false,
        }
    }

    pub fn shared(&self) -> &Arc<Shared<I>> {
        &self.shared
    }

    /// Runs until the store is closed, then closes the log.
    pub fn run(mut self) {
        let end = catch_unwind(AssertUnwindSafe(|| self.work()));
        self.end(end);
    }

    /// Ends after the store was closed, or after a panic.
    fn end(self, end: std::thread::Result<Option<Reply<()>>>) {
        match end {
            Ok(reply) => {
                let closed = match self.log.close() {
                    // Not a failure that was there before: it is reported to the caller who closes
                    // the store.
                    Err(LogError::NoSpace { .. }) => Err(StoreError::NoSpace),
                    closed => closed.map_err(|error| self.shared.fail(error)),
                };
                let closed = self.shared.health().and(closed);
                // Whoever waits for the end of a fork finds its space given back.
                drop(self.space);
                if let Some(reply) = reply {
                    drop(reply.send(closed));
                }
            }
            Err(_) => {
                let cause = "a panic, reported on standard error".into();
                self.shared.fail(LogError::Failed {
                    action: "the store stopped writing",
                    location: self.location,
                    cause,
                });
            }
        }
    }

    /// Handles messages until the store is closed, and returns the reply to whoever waits for that.
    fn work(&mut self) -> Option<Reply<()>> {
        loop {
            let message = self.receive();
            if let ControlFlow::Break(reply) = self.handle(message) {
                return reply;
            }
        }
    }

    /// Handles a message, or looks after history if there is none.
    fn handle(&mut self, message: Option<Message<I>>) -> ControlFlow<Option<Reply<()>>> {
        match message {
            Some(Message::Commit(pending)) => {
                let group = self.gather(pending);
                self.commit(group);
            }
            Some(Message::Notification(Notification::Changed)) => {
                // No writer waits for this: a failure shows in the store's health.
                drop(self.follow(self.state.revision(), std::iter::empty()));
                self.publish();
            }
            Some(Message::Notification(Notification::Failed(error))) => drop(self.log_failed(error)),
            Some(Message::Compact { up_to, reply }) => self.compact(up_to, reply),
            Some(Message::Observe { observer, reply }) => {
                // Between messages the state is published.
                if reply.send(Snapshot(self.shared.state())).is_ok() {
                    self.observers.push(observer);
                }
            }
            Some(Message::Close(reply)) => return ControlFlow::Break(reply),
            None => self.publish(),
        }
        if self.space.disk_is_full && self.retried.elapsed() >= RETRY {
            self.recover_space();
        }
        self.compact_log();
        ControlFlow::Continue(())
    }

    /// Returns the next message; None if other work is due instead: compaction of history, or a
    /// retry after the disk was full.
    fn receive(&mut self) -> Option<Message<I>> {
        if self.held.is_some() {
            return self.held.take();
        }
        let mut wait = if self.is_compaction_due() { Some(Duration::ZERO) } else { self.timeline.wait() };
        if self.space.disk_is_full {
            wait = Some(wait.unwrap_or(RETRY).min(RETRY));
        }
        let received = match wait {
            Some(wait) => self.mailbox.recv_timeout(wait),
            None => self.mailbox.recv().map_err(RecvTimeoutError::from),
        };
        match received {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Message::Close(None)),
        }
    }

    /// Collects the waiting transactions that can be checked and appended together.
    fn gather(&mut self, first: PendingTransaction<I>) -> Vec<PendingTransaction<I>> {
        let mut keys: HashSet<Key> = first.keys().cloned().collect();
        let mut bytes = first.bytes();
        let mut group = vec![first];
        if self.space.disk_is_full {
            // None is refused because of what the others need.
            return group;
        }
        while keys.len() < GROUP && bytes < GROUP_BYTES {
            match self.mailbox.try_recv() {
                Ok(Message::Commit(pending)) if !pending.keys().any(|key| keys.contains(key)) => {
                    keys.extend(pending.keys().cloned());
                    bytes += pending.bytes();
                    group.push(pending);
                }
                Ok(other) => {
                    self.held = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }
        group
    }

    fn commit(&mut self, mut group: Vec<PendingTransaction<I>>) {
        let mut disk_was_full = self.space.disk_is_full;
        loop {
            group = self.check(group);
            if group.is_empty() {
                return;
            }
            match self.append(&mut group) {
                // Transactions that another writer overtook are checked again, against its writes.
                Ok(appended) => group = reply(group, appended),
                // Only transactions that free space pass the next check.
                Err(StoreError::NoSpace) if !disk_was_full => disk_was_full = true,
                Err(error) => {
                    return group.into_iter().for_each(|pending| pending.reply(Err(error.clone())));
                }
            }
        }
    }

    /// Replies to the transactions that cannot be committed, or need not be, and returns the
    /// others.
    fn check(&mut self, group: Vec<PendingTransaction<I>>) -> Vec<PendingTransaction<I>> {
        let (mut used, began) = (self.state.bytes(), self.space.began());
        self.space.begin_group();
        let mut checked = Vec::with_capacity(group.len());
        for pending in group {
            let growth = pending.growth(&self.state, began);
            let decided = if pending.writes.is_empty() {
                Some(self.shared.health().map(|()| CommitOutcome::Done(Vec::new())))
            } else if let Some(unreadable) = pending.keys().find_map(|key| self.state.quarantined(key)) {
                Some(Err(StoreError::Quarantined(unreadable.clone())))
            } else if let Some(conflict) = pending.conflict(&self.state) {
                Some(Ok(conflict))
            } else {
                self.space.admit(used, growth).err().map(Err)
            };
            match decided {
                Some(result) => pending.reply(result),
                None => {
                    used = growth.applied_to(used);
                    checked.push(pending);
                }
            }
        }
        checked
    }

    /// Appends and publishes a checked group. Returns what became of each transaction, after
    /// sorting the group by the revisions at which the log committed them.
    fn append(&mut self, group: &mut Vec<PendingTransaction<I>>) -> Result<Vec<Appended<I>>, StoreError> {
        self.shared.health()?;
        let propose = |write: &PendingWrite<I>| write.proposal(self.state.get(&write.key));
        let mut batch: Vec<Transaction> =
            group.iter().map(|pending| pending.writes.iter().map(propose).collect()).collect();
        let checked = self.state.revision();
        let mut outcomes = self.log.append(&batch).map_err(|error| self.log_failed(error))?;
        if !outcomes.is_sorted_by_key(commit_revision) {
            let mut appended: Vec<_> = group.drain(..).zip(batch).zip(outcomes).collect();
            appended.sort_by_key(|(_, outcome)| commit_revision(outcome));
            let unsorted: Vec<_>;
            (unsorted, outcomes) = appended.into_iter().unzip();
            (*group, batch) = unsorted.into_iter().unzip();
        }
        let own = group
            .iter_mut()
            .zip(&outcomes)
            .filter_map(|(pending, outcome)| commit_revision(outcome).map(|revision| (revision, pending)));
        let own = own.flat_map(|(revision, PendingTransaction { writes, author, .. })| {
            writes.iter_mut().map(move |write| write.take(revision, author.clone()))
        });
        let newest = outcomes.iter().filter_map(Outcome::visible_at).max();
        let events = self.follow(newest.unwrap_or(self.state.revision()), own)?;
        self.publish();
        let mut events = events.into_iter();
        let appended = outcomes.into_iter().zip(&batch).map(|(outcome, transaction)| {
            Ok(match outcome {
                Outcome::Committed(_) => Appended::Replied(Ok(CommitOutcome::Done(
                    events.by_ref().take(transaction.len()).collect(),
                ))),
                Outcome::Rejected(reason) => Appended::Replied(Err(StoreError::Rejected(reason))),
                Outcome::Unknown(reason) => Appended::Replied(Err(StoreError::Unknown(reason))),
                Outcome::Conflict(conflict) => {
                    self.check_conflict(conflict, checked)?;
                    Appended::Overtaken
                }
            })
        });
        appended.collect()
    }

    /// Makes sure that a transaction is in conflict with something that it was not checked against:
    /// otherwise the next attempt would end as this one did, for ever.
    fn check_conflict(&self, conflict: Conflict, checked: Revision) -> Result<(), StoreError> {
        if conflict.newest > checked {
            return Ok(());
        }
        Err(self.cannot_read_back(format!("{conflict:?}, but the view is at revision {checked}")))
    }

    /// Applies what the log's tail has, at least up to a revision. Returns the events of our `own`
    /// changes, of which the index has read the values already; they are given in order of their
    /// ids.
    fn follow<'a>(
        &mut self,
        until: Revision,
        own: impl Iterator<Item = Own<'a, I>>,
    ) -> Result<Vec<Arc<Event<I>>>, StoreError> {
        let mut own = own.peekable();
        let mut events = Vec::new();
        let records = match self.log.tail(until) {
            Err(LogError::HistoryLost { .. }) => return self.relist(own.peek().is_some()),
            tail => tail.map_err(|error| self.shared.fail(error))?,
        };
        let seen = self.state.revision();
        for record in records {
            let known = own.next_if(|own| own.is_for(&record));
            let is_ours = known.is_some();
            let (bucket, event) =
                self.take(record, known.map_or_else(Known::nothing, |own| own.known), seen)?;
            match event {
                Some(event) => {
                    self.unpublished += 1;
                    self.timeline.push(event.clone());
                    self.space.observe(&event);
                    self.observers.iter_mut().for_each(|observer| observer(&event));
                    if is_ours {
                        events.push(event);
                    }
                }
                None if is_ours => return Err(self.cannot_read_back(format!("a change in {bucket} is void"))),
                None => {}
            }
            if !self.changed.contains(&bucket) {
                self.changed.push(bucket);
            }
        }
        if let Some(progress) = self.log.progress().filter(|progress| *progress > self.state.revision()) {
            self.state.advance(progress);
            self.has_progress = true;
        }
        match own.next() {
            None => Ok(events),
            Some(own) => {
                Err(self.cannot_read_back(format!("the tail lacks {} at {}", own.key, own.revision)))
            }
        }
    }

    /// Brings a record that is newer than `seen` into the view. Returns its bucket, and its event
    /// if it has one.
    fn take(&mut self, record: Record, known: Known<I>, seen: Revision) -> Result<Taken<I>, StoreError> {
        let (id, key) = match &record {
            Record::Entry(Entry { id, key, .. }) | Record::Unreadable(UnreadableEntry { id, key, .. }) => {
                (id, key)
            }
        };
        if id.revision <= seen {
            return Err(self.cannot_read_back(format!("the tail has {key} at {id} after revision {seen}")));
        }
        let bucket = key.bucket().clone();
        let source = Source { location: &self.location, has_other_writers: self.log.has_other_writers() };
        let applied = apply(&mut self.state, &self.shared.index, record, known, source);
        match applied.map_err(|error| self.shared.fail(error))? {
            Applied::Event(event) => Ok((event.key.bucket().clone(), Some(event))),
            Applied::Nothing | Applied::Quarantined => Ok((bucket, None)),
        }
    }

    /// Fails the store: the log breaks its contract, so nothing that it reports can be trusted.
    fn cannot_read_back(&self, cause: String) -> StoreError {
        let location = self.location.clone();
        self.shared.fail(LogError::Failed { action: "cannot read back", location, cause: cause.into() })
    }
}

/// Returns the revision of a transaction that was committed; None if it was not, or that is
/// unknown.
fn commit_revision(outcome: &Outcome) -> Option<Revision> {
    match outcome {
        Outcome::Committed(revision) => Some(*revision),
        Outcome::Conflict(_) | Outcome::Rejected(_) | Outcome::Unknown(_) => None,
    }
}

/// Replies to the transactions of a group, and returns those that are to be checked again.
fn reply<I: Index>(
    group: Vec<PendingTransaction<I>>,
    appended: Vec<Appended<I>>,
) -> Vec<PendingTransaction<I>> {
    let mut overtaken = Vec::new();
    for (pending, appended) in group.into_iter().zip(appended) {
        match appended {
            Appended::Replied(result) => pending.reply(result),
            Appended::Overtaken => overtaken.push(pending),
        }
    }
    overtaken
}

#[cfg(test)]
mod tests;
