//! Many control planes in one process: each is isolated, and needs few resources.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use coracle::ControlPlane;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;

/// The number of control planes that run at once; `examples/many.rs` measures more.
const COUNT: usize = 16;

/// The most memory that each may take, with all controllers and a node, unoptimised and with
/// glibc's allocator.
const MEMORY_EACH: usize = 24 << 20;

/// Returns the resident memory of this process in bytes.
fn resident() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: usize = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_control_planes_share_a_process_and_nothing_else() -> Result<()> {
    // The first one fills tables that all share.
    let mut control_planes = vec![ControlPlane::builder().ephemeral().start().await?];
    let before = resident()?;
    for _ in 1..=COUNT {
        control_planes.push(ControlPlane::builder().ephemeral().start().await?);
    }
    for (i, control_plane) in control_planes.iter().enumerate() {
        let namespaces = Api::<Namespace>::all(control_plane.client());
        let labels = json!({"metadata": {"name": "mine", "labels": {"of": i.to_string()}}});
        namespaces.create(&PostParams::default(), &serde_json::from_value(labels)?).await?;
    }
    for (i, control_plane) in control_planes.iter().enumerate() {
        let namespaces = Api::<Namespace>::all(control_plane.client());
        let of_others = ListParams::default().labels(&format!("of,of!={i}"));
        assert_eq!(namespaces.list(&of_others).await?.items.len(), 0, "control plane {i}");
    }
    let urls: BTreeSet<String> = control_planes.iter().map(ControlPlane::url).collect();
    assert_eq!(urls.len(), control_planes.len());
    let each = resident()?.saturating_sub(before) / COUNT;
    println!("{} KiB each", each / 1024);
    assert!(each < MEMORY_EACH, "{} KiB each", each / 1024);
    for control_plane in control_planes {
        control_plane.shutdown().await?;
    }
    Ok(())
}
