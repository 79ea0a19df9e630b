//! kube-rs against Coracle: its typed client, watcher, reflector and waiting, over the network and
//! in process.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result};
use coracle::ControlPlane;
use coracle_e2e::{Cluster, cluster};
use futures::TryStreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::runtime::reflector::{self, reflector};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);

/// Starts a control plane whose only controller creates service accounts, which pods need.
async fn start() -> Result<Cluster> {
    cluster().flag("--controllers", "serviceaccount-controller").with_service_account().start().await
}

/// Converts a value to a typed object.
fn object<K: DeserializeOwned>(object: Value) -> Result<K> {
    Ok(serde_json::from_value(object)?)
}

fn config_map(name: &str, text: &str) -> Result<ConfigMap> {
    object(json!({"metadata": {"name": name, "labels": {"scenario": text}}, "data": {"text": text}}))
}

fn deployment(name: &str) -> Result<Deployment> {
    object(json!({"metadata": {"name": name}, "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "web", "image": "web:1"}]},
        },
    }}))
}

/// Builds a pod that no simulated node changes.
fn pod(name: &str, node: Option<&str>) -> Result<Pod> {
    let metadata = json!({"name": name, "annotations": {"sim.coracle.dev/ignore": "true"}});
    object(json!({"metadata": metadata, "spec": {
        "nodeName": node,
        "containers": [{"name": "web", "image": "web:1"}],
        "terminationGracePeriodSeconds": 0,
    }}))
}

/// Returns the Status of a request that must fail.
fn refusal<T>(result: kube::Result<T>) -> Result<Box<Status>> {
    match result {
        Ok(_) => anyhow::bail!("it was not refused"),
        Err(kube::Error::Api(status)) => Ok(status),
        Err(error) => Err(error.into()),
    }
}

