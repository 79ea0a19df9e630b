//! CustomResourceDefinitions of real operators: all of them are accepted, established and
//! published, and instances of some are created.
//!
//! They are the files of published Go modules, fetched by `go mod download`. Where there is no Go,
//! or the module proxy cannot be reached, the test says so and ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle_e2e::http::Connection;
use coracle_e2e::{Cluster, cluster, skipped};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEADLINE: Duration = Duration::from_secs(120);

/// Modules, and the folders in them that hold definitions.
const MODULES: [(&str, &[&str]); 9] = [
    ("github.com/prometheus-operator/prometheus-operator@v0.79.2", &["example/prometheus-operator-crd"]),
    ("github.com/argoproj/argo-rollouts@v1.7.2", &["manifests/crds"]),
    ("github.com/external-secrets/external-secrets@v0.12.1", &["config/crds/bases"]),
    ("github.com/kedacore/keda/v2@v2.16.1", &["config/crd/bases"]),
    ("github.com/crossplane/crossplane@v1.18.2", &["cluster/crds"]),
    ("github.com/vmware-tanzu/velero@v1.15.1", &["config/crd/v1/bases", "config/crd/v2alpha1/bases"]),
    ("istio.io/api@v1.24.2", &["kubernetes"]),
    (
        "sigs.k8s.io/cluster-api@v1.9.3",
        &["bootstrap/kubeadm/config/crd/bases", "config/crd/bases", "controlplane/kubeadm/config/crd/bases"],
    ),
    ("sigs.k8s.io/gateway-api@v1.2.1", &["config/crd/standard"]),
];

/// Returns the directory of a module's files; an error with a reason if it is not available.
fn download(module: &str) -> Result<PathBuf, String> {
    let output = Command::new("go")
        .args(["mod", "download", "-json", module])
        .current_dir(std::env::temp_dir())
        .env("GOFLAGS", "-mod=mod")
        .output()
        .map_err(|error| format!("no Go: {error}"))?;
    let answer: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let directory = answer["Dir"].as_str().map(PathBuf::from);
    directory.ok_or_else(|| answer["Error"].as_str().unwrap_or("no directory").to_owned())
}

/// Returns the documents of a folder that are definitions.
fn definitions(folder: &Path) -> Result<Vec<String>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let documents = text.split("\n---").map(|document| document.trim_start_matches('-').to_owned());
        found.extend(documents.filter(|document| {
            document.lines().any(|line| line.trim_end() == "kind: CustomResourceDefinition")
        }));
    }
    Ok(found)
}

async fn get(server: &mut Connection, path: &str) -> Result<Value> {
    let response = server.call("GET", path, &[], None).await?;
    ensure!(
        response.status == 200,
        "{path}: {} {}",
        response.status,
        String::from_utf8_lossy(&response.body)
    );
    Ok(serde_json::from_slice(&response.body)?)
}

