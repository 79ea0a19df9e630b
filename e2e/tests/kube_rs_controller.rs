//! kube-rs' `Controller` with a finalizer and server-side apply: the operator of its tutorials, in
//! process and over TLS.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use coracle::ControlPlane;
use coracle_e2e::wait;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{self, Event, finalizer};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

const FINALIZER: &str = "e2e.coracle.dev/archive";
const DEADLINE: Duration = Duration::from_secs(30);

type ReconcileError = finalizer::Error<kube::Error>;

/// Keeps a ConfigMap for each Deployment, and writes another one when the Deployment is deleted.
async fn reconcile(deployment: Arc<Deployment>, client: Arc<Client>) -> Result<Action, ReconcileError> {
    let namespace = deployment.namespace().unwrap_or_default();
    let deployments = Api::<Deployment>::namespaced(client.as_ref().clone(), &namespace);
    let config_maps = Api::<ConfigMap>::namespaced(client.as_ref().clone(), &namespace);
    finalizer(&deployments, FINALIZER, deployment, |event| async {
        let params = PatchParams::apply("operator").force();
        let (name, object) = match event {
            Event::Apply(deployment) => {
                let name = deployment.name_any();
                let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
                let owner = deployment.controller_owner_ref(&());
                (name.clone(), config_map(&name, &json!([owner]), &replicas.to_string()))
            }
            Event::Cleanup(deployment) => {
                let name = format!("archived-{}", deployment.name_any());
                (name.clone(), config_map(&name, &json!([]), "none"))
            }
        };
        config_maps.patch(&name, &params, &Patch::Apply(&object)).await?;
        Ok::<_, kube::Error>(Action::await_change())
    })
    .await
}

fn config_map(name: &str, owners: &Value, replicas: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners},
        "data": {"replicas": replicas}})
}

fn deployment(replicas: i32) -> Result<Deployment> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web:1"}]},
            },
        },
    }))?)
}

/// Runs the operator in a namespace of its own, and lives through a Deployment with it.
async fn check_operator(client: Client, namespace: &str) -> Result<()> {
    let object = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await?;
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    let config_maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);

    let (stop, stopped) = oneshot::channel::<()>();
    let operator = Controller::new(deployments.clone(), watcher::Config::default())
        .owns(config_maps.clone(), watcher::Config::default())
        .graceful_shutdown_on(async {
            let _ = stopped.await;
        })
        .run(
            reconcile,
            |_, _: &ReconcileError, _| Action::requeue(Duration::from_millis(50)),
            Arc::new(client),
        )
        .for_each(|_| async {});
    let operator = tokio::spawn(operator);

    let replicas = async |want: &str| {
        wait::until(
            "the config map",
            async || Ok(config_maps.get_opt("web").await?),
            |map| {
                map.as_ref().and_then(|map| map.data.as_ref()?.get("replicas")).is_some_and(|got| got == want)
            },
        )
        .await
    };
    deployments.create(&PostParams::default(), &deployment(0)?).await?;
    replicas("0").await?;
    assert_eq!(deployments.get("web").await?.finalizers(), [FINALIZER]);

    // Changes of the Deployment are followed, those of others reverted.
    let params = PatchParams::apply("user").force();
    deployments.patch("web", &params, &Patch::Apply(&deployment(1)?)).await?;
    replicas("1").await?;
    let forged = json!({"data": {"replicas": "9"}});
    config_maps.patch("web", &PatchParams::default(), &Patch::Merge(&forged)).await?;
    replicas("1").await?;
    config_maps.delete("web", &DeleteParams::default()).await?;
    replicas("1").await?;

    // The deletion waits for the operator, and the collector for the owner.
    deployments.delete("web", &DeleteParams::default()).await?;
    for (what, name, is_there) in [("the archive", "archived-web", true), ("the deletion", "web", false)] {
        let wanted = |map: &Option<ConfigMap>| map.is_some() == is_there;
        wait::until(what, async || Ok(config_maps.get_opt(name).await?), wanted).await?;
    }
    assert!(deployments.get_opt("web").await?.is_none());
    drop(stop);
    timeout(DEADLINE, operator).await.context("the operator does not stop")??;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_works_in_process_and_over_tls() -> Result<()> {
    let control_plane = ControlPlane::builder().ephemeral().nodes(0).start().await?;
    check_operator(control_plane.client(), "inside").await?;
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&control_plane.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    check_operator(Client::try_from(config)?, "outside").await?;
    control_plane.shutdown().await?;
    Ok(())
}
