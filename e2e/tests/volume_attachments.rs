//! VolumeAttachments and VolumeAttributesClasses of clients, following upstream's conformance tests
//! (`test/e2e/storage/volume_attachment.go`, `volumeattributesclass.go`): controllers delete only
//! their own objects, and protected objects are deleted once they are unused.

use std::fmt::Debug;

use anyhow::{Context, Result, ensure};
use coracle_e2e::volumes::{Driver, NODE, Scenario, claim, is_terminating};
use coracle_e2e::wait::until;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttributesClass};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const PROTECTION: &str = "kubernetes.io/vac-protection";

fn attachment(name: &str, volume: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "attacher": "e2e-test.storage.k8s.io", "nodeName": NODE, "source": {"persistentVolumeName": volume},
    }})
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + serde::Serialize,
{
    Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

async fn until_none<K>(api: &Api<K>, selector: &str) -> Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let params = ListParams::default().labels(selector);
    let names = async || {
        let all = api.list(&params).await?.items;
        Ok(all.iter().map(ResourceExt::name_any).collect::<Vec<_>>())
    };
    until(&format!("none of {selector}"), names, Vec::is_empty).await.map(drop)
}

#[tokio::test]
async fn the_lifecycle_of_an_attachment() -> Result<()> {
    let scenario = Scenario::start(Driver::Csi).await?;
    let api: Api<VolumeAttachment> = Api::all(scenario.client());
    let first: VolumeAttachment = create(&api, attachment("va-1", "pv-1")).await?;
    scenario.until_settled().await?;
    let label = json!({"metadata": {"labels": {"va-1": "patched"}}});
    let patched = api.patch("va-1", &PatchParams::default(), &Patch::Merge(label)).await?;
    ensure!(patched.labels().get("va-1").is_some_and(|value| value == "patched"));
    ensure!(patched.uid() == first.uid() && !is_terminating(&patched), "{patched:?}");
    ensure!(api.list(&ListParams::default().labels("va-1=patched")).await?.items.len() == 1);
    api.delete("va-1", &DeleteParams::default()).await?;
    until_none(&api, "va-1=patched").await?;
    for name in ["va-2", "va-3"] {
        create(&api, attachment(name, "pv-2")).await?;
        let mut current = api.get(name).await?;
        current.labels_mut().insert("va-e2e".to_owned(), "updated".to_owned());
        let updated = api.replace(name, &PostParams::default(), &current).await?;
        ensure!(updated.labels().get("va-e2e").is_some_and(|value| value == "updated"));
    }
    scenario.until_settled().await?;
    ensure!(api.list(&ListParams::default().labels("va-e2e=updated")).await?.items.len() == 2);
    api.delete_collection(&DeleteParams::default(), &ListParams::default().labels("va-e2e=updated")).await?;
    until_none(&api, "va-e2e=updated").await
}

#[tokio::test]
async fn the_status_of_an_attachment() -> Result<()> {
    let scenario = Scenario::start(Driver::Csi).await?;
    let api: Api<VolumeAttachment> = Api::all(scenario.client());
    create::<VolumeAttachment>(&api, attachment("va", "pv")).await?;
    let is_attached =
        |attachment: &VolumeAttachment| attachment.status.as_ref().map(|status| status.attached);
    ensure!(is_attached(&api.get_status("va").await?) == Some(false));
    let attached = Patch::Merge(json!({"status": {"attached": true}}));
    let patched = api.patch_status("va", &PatchParams::default(), &attached).await?;
    ensure!(is_attached(&patched) == Some(true));
    scenario.until_settled().await?;
    let mut current = api.get("va").await?;
    current.status.as_mut().context("no status")?.attached = false;
    let updated = api.replace_status("va", &PostParams::default(), &current).await?;
    ensure!(is_attached(&updated) == Some(false));
    api.delete("va", &DeleteParams::default()).await?;
    until("it is gone", async || Ok(api.get_opt("va").await?), Option::is_none).await.map(drop)
}

