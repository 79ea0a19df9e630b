//! The store: reads from the published view, writes through the sequencer.

use std::{
    collections::HashSet,
    io,
    sync::{Arc, OnceLock, mpsc},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::Instant,
};

use crate::{
    BucketSnapshot, CommitOutcome, Compacted, DeleteOutcome, Event, Expect, Future, Index, Key, Limits,
    LinearizeError, Object, Options, PutOutcome, Revision, RevisionError, Snapshot, StoreError, Unfollowed,
    Watcher, WatcherName, Write,
    index::read,
    limits::MAX_STORED_BYTES,
    log::{Linearizer, Location, Log, LogError, Notifier},
    sequencer::{Message, Observer, PendingTransaction, PendingWrite, Sequencer, SharedThread, Wake},
    shared::Shared,
    space::ForkSpace,
    view::State,
};

/// A store of the owner's objects. Clones share it; the last one dropped closes it.
pub struct Store<I: Index>(Arc<Handle<I>>);

struct Handle<I: Index> {
    shared: Arc<Shared<I>>,
    mailbox: mpsc::Sender<Message<I>>,
    /// Wakes the sequencer of a fork; other ones wait for their mailbox.
    wake: Option<Wake>,
    /// The thread of the forks of this store; unused if it is a fork itself.
    forks: OnceLock<SharedThread>,
    limits: Limits,
    /// The space of its forks.
    space: ForkSpace,
    /// The linearizer of a log that others write, too.
    linearizer: Option<Arc<dyn Linearizer>>,
    /// The free capacity of the queue of writes, in units of [`QUEUE_UNIT`].
    queue: Arc<Semaphore>,
}

/// The bytes of values that may wait in the mailbox, including those of callers that wait no
/// longer.
const QUEUE_BYTES: usize = 32 << 20;

/// The minimum size that a write counts, in bytes.
const QUEUE_UNIT: usize = 1 << 10;

impl<I: Index> Store<I> {
    /// Opens a log and loads what is in it. Blocks until all is loaded.
    ///
    /// # Errors
    /// [`LogError::InUse`], [`LogError::Damaged`] (also if the index cannot read a value), or what
    /// else the log ran into.
    pub fn open(log: Box<dyn Log>, index: I, options: Options) -> Result<Store<I>, LogError> {
        Store::open_with_authors(log, index, options, &|_| None)
    }

    /// Opens a log of changes with known authors.
    ///
    /// - `authors`: returns the author of the changes at a revision
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn open_with_authors(
        log: Box<dyn Log>,
        index: I,
        options: Options,
        authors: &dyn Fn(Revision) -> Option<I::Author>,
    ) -> Result<Store<I>, LogError> {
        let (mailbox, receiver) = mpsc::channel();
        let notifications = mailbox.clone();
        // Nobody listens any more only when the store is closed.
        let notifier =
            Notifier::new(move |notification| drop(notifications.send(Message::Notification(notification))));
        let limits = options.limits;
        let (linearizer, location) = (log.linearizer(), log.location());
        let sequencer = Sequencer::open(log, notifier, index, options, authors, receiver)?;
        let shared = sequencer.shared().clone();
        std::thread::Builder::new().name("coracle-store".into()).spawn(move || sequencer.run()).map_err(
            |e| LogError::Failed { action: "cannot start the store's thread", location, cause: e.into() },
        )?;
        let queue = Arc::new(Semaphore::new(QUEUE_BYTES / QUEUE_UNIT));
        let (wake, forks) = (None, OnceLock::new());
        let space = ForkSpace::new(limits.store_bytes);
        Ok(Store(Arc::new(Handle { shared, mailbox, wake, forks, limits, space, linearizer, queue })))
    }

    /// Creates another store, in memory, that begins with everything that this one has at its
    /// newest revision: objects, revisions and history. Both share it until it is replaced or
    /// dropped; a write to one store is never visible in the other.
    ///
    /// - `index`: reads values as the index of this store does.
    ///
    /// # Errors
    /// The system has no more threads; [`LogError::Closed`] if this store is a fork that is closed
    /// with all forks of it.
    pub fn fork(&self, index: I, options: &Options) -> Result<Store<I>, LogError> {
        let (mailbox, receiver) = mpsc::channel();
        let limits = options.limits;
        let thread = self.0.fork_thread().map_err(|error| LogError::Failed {
            action: "cannot start the thread of forks",
            location: Location::Memory,
            cause: error.into(),
        })?;
        let state = State::clone(&self.0.shared.state());
        let (part, space) = self.0.space.fork().ok_or(LogError::Closed)?;
        let sequencer = Sequencer::fork(state, index, options, part, receiver);
        let shared = sequencer.shared().clone();
        let (wake, forks) = (Some(thread.add(sequencer)), OnceLock::new());
        let queue = Arc::new(Semaphore::new(QUEUE_BYTES / QUEUE_UNIT));
        Ok(Store(Arc::new(Handle { shared, mailbox, wake, forks, limits, space, linearizer: None, queue })))
    }

