//! An operator and its control plane in one process: a `Controller` that keeps a Service for each
//! annotated Deployment.
//!
//!     cargo run --example operator
#![expect(clippy::disallowed_methods, reason = "an example waits for a bounded time")]

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use coracle::ControlPlane;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::conditions::is_deleted;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::wait::await_condition;
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

/// The port that a Deployment is to be reached at.
const PORT: &str = "example.dev/port";
const DEADLINE: Duration = Duration::from_secs(30);

async fn reconcile(deployment: Arc<Deployment>, client: Arc<Client>) -> kube::Result<Action> {
    let port = deployment.annotations().get(PORT).and_then(|port| port.parse::<u16>().ok());
    if let (Some(port), Some(namespace)) = (port, deployment.namespace()) {
        let selector = deployment.spec.as_ref().and_then(|spec| spec.selector.match_labels.clone());
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": deployment.name_any(), "ownerReferences": [deployment.controller_owner_ref(&())]},
            "spec": {"selector": selector, "ports": [{"port": port}]},
        });
        Api::<Service>::namespaced(client.as_ref().clone(), &namespace)
            .patch(
                &deployment.name_any(),
                &PatchParams::apply("example-operator").force(),
                &Patch::Apply(&service),
            )
            .await?;
    }
    Ok(Action::await_change())
}

#[tokio::main]
async fn main() -> Result<()> {
    // Without nodes no pod runs: this operator needs none.
    let control_plane = ControlPlane::builder().ephemeral().nodes(0).start().await?;
    let client = control_plane.client();
    let deployments = Api::<Deployment>::default_namespaced(client.clone());
    let services = Api::<Service>::default_namespaced(client.clone());

    let controller = Controller::new(deployments.clone(), watcher::Config::default())
        .owns(services.clone(), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(100)), Arc::new(client));
    let operator = tokio::spawn(controller.for_each(|_| async {}));

    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "annotations": {PORT: "80"}},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web:1"}]},
            },
        },
    });
    deployments.patch("web", &PatchParams::apply("user"), &Patch::Apply(&web)).await?;
    let is_there = |service: Option<&Service>| service.is_some();
    let service = timeout(DEADLINE, await_condition(services.clone(), "web", is_there)).await??;
    let service = service.context("the condition is that it is there")?;
    let address = service.spec.as_ref().and_then(|spec| spec.cluster_ip.clone());
    println!("the Service has the address {}", address.as_deref().unwrap_or("None"));

    // The dependents of the operator's object are garbage collected.
    deployments.delete("web", &DeleteParams::default()).await?;
    let uid = service.uid().context("a stored object has a uid")?;
    timeout(DEADLINE, await_condition(services, "web", is_deleted(&uid))).await??;
    println!("the Service is deleted");
    operator.abort();
    Ok(())
}
