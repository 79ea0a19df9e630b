//! Controllers: how long creation and deletion take, and what the controllers cost at rest.
//!
//! ```text
//! cargo bench -p coracle-e2e --bench controllers
//! PEER_KUBECONFIG=FILE cargo bench -p coracle-e2e --bench controllers      the same on another cluster
//! ```

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use coracle_e2e::http::{self, Endpoint};
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::{Cluster, cluster};
use futures::future::try_join_all;
use serde_json::{Value, json};

const DEPENDENTS: usize = 5000;
const IN_NAMESPACE: usize = 10_000;
const PODS: usize = 1000;
const CLAIMS: usize = 1000;
/// StatefulSets with a claim for each pod: their pod management, and their replicas.
const SETS: [(&str, usize); 3] = [("Parallel", 100), ("OrderedReady", 100), ("Parallel", 1000)];
const CONNECTIONS: usize = 8;
const IDLE_TIME: Duration = Duration::from_secs(10);
const DEADLINE: Duration = Duration::from_secs(600);

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        if let Some(file) = std::env::var_os("PEER_KUBECONFIG") {
            println!("the peer:");
            return scenarios(&Endpoint::new(&http::config(Path::new(&file)).await?)?).await;
        }
        let cluster = cluster().durable().start().await?;
        let endpoint = cluster.endpoint().await?;
        cluster.settle().await?;
        println!("{:<46}{:>8.1} MB", "resident, idle, all controllers", cluster.resident()?);
        scenarios(&endpoint).await?;
        println!("{:<46}{:>8.1} MB", "resident, after that", cluster.resident()?);
        // Events of the load are still written.
        while cpu_usage(&cluster, Duration::from_secs(1)).await? > 0.01 {}
        println!("{:<46}{:>8.2} %", "processor, at rest", cpu_usage(&cluster, IDLE_TIME).await? * 100.0);
        Ok(())
    })
}

async fn scenarios(endpoint: &Endpoint) -> Result<()> {
    for policy in ["Background", "Foreground", "Orphan"] {
        let took = cascade(endpoint, policy).await?;
        println!("{:<46}{:>8.2} s", format!("{DEPENDENTS} dependents, {policy}"), took.as_secs_f64());
    }
    let took = namespace(endpoint).await?;
    println!("{:<46}{:>8.2} s", format!("a namespace of {IN_NAMESPACE} objects"), took.as_secs_f64());
    print_times(&format!("{PODS} pods to Running"), pods(endpoint).await?);
    for provisioner in ["kubernetes.io/host-path", "coracle.csi"] {
        let took = claims(endpoint, provisioner).await?;
        print_times(&format!("{CLAIMS} claims bound, {provisioner}"), took);
    }
    for (management, replicas) in SETS {
        let took = stateful_set(endpoint, management, replicas).await?;
        print_times(&format!("a StatefulSet of {replicas}, {management}"), took);
    }
    Ok(())
}

fn print_times(what: &str, (up, down): (Duration, Duration)) {
    println!("{what:<46}{:>8.2} s, gone {:.2} s", up.as_secs_f64(), down.as_secs_f64());
}

/// Measures the time from the first create until all pods run, and from the delete until none is
/// left.
async fn pods(endpoint: &Endpoint) -> Result<(Duration, Duration)> {
    let mut client = JsonClient::new(endpoint).await?;
    let namespace = client.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    // The default account is created shortly after its namespace.
    until(&mut client, &format!("/api/v1/namespaces/{namespace}/serviceaccounts"), 1).await?;
    let began = Instant::now();
    fill(endpoint, &path, PODS, |i| {
        json!({"metadata": {"name": format!("p{i}")}, "spec": {"containers": [{"name": "c", "image": "c"}]}})
    })
    .await?;
    until(&mut client, &format!("{path}?fieldSelector=status.phase%21%3DRunning"), 0).await?;
    let up = began.elapsed();
    let began = Instant::now();
    client.call("DELETE", &path, None).await?;
    until(&mut client, &path, 0).await?;
    Ok((up, began.elapsed()))
}

/// Measures the time from the first create until all claims are bound, and from the delete until
/// none of their volumes is left.
async fn claims(endpoint: &Endpoint, provisioner: &str) -> Result<(Duration, Duration)> {
    let mut client = JsonClient::new(endpoint).await?;
    let namespace = client.namespace().await?;
    class(&mut client, &namespace, provisioner).await?;
    let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
    let began = Instant::now();
    let claim = |i| json!({"metadata": {"name": format!("c{i}")}, "spec": claim_of(&namespace)});
    fill(endpoint, &path, CLAIMS, claim).await?;
    let all_bound = |list: &Value| {
        list["items"]
            .as_array()
            .is_some_and(|items| items.iter().all(|item| item["status"]["phase"] == "Bound"))
    };
    client.until_within(&path, DEADLINE, all_bound).await?;
    let up = began.elapsed();
    let began = Instant::now();
    client.call("DELETE", &path, None).await?;
    until_no_volume_of(&mut client, &namespace).await?;
    Ok((up, began.elapsed()))
}

