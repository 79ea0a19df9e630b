//! Volumes from the view of users: provisioning, what pods see, expansion.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use coracle_e2e::cluster;
use coracle_e2e::cluster::Termination;
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::volumes::{Driver, NODE, Scenario, claim, claim_phase, pod, pod_phase};
use coracle_e2e::wait::until;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

/// Returns the data directory of a scenario's server.
fn data(scenario: &Scenario) -> Result<PathBuf> {
    scenario.root().ancestors().nth(2).map(Path::to_owned).context("no data directory")
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim_phase(claim) == "Bound"
}

fn is_running(pod: &Pod) -> bool {
    pod_phase(pod) == "Running"
}

#[tokio::test]
async fn pods_have_links_to_their_volumes() -> Result<()> {
    let mut scenario = Scenario::start(Driver::HostPath).await?;
    for (name, class) in [("fast", "standard"), ("late", "standard-wait"), ("host", "delete")] {
        scenario.create::<PersistentVolumeClaim>(claim(name, class)).await?;
    }
    let user: Pod = scenario.create(pod("user", &["fast", "late", "host"])).await?;
    scenario.until("user", is_running).await?;
    let own = data(&scenario)?.join("pods").join(user.uid().unwrap_or_default());
    for (name, plugin) in [("fast", "coracle.csi"), ("late", "coracle.csi"), ("host", "host-path")] {
        let seen = own.join("volumes").join(name);
        fs::write(seen.join("file"), name)?;
        let claim: PersistentVolumeClaim = scenario.get(name).await?;
        let volume = claim.spec.and_then(|spec| spec.volume_name).unwrap_or_default();
        let file = data(&scenario)?.join("volumes").join(plugin).join(volume).join("file");
        ensure!(fs::read_to_string(&file)? == name, "{}", file.display());
    }
    // The next process cleans up what a killed one left.
    scenario.delete::<Pod>("user").await?;
    scenario.restart(Termination::Crash).await?;
    scenario.until_deleted::<Pod>("user").await?;
    scenario.until_settled().await?;
    let what = format!("{} is removed", own.display());
    until(&what, async || Ok(own.exists()), |exists| !exists).await.map(drop)
}

#[tokio::test]
async fn nodes_decide_about_volumes() -> Result<()> {
    let mut scenario = Scenario::start(Driver::HostPath).await?;
    let by_hand = json!({
        "metadata": {"name": "by-hand"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    scenario.create::<StorageClass>(by_hand).await?;
    let on = |name: &str, node: &str, size: &str| -> Value {
        let requirement = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        json!({"metadata": {"name": name}, "spec": {
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand",
            "hostPath": {"path": format!("/tmp/none/{name}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}},
        }})
    };
    scenario.create::<PersistentVolume>(on("elsewhere", "node-9", "1Gi")).await?;
    scenario.create::<PersistentVolumeClaim>(claim("data", "by-hand")).await?;
    scenario.create::<Pod>(pod("user", &["data"])).await?;
    let why = "didn't find available persistent volumes to bind";
    scenario.wait_for_event("user", "FailedScheduling", why).await?;
    scenario.create::<PersistentVolume>(on("here", "node-0", "5Gi")).await?;
    scenario.until("user", is_running).await?;
    let claim: PersistentVolumeClaim = scenario.get("data").await?;
    ensure!(claim.spec.and_then(|spec| spec.volume_name).as_deref() == Some("here"));
    Ok(())
}

#[tokio::test]
async fn claims_grow() -> Result<()> {
    let mut scenario = Scenario::start(Driver::HostPath).await?;
    scenario.create::<PersistentVolumeClaim>(claim("data", "standard")).await?;
    scenario.until("data", is_bound).await?;
    let more = json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}});
    scenario.patch::<PersistentVolumeClaim>("data", more).await?;
    let has = |claim: &PersistentVolumeClaim| {
        let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
        capacity.is_some_and(|capacity| capacity["storage"].0 == "3Gi")
    };
    let grown = scenario.until("data", has).await?;
    ensure!(grown.status.is_some_and(|status| status.conditions.is_none()), "it is resized no longer");
    let volume: PersistentVolume =
        scenario.get(&grown.spec.and_then(|spec| spec.volume_name).context("no volume")?).await?;
    ensure!(
        volume.spec.and_then(|spec| spec.capacity).is_some_and(|capacity| capacity["storage"].0 == "3Gi")
    );
    scenario.wait_for_event("data", "ExternalExpanding", "waiting for an external controller").await?;
    scenario.wait_for_event("data", "VolumeResizeSuccessful", "Resize volume succeeded").await
}

#[tokio::test]
async fn a_claim_with_volume_attributes_is_bound() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let class =
        json!({"metadata": {"name": "gold"}, "driverName": "coracle.csi", "parameters": {"iops": "1"}});
    client.create("/apis/storage.k8s.io/v1/volumeattributesclasses", class).await?;
    let class = json!({"metadata": {"name": "csi"}, "provisioner": "coracle.csi"});
    client.create("/apis/storage.k8s.io/v1/storageclasses", class).await?;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    for (name, class, want) in [("data", "gold", json!("gold")), ("plain", "", Value::Null)] {
        let claim = json!({"metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "csi", "volumeAttributesClassName": class,
            "resources": {"requests": {"storage": "1Gi"}},
        }});
        client.create(claims, claim).await?;
        let is_bound = |claim: &Value| claim["status"]["phase"] == "Bound";
        let claim = client.until(&format!("{claims}/{name}"), is_bound).await?;
        ensure!(claim["status"]["currentVolumeAttributesClassName"] == want, "{claim}");
    }
    Ok(())
}

