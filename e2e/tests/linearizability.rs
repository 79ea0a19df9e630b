//! Concurrent clients see one store: their histories are linearizable, and watches keep etcd's
//! guarantees.
//!
//! `CORACLE_HISTORY_OPERATIONS=20000 CORACLE_HISTORY_CLIENTS=16 cargo test -p coracle-e2e --test linearizability -- --nocapture`
//! for larger histories; `CORACLE_HISTORY_SEED` repeats the choices of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use coracle_e2e::cluster;
use coracle_e2e::consistency::client::{Client, History, Watch, list, mark};
use coracle_e2e::consistency::{register, stream};
use coracle_e2e::http::Endpoint;
use tempfile::TempDir;
use tokio::task::JoinSet;

/// Few, so that clients meet.
const KEYS: usize = 5;
const WATCHES: u64 = 4;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs clients and watches of API servers over the same data, and checks what they saw.
async fn check(endpoints: &[Endpoint]) -> Result<()> {
    let (operations, clients) =
        (number("CORACLE_HISTORY_OPERATIONS", 1200), number("CORACLE_HISTORY_CLIENTS", 6));
    let seed = number("CORACLE_HISTORY_SEED", u64::from(std::process::id()));
    println!("CORACLE_HISTORY_SEED={seed}");
    let endpoint = |number: u64| {
        let index = usize::try_from(number).unwrap_or_default() % endpoints.len().max(1);
        endpoints.get(index).context("an API server")
    };
    let history = History::default();
    // Each phase has keys of its own, so that what is checked of each stays small.
    let phases = operations.div_ceil(clients * 400).max(1);
    let each = usize::try_from(operations / clients / phases)?;
    let (until, server_has_exited) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut watches = JoinSet::new();
    for number in 0..WATCHES {
        let (endpoint, until, server_has_exited) =
            (endpoint(number)?.clone(), until.clone(), server_has_exited.clone());
        // The first is not interrupted.
        let patience = if number == 0 { 0 } else { 40 };
        let mut watch = Watch::new(list(&endpoint).await?, seed + number, patience);
        watches.spawn(async move {
            watch.follow(&endpoint, &until, &server_has_exited).await.map(|_| watch.stream)
        });
    }
    let began = Instant::now();
    for phase in 0..phases {
        let keys: Vec<String> = (0..KEYS).map(|key| format!("phase-{phase}-key-{key}")).collect();
        let mut tasks = JoinSet::new();
        for number in 0..clients {
            let seed = seed.wrapping_add(phase * 1000 + number);
            let mut client = Client::new(&history, endpoint(number)?, seed, &keys).await?;
            tasks.spawn(async move { client.run(each).await });
        }
        for ended in tasks.join_all().await {
            ensure!(ended?, "a server is gone");
        }
    }
    let took = began.elapsed();
    let newest = mark(endpoint(0)?, &format!("{seed} {:?}", began.elapsed())).await?;
    until.store(newest, Ordering::SeqCst);
    let mut streams = Vec::new();
    for watch in watches.join_all().await {
        streams.push(watch?);
    }
    let began = Instant::now();
    for (key, operations) in history.operations() {
        register::check(None, &operations).with_context(|| key)?;
    }
    let writes = history.writes();
    let whole = streams.first().context("no watch")?;
    for watched in &streams {
        stream::check_stream(watched, &writes, newest)?;
        stream::check_same(whole, watched)?;
    }
    let lists = history.lists();
    for listed in lists.iter().filter(|listed| listed.revision <= newest) {
        stream::check_list(listed, whole)?;
    }
    println!(
        "{} operations of {clients} clients in {took:?}, {} lists, {} events of each of {WATCHES} watches; checked in {:?}",
        history.len(),
        lists.len(),
        whole.observed.len(),
        began.elapsed()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_histories_are_linearizable() -> Result<()> {
    let data = TempDir::new()?;
    let cluster = cluster().data_dir(data.path()).flag("--controllers", "").start().await?;
    check(&[cluster.endpoint().await?]).await
}

/// Runs on API servers that run already, over the same data:
/// `CORACLE_HISTORY_KUBECONFIGS=FILE,FILE,...`.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_histories_of_other_servers_are_linearizable() -> Result<()> {
    let Ok(files) = std::env::var("CORACLE_HISTORY_KUBECONFIGS") else { return Ok(()) };
    let mut endpoints = Vec::new();
    for file in files.split(',') {
        endpoints.push(Endpoint::new(&coracle_e2e::http::config(file.as_ref()).await?)?);
    }
    check(&endpoints).await
}
