//! Controllers: how long creation and deletion take, and what the controllers cost at rest.
//!
//! ```text
//! cargo bench -p coracle-e2e --bench controllers
//! PEER_KUBECONFIG=FILE cargo bench -p coracle-e2e --bench controllers      the same on another cluster
//! ```

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle_e2e::http::{self, Connection, Endpoint};
use coracle_e2e::{Cluster, cluster};
use futures::future::try_join_all;
use serde_json::{Value, json};

const DEPENDENTS: usize = 5000;
const IN_NAMESPACE: usize = 10_000;
const PODS: usize = 1000;
const CLAIMS: usize = 1000;
/// StatefulSets with a claim for each pod: their pod management, and their replicas.
const SETS: [(&str, usize); 3] = [("Parallel", 100), ("OrderedReady", 100), ("Parallel", 1000)];
/// Jobs, and the pods of each.
const JOBS: (usize, usize) = (200, 5);
const CONNECTIONS: usize = 8;
const IDLE_TIME: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        if let Some(file) = std::env::var_os("PEER_KUBECONFIG") {
            println!("the peer:");
            return scenarios(&Endpoint::new(&http::config(Path::new(&file)).await?)?).await;
        }
        let cluster = cluster().start().await?;
        let endpoint = cluster.endpoint().await?;
        JsonClient::new(&endpoint).await?.until_ready().await?;
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
    let (count, pods) = JOBS;
    print_times(&format!("{count} Jobs of {pods} pods, complete"), jobs(endpoint).await?);
    Ok(())
}

fn print_times(what: &str, (up, down): (Duration, Duration)) {
    println!("{what:<46}{:>8.2} s, gone {:.2} s", up.as_secs_f64(), down.as_secs_f64());
}

/// The time from the first create until all pods run, and from the delete until none is left.
async fn pods(endpoint: &Endpoint) -> Result<(Duration, Duration)> {
    let mut client = JsonClient::new(endpoint).await?;
    let namespace = client.namespace().await?;
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    // The default account is created shortly after its namespace.
    client.until(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), 1).await?;
    let began = Instant::now();
    fill(endpoint, &path, PODS, |i| {
        json!({"metadata": {"name": format!("p{i}")}, "spec": {"containers": [{"name": "c", "image": "c"}]}})
    })
    .await?;
    client.until(&format!("{path}?fieldSelector=status.phase%21%3DRunning"), 0).await?;
    let up = began.elapsed();
    let began = Instant::now();
    client.call("DELETE", &path, None).await?;
    client.until(&path, 0).await?;
    Ok((up, began.elapsed()))
}

/// The time from the first create until all Jobs are complete, and from the delete until none of their pods is left.
async fn jobs(endpoint: &Endpoint) -> Result<(Duration, Duration)> {
    let (count, pods) = JOBS;
    let mut client = JsonClient::new(endpoint).await?;
    let namespace = client.namespace().await?;
    let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs");
    client.until(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), 1).await?;
    let began = Instant::now();
    fill(endpoint, &path, count, |i| {
        let containers = json!([{"name": "c", "image": "c"}]);
        let template = json!({
            "metadata": {"annotations": {"sim.coracle.dev/exit-after": "0s"}},
            "spec": {"restartPolicy": "Never", "containers": containers},
        });
        let spec = json!({"completions": pods, "parallelism": pods, "template": template});
        json!({"metadata": {"name": format!("j{i}")}, "spec": spec})
    })
    .await?;
    let is_complete = |job: &Value| {
        let conditions = job["status"]["conditions"].as_array();
        conditions
            .is_some_and(|conditions| conditions.iter().any(|condition| condition["type"] == "Complete"))
    };
    client
        .until_so(&path, |list| list["items"].as_array().is_some_and(|jobs| jobs.iter().all(is_complete)))
        .await?;
    let complete = began.elapsed();
    let began = Instant::now();
    client.call("DELETE", &format!("{path}?propagationPolicy=Background"), None).await?;
    client.until(&format!("/api/v1/namespaces/{namespace}/pods"), 0).await?;
    Ok((complete, began.elapsed()))
}

