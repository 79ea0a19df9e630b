//! Tests of the grouping of writes and of failures of the log.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    mpsc::{Sender, channel},
};

use super::*;
use crate::{
    CommitOutcome, EntryId, Expect, Limits, PutOutcome, Store, Write,
    log::{LogBounds, MemoryLog},
    testing::{Marked, delete, key, put, render_bucket},
};

type EditTail = Box<dyn FnMut(&mut Vec<Record>) + Send>;

/// A log that does what a test says.
struct Scripted {
    log: MemoryLog,
    /// Asked before each append, with the number of transactions.
    append: Box<dyn FnMut(usize) -> Result<(), LogError> + Send>,
    /// Asked before each compaction.
    compact: Box<dyn FnMut() -> Result<(), LogError> + Send>,
    /// Asked whether there is room again.
    recover_space: Box<dyn FnMut() -> Result<bool, LogError> + Send>,
    /// Changes what the tail says.
    tail: EditTail,
    notifier: Arc<Mutex<Option<Notifier>>>,
}

impl Default for Scripted {
    fn default() -> Scripted {
        Scripted {
            log: MemoryLog::new(),
            append: Box::new(|_| Ok(())),
            compact: Box::new(|| Ok(())),
            recover_space: Box::new(|| Ok(true)),
            tail: Box::new(|_| ()),
            notifier: Arc::default(),
        }
    }
}

impl Log for Scripted {
    fn start(&mut self, notifier: Notifier) -> Result<LogBounds, LogError> {
        *self.notifier.lock().unwrap() = Some(notifier.clone());
        self.log.start(notifier)
    }

    fn load(&mut self, visit: &mut dyn FnMut(Record) -> Result<(), LogError>) -> Result<(), LogError> {
        self.log.load(visit)
    }

    fn append(&mut self, batch: &[Transaction]) -> Result<Vec<Outcome>, LogError> {
        (self.append)(batch.len())?;
        self.log.append(batch)
    }

    fn tail(&mut self, until: Revision) -> Result<Vec<Record>, LogError> {
        let mut records = self.log.tail(until)?;
        (self.tail)(&mut records);
        Ok(records)
    }

    fn has_other_writers(&self) -> bool {
        self.log.has_other_writers()
    }

    fn compact(&mut self, compact_revision: CompactRevision, superseded: &[EntryId]) -> Result<(), LogError> {
        (self.compact)()?;
        self.log.compact(compact_revision, superseded)
    }

    fn recover_space(&mut self) -> Result<bool, LogError> {
        (self.recover_space)()
    }

    fn location(&self) -> Location {
        Location::Service("scripted".into())
    }

    fn close(self: Box<Self>) -> Result<(), LogError> {
        Box::new(self.log).close()
    }
}

fn open(log: Scripted) -> Store<Marked> {
    Store::open(Box::new(log), Marked, Options::default()).unwrap()
}

fn disk_full() -> LogError {
    LogError::Failed {
        action: "cannot write",
        location: Location::Service("disk".into()),
        cause: "full".into(),
    }
}

fn is_disk_full(error: &StoreError) -> bool {
    matches!(error, StoreError::Failed(cause) if cause.to_string() == "cannot write in disk")
}

/// Creates a log that reports the size of each append, and then waits until the append may proceed.
fn gated() -> (Scripted, std::sync::mpsc::Receiver<usize>, Sender<()>) {
    let (report, sizes) = channel();
    let (let_through, gate) = channel();
    let append = move |transactions| {
        report.send(transactions).unwrap();
        gate.recv().unwrap();
        Ok(())
    };
    (Scripted { append: Box::new(append), ..Scripted::default() }, sizes, let_through)
}

#[tokio::test]
async fn writes_that_wait_share_a_batch() {
    let (log, sizes, gate) = gated();
    let store = open(log);
    let write = |name: String| {
        let store = store.clone();
        tokio::spawn(async move { put(&store, &key(&name), "").await })
    };
    let first = write("first".into());
    tokio::task::yield_now().await;
    assert_eq!(sizes.recv().unwrap(), 1, "a lone write waits for nobody");
    let mut others: Vec<_> = (0..10).map(|n| write(format!("n{n}"))).collect();
    others.push(write("n3".into()));
    others.push(write("last".into()));
    tokio::task::yield_now().await;
    for size in [10, 2] {
        gate.send(()).unwrap();
        assert_eq!(sizes.recv().unwrap(), size, "the second write of a key starts a group");
    }
    gate.send(()).unwrap();
    assert_eq!(first.await.unwrap(), Revision(1));
    for (revision, other) in (2..).zip(others) {
        assert_eq!(other.await.unwrap(), Revision(revision), "in the order in which they came");
    }
}

