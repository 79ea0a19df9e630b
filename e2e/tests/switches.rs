//! Flags that turn features on and off: admission plugins, feature gates, the scheduler and the
//! kubelets.

use anyhow::{Context, Result, ensure};
use coracle_e2e::cluster;
use coracle_e2e::volumes::{pod, pod_phase};
use coracle_e2e::wait::{until, until_object};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, PostParams};
use serde_json::json;

async fn create_pod(pods: &Api<Pod>, name: &str) -> kube::Result<Pod> {
    let pod = serde_json::from_value(pod(name, &[])).map_err(kube::Error::SerdeError)?;
    pods.create(&PostParams::default(), &pod).await
}

#[tokio::test]
async fn without_the_plugin_pods_need_no_service_account() -> Result<()> {
    let with = cluster().flag("--controllers", "-*").start().await?;
    let refused = create_pod(&Api::default_namespaced(with.client().await?), "p").await;
    let refused = refused.err().context("it has no account")?.to_string();
    ensure!(refused.contains("serviceaccount \"default\" not found"), "{refused}");

    let without = cluster().flag("--controllers", "-*").flag("--disable-admission-plugins", "ServiceAccount");
    let without = without.start().await?;
    let pods: Api<Pod> = Api::default_namespaced(without.client().await?);
    let made = create_pod(&pods, "p").await?;
    ensure!(made.spec.and_then(|spec| spec.service_account_name).is_none());
    Ok(())
}

#[tokio::test]
async fn scheduler_and_kubelet_are_selected_by_name() -> Result<()> {
    for (selection, is_bound, is_running) in
        [("*", true, true), ("*,-kubelet", true, false), ("*,-kube-scheduler", false, false)]
    {
        let cluster = cluster().flag("--controllers", selection).with_service_account().start().await?;
        let pods: Api<Pod> = Api::default_namespaced(cluster.client().await?);
        create_pod(&pods, "p").await?;
        let is_in_expected_phase = |pod: Option<&Pod>| {
            let node = pod.and_then(|pod| pod.spec.as_ref()?.node_name.as_deref());
            pod.is_some_and(|pod| node.is_some() == is_bound && (pod_phase(pod) == "Running") == is_running)
        };
        until_object(pods.clone(), "p", is_in_expected_phase).await.context(selection)?;
        // Once another pod, which needs no scheduler, has come this far, whatever was to happen to
        // this one has happened.
        let mut placed = pod("placed", &[]);
        placed["spec"]["nodeName"] = json!("node-0");
        pods.create(&PostParams::default(), &serde_json::from_value(placed)?).await?;
        if selection == "*,-kube-scheduler" {
            until_object(pods.clone(), "placed", |pod| pod.is_some_and(|pod| pod_phase(pod) == "Running"))
                .await
                .context("the kubelet is there")?;
        }
        ensure!(is_in_expected_phase(Some(&pods.get("p").await?)), "{selection}");
    }
    Ok(())
}

#[tokio::test]
async fn a_disabled_plugin_does_nothing() -> Result<()> {
    let off = "NamespaceLifecycle,PodSecurity,Priority,ResourceQuota";
    let cluster = cluster().flag("--disable-admission-plugins", off).start().await?;
    let client = cluster.client().await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let restricted = json!({"metadata": {
        "name": "restricted", "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
    }});
    namespaces.create(&PostParams::default(), &serde_json::from_value(restricted)?).await?;
    let pods: Api<Pod> = Api::namespaced(client, "restricted");
    let until_made = async || Ok(create_pod(&pods, "p").await.map_err(|error| error.to_string()));
    let made = until("there is an account, and then a pod", until_made, Result::is_ok).await?;
    let made = made.map_err(anyhow::Error::msg)?;
    ensure!(made.spec.and_then(|spec| spec.priority).is_none());
    Ok(())
}

#[tokio::test]
async fn feature_gates_decide_which_fields_are_stored() -> Result<()> {
    let set = |name: &str| -> Result<StatefulSet> {
        let labels = json!({"app": name});
        Ok(serde_json::from_value(json!({"metadata": {"name": name}, "spec": {
            "selector": {"matchLabels": labels}, "serviceName": "s", "replicas": 0,
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}},
        }}))?)
    };
    for (gates, want) in [
        ("MaxUnavailableStatefulSet=true", Some(json!(2))),
        ("AllBeta=true", Some(json!(2))),
        ("AllBeta=true,MaxUnavailableStatefulSet=false", None),
        ("AllAlpha=true", None),
    ] {
        let cluster = cluster().flag("--feature-gates", gates).start().await?;
        let sets: Api<StatefulSet> = Api::default_namespaced(cluster.client().await?);
        let made = serde_json::to_value(sets.create(&PostParams::default(), &set("web")?).await?)?;
        let got = made.pointer("/spec/updateStrategy/rollingUpdate/maxUnavailable").cloned();
        ensure!(got == want, "{gates}: {got:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_unimplemented_plugin_is_accepted_and_logged() -> Result<()> {
    let cluster = cluster()
        .flag("--enable-admission-plugins", "NodeRestriction,Priority")
        .with_service_account()
        .start()
        .await?;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await?);
    create_pod(&pods, "p").await?;
    let log = cluster.log();
    ensure!(log.contains("NodeRestriction") && !log.contains("Priority"), "{log}");
    Ok(())
}
