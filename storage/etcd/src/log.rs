//! The log over an etcd cluster: the calls of the store's thread, and the tasks that serve them on
//! a runtime of their own.

use std::{
    collections::HashMap,
    sync::{Arc, mpsc},
    time::Duration,
};

use bytes::Bytes;
use coracle_storage::{
    CompactRevision, EntryId, Key, Revision,
    log::{
        Change, Entry, Linearizer, Location, Log, LogBounds, LogError, Notifier, Outcome, Record,
        Transaction, UnreadableEntry,
    },
};
use futures::{StreamExt, stream};
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};
use tonic::Status;

use crate::{
    Compaction, Endpoints, EtcdError, Layout,
    client::{Client, is_compacted, is_transient},
    compaction::{compact, compact_at_intervals, find_compact_revision},
    error::{failed, location},
    lease::Leases,
    linearizer::ReadIndex,
    proto::{KeyValue, RangeRequest, RangeResponse, header_revision, prefix_end, revision, to_wire},
    tail::{PROGRESS_REQUEST_DELAY, Tail, WatchEvent},
    txn::{Executor, Txn},
    watch::Watch,
};

/// Timeout for the cluster to respond at start, and the pause between attempts.
const START_TIMEOUT: Duration = Duration::from_secs(20);
const START_PAUSE: Duration = Duration::from_millis(200);

/// The time for which a list of all objects waits for a cluster that does not respond.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout for the watch to show a change that etcd has committed. After it the log has failed.
const TAIL_TIMEOUT: Duration = Duration::from_secs(60);

/// The number of past revisions that are loaded, so that watches resume after a restart.
const HISTORY: u64 = 10_000;

/// The pause before etcd is asked for the progress of its watch while it is certain to send events:
/// past events, which it starts to send after a tenth of a second, and changes that this store has
/// committed.
const EXPECTED_PROGRESS_DELAY: Duration = Duration::from_secs(2);

/// The largest number of transactions of a batch that are in flight at once.
const IN_FLIGHT: usize = 128;

/// The page sizes of a load, in objects: of the first page, and the largest of the following ones,
/// whose sizes depend on the sizes of the values before.
const FIRST_PAGE: i64 = 100;
const MAX_PAGE: i64 = 500;
const PAGE_BYTES: usize = 4 << 20;

/// An etcd cluster as the log of a store. It may be that of other stores, too, and of
/// kube-apiservers.
pub struct EtcdLog {
    /// None once it is closed.
    runtime: Option<Runtime>,
    client: Arc<Client>,
    layout: Arc<dyn Layout>,
    compaction: Compaction,
    tail: Arc<Tail>,
    executor: Arc<Executor>,
    linearizer: Arc<ReadIndex>,
    prefix: Bytes,
    bounds: LogBounds,
    /// Values that this store has put and the tail has not returned yet, so that they need not be
    /// decoded.
    own: HashMap<(Revision, Key), Bytes>,
    /// The newest revision committed by this store.
    committed: Revision,
    /// All changes up to here were returned by the tail.
    progress: Revision,
}