#[tokio::test]
async fn a_dropped_writer_has_written() {
    let (log, sizes, gate) = gated();
    let store = open(log);
    let writer = tokio::spawn({
        let store = store.clone();
        async move { put(&store, &key("a"), "").await }
    });
    tokio::task::yield_now().await;
    sizes.recv().unwrap();
    writer.abort();
    assert!(writer.await.unwrap_err().is_cancelled());
    assert!(store.get(&key("a")).is_none(), "nothing is shown before it is logged");
    gate.send(()).unwrap();
    store
        .wait_for(Revision(1), tokio::time::Instant::now() + std::time::Duration::from_secs(30))
        .await
        .unwrap();
    assert!(store.get(&key("a")).is_some());
}

#[tokio::test]
async fn a_failed_append_stops_writing_for_good() {
    let mut appends = 0;
    let append = move |_| {
        appends += 1;
        if appends == 2 { Err(disk_full()) } else { Ok(()) }
    };
    let store = open(Scripted { append: Box::new(append), ..Scripted::default() });
    put(&store, &key("a"), "1").await;
    store.health().unwrap();
    for attempt in 0..3 {
        let error = store.put(key("a"), Expect::Any, "2@").await.map(drop).unwrap_err();
        assert!(is_disk_full(&error), "attempt {attempt}: {error:?}");
        assert!(is_disk_full(&store.health().unwrap_err()));
    }
    assert_eq!(
        render_bucket(&store.snapshot().bucket("things")),
        "a=1@1",
        "reads go on, of what was acknowledged"
    );
    let lost = store.put(key("a"), Expect::Absent, "2@").await.unwrap();
    assert!(
        matches!(lost, PutOutcome::Conflict { current: Some(_) }),
        "a conflict is reported without the log"
    );
    assert!(is_disk_full(&store.compact(Revision(1)).await.unwrap_err()));
    assert!(is_disk_full(&store.close().await.unwrap_err()));
}

#[tokio::test]
async fn a_failure_in_the_background_stops_writing() {
    let log = Scripted::default();
    let notifier = log.notifier.clone();
    let store = open(log);
    put(&store, &key("a"), "1").await;
    notifier.lock().unwrap().as_ref().unwrap().notify(Notification::Failed(disk_full()));
    let error = store.put(key("a"), Expect::Any, "2@").await.map(drop).unwrap_err();
    assert!(is_disk_full(&error) && is_disk_full(&store.health().unwrap_err()));
}

#[tokio::test]
async fn a_failed_compaction_stops_writing() {
    let store = open(Scripted { compact: Box::new(|| Err(disk_full())), ..Scripted::default() });
    put(&store, &key("a"), "1").await;
    assert!(is_disk_full(&store.compact(Revision(1)).await.unwrap_err()));
    assert!(is_disk_full(&store.put(key("a"), Expect::Any, "2@").await.map(drop).unwrap_err()));
}

fn edit(records: &mut Vec<Record>, edit: fn(&mut Entry)) {
    for record in records {
        let Record::Entry(entry) = record else { panic!("{record:?}") };
        edit(entry);
    }
}

#[tokio::test]
async fn a_log_that_breaks_its_contract_is_not_trusted() {
    type Break = fn(&mut Vec<Record>);
    let cases: [(&str, Break); 4] = [
        ("a tail that lacks our change", |records| records.clear()),
        ("another revision", |records| edit(records, |entry| entry.id.revision = Revision(7))),
        ("another key", |records| edit(records, |entry| entry.key = key("other"))),
        ("a revision that is not new", |records| edit(records, |entry| entry.id.revision = Revision::ZERO)),
    ];
    for (case, tail) in cases {
        let store = open(Scripted { tail: Box::new(tail), ..Scripted::default() });
        let error = store.put(key("a"), Expect::Any, "1@").await.map(drop);
        assert!(matches!(error, Err(StoreError::Failed(_))), "{case}");
        assert!(store.health().is_err(), "{case}");
        assert_eq!(store.snapshot().len("things"), 0, "{case}");
    }
}