    /// Returns the quota of the space of forks, in bytes, if at most a 64th of it is left. It is the
    /// largest total size of the live objects that the forks of a store, and the forks of those, do
    /// not share with it: the [`Limits::store_bytes`] of the store that is no fork.
    pub fn full_space_of_forks(&self) -> Option<u64> {
        self.0.space.full()
    }

    /// Returns the index, which reads the stored values.
    pub fn index(&self) -> &I {
        &self.0.shared.index
    }

    /// Returns a snapshot of everything at the newest revision.
    pub fn snapshot(&self) -> Snapshot<I> {
        Snapshot(self.0.shared.state())
    }

    /// Returns the newest version of the live object under a key.
    pub fn get(&self, key: &Key) -> Option<Arc<Object<I>>> {
        self.0.shared.peek().get(key).cloned()
    }

    /// Returns a revision not before the last change of a bucket, and not after its next one. While
    /// this revision is the same, the bucket is unchanged.
    pub fn last_change(&self, bucket: &str) -> Revision {
        self.0.shared.peek().last_change(bucket)
    }

    /// Returns the revision of the first event of a bucket after a revision; None if there is no
    /// such event, or history no longer has it.
    pub fn first_event_after(&self, bucket: &str, after: Revision) -> Option<Revision> {
        self.0.shared.peek().events_after(bucket, after).ok()?.next().map(|event| event.revision)
    }

    /// Returns the number of entries of other writers that could not be read since the store was
    /// opened. [`Snapshot::quarantined`] has the entries that are unreadable at present.
    pub fn quarantined_total(&self) -> u64 {
        self.snapshot().quarantined_total()
    }

    /// Returns the newest revision.
    pub fn revision(&self) -> Revision {
        self.0.shared.peek().revision()
    }

    /// Returns one bucket exactly as it was at a revision, rebuilt from the newest state and the
    /// events since.
    ///
    /// # Errors
    /// [`RevisionError::Compacted`] below the bucket's compact revision; [`RevisionError::Future`]
    /// above the newest revision.
    pub fn snapshot_at(&self, bucket: &str, at: Revision) -> Result<BucketSnapshot<I>, RevisionError> {
        let shared = &self.0.shared;
        let state = shared.state();
        state.compact_revision(bucket).admit(at)?;
        if let Some(known) = shared.rebuilt(bucket, at) {
            return Ok(known);
        }
        let (snapshot, undone) = state.bucket_at(bucket, at)?;
        shared.remember(bucket, &snapshot, undone);
        Ok(snapshot)
    }

    /// Watches the changes of a bucket after a revision. A future revision is allowed: the watch
    /// begins after it.
    ///
    /// # Errors
    /// [`Compacted`] below the bucket's compact revision.
    pub fn watch(&self, bucket: &Arc<str>, after: Revision) -> Result<Watcher<I>, Compacted> {
        let shared = &self.0.shared;
        let waker = shared.waker(bucket);
        // Before the state is read, so that no event comes in between unnoticed.
        let woken = waker.subscribe();
        shared.peek().compact_revision(bucket).admit(after)?;
        Ok(Watcher::new(shared.clone(), bucket.clone(), after, waker, woken))
    }

    /// Returns the watchers that have events that they have not handled yet.
    pub fn unfollowed(&self) -> Vec<Unfollowed> {
        let state = self.0.shared.state();
        self.0.shared.followers.unfollowed(|bucket, after| state.has_events_after(bucket, after))
    }

    /// Returns `true` if any watcher that waits for events has events that it has not handled yet.
    pub fn has_unfollowed(&self) -> bool {
        let state = self.0.shared.state();
        self.0
            .shared
            .followers
            .has_unfollowed(|_| true, |bucket, after| state.has_events_after(bucket, after))
    }

    /// Returns `true` if [`has_unfollowed`](Self::has_unfollowed) holds for a watcher that is not
    /// external.
    pub fn has_unfollowed_own(&self) -> bool {
        let state = self.0.shared.state();
        let is_own = |name: Option<&WatcherName>| name.is_none_or(|name| !name.is_external);
        self.0.shared.followers.has_unfollowed(is_own, |bucket, after| state.has_events_after(bucket, after))
    }

    /// Returns `true` if history has changes after a revision in any bucket other than this one.
    pub fn has_changed_outside(&self, bucket: &str, after: Revision) -> bool {
        self.0.shared.peek().has_events_outside(bucket, after)
    }

