//! Random histories, compared step by step with a plain map and a plain list of events.
//!
//! They contain writes of every kind, conflicts, compaction, reopening, exact older states and
//! watches, over each log. `PROPTEST_CASES` is the number of histories.
#![expect(clippy::disallowed_methods, reason = "a test waits and measures")]
// Clippy's leave for tests does not reach their helper functions.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use coracle_storage::{
    CommitOutcome, CompactRevision, Compacted, Event, Expect, Index, Indexed, Key, Object, Options, Revision,
    RevisionError, Snapshot, Store, Unreadable, Watcher, Write,
    log::{Durability, EphemeralLog, MemoryLog, SledLog},
};
use proptest::prelude::*;

const BUCKETS: [&str; 3] = ["apps", "pods", "secrets"];
const NAMES: [&str; 4] = ["a/x", "a/y", "ab/x", "b"];

/// Serves the revision, then the value, which starts with a colon.
#[derive(Debug)]
struct Prefixed;

impl Index for Prefixed {
    type Meta = usize;
    type Frame = ();
    type Author = ();

    fn index(&self, _: &Key, stored: &[u8]) -> Result<Indexed<usize>, Unreadable> {
        Ok(Indexed { meta: stored.len(), stamp: 0 })
    }
}

/// The next step of a history. Its numbers are taken modulo the number of choices.
#[derive(Clone, Debug)]
enum Step {
    Write(Vec<(usize, usize, Expected, Option<u16>)>),
    /// Compacts up to this number of revisions before the newest.
    Compact(u64),
    Reopen,
    Watch(usize, u64),
    Read(usize),
    Progress(usize),
    List(usize, u64),
}

#[derive(Clone, Copy, Debug)]
enum Expected {
    Absent,
    Present,
    Any,
    Current,
    Stale,
}

fn step() -> impl Strategy<Value = Step> {
    let expected = prop_oneof![
        1 => Just(Expected::Absent),
        1 => Just(Expected::Present),
        4 => Just(Expected::Any),
        3 => Just(Expected::Current),
        1 => Just(Expected::Stale),
    ];
    // A few values are longer than one row of the log.
    let size = prop_oneof![8 => 0..40_u16, 1 => Just(20_000)];
    let write = (0..BUCKETS.len(), 0..NAMES.len(), expected, prop::option::weighted(0.75, size));
    let back = prop_oneof![3 => 0..5_u64, 1 => 0..60_u64];
    prop_oneof![
        12 => prop::collection::vec(write, 1..4).prop_map(Step::Write),
        1 => back.clone().prop_map(Step::Compact),
        1 => Just(Step::Reopen),
        2 => (0..BUCKETS.len(), back.clone()).prop_map(|(bucket, back)| Step::Watch(bucket, back)),
        4 => (0..8_usize).prop_map(Step::Read),
        1 => (0..8_usize).prop_map(Step::Progress),
        3 => (0..BUCKETS.len(), back).prop_map(|(bucket, back)| Step::List(bucket, back)),
    ]
}

type Live = BTreeMap<Key, Arc<Version>>;
type Change = (Key, Option<Arc<Version>>, Option<Arc<Version>>);

#[derive(Clone, Debug, PartialEq)]
struct Version {
    created: u64,
    revision: u64,
    bytes: String,
}

/// The expected result: the state after each revision and all events with their revisions, in the
/// simplest form.
struct Model {
    states: Vec<Live>,
    events: Vec<(u64, Change)>,
    compact_revision: u64,
    watches: Vec<(usize, u64)>,
}

impl Model {
    fn new() -> Model {
        Model { states: vec![Live::new()], events: Vec::new(), compact_revision: 0, watches: Vec::new() }
    }

