//! A control plane inside a test, on the runtime of a plain `#[tokio::test]`.

use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use coracle::ControlPlane;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, PostParams, WatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::time::{sleep, timeout};

const DEADLINE: Duration = Duration::from_secs(20);
const ROUNDS: usize = 20;

/// The resources of a process.
#[derive(Debug)]
struct ProcessResources {
    descriptors: usize,
    threads: usize,
    /// Threads that Coracle starts: a store has two.
    own_threads: usize,
}

impl ProcessResources {
    fn now() -> Result<ProcessResources> {
        let mut resources = ProcessResources {
            descriptors: std::fs::read_dir("/proc/self/fd")?.count(),
            threads: 0,
            own_threads: 0,
        };
        for task in std::fs::read_dir("/proc/self/task")? {
            // A thread may end meanwhile.
            let name = std::fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
            resources.threads += 1;
            resources.own_threads += usize::from(name.starts_with("coracle-"));
        }
        Ok(resources)
    }
}

/// Starts on a directory that another control plane may still be closing.
async fn start(directory: &Path) -> Result<ControlPlane> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match ControlPlane::builder().data_dir(directory).start().await {
            Ok(control_plane) => return Ok(control_plane),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Drops a control plane that serves a watch. Everything that it started ends.
async fn use_and_drop(directory: &Path, round: usize) -> Result<()> {
    let control_plane = start(directory).await?;
    let address = control_plane.url().trim_start_matches("https://").to_owned();
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&control_plane.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    let client = Client::try_from(config)?;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    assert_eq!(
        maps.list(&Default::default())
            .await?
            .items
            .iter()
            .filter(|map| map.name_any().starts_with("round-"))
            .count(),
        round,
        "what was acknowledged is there"
    );
    let map = serde_json::from_value(json!({"metadata": {"name": format!("round-{round}")}}))?;
    maps.create(&PostParams::default(), &map).await?;
    let mut watch = Box::pin(maps.watch(&WatchParams::default(), "0").await?);
    timeout(DEADLINE, watch.try_next()).await??.context("no event")?;

    drop(control_plane);
    timeout(DEADLINE, async { while let Ok(Some(_)) = watch.try_next().await {} })
        .await
        .context("the watch goes on")?;
    let deadline = Instant::now() + DEADLINE;
    while TcpStream::connect(&address).is_ok() {
        if Instant::now() > deadline {
            bail!("{address} is still served");
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

#[tokio::test]
async fn dropped_control_planes_leave_nothing_behind() -> Result<()> {
    let directory = tempfile::tempdir()?;
    // The first one initializes what a process has once.
    use_and_drop(directory.path(), 0).await?;
    let at_rest = async || -> Result<ProcessResources> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let resources = ProcessResources::now()?;
            if resources.own_threads == 0 || Instant::now() > deadline {
                return Ok(resources);
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let before = at_rest().await?;
    for round in 1..ROUNDS {
        use_and_drop(directory.path(), round).await?;
    }
    // Without the blocking threads of the runtime and those of the store's library, which start and
    // end by themselves.
    const ALLOWED_CHANGE: usize = 16;
    let deadline = Instant::now() + DEADLINE;
    loop {
        let after = at_rest().await?;
        let grown = after.descriptors > before.descriptors + 4
            || after.own_threads > 0
            || after.threads > before.threads + ALLOWED_CHANGE;
        if !grown {
            break;
        }
        if Instant::now() > deadline {
            bail!("{ROUNDS} control planes: {before:?} became {after:?}");
        }
        sleep(Duration::from_millis(50)).await;
    }
    // The same holds for one that is dropped during its start.
    let starting = ControlPlane::builder().data_dir(directory.path()).start();
    assert!(timeout(Duration::from_millis(1), starting).await.is_err());
    let control_plane = start(directory.path()).await?;
    let namespaces: Api<Namespace> = Api::all(control_plane.client());
    namespaces.get("default").await?;
    control_plane.shutdown().await.expect("a closed store");
    Ok(())
}