#[tokio::test]
async fn a_slow_volume_does_not_delay_others() -> Result<()> {
    const SLOW: Duration = Duration::from_secs(2);
    for driver in Driver::ALL {
        let mut scenario = Scenario::start(driver).await?;
        let slow = json!({
            "metadata": {"name": "slow"}, "provisioner": driver.provisioner(), "reclaimPolicy": "Delete",
            "parameters": {
                "sim.coracle.dev/provision-after": "2s", "sim.coracle.dev/provision-failures": "1",
                "sim.coracle.dev/delete-failures": "1", "sim.coracle.dev/delete-after": "soon",
            },
        });
        scenario.create::<StorageClass>(slow).await?;
        let began = Instant::now();
        // More than there are workers.
        let names: Vec<String> = (0..20).map(|number| format!("slow-{number}")).collect();
        for name in &names {
            scenario.create::<PersistentVolumeClaim>(claim(name, "slow")).await?;
        }
        scenario.create::<PersistentVolumeClaim>(claim("fast", "delete")).await?;
        scenario.until("fast", is_bound).await?;
        let still: PersistentVolumeClaim = scenario.get("slow-19").await?;
        // On a machine that is slow itself this shows nothing.
        ensure!(!is_bound(&still) || began.elapsed() > 2 * SLOW, "{driver:?}: it was not slow");
        for name in &names {
            scenario.until(name, is_bound).await?;
        }
        ensure!(began.elapsed() >= 2 * SLOW, "{driver:?}: one attempt in vain, and one more");
        scenario.wait_for_event("slow-0", "ProvisioningFailed", "simulated failure 1 of 1").await?;
        scenario.wait_for_event("slow-0", "InvalidSimulation", "sim.coracle.dev/delete-after").await?;
        let bound_claim = scenario.write_data("slow-0").await?;
        scenario.delete::<PersistentVolumeClaim>("slow-0").await?;
        scenario
            .wait_for_event(&bound_claim.volume, "VolumeFailedDelete", "simulated failure 1 of 1")
            .await?;
        scenario.until_bound_claim_deleted(&bound_claim).await?;
    }
    Ok(())
}

#[tokio::test]
async fn csi_volumes_are_attached_where_pods_use_them() -> Result<()> {
    let mut scenario = Scenario::start(Driver::Csi).await?;
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.create_running_pod("user", &["data"]).await?;
    let message = format!("AttachVolume.Attach succeeded for volume {:?}", bound_claim.volume);
    scenario.wait_for_event("user", "SuccessfulAttachVolume", &message).await?;
    let attachments: Vec<VolumeAttachment> = scenario.api().list(&ListParams::default()).await?.items;
    let [attachment] = attachments.as_slice() else { bail!("{attachments:?}") };
    ensure!(attachment.spec.attacher == "coracle.csi" && attachment.spec.node_name == NODE, "{attachment:?}");
    ensure!(
        attachment.spec.source.persistent_volume_name.as_ref() == Some(&bound_claim.volume),
        "{attachment:?}"
    );
    ensure!(attachment.status.as_ref().is_some_and(|status| status.attached), "{attachment:?}");
    scenario.restart(Termination::Crash).await?;
    scenario.delete::<Pod>("user").await?;
    scenario.until_deleted::<VolumeAttachment>(&attachment.name_any()).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await
}