    fn newest(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    fn live(&self) -> &Live {
        &self.states[self.states.len() - 1]
    }

    fn commit(&mut self, writes: &[(Key, Option<String>)]) {
        if writes.is_empty() {
            return;
        }
        let revision = self.newest() + 1;
        let mut live = self.live().clone();
        for (key, value) in writes {
            let before = live.remove(key);
            let created = before.as_ref().map_or(revision, |before| before.created);
            let version = |value| Version { created, revision, bytes: format!("{revision}{value}") };
            let after = value.as_ref().map(version).map(Arc::new);
            live.extend(after.clone().map(|after| (key.clone(), after)));
            self.events.push((revision, (key.clone(), before, after)));
        }
        self.states.push(live);
    }

    /// Iterates over the events of a bucket after a revision.
    fn after(&self, bucket: usize, seen: u64) -> impl Iterator<Item = &(u64, Change)> {
        let is_later = move |(revision, (key, ..)): &&(u64, Change)| {
            *revision > seen && **key.bucket() == *BUCKETS[bucket]
        };
        self.events.iter().filter(is_later)
    }

    fn bucket(&self, at: u64, bucket: &str) -> Vec<(Key, Arc<Version>)> {
        let live = self.states[at as usize].iter().filter(|(key, _)| **key.bucket() == *bucket);
        live.map(|(key, version)| (key.clone(), version.clone())).collect()
    }

    fn admit(&self, asked: u64) -> Result<(), Compacted> {
        let compact_revision = CompactRevision::at(Revision(self.compact_revision));
        if asked < self.compact_revision {
            Err(Compacted { asked: Revision(asked), compact_revision })
        } else {
            Ok(())
        }
    }

    /// Returns the next events of a watch, and advances the watch.
    fn read(&mut self, watch: usize) -> Result<Vec<String>, Compacted> {
        let (bucket, seen) = self.watches[watch];
        self.admit(seen)?;
        let (mut read, mut last, mut bytes) = (Vec::new(), None, 0);
        for (revision, change) in self.after(bucket, seen) {
            if (read.len() >= 256 || bytes >= 32 << 10) && last != Some(*revision) {
                break;
            }
            bytes += change.1.iter().chain(&change.2).map(|version| version.bytes.len()).sum::<usize>();
            read.push(render(*revision, change));
            last = Some(*revision);
        }
        self.watches[watch].1 = last.unwrap_or(self.newest().max(seen));
        Ok(read)
    }
}

fn render(revision: u64, (key, before, after): &Change) -> String {
    format!("{revision} {key} {before:?} {after:?}")
}

fn version(object: &Object<Prefixed>) -> Arc<Version> {
    let bytes = String::from_utf8_lossy(&object.bytes).into_owned();
    assert_eq!(object.meta, bytes.split_once(':').map_or(0, |(_, value)| value.len() + 1));
    Arc::new(Version { created: object.created.0, revision: object.revision.0, bytes })
}

fn rendered(event: &Arc<Event<Prefixed>>) -> String {
    let versions = [&event.before, &event.after].map(|object| object.as_deref().map(version));
    let [before, after] = versions;
    render(event.revision.0, &(event.key.clone(), before, after))
}

/// Opens the store; again, too.
type Open<'a> = &'a dyn Fn() -> Store<Prefixed>;

async fn follow(open: Open<'_>, may_reopen: bool, steps: Vec<Step>) {
    let mut store = open();
    let mut model = Model::new();
    let mut watchers: Vec<Watcher<Prefixed>> = Vec::new();
    let mut kept: Vec<Snapshot<Prefixed>> = Vec::new();
    for step in steps {
        match step {
            Step::Write(writes) => write(&store, &mut model, writes).await,
            Step::Compact(back) => {
                let compact_revision = model.newest().saturating_sub(back);
                store.compact(Revision(compact_revision)).await.unwrap();
                model.compact_revision = model.compact_revision.max(compact_revision);
            }
            Step::Reopen if may_reopen => {
                store.close().await.unwrap();
                store = open();
                watchers.clear();
                model.watches.clear();
            }
            Step::Reopen => {}
            Step::Watch(bucket, back) => {
                let after = model.newest().saturating_sub(back);
                let watcher = store.watch(&BUCKETS[bucket].into(), Revision(after));
                assert_eq!(watcher.as_ref().map(drop).map_err(|compacted| *compacted), model.admit(after));
                if let Ok(watcher) = watcher {
                    watchers.push(watcher);
                    model.watches.push((bucket, after));
                }
            }
            Step::Read(watch) if watch < watchers.len() => {
                let read = watchers[watch].try_next();
                assert_eq!(read.map(|events| events.iter().map(rendered).collect()), model.read(watch));
            }
            Step::Progress(watch) if watch < watchers.len() => {
                let (bucket, seen) = model.watches[watch];
                let unread = model.after(bucket, seen).next().is_some();
                let certain =
                    if unread || seen < model.compact_revision { seen } else { seen.max(model.newest()) };
                assert_eq!(watchers[watch].progress(), Revision(certain));
                model.watches[watch].1 = certain;
            }
            Step::Read(_) | Step::Progress(_) => {}
            Step::List(bucket, back) => {
                let at = model.newest().saturating_sub(back);
                let listed = store.snapshot_at(BUCKETS[bucket], Revision(at)).map(|snapshot| {
                    assert_eq!(snapshot.revision(), Revision(at));
                    snapshot.iter().map(|object| (object.key.clone(), version(object))).collect()
                });
                let want = model.admit(at).map(|()| model.bucket(at, BUCKETS[bucket]));
                assert_eq!(listed, want.map_err(RevisionError::Compacted));
            }
        }
        check(&store.snapshot(), &model);
        kept.push(store.snapshot());
    }
    for snapshot in kept {
        check(&snapshot, &model);
    }
}

async fn write(
    store: &Store<Prefixed>,
    model: &mut Model,
    writes: Vec<(usize, usize, Expected, Option<u16>)>,
) {
    let mut wanted: Vec<Write> = Vec::new();
    let mut conflict = None;
    for (bucket, name, expected, size) in writes {
        let key = Key::new(BUCKETS[bucket], NAMES[name]);
        if wanted.iter().any(|write| write.key == key) {
            continue;
        }
        let current = model.live().get(&key);
        let revision = current.map_or(0, |version| version.revision);
        let (expect, holds) = match expected {
            Expected::Absent => (Expect::Absent, current.is_none()),
            Expected::Present => (Expect::Present, current.is_some()),
            Expected::Any => (Expect::Any, true),
            Expected::Current => (Expect::Revision(Revision(revision)), current.is_some()),
            Expected::Stale => (Expect::Revision(Revision(revision.wrapping_sub(1))), false),
        };
        let holds = holds && (current.is_some() || size.is_some());
        if !holds && conflict.is_none() {
            conflict = Some((wanted.len(), current.cloned()));
        }
        let value = size.map(|size| format!(":{}", "v".repeat(size.into())).into());
        wanted.push(Write { key, expect, value });
    }
    match (store.commit(wanted.clone()).await.unwrap(), conflict) {
        (CommitOutcome::Done(events), None) => {
            let from = model.events.len();
            let text = |value: bytes::Bytes| String::from_utf8_lossy(&value).into_owned();
            let writes: Vec<_> = wanted.into_iter().map(|write| (write.key, write.value.map(text))).collect();
            model.commit(&writes);
            let made = model.events[from..].iter().map(|(revision, change)| render(*revision, change));
            assert_eq!(events.iter().map(rendered).collect::<Vec<_>>(), made.collect::<Vec<_>>());
        }
        (CommitOutcome::Conflict { index, current }, Some(conflict)) => {
            assert_eq!((index, current.as_deref().map(version)), conflict);
        }
        (CommitOutcome::Done(_), Some(conflict)) => panic!("done, in spite of a conflict: {conflict:?}"),
        (CommitOutcome::Conflict { index, .. }, None) => panic!("in conflict without reason: {index}"),
    }
}

/// Compares a snapshot with the state of the model at its revision.
fn check(snapshot: &Snapshot<Prefixed>, model: &Model) {
    let at = snapshot.revision().0;
    for bucket in BUCKETS {
        let objects = snapshot.bucket(bucket);
        let listed: Vec<_> = objects.iter().map(|object| (object.key.clone(), version(object))).collect();
        assert_eq!(listed, model.bucket(at, bucket));
        assert_eq!((snapshot.len(bucket), objects.len()), (listed.len(), listed.len()));
        let prefixed = objects.prefix("a/").count();
        assert_eq!(prefixed, listed.iter().filter(|(key, _)| key.name().starts_with("a/")).count());
        for (key, version) in listed {
            assert_eq!(snapshot.get(&key).map(|object| object.revision.0), Some(version.revision));
        }
    }
}

fn run(open: Open<'_>, may_reopen: bool, steps: Vec<Step>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(follow(open, may_reopen, steps));
}

fn open(log: impl coracle_storage::log::Log) -> Store<Prefixed> {
    Store::open(Box::new(log), Prefixed, Options::default()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2000, ..ProptestConfig::with_cases(cases(96)) })]

    #[test]
    fn ephemeral(steps in prop::collection::vec(step(), 1..120)) {
        run(&|| open(EphemeralLog::new()), false, steps);
    }

    #[test]
    fn memory(steps in prop::collection::vec(step(), 1..120)) {
        let log = MemoryLog::new();
        run(&|| open(log.share()), true, steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::with_cases(cases(24)) })]

    #[test]
    fn sled(steps in prop::collection::vec(step(), 1..120)) {
        let dir = tempfile::tempdir().unwrap();
        run(&|| open(SledLog::open(dir.path(), Durability::None).unwrap()), true, steps);
    }
}

fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}

/// Checks long enough for caches, merges and splits to take part, and for the limits of history.
#[test]
fn many_writes_within_small_limits() {
    let start = Instant::now();
    let dir = tempfile::tempdir().unwrap();
    let history = coracle_storage::History { events: 200, ..Default::default() };
    let open = || {
        let log = SledLog::open(dir.path(), Durability::None).unwrap();
        Store::open(Box::new(log), Prefixed, Options { history, ..Options::default() }).unwrap()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut model = Model::new();
        let mut store = open();
        let mut seed = 7_u64;
        for round in 0..4000_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pick = (seed >> 33) as usize;
            let key = Key::new(BUCKETS[pick % 3], format!("{}", pick / 3 % 500));
            let value = (!pick.is_multiple_of(5)).then(|| format!(":{}", "v".repeat(pick % 3000)));
            let write = Write { key: key.clone(), expect: Expect::Any, value: value.clone().map(Into::into) };
            match store.commit(vec![write]).await.unwrap() {
                CommitOutcome::Done(_) => {
                    // Only the newest states are compared.
                    model.states.iter_mut().rev().nth(250).into_iter().for_each(BTreeMap::clear);
                    model.commit(&[(key, value)]);
                }
                CommitOutcome::Conflict { current, .. } => assert!(current.is_none() && value.is_none()),
            }
            if round % 500 == 499 {
                store.close().await.unwrap();
                store = open();
                assert_eq!(store.revision(), Revision(model.newest()));
            }
            if round % 50 == 0 {
                check(&store.snapshot(), &model);
                for bucket in BUCKETS {
                    let at = model.newest().saturating_sub(200);
                    let snapshot = store.snapshot_at(bucket, Revision(at)).unwrap();
                    let listed: Vec<_> = snapshot.iter().map(|o| (o.key.clone(), version(o))).collect();
                    assert_eq!(listed, model.bucket(at, bucket));
                }
            }
        }
    });
    assert!(start.elapsed() < Duration::from_secs(300));
}
