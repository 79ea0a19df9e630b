//! An operator in the process of the control plane, which lives for a month by a clock that is
//! moved on.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use coracle::{ClockHandle, ClockMode, ControlPlane};
use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;

const DAY: Duration = Duration::from_secs(24 * 3600);
const LIFETIME: Duration = DAY.saturating_mul(30);

/// Counts the days of each ConfigMap with a lifetime, and deletes it after 30 of them.
async fn operate(client: Client, clock: ClockHandle) -> Result<()> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    // With the objects that are there already.
    let mut events = std::pin::pin!(maps.watch(&WatchParams::default(), "0").await?);
    let mut timers = FuturesUnordered::new();
    loop {
        // The work of a timer lasts until its object is reconciled, and the next timer is set.
        let (name, _work) = tokio::select! {
            Some(event) = events.next() => match event? {
                WatchEvent::Added(map) => (map.name_any(), None),
                _ => continue,
            },
            Some((name, work)) = timers.next() => (name, Some(work)),
            else => return Ok(()),
        };
        if let Some(after) = reconcile(&maps, &clock, &name).await? {
            let timer = clock.sleep(after);
            timers.push(async move { (name, timer.await) }.boxed());
        }
    }
}

async fn reconcile(maps: &Api<ConfigMap>, clock: &ClockHandle, name: &str) -> Result<Option<Duration>> {
    let Some(map) = maps.get_opt(name).await? else { return Ok(None) };
    if !map.data.as_ref().is_some_and(|data| data.contains_key("ttl")) {
        return Ok(None);
    }
    let created: SystemTime = map.metadata.creation_timestamp.as_ref().context("a time")?.0.into();
    let age = clock.now().duration_since(created)?;
    if age >= LIFETIME {
        maps.delete(name, &DeleteParams::default()).await?;
        return Ok(None);
    }
    let days = age.as_secs() / DAY.as_secs();
    let patch = Patch::Merge(json!({"data": {"days": days.to_string()}}));
    maps.patch(name, &PatchParams::default(), &patch).await?;
    let spent =
        Duration::from_secs(age.as_secs() % DAY.as_secs()) + Duration::from_nanos(age.subsec_nanos().into());
    Ok(Some(DAY - spent))
}

#[tokio::test]
async fn an_operator_lives_for_a_month() -> Result<()> {
    let control_plane = ControlPlane::builder().ephemeral().clock(ClockMode::Manual).start().await?;
    let clock = control_plane.clock();
    let operator = tokio::spawn(operate(control_plane.client(), clock.clone()));
    let maps: Api<ConfigMap> = Api::default_namespaced(control_plane.client());
    let map = serde_json::from_value(json!({"metadata": {"name": "short-lived"}, "data": {"ttl": "720h"}}))?;
    maps.create(&PostParams::default(), &map).await?;
    let days = async || {
        let map = maps.get_opt("short-lived").await?;
        anyhow::Ok(map.and_then(|map| map.data?.get("days").cloned()))
    };
    let began = Instant::now();
    control_plane.settle().await?;
    ensure!(days().await?.as_deref() == Some("0"), "{:?}", days().await?);
    clock.advance(10 * DAY + Duration::from_secs(3600)).await?;
    ensure!(days().await?.as_deref() == Some("10"), "{:?}", days().await?);
    clock.advance(20 * DAY - Duration::from_secs(2 * 3600)).await?;
    ensure!(days().await?.as_deref() == Some("29"), "{:?}", days().await?);
    clock.advance(Duration::from_secs(3600)).await?;
    ensure!(days().await?.is_none(), "it is still there");
    println!("a month took {:?}", began.elapsed());
    operator.abort();
    Ok(())
}
