//! Settle and the clock: how long they take where little happens.
//!
//! ```text
//! cargo bench -p coracle-e2e --bench testing
//! ```

use std::time::{Duration, Instant};

use anyhow::Result;
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::{Cluster, cluster, workloads};
use serde_json::{Value, json};

const SETTLE: &str = "/coracle/v1alpha1/settle";
const CLOCK: &str = "/coracle/v1alpha1/clock";

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!("| | median | longest |\n| --- | ---: | ---: |");
    runtime.block_on(async {
        let cluster = cluster().start().await?;
        let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
        client.call("POST", SETTLE, Some(json!({}))).await?;
        measure("settle, idle", 500, &mut client, SETTLE, &json!({"quietFor": "0s"})).await?;
        drop(cluster);

        let (_cluster, mut client) = manual().await?;
        measure("an idle hour, two nodes", 50, &mut client, CLOCK, &json!({"advance": "1h"})).await?;
        let cron_job =
            workloads::cron_job("hourly", "0 * * * *", json!({"sim.coracle.dev/exit-after": "90s"}));
        client.create(&workloads::batch("default", "cronjobs"), cron_job).await?;
        measure("a day with an hourly CronJob, two nodes", 10, &mut client, CLOCK, &json!({"advance": "24h"}))
            .await
    })
}

async fn manual() -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().flag("--clock", "manual").flag("--nodes", "2").start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    client.call("POST", SETTLE, Some(json!({}))).await?;
    Ok((cluster, client))
}

/// Measures requests from the connection that sends them.
async fn measure(name: &str, count: usize, client: &mut JsonClient, path: &str, body: &Value) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..count {
        let began = Instant::now();
        client.call("POST", path, Some(body.clone())).await?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let [median, longest] = [times.len() / 2, times.len() - 1].map(|place| times[place]);
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    println!("| {name} | {:.2} ms | {:.2} ms |", milliseconds(median), milliseconds(longest));
    Ok(())
}