#[tokio::test]
async fn a_panic_in_the_log_is_a_failure() {
    let store = open(Scripted { append: Box::new(|_| panic!("a bug, on purpose")), ..Scripted::default() });
    let error = store.put(key("a"), Expect::Any, "1@").await.map(drop);
    // The write fails because the thread does not respond; the failure is reported once the thread
    // has ended.
    assert!(matches!(error, Err(StoreError::Failed(_) | StoreError::Closed)));
    while store.health().is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(matches!(store.put(key("a"), Expect::Any, "1@").await, Err(StoreError::Failed(_))));
}

/// Checks that the log notices a change of the other store that is not yet known here when the
/// write is checked.
#[tokio::test]
async fn another_writer_may_come_first() {
    let log = MemoryLog::new();
    let other = Store::open(Box::new(log.share()), Marked, Options::default()).unwrap();
    let rival = Arc::new(Mutex::new(Some(other.clone())));
    let append = move |_| {
        let Some(other) = rival.lock().unwrap().take() else { return Ok(()) };
        let interfere =
            async { drop(other.commit(vec![Write::put(key("a"), Expect::Any, "theirs@")]).await.unwrap()) };
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(interfere);
        Ok(())
    };
    let store = open(Scripted { log: log.share(), append: Box::new(append), ..Scripted::default() });
    let writes = vec![Write::put(key("b"), Expect::Any, "b@"), Write::put(key("a"), Expect::Absent, "ours@")];
    let CommitOutcome::Conflict { index, current } = store.commit(writes).await.unwrap() else {
        panic!("overwrote another's write")
    };
    assert_eq!((index, &current.unwrap().bytes[..]), (1, &b"theirs@1"[..]));
    assert_eq!(render_bucket(&store.snapshot().bucket("things")), "a=theirs@1");
    assert_eq!(put(&store, &key("b"), "b").await, Revision(2));
    other
        .wait_for(Revision(2), tokio::time::Instant::now() + std::time::Duration::from_secs(30))
        .await
        .unwrap();
    assert_eq!(render_bucket(&other.snapshot().bucket("things")), "a=theirs@1 b=b@2");
}

fn no_space() -> LogError {
    LogError::NoSpace { location: Location::Service("disk".into()) }
}