    /// Waits until some watcher has handled the events that it had. It does not count a watcher
    /// that does so before the first poll.
    pub async fn followed(&self) {
        self.0.shared.followers.handled().await;
    }

    /// Returns the time since the last write.
    pub fn since_write(&self) -> Duration {
        self.0.shared.followers.since_published()
    }

    /// Waits until the store has come to a revision: for reads "not older than".
    ///
    /// # Errors
    /// [`Future`] if it has not by the deadline.
    pub async fn wait_for(&self, asked: Revision, deadline: Instant) -> Result<(), Future> {
        let mut head = self.0.shared.follow_revision();
        match tokio::time::timeout_at(deadline, head.wait_for(|newest| *newest >= asked)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Future { asked, newest: self.revision() }),
        }
    }

    /// Waits until the store shows all that was committed before the call, by whomever: for
    /// linearizable reads. A store that writes its log alone shows it at once.
    ///
    /// # Errors
    /// [`LinearizeError`] if the log does not respond, or the store does not come that far by the
    /// deadline.
    pub async fn linearize(&self, deadline: Instant) -> Result<(), LinearizeError> {
        let Some(linearizer) = &self.0.linearizer else { return Ok(()) };
        let committed = match tokio::time::timeout_at(deadline, linearizer.committed()).await {
            Ok(committed) => committed?,
            Err(_) => return Err(LinearizeError::Timeout),
        };
        if committed <= self.revision() {
            return Ok(());
        }
        Ok(self.wait_for(committed, deadline).await?)
    }

    /// Returns `true` if other processes may write to the same log. What they have committed is
    /// visible for certain only after [`linearize`](Self::linearize).
    pub fn has_other_writers(&self) -> bool {
        self.0.linearizer.is_some()
    }

    /// Waits until the log has failed: see [`health`](Self::health).
    pub async fn failed(&self) -> StoreError {
        let mut failed = self.0.shared.follow_failure();
        loop {
            if let Err(error) = self.health() {
                return error;
            }
            // The sender lives as long as this handle.
            drop(failed.changed().await);
        }
    }

    /// Writes several keys, all or none, each under its own expectation. Readers see all of it or
    /// nothing.
    ///
    /// Dropping the call does not stop the write, unless it still waits because too many bytes wait
    /// to be written already.
    ///
    /// # Errors
    /// See [`StoreError`]. An expectation that does not hold is not an error but
    /// [`CommitOutcome::Conflict`].
    pub async fn commit(&self, writes: Vec<Write>) -> Result<CommitOutcome<I>, StoreError> {
        self.commit_by(writes, None).await
    }

    /// Commits like [`commit`](Self::commit), with an author that the events name.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn commit_by(
        &self,
        writes: Vec<Write>,
        author: Option<I::Author>,
    ) -> Result<CommitOutcome<I>, StoreError> {
        let (reply, answer) = oneshot::channel();
        let writes = writes.into_iter().map(|write| self.prepare(write)).collect::<Result<Vec<_>, _>>()?;
        let mut keys = HashSet::with_capacity(writes.len());
        if let Some(twice) = writes.iter().find(|write| !keys.insert(&write.key)) {
            return Err(StoreError::Twice { key: twice.key.clone() });
        }
        let permit = self.0.wait_in_queue(&writes).await?;
        self.0.send(Message::Commit(PendingTransaction { writes, author, reply, permit }))?;
        answer.await.map_err(|_| self.0.closed_error())?
    }

    /// Writes one object.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn put(
        &self,
        key: Key,
        expect: Expect,
        stored: impl Into<Bytes>,
    ) -> Result<PutOutcome<I>, StoreError> {
        Ok(match self.commit_one(Write::put(key, expect, stored)).await? {
            Ok(event) => match &event.after {
                Some(object) => PutOutcome::Stored(object.clone()),
                None => unreachable!("a put leaves an object"),
            },
            Err(current) => PutOutcome::Conflict { current },
        })
    }

    /// Deletes one object.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn delete(&self, key: Key, expect: Expect) -> Result<DeleteOutcome<I>, StoreError> {
        Ok(match self.commit_one(Write::delete(key, expect)).await? {
            Ok(event) => match &event.before {
                Some(object) => DeleteOutcome::Deleted { last: object.clone(), revision: event.revision },
                None => unreachable!("only a live object is deleted"),
            },
            Err(current) => DeleteOutcome::Conflict { current },
        })
    }

    /// Starts the observation of all further events. Returns the state before the first of them.
    ///
    /// # Errors
    /// [`StoreError::Closed`], or [`StoreError::Failed`] once the log failed.
    pub async fn observe(&self, observer: Observer<I>) -> Result<Snapshot<I>, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.0.send(Message::Observe { observer, reply })?;
        answer.await.map_err(|_| self.0.closed_error())
    }

    /// Forgets history up to a revision (or the newest, if that is less) before its time, in memory
    /// and in the log.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn compact(&self, up_to: Revision) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.0.send(Message::Compact { up_to, reply })?;
        answer.await.map_err(|_| self.0.closed_error())?
    }

    /// Makes everything durable and releases the log. Writes that wait are done before; later ones
    /// are refused.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if the log failed, now or before; [`StoreError::Closed`] if it was
    /// closed before.
    pub async fn close(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.0.send(Message::Close(Some(reply)))?;
        answer.await.map_err(|_| self.0.closed_error())?
    }

    /// Returns an error if the store can no longer accept writes.
    ///
    /// # Errors
    /// [`StoreError::Failed`] for good once the log failed.
    pub fn health(&self) -> Result<(), StoreError> {
        self.0.shared.health()
    }

    /// Returns an error if the store cannot accept all writes.
    ///
    /// # Errors
    /// As [`health`](Self::health), [`StoreError::NoSpace`] while the disk is full and only
    /// deletions are taken, and [`StoreError::Unavailable`] while a log that others share cannot be
    /// reached.
    pub fn readiness(&self) -> Result<(), StoreError> {
        self.health()?;
        if let Some(linearizer) = &self.0.linearizer {
            linearizer.readiness().map_err(StoreError::Unavailable)?;
        }
        if self.0.shared.disk_is_full() { Err(StoreError::NoSpace) } else { Ok(()) }
    }

    async fn commit_one(
        &self,
        write: Write,
    ) -> Result<Result<Arc<Event<I>>, Option<Arc<Object<I>>>>, StoreError> {
        Ok(match self.commit(vec![write]).await? {
            CommitOutcome::Done(mut events) => match events.pop() {
                Some(event) => Ok(event),
                None => unreachable!("a write makes an event"),
            },
            CommitOutcome::Conflict { current, .. } => Err(current),
        })
    }

    /// Reads what is to be written, on the writer's time.
    fn prepare(&self, Write { key, expect, value }: Write) -> Result<PendingWrite<I>, StoreError> {
        let value = match value {
            None => None,
            Some(stored) => {
                self.0.check_size(self.index().request_bytes(&key, &stored), &key, &stored)?;
                match read(self.index(), &key, &stored) {
                    Ok(indexed) => Some((stored, indexed)),
                    Err(reason) => return Err(StoreError::Unreadable { key, reason }),
                }
            }
        };
        Ok(PendingWrite { key, expect, value })
    }
}

