//! Requests that take long are logged, with where their time went.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle_e2e::cluster;
use coracle_e2e::http::Connection;
use coracle_e2e::wait::until;
use coracle_e2e::webhook::WebhookServer;
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn create(connection: &mut Connection, path: &str, object: &Value, audit_id: &str) -> Result<()> {
    let headers = [("Audit-ID", Some(audit_id)), ("User-Agent", Some("a test"))];
    let body = Some(Bytes::from(object.to_string()));
    let response = connection.call("POST", path, &headers, body).await?;
    let text = String::from_utf8_lossy(&response.body);
    ensure!(response.status == 201, "{path}: {} {text}", response.status);
    Ok(())
}

/// Returns the slow requests in a log in JSON.
fn slow_requests(log: &str) -> Vec<Value> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.map(|line| line["fields"].clone()).filter(|fields| fields["message"] == "slow request").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_requests_are_logged_with_where_their_time_went() -> Result<()> {
    let cluster = cluster().flag("--controllers", "").flag("--log-format", "json").start().await?;
    let webhooks = WebhookServer::start(&["127.0.0.1"], Arc::new(|_, _| json!({"allowed": true}))).await?;
    let mut connection = cluster.endpoint().await?.connect().await?;
    let map = |name: &str| json!({"metadata": {"name": name}});
    create(&mut connection, CONFIG_MAPS, &map("fast"), "fast").await?;
    // Watches last, which is not slow.
    let mut watching = cluster.endpoint().await?.connect().await?;
    let watch = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=1");
    let watching = tokio::spawn(async move { watching.call("GET", &watch, &[], None).await });

    let webhook = json!({
        "name": "slow.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": webhooks.url("/slow"), "caBundle": webhooks.ca_bundle}, "timeoutSeconds": 1,
        "failurePolicy": "Ignore",
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}],
    });
    let configuration = json!({"metadata": {"name": "slow"}, "webhooks": [webhook]});
    let configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    create(&mut connection, configurations, &configuration, "configuration").await?;
    let path = format!("{CONFIG_MAPS}?fieldManager=hidden");
    create(&mut connection, &path, &map("slow"), "slow").await?;
    ensure!(watching.await??.status == 200);

    // On a slow machine others are slow as well.
    let logged = async || {
        let logged = slow_requests(&cluster.log());
        Ok(logged.into_iter().filter(|request| request["audit_id"] == "slow").collect::<Vec<_>>())
    };
    let logged = until("the slow request is logged", logged, |logged| !logged.is_empty()).await?;
    let [request] = logged.as_slice() else { anyhow::bail!("logged more than once: {logged:#?}") };
    for (field, want) in [
        ("audit_id", json!("slow")),
        ("verb", json!("create")),
        ("path", json!(CONFIG_MAPS)),
        ("user", json!("coracle-admin")),
        ("user_agent", json!("a test")),
        ("client", json!("127.0.0.1")),
        ("status", json!(201)),
        ("suppressed", json!(0)),
    ] {
        assert_eq!(request[field], want, "{field}: {request:#}");
    }
    let millis = |field: &str| request[field].as_u64().with_context(|| format!("{field}: {request:#}"));
    let (took, admission, webhooks) = (millis("took_ms")?, millis("admission_ms")?, millis("webhooks_ms")?);
    assert!((1000..30_000).contains(&took), "{request:#}");
    assert!(took >= admission && admission >= webhooks && webhooks >= 950, "{request:#}");
    for field in ["body_ms", "queue_ms", "store_ms"] {
        assert!(millis(field)? <= took - webhooks, "{field}: {request:#}");
    }
    assert!(!cluster.log().contains("hidden"), "the query is not logged: {}", cluster.log());
    Ok(())
}