async fn create(server: &mut Connection, path: &str, object: &Value) -> Result<(u16, Value)> {
    let response = server.call("POST", path, &[], Some(object.to_string().into())).await?;
    Ok((response.status, serde_json::from_slice(&response.body)?))
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

/// Installs all definitions; returns their number.
async fn install(cluster: &Cluster, server: &mut Connection, documents: &[String]) -> Result<usize> {
    let begin = Instant::now();
    let before = cluster.resident()?;
    let yaml = [("content-type", Some("application/yaml"))];
    for document in documents {
        let body = Bytes::copy_from_slice(document.as_bytes());
        let response = server.call("POST", DEFINITIONS, &yaml, Some(body)).await?;
        let text = String::from_utf8_lossy(&response.body);
        ensure!(
            response.status == 201,
            "{}: {text}",
            document.lines().take(12).collect::<Vec<_>>().join("\n")
        );
    }
    let posted = begin.elapsed();
    loop {
        let list = get(server, DEFINITIONS).await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        if items.len() == documents.len() && items.iter().all(is_established) {
            break;
        }
        ensure!(begin.elapsed() < DEADLINE, "not all definitions are established");
        tokio::task::yield_now().await;
    }
    println!(
        "{} definitions, {} KiB: created in {posted:.1?}, established after {:.1?}, {:.0} MiB instead of {before:.0}",
        documents.len(),
        documents.iter().map(String::len).sum::<usize>() / 1024,
        begin.elapsed(),
        cluster.resident()?,
    );
    Ok(documents.len())
}

/// Creates a valid instance, and one that is refused with an error in this field.
async fn try_instances(server: &mut Connection) -> Result<()> {
    let cases = [
        (
            "/apis/monitoring.coreos.com/v1/namespaces/default/servicemonitors",
            json!({"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": {"name": "a"},
                "spec": {"selector": {}, "endpoints": [{"port": "http", "interval": "30s"}]}}),
            ("/spec/endpoints/0/interval", json!("often"), "spec.endpoints[0].interval"),
        ),
        (
            "/apis/argoproj.io/v1alpha1/namespaces/default/analysistemplates",
            json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "AnalysisTemplate", "metadata": {"name": "a"},
                "spec": {"metrics": [{"name": "m", "provider": {"web": {"url": "http://a/b"}}}]}}),
            ("/spec/metrics/0/name", json!(5), "spec.metrics[0].name"),
        ),
        (
            "/apis/keda.sh/v1alpha1/namespaces/default/scaledobjects",
            json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "a"},
                "spec": {"scaleTargetRef": {"name": "d"}, "triggers": [{"type": "cpu", "metadata": {"value": "50"}}]}}),
            ("/spec/triggers/0/metadata/value", json!(50), "spec.triggers[0].metadata.value"),
        ),
        (
            "/apis/velero.io/v1/namespaces/default/schedules",
            json!({"apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": {"name": "a"},
                "spec": {"schedule": "0 1 * * *", "template": {"ttl": "1h"}}}),
            ("/spec/schedule", json!(true), "spec.schedule"),
        ),
        (
            "/apis/gateway.networking.k8s.io/v1/gatewayclasses",
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "a"},
                "spec": {"controllerName": "example.com/c"}}),
            ("/spec/controllerName", json!("no domain"), "spec.controllerName"),
        ),
    ];
    for (path, object, (member, wrong, field)) in cases {
        let mut refused = object.clone();
        *refused.pointer_mut(member).with_context(|| member.to_owned())? = wrong;
        let (code, status) = create(server, path, &refused).await?;
        ensure!(code == 422, "{path}: {status}");
        let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
        ensure!(causes.iter().any(|cause| cause["field"] == field), "{path}: {status}");
        let (code, created) = create(server, path, &object).await?;
        ensure!(code == 201, "{path}: {created}");
        let read = get(server, &format!("{path}/a")).await?;
        ensure!(read["metadata"]["uid"] == created["metadata"]["uid"], "{read}");
    }
    Ok(())
}

#[tokio::test]
async fn definitions_of_real_operators_are_served() -> Result<()> {
    let mut documents = Vec::new();
    for (module, folders) in MODULES {
        let directory = match download(module) {
            Ok(directory) => directory,
            Err(reason) => {
                skipped::report(&format!("{module} cannot be downloaded: {reason}"));
                return Ok(());
            }
        };
        for folder in folders {
            documents.extend(definitions(&directory.join(folder))?);
        }
    }
    let cluster = cluster().start().await?;
    let mut server = cluster.endpoint().await?.connect().await?;
    let count = install(&cluster, &mut server, &documents).await?;
    ensure!(count > 80, "only {count} definitions");
    try_instances(&mut server).await?;
    let swagger = get(&mut server, "/openapi/v2").await?;
    let kinds = swagger["definitions"].as_object().map_or(0, serde_json::Map::len);
    ensure!(kinds > 2 * count, "{kinds} definitions in OpenAPI");
    // One more is served at once, and its objects go with it.
    let path = format!("{DEFINITIONS}/servicemonitors.monitoring.coreos.com");
    let response = server.call("DELETE", &path, &[], None).await?;
    ensure!(response.status == 200, "{}", String::from_utf8_lossy(&response.body));
    let begin = Instant::now();
    while server.call("GET", &path, &[], None).await?.status != 404 {
        ensure!(begin.elapsed() < DEADLINE, "the definition is not deleted");
        tokio::task::yield_now().await;
    }
    Ok(())
}