/// Creates, reads, changes, lists and deletes an object; returns the names in a list.
async fn check_lifecycle<K>(api: &Api<K>, object: K) -> Result<Vec<String>>
where
    K: Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + DeserializeOwned
        + Send
        + 'static,
{
    let created = api.create(&PostParams::default(), &object).await?;
    let (name, uid) = (created.name_any(), created.uid().context("no uid")?);
    let again = refusal(api.create(&PostParams::default(), &object).await)?;
    assert!(again.is_already_exists(), "{again:?}");

    let mut read = api.get(&name).await?;
    assert_eq!(read.resource_version(), created.resource_version());
    read.annotations_mut().insert("scenario".to_owned(), "changed".to_owned());
    let changed = api.replace(&name, &PostParams::default(), &read).await?;
    assert_eq!(changed.annotations().get("scenario").map(String::as_str), Some("changed"));
    assert_ne!(changed.resource_version(), created.resource_version());
    let names = api.list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();

    api.delete(&name, &DeleteParams::default()).await?;
    let gone = await_condition(api.clone(), &name, conditions::is_deleted(&uid));
    timeout(DEADLINE, gone).await.context("it is not deleted")??;
    assert!(api.get_opt(&name).await?.is_none());
    Ok(names)
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_created_updated_and_deleted() -> Result<()> {
    let cluster = start().await?;
    let client = cluster.client().await?;
    assert_eq!(client.apiserver_version().await?.minor, "36");
    assert_eq!(
        check_lifecycle(&Api::default_namespaced(client.clone()), config_map("settings", "old")?).await?,
        ["settings"]
    );
    assert_eq!(check_lifecycle(&Api::default_namespaced(client.clone()), deployment("web")?).await?, ["web"]);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    assert_eq!(check_lifecycle(&pods, pod("web-0", None)?).await?, ["web-0"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_paginated() -> Result<()> {
    const COUNT: usize = 1200;
    let cluster = start().await?;
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.client().await?);
    for number in 0..COUNT {
        let text = if number % 3 == 0 { "third" } else { "other" };
        api.create(&PostParams::default(), &config_map(&format!("number-{number:04}"), text)?).await?;
    }
    let mut pages = Vec::new();
    let mut names = BTreeSet::new();
    let mut params = ListParams::default().limit(500);
    loop {
        let page = api.list(&params).await?;
        names.extend(page.iter().map(ResourceExt::name_any));
        pages.push((page.items.len(), page.metadata.remaining_item_count));
        if pages.len() == 1 {
            // Later changes are not visible: all pages are of one revision.
            api.create(&PostParams::default(), &config_map("number-9999", "late")?).await?;
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    assert_eq!(pages, [(500, Some(700)), (500, Some(200)), (200, None)]);
    assert_eq!(names.len(), COUNT);
    assert!(!names.contains("number-9999"));

    for (params, want) in [
        (ListParams::default().labels("scenario=third"), COUNT / 3),
        (ListParams::default().labels("scenario notin (third, late)"), COUNT - COUNT / 3),
        (ListParams::default().labels("!scenario"), 0),
        (ListParams::default().fields("metadata.name=number-0007"), 1),
        (ListParams::default().fields("metadata.name!=number-0007").labels("scenario=late"), 1),
    ] {
        assert_eq!(api.list(&params).await?.items.len(), want, "{params:?}");
    }
    let refused = refusal(api.list(&ListParams::default().fields("data.text=late")).await)?;
    assert_eq!((refused.code, refused.reason.as_str()), (400, "BadRequest"), "{refused:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_of_an_old_version_conflicts() -> Result<()> {
    let cluster = start().await?;
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.client().await?);
    let read = api.create(&PostParams::default(), &config_map("settings", "old")?).await?;
    let with = |text: &str| {
        let mut changed = read.clone();
        changed.data = Some(BTreeMap::from([("text".to_owned(), text.to_owned())]));
        changed
    };
    api.replace("settings", &PostParams::default(), &with("first")).await?;
    let lost = refusal(api.replace("settings", &PostParams::default(), &with("second")).await)?;
    assert!(lost.is_conflict() && lost.code == 409, "{lost:?}");
    assert_eq!(api.get("settings").await?.data, with("first").data);

    let stale = DeleteParams::default()
        .preconditions(kube::api::Preconditions { resource_version: read.resource_version(), uid: None });
    let lost = refusal(api.delete("settings", &stale).await)?;
    assert!(lost.is_conflict(), "{lost:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_of_each_kind() -> Result<()> {
    let cluster = start().await?;
    let api: Api<Deployment> = Api::default_namespaced(cluster.client().await?);
    api.create(&PostParams::default(), &deployment("web")?).await?;
    let params = PatchParams::default();
    let containers = |deployment: &Deployment| -> Result<Vec<String>> {
        let spec =
            deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).context("no spec")?;
        Ok(spec
            .containers
            .iter()
            .map(|c| format!("{}={}", c.name, c.image.as_deref().unwrap_or("")))
            .collect())
    };

    let more = json!({"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}]}}}});
    let patched = api.patch("web", &params, &Patch::Strategic(&more)).await?;
    assert_eq!(containers(&patched)?, ["side=side:1", "web=web:1"], "merged by name");
    let patched = api.patch("web", &params, &Patch::Merge(&more)).await?;
    assert_eq!(containers(&patched)?, ["side=side:1"], "replaced whole");
    let operations = json!([
        {"op": "test", "path": "/spec/replicas", "value": 2},
        {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "side:2"},
    ]);
    let patched = api.patch("web", &params, &Patch::Json::<()>(object(operations)?)).await?;
    assert_eq!(containers(&patched)?, ["side=side:2"]);
    let failing = json!([{"op": "test", "path": "/spec/replicas", "value": 3}]);
    let refused = refusal(api.patch("web", &params, &Patch::Json::<()>(object(failing)?)).await)?;
    assert_eq!(refused.code, 422, "{refused:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn subresources_are_read_and_written() -> Result<()> {
    let cluster = start().await?;
    let client = cluster.client().await?;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &deployment("web")?).await?;

    let mut scale: Scale = deployments.get_scale("web").await?;
    scale.spec.get_or_insert_default().replicas = Some(5);
    deployments.replace_scale("web", &PostParams::default(), &scale).await?;
    let fewer = json!({"spec": {"replicas": 3}});
    deployments.patch_scale("web", &PatchParams::default(), &Patch::Merge(&fewer)).await?;
    let status = json!({"spec": {"replicas": 9}, "status": {"replicas": 1, "observedGeneration": 1}});
    let written = deployments.patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await?;
    assert_eq!(written.spec.and_then(|spec| spec.replicas), Some(3), "a status has no say in the spec");
    let read = deployments.get_status("web").await?;
    assert_eq!(read.status.and_then(|status| status.replicas), Some(1));

    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let created = pods.create(&PostParams::default(), &pod("web-0", None)?).await?;
    let running = json!({"status": {"phase": "Running"}});
    pods.patch_status("web-0", &PatchParams::default(), &Patch::Merge(&running)).await?;
    timeout(DEADLINE, await_condition(pods.clone(), "web-0", conditions::is_pod_running())).await??;
    pods.evict("web-0", &EvictParams::default()).await?;
    let uid = created.uid().context("no uid")?;
    timeout(DEADLINE, await_condition(pods, "web-0", conditions::is_deleted(&uid))).await??;
    Ok(())
}

/// Formats the events of an object, by its label.
fn changes(event: Event<ConfigMap>) -> Option<String> {
    match event {
        Event::Apply(object) => Some(format!("{}={}", object.name_any(), object.labels().get("scenario")?)),
        Event::Delete(object) => Some(format!("-{}", object.name_any())),
        Event::Init | Event::InitApply(_) | Event::InitDone => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reflector_sees_every_change() -> Result<()> {
    const COUNT: usize = 200;
    let cluster = start().await?;
    for config in [
        watcher::Config::default().labels("scenario"),
        watcher::Config::default().labels("scenario").streaming_lists(),
    ] {
        let api: Api<ConfigMap> = Api::default_namespaced(cluster.client().await?);
        api.create(&PostParams::default(), &config_map("first", "there")?).await?;
        let (store, writer) = reflector::store();
        let mut events = pin!(reflector(writer, watcher(api.clone(), config)));
        while !matches!(timeout(DEADLINE, events.try_next()).await??.context("the end")?, Event::InitDone) {}
        assert_eq!(store.len(), 1);

        let writes = tokio::spawn(async move {
            let mut done = Vec::new();
            for number in 0..COUNT {
                let name = format!("number-{}", number % 10);
                let text = number.to_string();
                let object = config_map(&name, &text)?;
                match number {
                    0..10 => api.create(&PostParams::default(), &object).await?,
                    _ => api.replace(&name, &PostParams::default(), &object).await?,
                };
                done.push(format!("{name}={text}"));
            }
            for name in ["first".to_owned()].into_iter().chain((0..10).map(|n| format!("number-{n}"))) {
                api.delete(&name, &DeleteParams::default()).await?;
                done.push(format!("-{name}"));
            }
            anyhow::Ok(done)
        });
        let mut seen = Vec::new();
        while seen.last().is_none_or(|last| last != "-number-9") {
            seen.extend(changes(timeout(DEADLINE, events.try_next()).await??.context("the end")?));
        }
        assert_eq!(seen, writes.await??);
        assert!(store.is_empty());
    }
    Ok(())
}

/// Checks that the library's client uses no socket, and sees the same objects as a client over the
/// network.
#[tokio::test(flavor = "multi_thread")]
async fn the_in_process_client_works() -> Result<()> {
    // The deployment controller writes to Deployments too, and would conflict with the update.
    let controllers = ["serviceaccount-controller".to_owned()];
    let control_plane = ControlPlane::builder().ephemeral().controllers(controllers).start().await?;
    let client = control_plane.client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &object(json!({"metadata": {"name": "inside"}}))?).await?;
    assert_eq!(
        check_lifecycle(&Api::namespaced(client.clone(), "inside"), deployment("web")?).await?,
        ["web"]
    );

    let kubeconfig = kube::config::Kubeconfig::from_yaml(&control_plane.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    let outside = Api::<ConfigMap>::namespaced(Client::try_from(config)?, "inside");
    let inside = Api::<ConfigMap>::namespaced(client, "inside");
    let exists =
        tokio::spawn(await_condition(inside.clone(), "settings", |o: Option<&ConfigMap>| o.is_some()));
    let created = outside.create(&PostParams::default(), &config_map("settings", "new")?).await?;
    timeout(DEADLINE, exists).await???;
    assert_eq!(inside.get("settings").await?, created);
    control_plane.shutdown().await?;
    assert!(outside.get("settings").await.is_err(), "nothing serves any more");
    Ok(())
}