impl EtcdLog {
    /// Prepares the client. Nothing is connected before the store is opened.
    ///
    /// # Errors
    /// The URLs or the files of the endpoints cannot be used.
    pub fn new(
        endpoints: &Endpoints,
        layout: impl Layout,
        compaction: Compaction,
    ) -> Result<EtcdLog, EtcdError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("coracle-etcd")
            .enable_all()
            .build()
            .map_err(EtcdError::Runtime)?;
        let guard = runtime.enter();
        let client = Arc::new(Client::new(endpoints)?);
        drop(guard);
        let layout: Arc<dyn Layout> = Arc::new(layout);
        let prefix = Bytes::copy_from_slice(layout.prefix().as_bytes());
        let tail = Arc::new(Tail::new(layout.clone(), client.servers.clone()));
        let (linearizer, work) = ReadIndex::new(client.clone(), tail.clone(), prefix.clone());
        runtime.spawn(work);
        let executor = Arc::new(Executor {
            client: client.clone(),
            tail: tail.clone(),
            leases: Leases::new(client.clone()),
        });
        Ok(EtcdLog {
            runtime: Some(runtime),
            client,
            layout,
            compaction,
            tail,
            executor,
            linearizer: Arc::new(linearizer),
            prefix,
            bounds: LogBounds { compact_revision: CompactRevision::default(), newest: Revision::ZERO },
            own: HashMap::new(),
            committed: Revision::ZERO,
            progress: Revision::ZERO,
        })
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(task);
        }
    }

    /// Blocks this thread until work on the runtime is done.
    fn wait<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T, LogError> {
        let (done, result) = mpsc::sync_channel(1);
        self.spawn(async move { drop(done.send(work.await)) });
        result.recv().map_err(|_| self.failed("cannot go on", "the log is closed"))
    }

    /// Waits until all changes up to a revision were received; false if those before have to be
    /// read first.
    fn reached_or_full(&self, until: u64, delay: Duration) -> Result<bool, LogError> {
        let tail = self.tail.clone();
        let wait =
            async move { tokio::time::timeout(TAIL_TIMEOUT, tail.reached_or_full(until, delay)).await };
        match self.wait(wait)? {
            Ok(reached) => reached,
            Err(_) => Err(self.tail.failed("the watch does not show what was committed")),
        }
    }

    fn failed(
        &self,
        action: &'static str,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> LogError {
        failed(action, &self.client.servers, cause)
    }

    /// Converts a change in the cluster into a record of the store; None if the name does not
    /// belong to the store.
    fn record(&mut self, event: WatchEvent) -> Option<Record> {
        let WatchEvent { revision, index, created, name, value } = event;
        let key = self.layout.key(std::str::from_utf8(&name).ok()?)?;
        let id = EntryId { revision: Revision(revision), index };
        let Some(value) = value else {
            return Some(Record::Entry(Entry { id, key, change: Change::Delete }));
        };
        let stored = match self.own.remove(&(id.revision, key.clone())) {
            Some(stored) => Ok(stored),
            None => self.layout.decode(&key, &value),
        };
        Some(match stored {
            Ok(stored) => {
                let created = (created != revision).then_some(Revision(created));
                Record::Entry(Entry { id, key, change: Change::Put { created, stored } })
            }
            Err(reason) => Record::Unreadable(UnreadableEntry { id, key, reason }),
        })
    }

    /// Passes on every live object at the compact revision, page by page.
    ///
    /// # Errors
    /// [`LogError::HistoryLost`] if that revision is compacted in the meantime.
    fn load_objects(
        &mut self,
        visit: &mut dyn FnMut(Record) -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        let at = self.bounds.compact_revision.revision().0;
        let deadline = Instant::now() + LIST_TIMEOUT;
        let mut start = self.prefix.clone();
        let mut limit = FIRST_PAGE;
        loop {
            let request = RangeRequest {
                key: start,
                range_end: prefix_end(&self.prefix),
                limit,
                revision: to_wire(at),
                ..RangeRequest::default()
            };
            let client = self.client.clone();
            let page = self.wait(async move { range(&client, &request, deadline).await })?;
            let page = page.map_err(|status| match is_compacted(&status) {
                true => self.tail.history_lost(),
                false => self.failed("cannot load", status),
            })?;
            let Some(last) = page.kvs.last() else { return Ok(()) };
            // The key after the last one.
            start = [&last.key[..], b"\0"].concat().into();
            limit = next_page(&page.kvs);
            for kv in page.kvs {
                let event = WatchEvent {
                    revision: revision(kv.mod_revision),
                    index: 0,
                    created: revision(kv.create_revision),
                    name: kv.key,
                    value: Some(kv.value),
                };
                if let Some(record) = self.record(event) {
                    visit(record)?;
                }
            }
            if !page.more {
                return Ok(());
            }
        }
    }
}

/// Returns the number of values to request in the next page, by the average size of the values in
/// the last page.
fn next_page(kvs: &[KeyValue]) -> i64 {
    let bytes: usize = kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
    let average = (bytes / kvs.len().max(1)).max(1);
    i64::try_from(PAGE_BYTES / average).unwrap_or(MAX_PAGE).clamp(1, MAX_PAGE)
}

/// Returns the compact revision to load from, and the newest revision. It retries until the cluster
/// responds, or the timeout has passed.
async fn bounds(client: &Client, prefix: Bytes) -> Result<(u64, u64), Status> {
    let deadline = Instant::now() + START_TIMEOUT;
    let newest = newest(client, &prefix, deadline).await?;
    loop {
        match find_compact_revision(client, newest.saturating_sub(HISTORY), newest).await {
            Err(status) if is_transient(&status) && Instant::now() + START_PAUSE < deadline => {
                tokio::time::sleep(START_PAUSE).await;
            }
            found => return Ok((found?, newest)),
        }
    }
}

/// Reads a range, again while the cluster does not respond, until a deadline.
async fn range(client: &Client, request: &RangeRequest, deadline: Instant) -> Result<RangeResponse, Status> {
    loop {
        match client.range(request).await {
            Err(status) if is_transient(&status) && Instant::now() + START_PAUSE < deadline => {
                tokio::time::sleep(START_PAUSE).await;
            }
            response => return response,
        }
    }
}

/// Returns the newest revision. It retries until the cluster responds, or the deadline has passed.
async fn newest(client: &Client, prefix: &Bytes, deadline: Instant) -> Result<u64, Status> {
    let request = RangeRequest { key: prefix.clone(), count_only: true, ..RangeRequest::default() };
    let response = range(client, &request, deadline).await?;
    Ok(header_revision(response.header.as_ref()))
}