/// Checks that a client's attachment of a volume is kept, in use or not, and that the controller's
/// own is deleted.
#[tokio::test]
async fn only_attachments_of_the_controller_are_deleted() -> Result<()> {
    let mut scenario = Scenario::start(Driver::Csi).await?;
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.create_running_pod("user", &["data"]).await?;
    let api: Api<VolumeAttachment> = Api::all(scenario.client());
    let own = api.list(&ListParams::default()).await?.items;
    let own = own.first().context("it is not attached")?.name_any();
    let volume: PersistentVolume = Api::all(scenario.client()).get(&bound_claim.volume).await?;
    let source = volume.spec.and_then(|spec| spec.csi).context("it is of no driver")?;
    let attached = format!("kubernetes.io/csi/{}^{}", source.driver, source.volume_handle);
    let nodes: Api<Node> = Api::all(scenario.client());
    let on_node = async || -> Result<Vec<String>> {
        let status = nodes.get(NODE).await?.status.unwrap_or_default();
        Ok(status.volumes_attached.into_iter().flatten().map(|volume| volume.name).collect())
    };
    until("the node has it", on_node, |volumes| *volumes == [&*attached]).await?;
    for (name, volume) in [("theirs", bound_claim.volume.as_str()), ("idle", "no-such-volume")] {
        create::<VolumeAttachment>(&api, attachment(name, volume)).await?;
    }
    scenario.delete::<k8s_openapi::api::core::v1::Pod>("user").await?;
    until("its own is gone", async || Ok(api.get_opt(&own).await?), Option::is_none).await?;
    until("the node has none", on_node, Vec::is_empty).await?;
    scenario.restart(coracle_e2e::cluster::Termination::Stop).await?;
    scenario.until_settled().await?;
    let api: Api<VolumeAttachment> = Api::all(scenario.client());
    let mut left: Vec<_> = api.list(&ListParams::default()).await?.items;
    left.retain(|attachment| !is_terminating(attachment));
    let left: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
    ensure!(left == ["idle", "theirs"], "{left:?}");
    Ok(())
}

fn class(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"vac-e2e": name}},
        "driverName": "e2e-fake-csi-driver", "parameters": {"foo": "bar"},
    })
}

#[tokio::test]
async fn the_lifecycle_of_a_class() -> Result<()> {
    let scenario = Scenario::start(Driver::Csi).await?;
    let api: Api<VolumeAttributesClass> = Api::all(scenario.client());
    let created: VolumeAttributesClass = create(&api, class("first")).await?;
    ensure!(created.finalizers() == [PROTECTION], "{:?}", created.finalizers());
    let label = json!({"metadata": {"labels": {"first": "patched"}}});
    api.patch("first", &PatchParams::default(), &Patch::Merge(label)).await?;
    api.delete("first", &DeleteParams::default()).await?;
    until_none(&api, "first=patched").await?;
    create::<VolumeAttributesClass>(&api, class("second")).await?;
    let mut current = api.get("second").await?;
    current.labels_mut().insert("second".to_owned(), "updated".to_owned());
    api.replace("second", &PostParams::default(), &current).await?;
    api.delete_collection(&DeleteParams::default(), &ListParams::default().labels("second=updated")).await?;
    until_none(&api, "second=updated").await
}

#[tokio::test]
async fn a_class_in_use_is_kept() -> Result<()> {
    let mut scenario = Scenario::start(Driver::Csi).await?;
    let api: Api<VolumeAttributesClass> = Api::all(scenario.client());
    for user in ["claim", "volume"] {
        create::<VolumeAttributesClass>(&api, class(user)).await?;
    }
    let mut using = claim("using", "none-of-it");
    using["spec"]["volumeAttributesClassName"] = json!("claim");
    scenario.create::<PersistentVolumeClaim>(using).await?;
    let using = json!({"metadata": {"name": "using"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "volumeAttributesClassName": "volume",
        "csi": {"driver": "example.com", "volumeHandle": "h"},
    }});
    scenario.create::<PersistentVolume>(using).await?;
    for user in ["claim", "volume"] {
        api.delete(user, &DeleteParams::default()).await?;
    }
    scenario.until_settled().await?;
    for user in ["claim", "volume"] {
        let kept = api.get(user).await?;
        ensure!(is_terminating(&kept) && kept.finalizers() == [PROTECTION], "{kept:?}");
    }
    scenario.delete::<PersistentVolumeClaim>("using").await?;
    scenario.delete::<PersistentVolume>("using").await?;
    for user in ["claim", "volume"] {
        until_none(&api, &format!("vac-e2e={user}")).await?;
    }
    // A class that was created while no controller protected it.
    scenario.restart_with_controllers("*,-volumeattributesclass-protection-controller").await?;
    let api: Api<VolumeAttributesClass> = Api::all(scenario.client());
    create::<VolumeAttributesClass>(&api, class("bare")).await?;
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("bare", &PatchParams::default(), &bare).await?;
    scenario.restart_with_controllers("*").await?;
    let api: Api<VolumeAttributesClass> = Api::all(scenario.client());
    let finalizers = async || Ok(api.get("bare").await?.finalizers().to_vec());
    until("it is protected", finalizers, |finalizers: &Vec<String>| finalizers == &[PROTECTION])
        .await
        .map(drop)
}
