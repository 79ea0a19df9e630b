//! Benchmarks of the store on this machine: `cargo run --release -p coracle-storage --example bench
//! [SECTION...]`.
//!
//! Each section runs in a process of its own, so that memory is not counted twice. Disk sections
//! use the current directory.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures")]

use std::{
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use coracle_storage::{
    Expect, Index, Indexed, Key, Options, PutOutcome, Revision, Store, Unreadable,
    log::{Durability, EphemeralLog, SledLog},
};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const SECTIONS: [&str; 9] =
    ["ephemeral", "none", "interval=50", "sync", "compacting", "fan-out", "paging", "memory", "memory-sled"];
const WRITERS: usize = 32;
const SIZE: usize = 1100;

/// An index that reads only the offset of the revision.
struct Plain;

impl Index for Plain {
    type Meta = ();
    type Frame = bytes::Bytes;
    type Author = ();

    fn index(&self, _: &Key, stored: &[u8]) -> Result<Indexed<()>, Unreadable> {
        let mark = b"\"resourceVersion\":\"";
        let at = stored.windows(mark.len()).position(|window| window == mark);
        Ok(Indexed { meta: (), stamp: at.ok_or_else(|| Unreadable("no mark".into()))? + mark.len() })
    }
}

fn main() -> Outcome {
    let mut sections: Vec<String> = std::env::args().skip(1).collect();
    if let [section] | [section, _] = &sections[..] {
        return tokio::runtime::Runtime::new()?.block_on(run(section));
    }
    if sections.is_empty() {
        sections = SECTIONS.map(String::from).into();
    }
    for section in sections {
        Command::new(std::env::current_exe()?).arg(section).status()?;
    }
    Ok(())
}

async fn run(section: &str) -> Outcome {
    let options = Options::default;
    match section {
        "ephemeral" => {
            writes(section, Store::open(Box::new(EphemeralLog::new()), Plain, options())?, 300_000).await
        }
        "fan-out" => fan_out(Store::open(Box::new(EphemeralLog::new()), Plain, options())?).await,
        "paging" => paging(Store::open(Box::new(EphemeralLog::new()), Plain, options())?).await,
        "memory" => memory(section, Store::open(Box::new(EphemeralLog::new()), Plain, options())?).await,
        "memory-sled" => {
            let dir = tempfile::tempdir_in(".")?;
            let open = || SledLog::open(dir.path(), Durability::Interval(Duration::from_millis(50)));
            let store = Store::open(Box::new(open()?), Plain, options())?;
            memory(section, store.clone()).await?;
            let start = Instant::now();
            store.close().await?;
            println!("{:12} closed in {:?}", "", start.elapsed());
            Command::new(std::env::current_exe()?).arg("load").current_dir(dir.path()).status()?;
            Ok(())
        }
        "load" => {
            let (empty, start) = (resident(), Instant::now());
            let dir = std::env::args().nth(2).unwrap_or_else(|| ".".into());
            let log = SledLog::open(std::path::Path::new(&dir), Durability::None)?;
            let opened = start.elapsed();
            let store = Store::open(Box::new(log), Plain, options())?;
            let (loaded, took) = (store.snapshot().len("things"), start.elapsed());
            let each = (resident() - empty) * 1024 / loaded;
            store.close().await?;
            println!("{section:12} {loaded} in {took:?} (opened in {opened:?}), {each} bytes an object");
            Ok(())
        }
        "compacting" => {
            let dir = tempfile::tempdir_in(".")?;
            let log = SledLog::open(dir.path(), Durability::Interval(Duration::from_millis(50)))?;
            let history = coracle_storage::History { events: 10_000, ..Default::default() };
            let store = Store::open(Box::new(log), Plain, Options { history, ..options() })?;
            writes(section, store, 200_000).await?;
            println!("{:12} resident {} KiB", "", resident());
            Ok(())
        }
        durability => {
            let dir = tempfile::tempdir_in(".")?;
            let log = SledLog::open(dir.path(), durability.parse()?)?;
            let count = if durability == "sync" { 20_000 } else { 100_000 };
            writes(section, Store::open(Box::new(log), Plain, options())?, count).await
        }
    }
}

/// Creates and updates of 5,000 objects by many writers, then by one.
async fn writes(section: &str, store: Store<Plain>, count: usize) -> Outcome {
    let each = count / WRITERS;
    let start = Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut took = Vec::with_capacity(each);
                for n in 0..each {
                    let start = Instant::now();
                    put(&store, (n * WRITERS + writer) % 5_000).await;
                    took.push(start.elapsed());
                }
                took
            })
        })
        .collect();
    let mut took = Vec::new();
    for writer in writers {
        took.extend(writer.await?);
    }
    let rate = took.len() as f64 / start.elapsed().as_secs_f64();
    println!("{section:12} {rate:7.0} writes/s with {WRITERS} writers, {}", quantiles(&mut took));
    let mut took = Vec::new();
    for n in 0..(each / 4).min(2000) {
        let start = Instant::now();
        put(&store, n).await;
        took.push(start.elapsed());
    }
    println!("{:12} alone: {}", "", quantiles(&mut took));
    store.close().await?;
    Ok(())
}

