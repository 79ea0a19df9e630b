//! Tests of a log over a cluster while members fail, history is compacted and others write.
#![expect(clippy::disallowed_methods, reason = "a test waits and measures")]

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use coracle_storage::{
    Expect, Key, Options, PutOutcome, Revision, Store, Watcher,
    log::{Change, Conflict, Log, Notifier, Outcome, Proposal},
    testing::Marked,
};
use coracle_storage_etcd::{
    Compaction, Endpoints, EtcdLog,
    testing::{EtcdCluster, start_or_skip},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::broadcast,
    time::Instant,
};

mod support;

use support::Plain;

const NEVER: Compaction = Compaction::Interval(Duration::ZERO);

fn log(cluster: &EtcdCluster) -> EtcdLog {
    EtcdLog::new(&cluster.endpoints(), Plain, NEVER).expect("a log")
}

fn open(cluster: &EtcdCluster, compaction: Compaction) -> Store<Marked> {
    let log = EtcdLog::new(&cluster.endpoints(), Plain, compaction).expect("a log");
    Store::open(Box::new(log), Marked, Options::default()).expect("a store")
}

fn late() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

fn key(name: &str) -> Key {
    Key::new("things", name)
}

fn creation(name: &str) -> Proposal {
    Proposal { key: key(name), previous: None, change: Change::Put { created: None, stored: "@".into() } }
}

async fn put(store: &Store<Marked>, name: &str, text: &str) -> Revision {
    match store.put(key(name), Expect::Any, format!("{text}@")).await.expect("a put") {
        PutOutcome::Stored(object) => object.revision,
        PutOutcome::Conflict { .. } => panic!("a conflict with nothing"),
    }
}