/// Returns a log that has no space while the flag is set, and the number of times that it was asked
/// to make some.
fn filling() -> (Scripted, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let (full, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (is_full, makes_room, counted) = (full.clone(), full.clone(), asked.clone());
    // Like a log with a reserve: once it was asked to make room, it takes a little more.
    let reserve = asked.clone();
    let append = move |_| match is_full.load(Relaxed) && reserve.load(Relaxed) == 0 {
        true => Err(no_space()),
        false => Ok(()),
    };
    let recover_space = move || {
        counted.fetch_add(1, Relaxed);
        Ok(!makes_room.load(Relaxed))
    };
    let log =
        Scripted { append: Box::new(append), recover_space: Box::new(recover_space), ..Scripted::default() };
    (log, full, asked)
}

#[tokio::test]
async fn a_full_disk_refuses_what_grows_and_takes_what_shrinks() {
    let (log, full, asked) = filling();
    let store = open(log);
    put(&store, &key("a"), "1").await;
    put(&store, &key("b"), "1").await;
    full.store(true, Relaxed);
    assert!(matches!(store.put(key("c"), Expect::Any, "1@").await, Err(StoreError::NoSpace)));
    assert!(asked.load(Relaxed) > 0);
    assert!(matches!(store.readiness(), Err(StoreError::NoSpace)));
    store.health().unwrap();
    assert!(matches!(store.put(key("c"), Expect::Any, "1@").await, Err(StoreError::NoSpace)));
    assert!(matches!(store.delete(key("a"), Expect::Any).await, Ok(crate::DeleteOutcome::Deleted { .. })));
    put(&store, &key("b"), "2").await;
    assert_eq!(render_bucket(&store.snapshot().bucket("things")), "b=2@4");
    full.store(false, Relaxed);
    let deadline = Instant::now() + Duration::from_secs(30);
    while store.readiness().is_err() {
        assert!(Instant::now() < deadline, "the log is asked again without anybody writing");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    put(&store, &key("c"), "1").await;
}

#[tokio::test]
async fn a_disk_without_a_byte_left_refuses_deletions_too() {
    let (mut log, full, _) = filling();
    let is_full = full.clone();
    log.append = Box::new(move |_| if is_full.load(Relaxed) { Err(no_space()) } else { Ok(()) });
    let store = open(log);
    put(&store, &key("a"), "1").await;
    full.store(true, Relaxed);
    for _ in 0..2 {
        assert!(matches!(store.delete(key("a"), Expect::Any).await, Err(StoreError::NoSpace)));
    }
    store.health().unwrap();
    full.store(false, Relaxed);
    assert!(matches!(store.delete(key("a"), Expect::Any).await, Ok(crate::DeleteOutcome::Deleted { .. })));
}

#[tokio::test]
async fn a_store_above_its_quota_refuses_what_grows_and_takes_what_shrinks() {
    let limits = Limits { store_bytes: 100_000, ..Limits::default() };
    let store =
        Store::open(Box::new(MemoryLog::new()), Marked, Options { limits, ..Options::default() }).unwrap();
    let value = "x".repeat(10_000) + "@";
    let mut stored = 0;
    let refused = loop {
        match store.put(key(&format!("n{stored}")), Expect::Any, value.clone()).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::Full { quota: 100_000, .. }), "{refused}");
    assert_eq!((stored, store.snapshot().bytes() <= 100_000), (9, true));
    let grown = store.put(key("n0"), Expect::Any, format!("{}@", "x".repeat(30_000))).await;
    assert!(matches!(grown, Err(StoreError::Full { .. })));
    // Two writes at once are charged together.
    let two = |size: usize| {
        let value = "x".repeat(size) + "@";
        let puts = ["p", "q"].map(|name| Write::put(key(name), Expect::Absent, value.clone()));
        store.commit(puts.into())
    };
    assert!(two(4_000).await.is_err());
    assert!(matches!(store.delete(key("n1"), Expect::Any).await, Ok(crate::DeleteOutcome::Deleted { .. })));
    assert!(two(4_000).await.is_ok(), "room given back is there at once");
    store.readiness().unwrap();
}

#[tokio::test]
async fn forks_share_a_space_for_what_they_do_not_share() {
    let limits = Limits { store_bytes: 100_000, ..Limits::default() };
    let options = || Options { limits, ..Options::default() };
    let parent = Store::open(Box::new(MemoryLog::new()), Marked, options()).unwrap();
    let text = |size: usize| "x".repeat(size) + "@";
    for name in ["a", "b"] {
        put(&parent, &key(name), &text(20_000)).await;
    }
    let fork = |of: &Store<Marked>| of.fork(Marked, &options()).unwrap();
    let is_full = |error: StoreError| matches!(error, StoreError::Full { quota: 100_000, .. });
    let refuses = async |store: &Store<Marked>, name: &str, size: usize| {
        store.put(key(name), Expect::Any, text(size)).await.is_err_and(is_full)
    };
    let (one, other) = (fork(&parent), fork(&parent));
    put(&one, &key("a"), &text(50_000)).await;
    assert!(refuses(&other, "c", 50_000).await);
    put(&other, &key("a"), &text(29_000)).await;
    let two = ["c", "d"].map(|name| Write::put(key(name), Expect::Absent, text(15_000)));
    assert!(other.commit(two.into()).await.is_err_and(is_full));
    // An object of the parent is there beside the one that replaces it.
    put(&other, &key("b"), &text(20_000)).await;
    assert!(refuses(&other, "c", 1).await);
    // What grows by nothing is admitted, and what grows little may use the reserve.
    put(&other, &key("a"), &text(29_000)).await;
    put(&other, &key("a"), &text(29_900)).await;
    assert_eq!((one.full_space_of_forks(), parent.full_space_of_forks()), (Some(100_000), Some(100_000)));
    assert!(refuses(&other, "a", 31_000).await);
    put(&one, &key("a"), &text(40_000)).await;
    assert_eq!(one.full_space_of_forks(), None);
    // A fork of the fork shares its objects, and keeps their place when that ends.
    let heir = fork(&other);
    other.close().await.unwrap();
    assert!(refuses(&one, "c", 10_000).await);
    heir.close().await.unwrap();
    assert!(!refuses(&one, "c", 10_000).await);
    let late = other.fork(Marked, &options()).err();
    assert!(matches!(late, Some(LogError::Closed)), "{late:?}");
    // What is deleted is given back; the parent is no fork.
    delete(&one, &key("a")).await;
    put(&one, &key("d"), &text(60_000)).await;
    put(&parent, &key("c"), &text(50_000)).await;
    assert_eq!(parent.full_space_of_forks(), None);
}

#[tokio::test]
async fn writes_that_are_too_large_are_refused() {
    let limits = Limits { request_bytes: 1_000, ..Limits::default() };
    let store =
        Store::open(Box::new(MemoryLog::new()), Marked, Options { limits, ..Options::default() }).unwrap();
    // The key counts: "things" and "a".
    for (size, fits) in [(993, true), (994, false)] {
        let stored = store.put(key("a"), Expect::Any, format!("{}@", "x".repeat(size - 1))).await;
        match stored {
            Ok(_) => assert!(fits, "{size}"),
            Err(StoreError::TooLarge { bytes, limit, .. }) => {
                assert_eq!((fits, bytes, limit), (false, 1_001, 1_000));
            }
            Err(error) => panic!("{size}: {error}"),
        }
    }
    let unlimited = Limits { request_bytes: usize::MAX, ..Limits::default() };
    let store =
        Store::open(Box::new(MemoryLog::new()), Marked, Options { limits: unlimited, ..Options::default() })
            .unwrap();
    let value = "@".repeat(crate::limits::MAX_STORED_BYTES + 1);
    assert!(matches!(store.put(key("a"), Expect::Any, value).await, Err(StoreError::TooLarge { .. })));
}

/// Checks large values that follow many small ones: history never exceeds its limit by more than a
/// group.
#[tokio::test]
async fn large_values_push_small_ones_out_of_history() {
    let history = crate::History { bytes: 1 << 20, ..Default::default() };
    let store =
        Store::open(Box::new(MemoryLog::new()), Marked, Options { history, ..Options::default() }).unwrap();
    for n in 0..1_500 {
        put(&store, &key(&format!("n{}", n % 10)), "small").await;
    }
    let large = "x".repeat(200_000);
    for n in 0..20_u64 {
        put(&store, &key("large"), &large).await;
        let compact_revision = store.snapshot().compact_revision("things").revision();
        let kept = store.revision().0 - compact_revision.0;
        // Of versions that were superseded, as many as fit: five, and the newest event holds none.
        assert!(n < 6 || kept <= 6, "{kept} events after {n} large ones");
    }
}

#[tokio::test]
async fn writes_wait_when_too_many_bytes_wait_already() {
    let (log, sizes, gate) = gated();
    let store = open(log);
    let large = "x".repeat(1_500_000) + "@";
    let mut writers = Vec::new();
    for n in 0..60 {
        let (store, large) = (store.clone(), large.clone());
        let key = key(&format!("n{n}"));
        writers.push(tokio::spawn(async move { store.put(key, Expect::Any, large).await.map(drop) }));
        tokio::task::yield_now().await;
        if n == 0 {
            // The first is being written when the others come.
            assert_eq!(sizes.recv().unwrap(), 1);
        }
    }
    // The waiting writers are dropped: their queued transactions are written, the others have left
    // nothing behind.
    for writer in writers {
        writer.abort();
        drop(writer.await);
    }
    for _ in 0..60 {
        gate.send(()).unwrap();
    }
    store.close().await.unwrap();
    let queued = (32 << 20) / 1_500_000;
    let written = store.snapshot().len("things");
    assert!(written > 1 && written <= queued, "{written} written of {queued} that fit the queue");
    assert!(sizes.try_iter().all(|size| size <= 3), "groups are bounded by bytes");
}