async fn fan_out(store: Store<Plain>) -> Outcome {
    const WATCHERS: usize = 1000;
    const EVENTS: usize = 500;
    let things: Arc<str> = "things".into();
    let start = Instant::now();
    let watchers: Vec<_> = (0..WATCHERS)
        .map(|_| {
            let mut watcher = store.watch(&things, Revision::ZERO).expect("nothing is compacted");
            tokio::spawn(async move {
                let (mut seen, mut bytes) = (0, 0);
                while seen < EVENTS {
                    for event in watcher.next().await.expect("nothing is compacted") {
                        let frame = |event: &coracle_storage::Event<Plain>| match &event.after {
                            Some(object) => object.bytes.clone(),
                            None => bytes::Bytes::new(),
                        };
                        bytes += event.frame(frame).len();
                        seen += 1;
                    }
                }
                bytes
            })
        })
        .collect();
    let mut took = Vec::new();
    for n in 0..EVENTS {
        let start = Instant::now();
        put(&store, n).await;
        took.push(start.elapsed());
    }
    let wrote = start.elapsed();
    for watcher in watchers {
        watcher.await?;
    }
    let rate = (WATCHERS * EVENTS) as f64 / start.elapsed().as_secs_f64();
    let (all, writer) = (start.elapsed(), quantiles(&mut took));
    println!(
        "fan-out      {rate:7.0} events/s: {WATCHERS} watchers x {EVENTS} in {all:?}; writing {wrote:?}, {writer}"
    );
    Ok(())
}

/// Measures pages of 500 of 5,000 objects at one revision, while others write as fast as they can.
async fn paging(store: Store<Plain>) -> Outcome {
    for n in 0..5_000 {
        put(&store, n).await;
    }
    let writer = store.clone();
    let writing = tokio::spawn(async move {
        for n in 0.. {
            put(&writer, n % 5_000).await;
        }
    });
    let (start, mut pages, mut bytes) = (Instant::now(), 0, 0);
    let mut compacted = 0;
    while start.elapsed() < Duration::from_secs(2) {
        let at = store.revision();
        let mut from = None::<String>;
        loop {
            tokio::task::yield_now().await;
            let Ok(snapshot) = store.snapshot_at("things", at) else {
                compacted += 1;
                break;
            };
            let bound = from.as_deref().map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
            let page: Vec<_> = snapshot.range(bound).take(500).collect();
            let Some(last) = page.last() else { break };
            bytes += page.iter().map(|object| object.bytes.len()).sum::<usize>();
            from = Some(last.key.name().to_string());
            pages += 1;
        }
    }
    writing.abort();
    let rate = pages as f64 / start.elapsed().as_secs_f64();
    println!(
        "paging       {rate:7.0} pages/s of 500, {} MiB, {compacted} lists compacted, beside {} writes",
        bytes >> 20,
        store.revision()
    );
    Ok(())
}

async fn memory(section: &str, store: Store<Plain>) -> Outcome {
    const OBJECTS: usize = 100_000;
    println!("{section:12} empty: resident {} KiB", resident());
    let before = resident();
    for n in 0..OBJECTS {
        put(&store, n).await;
    }
    let per_object = |now: usize| (now - before) * 1024 / OBJECTS;
    println!("{:12} {OBJECTS} creates: {} bytes an object of {SIZE}", "", per_object(resident()));
    store.compact(store.revision()).await?;
    println!("{:12} without their events: {}", "", per_object(resident()));
    for round in 1..4 {
        for n in 0..OBJECTS {
            put(&store, n).await;
        }
        println!("{:12} after {round} updates of each: {}", "", per_object(resident()));
    }
    Ok(())
}

async fn put(store: &Store<Plain>, n: usize) {
    let name = format!("namespace-{}/object-{n:06}", n % 7);
    let head = format!("{{\"metadata\":{{\"name\":\"{name}\",\"resourceVersion\":\"\"}},\"data\":\"");
    let value = format!("{head}{}\"}}\n", "x".repeat(SIZE - head.len()));
    match store.put(Key::new(things(), name), Expect::Any, value).await {
        Ok(PutOutcome::Stored(_)) => {}
        Ok(PutOutcome::Conflict { .. }) => println!("in conflict with nothing"),
        Err(error) => println!("{error}"),
    }
}

fn things() -> Arc<str> {
    static THINGS: std::sync::OnceLock<Arc<str>> = std::sync::OnceLock::new();
    THINGS.get_or_init(|| "things".into()).clone()
}

fn quantiles(took: &mut [Duration]) -> String {
    took.sort();
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize];
    format!("p50 {:?} p99 {:?} max {:?}", at(0.5), at(0.99), at(1.0))
}

/// Returns the resident memory in KiB, as Linux reports it.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or_default()
}
