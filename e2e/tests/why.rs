//! `why` and `tree` of a running control plane: the objects of the four designs explain themselves.

use anyhow::{Context, Result, ensure};
use coracle_e2e::cluster::Cluster;
use coracle_e2e::json_client::{JsonClient, condition};
use coracle_e2e::wait::until;
use coracle_e2e::{binary, cluster, workloads};
use serde_json::{Value, json};
use tokio::process::Command;

const CORE: &str = "/api/v1/namespaces/default";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const SETTLE: &str = "/coracle/v1alpha1/settle";

/// Runs a command on the control plane. Returns what it prints, and its errors.
async fn run(cluster: &Cluster, arguments: &[&str]) -> Result<(bool, String)> {
    let mut command = Command::new(binary::coracle());
    let output = command.args(arguments).env("KUBECONFIG", cluster.kubeconfig()).output().await?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8(text)?))
}

async fn assert_said(cluster: &Cluster, arguments: &[&str], texts: &[&str]) -> Result<()> {
    let (is_success, text) = run(cluster, arguments).await?;
    ensure!(is_success, "{arguments:?}: {text}");
    // Long sentences have several lines.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for wanted in texts {
        ensure!(text.contains(wanted), "{arguments:?} does not say {wanted:?}:\n{text}");
    }
    Ok(())
}

fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
}

fn pod(name: &str, claim: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "containers": [{"name": "app", "image": "app", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}})
}

fn stateful_set(name: &str, replicas: usize) -> Value {
    let labels = json!({"app": name});
    json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "serviceName": name,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app",
            "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}},
        "volumeClaimTemplates": [claim("data")]}})
}

async fn settle(client: &mut JsonClient) -> Result<()> {
    client.call("POST", SETTLE, Some(json!({}))).await.map(drop)
}

#[tokio::test]
async fn a_claim_in_use_and_what_waits_for_it_explain_themselves() -> Result<()> {
    let cluster = cluster().with_service_account().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let claims = format!("{CORE}/persistentvolumeclaims");
    let sets = workloads::apps("default", "statefulsets");
    client.create(&sets, stateful_set("web", 1)).await?;
    client.until(&format!("{sets}/web"), |set| set["status"]["readyReplicas"] == 1).await?;

    // The claim waits for its pod.
    client.delete(&format!("{claims}/data-web-0")).await?;
    settle(&mut client).await?;
    let in_use = ["kubernetes.io/pvc-protection", "pod/web-0"];
    assert_said(&cluster, &["why", "pvc/data-web-0"], &in_use).await?;
    let volume = client.get(&format!("{claims}/data-web-0")).await?["spec"]["volumeName"].clone();
    let volume = volume.as_str().context("a volume")?;

    // The volume waits for its claim.
    client.delete(&format!("{VOLUMES}/{volume}")).await?;
    settle(&mut client).await?;
    let held = ["kubernetes.io/pv-protection", "data-web-0"];
    assert_said(&cluster, &["why", "persistentvolume", volume], &held).await?;

    // The next pod of the StatefulSet would wait for the claim.
    let (is_success, text) = run(&cluster, &["tree", "sts/web"]).await?;
    ensure!(is_success && text.contains("web-0"), "{text}");

    // After the pod is deleted, so is the claim, and history explains both deletions.
    client.patch(&format!("{sets}/web"), json!({"spec": {"replicas": 0}})).await?;
    client.until_deleted(&format!("{CORE}/pods/web-0")).await?;
    client.until_deleted(&format!("{claims}/data-web-0")).await?;
    assert_said(
        &cluster,
        &["why", "pod/web-0"],
        &["pod/web-0 is gone", "statefulset/web was scaled to 0 replicas"],
    )
    .await?;
    assert_said(&cluster, &["why", "pvc/data-web-0"], &["persistentvolumeclaim/data-web-0 is gone"]).await?;
    Ok(())
}

#[tokio::test]
async fn objects_that_are_not_ready_explain_themselves() -> Result<()> {
    let cluster = cluster().with_service_account().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let pods = format!("{CORE}/pods");
    client.create(&pods, pod("waiting", "missing")).await?;
    let mut held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    client.create(&format!("{CORE}/configmaps"), held.take()).await?;
    client.delete(&format!("{CORE}/configmaps/held")).await?;
    settle(&mut client).await?;
    assert_said(&cluster, &["why", "pod/waiting"], &["waiting", "missing"]).await?;
    // As kubectl accepts it, with the version.
    for resource in ["configmap", "configmaps.v1."] {
        assert_said(&cluster, &["why", &format!("{resource}/held")], &["example.com/hold"]).await?;
    }

    // JSON is what the endpoint answers.
    let (is_success, text) = run(&cluster, &["why", "cm", "held", "-n", "default", "-o", "json"]).await?;
    ensure!(is_success, "{text}");
    let explanation: Value = serde_json::from_str(&text)?;
    assert_eq!(explanation["answers"][0]["question"], "present", "{explanation}");
    let path = "/coracle/v1alpha1/why?resource=configmaps&namespace=default&name=held";
    assert_eq!(client.get(path).await?, explanation);
    Ok(())
}

#[tokio::test]
async fn wrong_names_are_refused_with_a_reason() -> Result<()> {
    let cluster = cluster().flag("--nodes", "0").start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    for (arguments, wanted) in [
        (vec!["why", "pod/nobody"], "nothing is known of pods \"nobody\" in namespace \"default\""),
        (vec!["why", "wizard/gandalf"], "nothing is known of resource \"wizard\""),
        (vec!["tree", "node/nobody"], "nothing is known of nodes \"nobody\": it does not exist"),
        (vec!["why", "pod"], "TYPE/NAME"),
    ] {
        let (is_success, text) = run(&cluster, &arguments).await?;
        ensure!(!is_success && text.contains(wanted), "{arguments:?}: {text}");
    }
    for (path, code) in [("why", 422), ("tree?resource=pods", 422), ("why?resource=pods&name=a", 404)] {
        let error = client.get(&format!("/coracle/v1alpha1/{path}")).await.expect_err(path).to_string();
        ensure!(error.contains(&code.to_string()), "{path}: {error}");
    }
    Ok(())
}

/// Checks that history is found though nothing of its kind is served any more: a test that deletes a
/// definition asks for what became of the objects.
#[tokio::test]
async fn an_object_whose_definition_was_deleted_is_still_known() -> Result<()> {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
    let cluster = cluster().flag("--nodes", "0").start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let any = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": any}],
        },
    });
    let path = format!("{DEFINITIONS}/widgets.example.com");
    client.create(DEFINITIONS, definition).await?;
    client.until(&path, |definition| condition(definition, "Established") == Some("True")).await?;
    let is_served = async || -> Result<bool> { Ok(client.send("GET", WIDGETS, None).await?.0 == 200) };
    until("it is served", is_served, |is_served| *is_served).await?;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    client.create(WIDGETS, widget).await?;
    client.delete(&path).await?;
    client.until_deleted(&path).await?;
    for (arguments, said) in [
        (["why", "widget/w"], "w is gone: it was deleted by"),
        (["why", "wd/w"], "w is gone: it was deleted by"),
        (["log", "widgets.example.com/w"], "delete"),
    ] {
        assert_said(&cluster, &arguments, &[said]).await?;
    }
    let (is_success, text) = run(&cluster, &["why", "widget/other"]).await?;
    ensure!(!is_success && text.contains("nothing is known of widgets.example.com \"other\""), "{text}");
    Ok(())
}