impl Log for EtcdLog {
    fn start(&mut self, notifier: Notifier) -> Result<LogBounds, LogError> {
        let (client, prefix) = (self.client.clone(), self.prefix.clone());
        let found = self.wait(async move { bounds(&client, prefix).await })?;
        let (compact_revision, newest) =
            found.map_err(|status| self.failed("cannot reach the cluster", status))?;
        self.bounds = LogBounds {
            compact_revision: CompactRevision::at(Revision(compact_revision)),
            newest: Revision(newest),
        };
        self.tail.start(compact_revision, notifier);
        let watch = Watch {
            client: self.client.clone(),
            tail: self.tail.clone(),
            prefix: self.prefix.clone(),
            progress_name: [&self.prefix[..], b"coracle/progress"].concat().into(),
        };
        self.spawn(watch.run());
        if let Compaction::Interval(interval) = self.compaction
            && !interval.is_zero()
        {
            self.spawn(compact_at_intervals(self.client.clone(), interval));
        }
        Ok(self.bounds)
    }

    fn load(&mut self, visit: &mut dyn FnMut(Record) -> Result<(), LogError>) -> Result<(), LogError> {
        self.load_objects(visit)?;
        let newest = self.bounds.newest.0;
        loop {
            let is_over = self.reached_or_full(newest, EXPECTED_PROGRESS_DELAY)?;
            for event in self.tail.drain(newest) {
                if let Some(record) = self.record(event) {
                    visit(record)?;
                }
            }
            if is_over {
                return Ok(());
            }
        }
    }

    fn relist(
        &mut self,
        visit: &mut dyn FnMut(Record) -> Result<(), LogError>,
    ) -> Result<Revision, LogError> {
        let (client, prefix) = (self.client.clone(), self.prefix.clone());
        let newest =
            self.wait(async move { newest(&client, &prefix, Instant::now() + LIST_TIMEOUT).await })?;
        let newest = newest.map_err(|status| self.failed("cannot reach the cluster", status))?;
        let newest = Revision(newest);
        self.bounds = LogBounds { compact_revision: CompactRevision::at(newest), newest };
        self.own.clear();
        self.load_objects(visit)?;
        self.progress = newest;
        self.tail.restart(newest.0);
        Ok(newest)
    }

    fn append(&mut self, batch: &[Transaction]) -> Result<Vec<Outcome>, LogError> {
        let txns: Vec<Txn> = batch.iter().map(|transaction| Txn::new(&*self.layout, transaction)).collect();
        let executor = self.executor.clone();
        let commit = async move {
            let commits = txns.into_iter().map(|txn| {
                let executor = executor.clone();
                async move { executor.commit(&txn).await }
            });
            stream::iter(commits).buffered(IN_FLIGHT).collect::<Vec<_>>().await
        };
        let outcomes = self.wait(commit)?;
        for (transaction, outcome) in batch.iter().zip(&outcomes) {
            let Outcome::Committed(revision) = outcome else { continue };
            self.committed = self.committed.max(*revision);
            for proposal in transaction {
                if let Change::Put { stored, .. } = &proposal.change {
                    self.own.insert((*revision, proposal.key.clone()), stored.clone());
                }
            }
        }
        Ok(outcomes)
    }

    fn tail(&mut self, until: Revision) -> Result<Vec<Record>, LogError> {
        let delay = if until <= self.committed { EXPECTED_PROGRESS_DELAY } else { PROGRESS_REQUEST_DELAY };
        let mut records = Vec::new();
        loop {
            if self.tail.is_lost() {
                return Err(self.tail.history_lost());
            }
            let is_over = self.tail.progress() >= until.0 || self.reached_or_full(until.0, delay)?;
            // The progress is read first, so that everything received before it is drained.
            let progress = self.tail.progress();
            let events = self.tail.drain(u64::MAX);
            let last = events.last().map_or(progress, |event| event.revision.max(progress));
            self.progress = self.progress.max(Revision(last));
            records.extend(events.into_iter().filter_map(|event| self.record(event)));
            if is_over {
                self.own.clear();
                return Ok(records);
            }
        }
    }

    fn progress(&self) -> Option<Revision> {
        Some(self.progress)
    }

    fn has_other_writers(&self) -> bool {
        true
    }

    fn linearizer(&self) -> Option<Arc<dyn Linearizer>> {
        Some(self.linearizer.clone())
    }

    fn compact(&mut self, compact_revision: CompactRevision, _: &[EntryId]) -> Result<(), LogError> {
        let up_to = compact_revision.revision().0;
        if self.compaction != Compaction::WithHistory || up_to == 0 {
            return Ok(());
        }
        let client = self.client.clone();
        let compacted = self.wait(async move { compact(&client, up_to).await })?;
        compacted.map_err(|status| self.failed("cannot compact", status))
    }

    fn location(&self) -> Location {
        location(&self.client.servers)
    }

    fn close(self: Box<Self>) -> Result<(), LogError> {
        Ok(())
    }
}

impl Drop for EtcdLog {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