impl<I: Index> Clone for Store<I> {
    fn clone(&self) -> Self {
        Store(self.0.clone())
    }
}

impl<I: Index> Handle<I> {
    fn send(&self, message: Message<I>) -> Result<(), StoreError> {
        let sent = self.mailbox.send(message).map_err(|_| self.closed_error());
        if let Some(wake) = &self.wake {
            wake.wake();
        }
        sent
    }

    /// Returns the thread of the forks of this store, which they share.
    fn fork_thread(&self) -> io::Result<SharedThread> {
        if let Some(wake) = &self.wake {
            return Ok(wake.thread().clone());
        }
        if let Some(thread) = self.forks.get() {
            return Ok(thread.clone());
        }
        let started = SharedThread::start()?;
        // Another call may have started one meanwhile: this one ends again.
        Ok(self.forks.get_or_init(|| started).clone())
    }

    /// Rejects values that are too large to be stored.
    fn check_size(&self, bytes: usize, key: &Key, stored: &Bytes) -> Result<(), StoreError> {
        let counted = [(bytes, self.limits.request_bytes), (stored.len(), MAX_STORED_BYTES)];
        match counted.into_iter().find(|(bytes, limit)| bytes > limit) {
            Some((bytes, limit)) => Err(StoreError::TooLarge { key: key.clone(), bytes, limit }),
            None => Ok(()),
        }
    }

    /// Waits until the mailbox has space for a write.
    async fn wait_in_queue(&self, writes: &[PendingWrite<I>]) -> Result<OwnedSemaphorePermit, StoreError> {
        let bytes: usize =
            writes.iter().filter_map(|t| t.value.as_ref()).map(|(stored, _)| stored.len()).sum();
        let units = (bytes / QUEUE_UNIT).clamp(1, QUEUE_BYTES / QUEUE_UNIT);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        self.queue.clone().acquire_many_owned(units).await.map_err(|_| StoreError::Closed)
    }

    /// Returns the reason why the sequencer does not reply.
    fn closed_error(&self) -> StoreError {
        self.shared.health().err().unwrap_or(StoreError::Closed)
    }
}

impl<I: Index> Drop for Handle<I> {
    fn drop(&mut self) {
        // The store is closed already if the mailbox has no receiver.
        drop(self.send(Message::Close(None)));
    }
}
