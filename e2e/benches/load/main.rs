//! The load benchmark: the throughput of one control plane, its cost at rest, and the limits of the
//! machine.
//!
//! ```text
//! cargo bench -p coracle-e2e --bench load                  all tables, as Markdown
//! cargo bench -p coracle-e2e --bench load -- requests      some: requests, latency, objects, watchers
//! PEER_KUBECONFIG=FILE cargo bench ...                     the same requests to another server, and ratios;
//!                                                          with PEER_PROCESSES=ID,ID also of their processor time
//! CORACLE_BIN=FILE cargo bench ...                         of an existing binary
//! PLOTS=DIRECTORY cargo bench ...                          the growth as SVG, too
//! ```
//!
//! The server runs with its default flags. The load generator runs on the same machine and costs
//! about as much as the server, so compare ratios of one run, not figures of two. Objects are of 1
//! KB, 32 requests are in flight, and each row takes a few seconds.

mod drive;
mod floor;
mod growth;
mod latency;
mod plot;
mod rows;
mod watching;

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use coracle_e2e::cluster;
use coracle_e2e::http::{self, Endpoint};

use drive::Figure;
use rows::{Row, load};

const STARTS: usize = 10;

fn main() -> Result<()> {
    // cargo passes `--bench`, which is ignored.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Ok(answer) = std::env::var(floor::SERVE) {
        return runtime.block_on(floor::serve(answer));
    }
    let named: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let is_selected = |name: &str| named.is_empty() || named.iter().any(|one| one == name);
    runtime.block_on(async {
        if is_selected("requests") {
            requests().await?;
        }
        if is_selected("latency") {
            latency::latencies().await?;
        }
        if is_selected("objects") {
            growth::objects().await?;
            growth::pods().await?;
        }
        if is_selected("watchers") {
            growth::watchers().await?;
            println!("\n| watchers | |\n| --- | ---: |");
            growth::stalled_watchers().await?;
            growth::quiet_watchers().await?;
        }
        Ok(())
    })
}

/// Measures the requests per second of a server, and its cost at rest.
async fn requests() -> Result<()> {
    let (start, idle) = starting().await?;
    println!("| at rest | |\n| --- | ---: |");
    println!("| exec to serving, empty store, median of {STARTS} | {start:.1} ms |");
    println!("| resident, idle | {idle:.1} MB |");
    let own = cluster().durable().start().await?;
    let mut figures = load(&own.endpoint().await?, own.id().as_slice()).await?;
    println!("| resident, after the load | {:.1} MB |", own.resident()?);
    let peer = match std::env::var_os("PEER_KUBECONFIG") {
        Some(file) => {
            let endpoint = Endpoint::new(&http::config(Path::new(&file)).await?)?;
            Some(load(&endpoint, &peer_processes()?).await?)
        }
        None => None,
    };
    drop(own);
    let synced = cluster().durable().flag("--durability", "sync").start().await?;
    figures.push(("create, --durability sync", rows::create(&synced.endpoint().await?).await?));
    drop(synced);
    let object = rows::config_map("c1", 'x');
    figures
        .push(("floor: get from a bare server", floor::bare_get(&String::from_utf8_lossy(&object)).await?));
    figures.push(("floor: writes of sled", floor::raw_sled(&object, Some(50))?));
    figures.push(("floor: writes of sled, synced", floor::raw_sled(&object, None)?));
    table(&figures, peer.as_deref());
    Ok(())
}

/// Returns the process ids of the peer server and its store, from the variable `PEER_PROCESSES`.
fn peer_processes() -> Result<Vec<u32>> {
    let ids = std::env::var("PEER_PROCESSES").unwrap_or_default();
    let ids = ids.split(',').filter(|id| !id.is_empty()).map(|id| Ok(id.parse()?));
    ids.collect()
}

fn table(own: &[Row], peer: Option<&[Row]>) {
    let columns = "a second | p99 ms | processor us";
    println!("\n| {:<30} | {columns} | peer | p99 ms | processor us | ratio | of processor |", "under load");
    println!("| {} |{}", "-".repeat(30), " ---: |".repeat(8));
    let micros = |figure: &Figure| figure.processor_us.map(|us| format!("{us:.1}")).unwrap_or_default();
    for (name, figure) in own {
        let Figure { per_second, p99_ms, .. } = figure;
        print!("| {name:<30} | {per_second:.0} | {p99_ms:.2} | {} |", micros(figure));
        match peer.and_then(|rows| rows.iter().find(|(other, _)| other == name)) {
            Some((_, theirs)) => {
                let ratio = per_second / theirs.per_second;
                let processor = theirs.processor_us.zip(figure.processor_us);
                let processor = processor.map(|(theirs, own)| format!("{:.1}x", theirs / own));
                print!(" {:.0} | {:.2} | {} |", theirs.per_second, theirs.p99_ms, micros(theirs));
                println!(" {ratio:.1}x | {} |", processor.unwrap_or_default());
            }
            None => println!(" | | | | |"),
        }
    }
}

/// Returns the median time from exec until the server is ready, in milliseconds, and its resident
/// memory at rest, in megabytes.
async fn starting() -> Result<(f64, f64)> {
    // The first start may build the binary.
    drop(cluster().durable().start().await?);
    let mut times = Vec::new();
    let mut idle = 0.0;
    for _ in 0..STARTS {
        let began = Instant::now();
        let cluster = cluster().durable().start().await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        cluster.settle().await?;
        idle = cluster.resident()?;
    }
    times.sort_by(f64::total_cmp);
    Ok((times[STARTS / 2], idle))
}