#[tokio::test]
async fn a_conflict_stops_its_own_transaction_only() -> io::Result<()> {
    let Some(cluster) = start_or_skip(1)? else { return Ok(()) };
    let (mut ours, mut theirs) = (log(&cluster), log(&cluster));
    ours.start(Notifier::new(|_| ())).expect("started");
    theirs.start(Notifier::new(|_| ())).expect("started");
    let outcomes = theirs.append(&[vec![creation("a"), creation("b")]]).expect("appended");
    let [Outcome::Committed(first)] = outcomes[..] else { panic!("{outcomes:?}") };
    let late = Proposal { previous: Some(Revision(9)), ..creation("c") };
    let batch = [
        vec![creation("d")],
        vec![creation("e"), creation("b")],
        vec![late],
        vec![Proposal { previous: Some(first), ..creation("a") }, creation("f")],
    ];
    let outcomes = ours.append(&batch).expect("appended");
    let [
        Outcome::Committed(d),
        Outcome::Conflict(Conflict { index: 1, found: Some(found), newest }),
        Outcome::Conflict(Conflict { index: 0, found: None, .. }),
        Outcome::Committed(a),
    ] = outcomes[..]
    else {
        panic!("{outcomes:?}")
    };
    assert_eq!(found, first);
    assert!(newest >= first && d > first && a > first && a != d);
    let mut seen: Vec<_> = ours
        .tail(a.max(d))
        .expect("a tail")
        .iter()
        .map(|record| match record {
            coracle_storage::log::Record::Entry(entry) => entry.key.name().to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    seen.sort();
    assert_eq!(seen, ["a", "a", "b", "d", "f"], "nothing of the others, and all that another writer wrote");
    Ok(())
}

#[tokio::test]
async fn reads_are_linearizable_on_the_other_store() -> io::Result<()> {
    let Some(cluster) = start_or_skip(1)? else { return Ok(()) };
    let (one, two) = (open(&cluster, NEVER), open(&cluster, NEVER));
    for n in 0..200 {
        put(&one, "a", &n.to_string()).await;
        two.linearize(late()).await.expect("a linearizable read");
        assert_eq!(two.get(&key("a")).expect("an object").meta, n.to_string());
    }
    // A change outside the prefix is never shown by the watch.
    let mut foreign = EtcdLog::new(&cluster.endpoints(), Elsewhere, NEVER).expect("a log");
    foreign.start(Notifier::new(|_| ())).expect("started");
    foreign.append(&[vec![creation("x")]]).expect("appended");
    let outcomes = foreign.append(&[vec![creation("y")]]).expect("appended");
    let [Outcome::Committed(newest)] = outcomes[..] else { panic!("{outcomes:?}") };
    two.linearize(late()).await.expect("a linearizable read");
    assert_eq!(two.snapshot().len("things"), 1);
    assert!(two.revision() >= newest, "{} {newest}", two.revision());
    Ok(())
}

/// A layout whose prefix contains none of the store's keys.
struct Elsewhere;

impl coracle_storage_etcd::Layout for Elsewhere {
    fn prefix(&self) -> &str {
        "/elsewhere/"
    }

    fn name(&self, key: &Key) -> String {
        format!("/elsewhere/{key}")
    }

    fn key(&self, _: &str) -> Option<Key> {
        None
    }

    fn encode(&self, _: &Key, stored: &bytes::Bytes) -> bytes::Bytes {
        stored.clone()
    }

    fn decode(&self, _: &Key, value: &bytes::Bytes) -> Result<bytes::Bytes, coracle_storage::Unreadable> {
        Ok(value.clone())
    }
}

/// Counts in an object, each step expecting the revision of the previous one, and returns the
/// revisions that were acknowledged. Only one writer uses the object, so a conflict means that a
/// step was lost or executed twice.
async fn count(store: Store<Marked>, name: String, is_over: Arc<AtomicBool>) -> Vec<Revision> {
    let mut acknowledged = Vec::new();
    let mut held = Expect::Absent;
    while !is_over.load(Ordering::Relaxed) {
        let step = acknowledged.len();
        match store.put(key(&name), held, format!("{step}@")).await {
            Ok(PutOutcome::Stored(object)) => {
                held = Expect::Revision(object.revision);
                acknowledged.push(object.revision);
            }
            Ok(PutOutcome::Conflict { current }) => {
                panic!("{name} is written by nobody else: {:?}", current.map(|object| object.revision))
            }
            // A cluster that has no leader for long does not know whether it is done. Once it has
            // one, it shows.
            Err(error) => {
                store.linearize(late()).await.unwrap_or_else(|_| panic!("{error}"));
                let stored = store.get(&key(&name)).map(|object| object.revision);
                if let Some(stored) = stored.filter(|stored| acknowledged.last() != Some(stored)) {
                    held = Expect::Revision(stored);
                    acknowledged.push(stored);
                }
            }
        }
    }
    acknowledged
}

/// Writers on both stores, and a watch on the second.
struct Load {
    stores: [Store<Marked>; 2],
    watcher: Watcher<Marked>,
    is_over: Arc<AtomicBool>,
    writers: Vec<tokio::task::JoinHandle<Vec<Revision>>>,
}

impl Load {
    fn start(one: Store<Marked>, two: Store<Marked>) -> Load {
        let watcher = two.watch(&"things".into(), two.revision()).expect("a watch");
        let is_over = Arc::new(AtomicBool::new(false));
        let writer = |n: usize| {
            let store = if n.is_multiple_of(2) { &one } else { &two };
            tokio::spawn(count(store.clone(), format!("n{n}"), is_over.clone()))
        };
        let writers = (0..16).map(writer).collect();
        Load { stores: [one, two], watcher, is_over, writers }
    }

    /// Waits until there are `revisions` further revisions.
    async fn goes_on(&self, revisions: u64) {
        let [_, two] = &self.stores;
        let now = two.revision();
        two.wait_for(Revision(now.0 + revisions), late()).await.expect("writes go on");
    }

    /// Stops the writers. The changes acknowledged to them are exactly those that the watch has
    /// shown, once and in order, and those in both stores.
    async fn check(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let mut acknowledged = Vec::new();
        for writer in self.writers {
            acknowledged.extend(writer.await.expect("a writer"));
        }
        acknowledged.sort();
        let newest = *acknowledged.last().expect("writes");
        let [one, two] = &self.stores;
        two.wait_for(newest, late()).await.expect("all of it");
        let mut seen = Vec::new();
        while seen.last().is_none_or(|last| *last < newest) {
            seen.extend(self.watcher.next().await.expect("no compaction").iter().map(|event| event.revision));
        }
        assert_eq!(seen, acknowledged);
        one.linearize(late()).await.expect("a linearizable read");
        for n in 0..16 {
            let last =
                |store: &Store<Marked>| store.get(&key(&format!("n{n}"))).map(|object| object.revision);
            assert_eq!(last(one), last(two));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_a_member_is_killed() -> io::Result<()> {
    let Some(mut cluster) = start_or_skip(3)? else { return Ok(()) };
    let load = Load::start(open(&cluster, NEVER), open(&cluster, NEVER));
    for member in 0..3 {
        load.goes_on(50).await;
        cluster.kill(member)?;
        load.goes_on(50).await;
        cluster.restart(member)?;
    }
    load.check().await;
    Ok(())
}

/// Checks connections that are cut repeatedly, with requests and responses in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_responses_are_found_out() -> io::Result<()> {
    let Some(cluster) = start_or_skip(1)? else { return Ok(()) };
    let proxy = Proxy::start(&cluster).await?;
    let behind_proxy = proxy.open();
    let load = Load::start(behind_proxy, open(&cluster, NEVER));
    for _ in 0..30 {
        load.goes_on(20).await;
        // There may be no connection at the moment.
        drop(proxy.cut.send(()));
    }
    load.check().await;
    Ok(())
}

/// Passes connections on to the first member of a cluster.
struct Proxy {
    url: String,
    /// Cuts all connections.
    cut: broadcast::Sender<()>,
    is_open: Arc<AtomicBool>,
}

impl Proxy {
    async fn start(cluster: &EtcdCluster) -> io::Result<Proxy> {
        let server = cluster.urls().remove(0).trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (cut, _) = broadcast::channel(1);
        let is_open = Arc::new(AtomicBool::new(true));
        let proxy = Proxy { url: format!("http://{}", listener.local_addr()?), cut, is_open };
        let (cuts, is_open) = (proxy.cut.clone(), proxy.is_open.clone());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (server, mut cut, is_open) = (server.clone(), cuts.subscribe(), is_open.clone());
                tokio::spawn(async move {
                    if !is_open.load(Ordering::SeqCst) {
                        return;
                    }
                    let Ok(mut server) = TcpStream::connect(server).await else { return };
                    tokio::select! {
                        biased;
                        _ = cut.recv() => {}
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                    }
                    drop((client, server));
                    drop(cut);
                });
            }
        });
        Ok(proxy)
    }

    /// Returns a store that reaches the cluster through the proxy.
    fn open(&self) -> Store<Marked> {
        let endpoints = Endpoints { servers: vec![self.url.clone()], ..Endpoints::default() };
        let log = EtcdLog::new(&endpoints, Plain, NEVER).expect("a log");
        Store::open(Box::new(log), Marked, Options::default()).expect("a store")
    }

    /// Cuts all connections and accepts none, until it is opened. After it returns nothing is
    /// forwarded any more.
    async fn close(&self) {
        self.is_open.store(false, Ordering::SeqCst);
        // There may be no connection at the moment.
        drop(self.cut.send(()));
        while self.cut.receiver_count() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Accepts connections again.
    fn open_again(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }
}

/// Checks a store that cannot reach the cluster while others write and the history is compacted: it
/// lists everything again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_that_is_compacted_during_an_outage_is_listed_again() -> io::Result<()> {
    let Some(cluster) = start_or_skip(1)? else { return Ok(()) };
    let proxy = Proxy::start(&cluster).await?;
    let store = proxy.open();
    let other = open(&cluster, Compaction::WithHistory);
    let (things, elsewhere) = (Arc::from("things"), Arc::from("elsewhere"));
    for round in 0..3 {
        let same = put(&store, "same", "1").await;
        put(&store, "changed", "1").await;
        put(&store, "deleted", "1").await;
        let before = store.revision();
        let mut quiet = store.watch(&elsewhere, before).expect("a watch");
        let mut watcher = store.watch(&things, before).expect("a watch");
        other.linearize(late()).await.expect("the writes");
        proxy.close().await;
        put(&other, "changed", "2").await;
        put(&other, "created", &round.to_string()).await;
        other.delete(key("deleted"), Expect::Present).await.expect("a deletion");
        let newest = put(&other, "created", "last").await;
        other.compact(newest).await.expect("compacted");
        proxy.open_again();
        let seen = tokio::time::timeout(Duration::from_secs(60), async {
            (watcher.next().await.map(drop), quiet.next().await.map(drop))
        });
        let (of_things, of_elsewhere) = seen.await.expect("watches learn of it");
        of_things.expect_err("the changes are compacted");
        of_elsewhere.expect_err("nobody knows what has changed there");
        store.health().expect("no failure");
        store.linearize(late()).await.expect("a linearizable read");
        let snapshot = store.snapshot();
        let of = |name| snapshot.get(&key(name)).map(|object| object.meta.clone());
        assert_eq!(of("changed").as_deref(), Some("2"));
        assert_eq!(of("created").as_deref(), Some("last"));
        assert_eq!(of("deleted"), None);
        assert_eq!(snapshot.get(&key("same")).expect("an object").revision, same);
        assert!(store.watch(&things, before).is_err(), "nobody resumes from before");
        // Own writes, writes of others and watches continue.
        let mut watcher = store.watch(&things, store.revision()).expect("a watch");
        let own = put(&store, "own", &round.to_string()).await;
        assert!(own > newest);
        let foreign = put(&other, "foreign", &round.to_string()).await;
        let mut seen = Vec::new();
        while !seen.contains(&foreign) {
            let events = tokio::time::timeout(Duration::from_secs(30), watcher.next()).await.expect("events");
            seen.extend(events.expect("no gap").iter().map(|event| event.revision));
        }
        assert_eq!(seen, [own, foreign]);
    }
    Ok(())
}

/// Checks that a store whose cluster does not respond is not ready, but has not failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_reported_and_ends() -> io::Result<()> {
    let Some(mut cluster) = start_or_skip(1)? else { return Ok(()) };
    let store = open(&cluster, NEVER);
    put(&store, "a", "1").await;
    store.readiness().expect("ready");
    let until = async |is_ready: bool| {
        let began = Instant::now();
        while store.readiness().is_ok() != is_ready {
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", store.readiness());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    cluster.kill(0)?;
    until(false).await;
    store.health().expect("an outage is no failure");
    let soon = Instant::now() + Duration::from_millis(100);
    store.linearize(soon).await.expect_err("nobody can say what was written");
    cluster.restart(0)?;
    until(true).await;
    let newest = put(&store, "a", "2").await;
    assert_eq!(store.get(&key("a")).expect("an object").revision, newest);
    Ok(())
}

/// Checks that one of the servers compacts at each interval, up to the revision of the previous
/// interval, as in kube-apiserver.
#[tokio::test]
async fn history_in_the_cluster_is_compacted_at_intervals() -> io::Result<()> {
    let Some(cluster) = start_or_skip(1)? else { return Ok(()) };
    let interval = Compaction::Interval(Duration::from_millis(200));
    let (one, two) = (open(&cluster, interval), open(&cluster, interval));
    let first = put(&one, "a", "1").await;
    let began = Instant::now();
    loop {
        put(&two, "b", "x").await;
        let mut late = log(&cluster);
        let bounds = late.start(Notifier::new(|_| ())).expect("started");
        if bounds.compact_revision.revision() > first {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "compacted at {}", bounds.compact_revision);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let third = open(&cluster, interval);
    assert_eq!(third.get(&key("a")).expect("an object").bytes, format!("1@{first}"));
    for store in [one, two, third] {
        store.health().expect("healthy");
    }
    Ok(())
}
