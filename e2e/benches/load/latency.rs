//! Latency: one request at a time, of what takes several steps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_e2e::cluster;
use coracle_e2e::http::{Connection, Endpoint};
use coracle_e2e::webhook::WebhookServer;
use serde_json::{Value, json};

use crate::drive::Request;
use crate::floor;
use crate::rows::{config_map, namespace};

const DEFINITIONS: usize = 20;
const CALLS: usize = 500;
const DEADLINE: Duration = Duration::from_secs(30);

/// Prints the median of each.
pub async fn latencies() -> Result<()> {
    let cluster = cluster().durable().start().await?;
    let endpoint = cluster.endpoint().await?;
    println!("\n| one at a time, median | ms |\n| --- | ---: |");
    print_median("definition, until Established", definitions(&endpoint).await?);

    let namespace = namespace(&endpoint).await?;
    print_median("create", creates(&endpoint, &namespace, "a").await?);
    let server = WebhookServer::start(&["127.0.0.1"], Arc::new(|_, _| json!({"allowed": true}))).await?;
    let configuration = json!({
        "metadata": {"name": "w"},
        "webhooks": [{
            "name": "w.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": server.url("/"), "caBundle": server.ca_bundle},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}],
        }],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations".to_owned();
    let mut connection = endpoint.connect().await?;
    Request::new("POST", path).body(configuration.to_string().into()).send(&mut connection).await?;
    let with_webhook = creates(&endpoint, &namespace, "b").await?;
    let review = server.take_reviews().pop().context("the webhook was not called")?;
    print_median("create, with a validating webhook", with_webhook);
    let direct = floor::endpoint(&server.url(""), &String::from_utf8(STANDARD.decode(&server.ca_bundle)?)?)?;
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": review});
    print_median("the call of that webhook alone", calls(&direct, &review).await?);
    Ok(())
}

fn print_median(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    println!("| {name} | {:.2} |", median.as_secs_f64() * 1e3);
}

async fn definitions(endpoint: &Endpoint) -> Result<Vec<Duration>> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut connection = endpoint.connect().await?;
    let mut times = Vec::new();
    for i in 0..DEFINITIONS {
        let (group, kind) = (format!("g{i}.example.com"), format!("Widget{i}"));
        let name = format!("widgets.{group}");
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object"}}});
        let version =
            json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        let names = json!({"plural": "widgets", "kind": kind});
        let spec = json!({"group": group, "scope": "Namespaced", "names": names, "versions": [version]});
        let definition = json!({"metadata": {"name": name}, "spec": spec}).to_string();
        let began = Instant::now();
        Request::new("POST", path.to_owned()).body(definition.into()).send(&mut connection).await?;
        while !is_established(&mut connection, &format!("{path}/{name}")).await? {
            ensure!(began.elapsed() < DEADLINE, "{name} is not established");
        }
        times.push(began.elapsed());
    }
    Ok(times)
}

async fn is_established(connection: &mut Connection, path: &str) -> Result<bool> {
    let definition: Value =
        serde_json::from_slice(&Request::new("GET", path.to_owned()).send(connection).await?)?;
    let conditions = definition["status"]["conditions"].as_array();
    Ok(conditions
        .is_some_and(|all| all.iter().any(|one| one["type"] == "Established" && one["status"] == "True")))
}

async fn creates(endpoint: &Endpoint, namespace: &str, prefix: &str) -> Result<Vec<Duration>> {
    let mut connection = endpoint.connect().await?;
    let mut times = Vec::new();
    for i in 0..CALLS {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let create = Request::new("POST", path).body(config_map(&format!("{prefix}{i}"), 'x'));
        let began = Instant::now();
        create.send(&mut connection).await?;
        times.push(began.elapsed());
    }
    Ok(times)
}

async fn calls(endpoint: &Endpoint, review: &Value) -> Result<Vec<Duration>> {
    let mut connection = endpoint.connect().await?;
    let mut times = Vec::new();
    for _ in 0..CALLS {
        let call = Request::new("POST", "/".to_owned()).body(review.to_string().into());
        let began = Instant::now();
        call.send(&mut connection).await?;
        times.push(began.elapsed());
    }
    Ok(times)
}
