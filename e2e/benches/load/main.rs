//! Load: the throughput of one control plane, its cost at rest, and what the machine could do at best.
//!
//! ```text
//! cargo bench -p coracle-e2e --bench load                  all tables, as Markdown
//! cargo bench -p coracle-e2e --bench load -- requests      some: requests, latency, objects, watchers
//! PEER_KUBECONFIG=FILE cargo bench ...                     the same requests to another server, and ratios
//! CORACLE_BIN=FILE cargo bench ...                         of a binary that is there already
//! PLOTS=DIRECTORY cargo bench ...                          the growth as SVG, too
//! ```
//!
//! The server runs with its default flags. The load generator runs on the same machine and costs about as much as the server, so
//! compare ratios of one run, not figures of two. Objects are of 1 KB, 32 requests are in flight, and each row takes a few seconds.

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

/// What a server does a second, and what it costs at rest.
async fn requests() -> Result<()> {
    let (start, idle) = starting().await?;
    println!("| at rest | |\n| --- | ---: |");
    println!("| exec to serving, empty store, median of {STARTS} | {start:.1} ms |");
    println!("| resident, idle | {idle:.1} MB |");
    let own = cluster().durable().start().await?;
    let mut figures = load(&own.endpoint().await?).await?;
    println!("| resident, after the load | {:.1} MB |", own.resident()?);
    let peer = match std::env::var_os("PEER_KUBECONFIG") {
        Some(file) => Some(load(&Endpoint::new(&http::config(Path::new(&file)).await?)?).await?),
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

fn table(own: &[Row], peer: Option<&[Row]>) {
    println!("\n| {:<30} | a second | p99 ms | peer | p99 ms | ratio |", "under load");
    println!("| {} | ---: | ---: | ---: | ---: | ---: |", "-".repeat(30));
    for (name, figure) in own {
        print!("| {name:<30} | {:.0} | {:.2} |", figure.per_second, figure.p99_ms);
        match peer.and_then(|rows| rows.iter().find(|(other, _)| other == name)) {
            Some((_, theirs)) => {
                let ratio = figure.per_second / theirs.per_second;
                println!(" {:.0} | {:.2} | {ratio:.1}x |", theirs.per_second, theirs.p99_ms);
            }
            None => println!(" | | |"),
        }
    }
}

/// The milliseconds from exec until the server is ready, and its resident megabytes then.
async fn starting() -> Result<(f64, f64)> {
    // The first start may build the binary.
    drop(cluster().durable().start().await?);
    let mut times = Vec::new();
    let mut idle = 0.0;
    for _ in 0..STARTS {
        let began = Instant::now();
        let cluster = cluster().durable().start().await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        idle = cluster.resident()?;
    }
    times.sort_by(f64::total_cmp);
    Ok((times[STARTS / 2], idle))
}
