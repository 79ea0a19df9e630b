//! A control plane in a test: a Deployment is rolled out, and is garbage collected with its pods.
//!
//!     cargo run --example embed
//!
//! The body is that of any `#[tokio::test]`, on either flavor of the runtime.
#![expect(clippy::disallowed_methods, reason = "an example waits for a bounded time")]

use std::time::Duration;

use anyhow::{Context, Result};
use coracle::ControlPlane;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::conditions::{is_deleted, is_deployment_completed};
use kube::runtime::wait::await_condition;
use serde_json::json;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let control_plane = ControlPlane::builder().ephemeral().nodes(1).start().await?;
    let client = control_plane.client();
    let deployments = Api::<Deployment>::default_namespaced(client.clone());
    let pods = Api::<Pod>::default_namespaced(client);

    let web: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web:1"}]},
            },
        },
    }))?;
    let web = deployments.create(&PostParams::default(), &web).await?;
    timeout(DEADLINE, await_condition(deployments.clone(), "web", is_deployment_completed())).await??;
    for pod in pods.list(&ListParams::default().labels("app=web")).await? {
        println!("{} is running", pod.name_any());
    }

    // Clients of other processes use a kubeconfig, over TLS.
    println!("kubectl --kubeconfig {} get pods", control_plane.own_kubeconfig()?.display());

    deployments.delete("web", &DeleteParams::foreground()).await?;
    let uid = web.uid().context("a stored object has a uid")?;
    timeout(DEADLINE, await_condition(deployments, "web", is_deleted(&uid))).await??;
    println!("{} pods are left", pods.list(&ListParams::default()).await?.items.len());

    // Dropping it would do as well.
    control_plane.shutdown().await?;
    Ok(())
}