/// The time from the first create until all claims are bound, and from the delete until none of their volumes is left.
async fn claims(endpoint: &Endpoint, provisioner: &str) -> Result<(Duration, Duration)> {
    let mut client = JsonClient::new(endpoint).await?;
    let namespace = client.namespace().await?;
    client.class(&namespace, provisioner).await?;
    let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
    let began = Instant::now();
    let claim = |i| json!({"metadata": {"name": format!("c{i}")}, "spec": claim_of(&namespace)});
    fill(endpoint, &path, CLAIMS, claim).await?;
    let all_bound = |list: &Value| {
        list["items"]
            .as_array()
            .is_some_and(|items| items.iter().all(|item| item["status"]["phase"] == "Bound"))
    };
    client.until_so(&path, all_bound).await?;
    let up = began.elapsed();
    let began = Instant::now();
    client.call("DELETE", &path, None).await?;
    client.until_no_volume_of(&namespace).await?;
    Ok((up, began.elapsed()))
}

/// The time from the create until all pods are ready, each with a claim, and from the delete until none of their volumes is left.
async fn stateful_set(
    endpoint: &Endpoint,
    management: &str,
    replicas: usize,
) -> Result<(Duration, Duration)> {
    let mut client = JsonClient::new(endpoint).await?;
    let namespace = client.namespace().await?;
    client.class(&namespace, "coracle.csi").await?;
    client.until(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), 1).await?;
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
    client.until_so(&path, |set| set["status"]["readyReplicas"] == replicas).await?;
    let up = began.elapsed();
    let began = Instant::now();
    client.call("DELETE", &path, None).await?;
    client.until_no_volume_of(&namespace).await?;
    Ok((up, began.elapsed()))
}

/// The spec of a claim of a class.
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
        "Orphan" => client.until(&format!("{maps}?fieldSelector=metadata.name%3Downer"), 0).await?,
        // Only kube-root-ca.crt remains.
        _ => {
            client
                .until(&format!("{maps}?fieldSelector=metadata.name!%3Dkube-root-ca.crt&limit=1"), 0)
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
    client.until(&format!("/api/v1/namespaces?fieldSelector=metadata.name%3D{namespace}"), 0).await?;
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

/// A client for JSON requests over one connection.
struct JsonClient(Connection);

impl JsonClient {
    async fn new(endpoint: &Endpoint) -> Result<JsonClient> {
        Ok(JsonClient(endpoint.connect().await?))
    }

    async fn call(&mut self, method: &'static str, path: &str, body: Option<Value>) -> Result<Value> {
        let body = body.map(|body| Bytes::from(body.to_string()));
        let response = self.0.call(method, path, &[], body).await?;
        ensure!(response.status < 300, "{method} {path}: {}", String::from_utf8_lossy(&response.body));
        Ok(serde_json::from_slice(&response.body)?)
    }

    async fn namespace(&mut self) -> Result<String> {
        let body = json!({"metadata": {"generateName": "bench-"}});
        let namespace = self.call("POST", "/api/v1/namespaces", Some(body)).await?;
        Ok(namespace["metadata"]["name"].as_str().context("no name")?.to_owned())
    }

    async fn class(&mut self, name: &str, provisioner: &str) -> Result<()> {
        let class = json!({"metadata": {"name": name}, "provisioner": provisioner});
        self.call("POST", "/apis/storage.k8s.io/v1/storageclasses", Some(class)).await.map(drop)
    }

    /// Waits until there is no volume of a class. A volume is deleted after its directory.
    async fn until_no_volume_of(&mut self, class: &str) -> Result<()> {
        let is_gone = |list: &Value| {
            let items = list["items"].as_array();
            items.is_some_and(|items| items.iter().all(|item| item["spec"]["storageClassName"] != class))
        };
        self.until_so("/api/v1/persistentvolumes", is_gone).await
    }

    /// Waits until a list has this number of items.
    async fn until(&mut self, path: &str, count: usize) -> Result<()> {
        self.until_so(path, |list| list["items"].as_array().map(Vec::len) == Some(count)).await
    }

    async fn until_so(&mut self, path: &str, is_so: impl Fn(&Value) -> bool) -> Result<()> {
        while !is_so(&self.call("GET", path, None).await?) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    async fn until_ready(&mut self) -> Result<()> {
        while self.0.call("GET", "/readyz", &[], None).await?.status != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

/// The share of one processor that the server uses during a time.
async fn cpu_usage(cluster: &Cluster, time: Duration) -> Result<f64> {
    let before = cpu(cluster)?;
    tokio::time::sleep(time).await;
    Ok((cpu(cluster)? - before) / time.as_secs_f64())
}

/// The processor time so far, in seconds.
fn cpu(cluster: &Cluster) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", cluster.id().context("it has ended")?))?;
    let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let [user, system] = [11, 12].map(|i| fields.get(i).and_then(|field| field.parse::<f64>().ok()));
    Ok((user.context("no time")? + system.context("no time")?)
        / rustix::param::clock_ticks_per_second() as f64)
}
