//! `log` of a running control plane: who wrote each version of an object, which fields it changed,
//! and which requests were refused.

use anyhow::{Context, Result, ensure};
use coracle_e2e::cluster::Cluster;
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::{binary, cluster, workloads};
use serde_json::{Value, json};
use tokio::process::Command;

const CORE: &str = "/api/v1/namespaces/default";
const LOG: &str = "/coracle/v1alpha1/log";

/// Runs a command on the control plane, and returns what it prints.
async fn run(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(binary::coracle());
    let output = command.args(arguments).env("KUBECONFIG", cluster.kubeconfig()).output().await?;
    let text = String::from_utf8([output.stdout, output.stderr].concat())?;
    ensure!(output.status.success(), "{arguments:?}: {text}");
    // Long sentences have several lines.
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Returns the entries of a log, oldest first.
async fn entries(client: &mut JsonClient, query: &str) -> Result<Vec<Value>> {
    let log = client.get(&format!("{LOG}?{query}")).await?;
    let mut entries = log["entries"].as_array().context("entries")?.clone();
    entries.reverse();
    Ok(entries)
}

fn texts<'a>(entries: &'a [Value], member: &str) -> Vec<&'a str> {
    entries.iter().map(|entry| entry[member].as_str().unwrap_or("-")).collect()
}

#[tokio::test]
async fn each_version_names_its_author_and_its_changes() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let maps = format!("{CORE}/configmaps");
    let map = client.create(&maps, json!({"metadata": {"name": "settings"}, "data": {"a": "1"}})).await?;
    client.patch(&format!("{maps}/settings"), json!({"data": {"a": "2", "b": "3"}})).await?;
    client.delete(&format!("{maps}/settings")).await?;

    let entries = entries(&mut client, "resource=cm&name=settings&diff=true").await?;
    assert_eq!(texts(&entries, "verb"), ["create", "patch", "delete"]);
    assert_eq!(texts(&entries, "resource"), ["configmaps"; 3]);
    assert_eq!(entries[0]["revision"], map["metadata"]["resourceVersion"]);
    let uid = map["metadata"]["uid"].as_str().context("a uid")?;
    assert_eq!(texts(&entries, "uid"), [uid; 3]);
    for entry in &entries {
        ensure!(entry["user"].as_str().is_some_and(|user| !user.is_empty()), "{entry}");
        ensure!(entry["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{entry}");
    }
    let changed = json!([{"path": ".data.a", "from": "1", "to": "2"}, {"path": ".data.b", "to": "3"}]);
    assert_eq!(entries[1]["fields"], changed);
    assert_eq!(entries[2]["isDeletion"], true);

    let text = run(&cluster, &["log", "cm/settings", "--diff"]).await?;
    ensure!(text.contains(".data.a: \"1\" -> \"2\"") && text.contains("removed"), "{text}");
    Ok(())
}

#[tokio::test]
async fn controllers_and_kubelets_are_named() -> Result<()> {
    let cluster = cluster().with_service_account().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let sets = workloads::apps("default", "statefulsets");
    let labels = json!({"app": "web"});
    let set = json!({"metadata": {"name": "web"}, "spec": {"replicas": 1, "serviceName": "web",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app"}]}}}});
    client.create(&sets, set).await?;
    client.until(&format!("{sets}/web"), |set| set["status"]["readyReplicas"] == 1).await?;
    let entries = entries(&mut client, "resource=pods&name=web-0").await?;
    let agents = texts(&entries, "userAgent");
    ensure!(agents[0].ends_with(":statefulset-controller"), "{agents:?}");
    ensure!(agents.iter().any(|agent| agent.starts_with("kube-scheduler/")), "{agents:?}");
    ensure!(agents.iter().any(|agent| agent.starts_with("kubelet/")), "{agents:?}");
    let pod = client.get(&format!("{CORE}/pods/web-0")).await?;
    let managers: Vec<&Value> = pod["metadata"]["managedFields"]
        .as_array()
        .context("managers")?
        .iter()
        .map(|entry| &entry["manager"])
        .collect();
    ensure!(managers.contains(&&json!("kubelet")), "{managers:?}");

    // `why` also names the author of its deletion.
    client.patch(&format!("{sets}/web"), json!({"spec": {"replicas": 0}})).await?;
    client.until_deleted(&format!("{CORE}/pods/web-0")).await?;
    let text = run(&cluster, &["why", "pod/web-0"]).await?;
    ensure!(text.contains("deleted by the statefulset-controller"), "{text}");
    Ok(())
}

#[tokio::test]
async fn refused_requests_are_logged_and_explained() -> Result<()> {
    let cluster = cluster().with_service_account().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let maps = format!("{CORE}/configmaps");
    let mut map = client.create(&maps, json!({"metadata": {"name": "settings"}})).await?;
    client.patch(&format!("{maps}/settings"), json!({"data": {"a": "2"}})).await?;
    map["data"] = json!({"a": "3"});
    for _ in 0..2 {
        let refused = client.call("PUT", &format!("{maps}/settings"), Some(map.clone())).await;
        ensure!(refused.is_err(), "{refused:?}");
    }
    let entries = entries(&mut client, "resource=configmaps&name=settings").await?;
    let refused: Vec<&Value> = entries.iter().filter(|entry| entry["code"] == 409).collect();
    assert_eq!(refused.len(), 1, "{entries:?}");
    assert_eq!((refused[0]["reason"].as_str(), refused[0]["count"].as_u64()), (Some("Conflict"), Some(2)));
    let text = run(&cluster, &["why", "cm/settings"]).await?;
    ensure!(text.contains("read the object again"), "{text}");

    // An object that was never made is known by its refusal.
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    client.create(&format!("{CORE}/resourcequotas"), quota).await?;
    client
        .until(&format!("{CORE}/resourcequotas/none"), |quota| quota["status"]["hard"]["pods"] == "0")
        .await?;
    let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
    let refused = client.call("POST", &format!("{CORE}/pods"), Some(pod)).await;
    ensure!(refused.is_err(), "{refused:?}");
    let text = run(&cluster, &["why", "pod/web"]).await?;
    ensure!(text.contains("exceeded quota") && text.contains("does not exist"), "{text}");
    Ok(())
}

#[tokio::test]
async fn secrets_are_redacted_and_bad_queries_are_refused() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let secrets = format!("{CORE}/secrets");
    client.create(&secrets, json!({"metadata": {"name": "key"}, "stringData": {"a": "hidden-one"}})).await?;
    client.patch(&format!("{secrets}/key"), json!({"stringData": {"a": "hidden-two"}})).await?;
    let entries = entries(&mut client, "resource=secrets&name=key&diff=true").await?;
    let redacted = json!([{"path": ".data.a", "from": "(redacted)", "to": "(redacted)"}]);
    assert_eq!(entries[1]["fields"], redacted, "{entries:?}");

    for (query, code) in [
        ("name=web", 422),
        ("resource=unknown", 404),
        ("limit=0", 422),
        ("limit=1001", 422),
        ("since=yesterday", 422),
        ("since=-5m", 422),
    ] {
        let answer = client.call("GET", &format!("{LOG}?{query}"), None).await;
        ensure!(format!("{answer:?}").contains(&code.to_string()), "{query}: {answer:?}");
    }
    let seen = client.get(&format!("{LOG}?limit=1")).await?;
    assert_eq!((seen["entries"].as_array().map(Vec::len), &seen["isTruncated"]), (Some(1), &json!(true)));
    let none = client.get(&format!("{LOG}?userAgent=nobody*")).await?;
    assert_eq!(none["entries"], json!([]));
    Ok(())
}
