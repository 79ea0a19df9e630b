//! A writing process is killed repeatedly; no acknowledged write is lost.
//!
//! This test runs its own binary as the process to be killed. `CORACLE_CRASHES` is the number of
//! kills.

// Clippy's leave for tests does not reach their helper functions.
#![allow(clippy::unwrap_used)]

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use coracle_storage::{
    CommitOutcome, Expect, Index, Indexed, Key, Options, Revision, Store, Unreadable, Write, log::SledLog,
};

const WRITERS: usize = 8;
const DIR: &str = "CORACLE_CRASH_DIR";
const DURABILITY: &str = "CORACLE_CRASH_DURABILITY";

/// Serves the value, and the revision after it.
#[derive(Debug)]
struct Suffixed;

impl Index for Suffixed {
    /// The number of the step that wrote the value.
    type Meta = u64;
    type Frame = ();
    type Author = ();

    fn index(&self, _: &Key, stored: &[u8]) -> Result<Indexed<u64>, Unreadable> {
        let step = stored.split(|byte| *byte == b' ').next().unwrap_or_default();
        let step = std::str::from_utf8(step).ok().and_then(|step| step.parse().ok());
        Ok(Indexed { meta: step.ok_or_else(|| Unreadable("no step".into()))?, stamp: stored.len() })
    }
}

fn open(dir: &Path, durability: &str) -> Store<Suffixed> {
    let log = SledLog::open(dir, durability.parse().unwrap()).unwrap();
    // A short history, so that compaction is interrupted, too.
    let history = coracle_storage::History { events: 300, ..Default::default() };
    Store::open(Box::new(log), Suffixed, Options { history, ..Options::default() }).unwrap()
}

/// Returns the two keys of a writer, which are always written together.
fn keys(writer: usize) -> [Key; 2] {
    ["left", "right"].map(|bucket| Key::new(bucket, format!("writer-{writer}")))
}

/// Returns the writes of a writer's step. Each fifth step deletes; some values are larger than a
/// row of the log.
fn step(writer: usize, step: u64) -> Vec<Write> {
    let size = if step.is_multiple_of(13) { 30_000 } else { 500 };
    let write = |key| match step % 5 {
        4 => Write::delete(key, Expect::Present),
        _ => Write::put(key, Expect::Any, format!("{step} {}", "x".repeat(size))),
    };
    keys(writer).map(write).into()
}

/// Returns the step that the two keys show; None after a step that deletes them.
fn shown_step(store: &Store<Suffixed>, writer: usize) -> Option<u64> {
    let [left, right] = keys(writer).map(|key| store.get(&key).map(|object| object.meta));
    assert_eq!(left, right, "both keys or none");
    left
}

/// Returns the step that the two keys show after `step`; None if that step deletes them.
fn after(step: u64) -> Option<u64> {
    (step % 5 != 4).then_some(step)
}

/// Runs as the process that is killed, and is not a test. It prints `writer step revision` for each
/// step that was acknowledged.
#[test]
#[ignore = "run by the tests below"]
fn write_until_killed() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let store = open(Path::new(&dir), &std::env::var(DURABILITY).unwrap());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let write = |store: Store<Suffixed>, writer: usize| async move {
        let first = next_step(&store, writer);
        for n in first.. {
            let CommitOutcome::Done(events) = store.commit(step(writer, n)).await.unwrap() else {
                panic!("lost")
            };
            // The lines of several writers must not mix: one call of `write` a line.
            let line = format!("{writer} {n} {}\n", events[1].revision);
            std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
        }
    };
    runtime.block_on(async {
        let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), writer))).collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

/// Returns the next step. Steps continue after a restart; after a deletion nothing shows them, but
/// any step that writes is sufficient.
fn next_step(store: &Store<Suffixed>, writer: usize) -> u64 {
    shown_step(store, writer).map_or(0, |step| step + 1)
}

/// Runs the process until it is killed after a number of acknowledgements. Returns the last
/// acknowledged step and revision of each writer.
fn live(dir: &Path, durability: &str, acknowledgements: usize) -> HashMap<usize, (u64, Revision)> {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["write_until_killed", "--exact", "--ignored", "--nocapture"])
        .env(DIR, dir)
        .env(DURABILITY, durability)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = HashMap::new();
    let mut revisions = Vec::new();
    for line in BufReader::new(process.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let words: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        // The test harness prints lines of its own, and the last line may be cut short.
        let [writer, step, revision] = words[..] else { continue };
        acknowledged.insert(writer as usize, (step, Revision(revision)));
        revisions.push(revision);
        if revisions.len() == acknowledgements {
            process.kill().unwrap();
        }
    }
    process.wait().unwrap();
    assert!(revisions.len() >= acknowledgements, "the process ended by itself");
    let count = revisions.len();
    revisions.sort();
    revisions.dedup();
    assert_eq!(revisions.len(), count, "a revision was given twice");
    acknowledged
}

fn crashes() -> usize {
    std::env::var("CORACLE_CRASHES").ok().and_then(|crashes| crashes.parse().ok()).unwrap_or(3)
}

/// Runs and kills the process repeatedly. Every second time it is killed twice in a row, without
/// the store being closed in between.
fn live_and_die(
    dir: &Path,
    durability: &str,
    crash: usize,
    acknowledgements: usize,
) -> HashMap<usize, (u64, Revision)> {
    if crash % 2 == 1 {
        live(dir, durability, acknowledgements);
    }
    live(dir, durability, acknowledgements / 2)
}

fn close(store: Store<Suffixed>) -> Revision {
    let newest = store.revision();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.close()).unwrap();
    newest
}

/// Checks that no acknowledged write is lost over any number of kills, and that no revision is
/// assigned twice.
fn nothing_is_lost(durability: &str, acknowledgements: impl Fn(usize) -> usize) {
    let dir = tempfile::tempdir().unwrap();
    let mut newest = Revision::ZERO;
    for crash in 0..crashes() {
        let acknowledged = live_and_die(dir.path(), durability, crash, acknowledgements(crash));
        // The recovered state is a whole prefix: a gap would not open, and half a step would be
        // visible.
        let store = open(dir.path(), durability);
        for (writer, (step, revision)) in acknowledged {
            assert!(revision > newest, "revisions go on: {revision} after {newest}");
            assert!(store.revision() >= revision);
            let shown_step = shown_step(&store, writer);
            // One further step may have been written, but not acknowledged.
            assert!(
                shown_step == after(step) || shown_step == after(step + 1),
                "crash {crash}: {step}, but it shows {shown_step:?}"
            );
        }
        newest = close(store);
    }
}

#[test]
fn no_acknowledged_write_is_lost_in_sync() {
    nothing_is_lost("sync", |crash| 200 + crash * 37 % 200);
}

#[test]
fn no_acknowledged_write_is_lost_in_interval() {
    nothing_is_lost("interval=5", |crash| 1500 + crash * 370 % 2000);
}