/// Measures the time from the create until all pods are ready, each with a claim, and from the
/// delete until none of their volumes is left.
async fn stateful_set(
    endpoint: &Endpoint,
    management: &str,
    replicas: usize,
) -> Result<(Duration, Duration)> {
    let mut client = JsonClient::new(endpoint).await?;
    let namespace = client.namespace().await?;
    class(&mut client, &namespace, "coracle.csi").await?;
    until(&mut client, &format!("/api/v1/namespaces/{namespace}/serviceaccounts"), 1).await?;
    let path = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets");
    let labels = json!({"app": "web"});
    let mounts = json!([{"name": "data", "mountPath": "/data"}]);
    let set = json!({"metadata": {"name": "web"}, "spec": {
        "replicas": replicas, "serviceName": "web", "podManagementPolicy": management, "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "c", "volumeMounts": mounts}]},
        },
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim_of(&namespace)}],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
    }});
    let began = Instant::now();
    client.call("POST", &path, Some(set)).await?;
    let path = format!("{path}/web");
    client.until_within(&path, DEADLINE, |set| set["status"]["readyReplicas"] == replicas).await?;
    let up = began.elapsed();
    let began = Instant::now();
    client.call("DELETE", &path, None).await?;
    until_no_volume_of(&mut client, &namespace).await?;
    Ok((up, began.elapsed()))
}

/// Builds the spec of a claim of a class.
fn claim_of(class: &str) -> Value {
    json!({
        "storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    })
}

async fn cascade(endpoint: &Endpoint, policy: &str) -> Result<Duration> {
    let mut client = JsonClient::new(endpoint).await?;
    let namespace = client.namespace().await?;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let owner = client.call("POST", &maps, Some(json!({"metadata": {"name": "owner"}}))).await?;
    let reference = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": true,
    });
    fill(
        endpoint,
        &maps,
        DEPENDENTS,
        |i| json!({"metadata": {"name": format!("d{i}"), "ownerReferences": [reference]}}),
    )
    .await?;
    let began = Instant::now();
    client.call("DELETE", &format!("{maps}/owner"), Some(json!({"propagationPolicy": policy}))).await?;
    match policy {
        "Orphan" => until(&mut client, &format!("{maps}?fieldSelector=metadata.name%3Downer"), 0).await?,
        // Only kube-root-ca.crt remains.
        _ => {
            until(&mut client, &format!("{maps}?fieldSelector=metadata.name!%3Dkube-root-ca.crt&limit=1"), 0)
                .await?
        }
    }
    Ok(began.elapsed())
}

async fn namespace(endpoint: &Endpoint) -> Result<Duration> {
    let mut client = JsonClient::new(endpoint).await?;
    let namespace = client.namespace().await?;
    for (resource, each) in [("configmaps", IN_NAMESPACE / 2), ("secrets", IN_NAMESPACE / 2)] {
        let path = format!("/api/v1/namespaces/{namespace}/{resource}");
        fill(endpoint, &path, each, |i| json!({"metadata": {"name": format!("o{i}")}})).await?;
    }
    let began = Instant::now();
    client.call("DELETE", &format!("/api/v1/namespaces/{namespace}"), None).await?;
    until(&mut client, &format!("/api/v1/namespaces?fieldSelector=metadata.name%3D{namespace}"), 0).await?;
    Ok(began.elapsed())
}

async fn fill(endpoint: &Endpoint, path: &str, count: usize, object: impl Fn(usize) -> Value) -> Result<()> {
    let next = AtomicUsize::new(0);
    try_join_all((0..CONNECTIONS).map(async |_| {
        let mut client = JsonClient::new(endpoint).await?;
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                return anyhow::Ok(());
            }
            client.call("POST", path, Some(object(i))).await?;
        }
    }))
    .await?;
    Ok(())
}

/// Creates a StorageClass.
async fn class(client: &mut JsonClient, name: &str, provisioner: &str) -> Result<()> {
    let class = json!({"metadata": {"name": name}, "provisioner": provisioner});
    client.create("/apis/storage.k8s.io/v1/storageclasses", class).await.map(drop)
}

/// Waits until there is no volume of a class. A volume is deleted after its directory.
async fn until_no_volume_of(client: &mut JsonClient, class: &str) -> Result<()> {
    let is_gone = |list: &Value| {
        let items = list["items"].as_array();
        items.is_some_and(|items| items.iter().all(|item| item["spec"]["storageClassName"] != class))
    };
    client.until_within("/api/v1/persistentvolumes", DEADLINE, is_gone).await.map(drop)
}

/// Waits until a list has this number of items.
async fn until(client: &mut JsonClient, path: &str, count: usize) -> Result<()> {
    let is_so = |list: &Value| list["items"].as_array().map(Vec::len) == Some(count);
    client.until_within(path, DEADLINE, is_so).await.map(drop)
}

/// Measures the share of one processor that the server uses during a time.
async fn cpu_usage(cluster: &Cluster, time: Duration) -> Result<f64> {
    let before = cluster.processor_time()?;
    tokio::time::sleep(time).await;
    Ok((cluster.processor_time()? - before).as_secs_f64() / time.as_secs_f64())
}
