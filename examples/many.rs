//! Many control planes in one process, and what each of them costs.
//!
//!     cargo run --release --example many -- 100
#![expect(clippy::disallowed_methods, reason = "an example measures")]

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use coracle::ControlPlane;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use serde_json::json;

/// Returns the resident memory of this process in bytes.
fn resident() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: usize = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

#[tokio::main]
async fn main() -> Result<()> {
    let count: usize = match std::env::args().nth(1) {
        Some(count) => count.parse().context("the number of control planes")?,
        None => 100,
    };
    // The first one fills tables that all share.
    let mut control_planes = vec![ControlPlane::builder().ephemeral().start().await?];
    let before = resident()?;
    let mut longest = Duration::ZERO;
    let began = Instant::now();
    for _ in 0..count {
        let began = Instant::now();
        control_planes.push(ControlPlane::builder().ephemeral().start().await?);
        longest = longest.max(began.elapsed());
    }
    let average = began.elapsed() / u32::try_from(count.max(1))?;

    // Each is a world of its own: the same name is free in all of them.
    for control_plane in &control_planes {
        let namespace = serde_json::from_value(json!({"metadata": {"name": "mine"}}))?;
        Api::<Namespace>::all(control_plane.client()).create(&PostParams::default(), &namespace).await?;
    }
    let each = resident()?.saturating_sub(before) / count.max(1);
    println!(
        "{count} control planes: started in {average:.1?} each, {longest:.1?} at most, {} KiB each",
        each / 1024
    );
    Ok(())
}