#[tokio::test]
async fn a_single_node_volume_is_attached_elsewhere_only_after_its_release() -> Result<()> {
    let mut scenario = Scenario::with_nodes(Driver::Csi, 2).await?;
    scenario.create_bound("data", "delete").await?;
    for (name, node) in [("first", "node-0"), ("second", "node-1")] {
        let mut pod = pod(name, &["data"]);
        pod["spec"]["nodeName"] = json!(node);
        scenario.create::<Pod>(pod).await?;
        if name == "first" {
            scenario.until(name, is_running).await?;
        }
    }
    scenario.wait_for_event("second", "FailedAttachVolume", "Volume is already used by pod(s) first").await?;
    ensure!(pod_phase(&scenario.get::<Pod>("second").await?) == "Pending");
    scenario.delete::<Pod>("first").await?;
    scenario.until("second", is_running).await.map(drop)
}

#[tokio::test]
async fn volume_operations_are_counted_in_metrics() -> Result<()> {
    let mut scenario = Scenario::start(Driver::HostPath).await?;
    let fails = json!({
        "metadata": {"name": "fails"}, "provisioner": "kubernetes.io/host-path", "reclaimPolicy": "Delete",
        "parameters": {"sim.coracle.dev/provision-failures": "2", "sim.coracle.dev/delete-failures": "1"},
    });
    scenario.create::<StorageClass>(fails).await?;
    let bound_claim = scenario.create_bound("data", "fails").await?;
    scenario.create_bound("stays", "delete").await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    let plugin = r#"plugin_name="kubernetes.io/host-path""#;
    let storage = r#"volume_plugin="kubernetes.io/host-path""#;
    let wanted = [
        format!(r#"volume_operation_total_seconds_count{{operation_name="provision",{plugin}}} 2"#),
        format!(r#"volume_operation_total_seconds_count{{operation_name="delete",{plugin}}} 1"#),
        format!(r#"volume_operation_errors_total{{operation_name="provision",{plugin}}} 2"#),
        format!(r#"volume_operation_errors_total{{operation_name="delete",{plugin}}} 1"#),
        format!(
            r#"storage_operation_duration_seconds_count{{migrated="false",operation_name="volume_provision",status="fail-unknown",{storage}}} 2"#
        ),
        format!(r#"pv_collector_total_pv_count{{{plugin},volume_mode="Filesystem"}} 1"#),
        r#"pv_collector_bound_pvc_count{namespace="default",storage_class="delete",volume_attributes_class=""} 1"#
            .to_owned(),
    ];
    let mut connection = scenario.cluster()?.endpoint().await?.connect().await?;
    let metrics = async || {
        let response = connection.call("GET", "/metrics", &[], None).await?;
        Ok(String::from_utf8_lossy(&response.body).into_owned())
    };
    // The end of a deletion is counted when it is observed.
    let all = |text: &String| wanted.iter().all(|line| text.lines().any(|shown| shown == line));
    until(&format!("all of {wanted:#?}"), metrics, all).await.map(drop)
}

/// Checks that an ephemeral server leaves no files.
#[tokio::test]
async fn volumes_of_an_ephemeral_server_are_removed_at_shutdown() -> Result<()> {
    let cluster = cluster().start().await?;
    let client = cluster.client().await?;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client);
    let host = json!({
        "metadata": {"name": "host"}, "provisioner": "kubernetes.io/host-path",
    });
    let classes: Api<StorageClass> = Api::all(claims.clone().into_client());
    classes.create(&PostParams::default(), &serde_json::from_value(host)?).await?;
    claims.create(&PostParams::default(), &serde_json::from_value(claim("data", "host"))?).await?;
    let bound = coracle_e2e::wait::until_object(claims, "data", |claim| claim.is_some_and(is_bound)).await?;
    let volume = bound.and_then(|claim| claim.spec?.volume_name).context("no volume")?;
    let volume = volumes.get(&volume).await?;
    let path = volume.spec.and_then(|spec| spec.host_path).context("no directory")?.path;
    ensure!(Path::new(&path).is_dir(), "{path}");
    let own = Path::new(&path).ancestors().nth(3).context("no directory of its own")?;
    ensure!(cluster.stop().await?.success());
    ensure!(!own.exists(), "{} is left behind", own.display());
    Ok(())
}
