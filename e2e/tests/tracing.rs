//! Spans of requests are exported to a collector, and calls of webhooks continue the trace.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle_e2e::http::Connection;
use coracle_e2e::wait::DEADLINE;
use coracle_e2e::{cluster, webhook};
use coracle_otlp::proto::{AnyValue, Span, Value as Attribute};
use coracle_otlp::testing::Collector;
use http_body_util::{BodyExt, Full};
use hyper::Response;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN_ID: &str = "b7ad6b7169203331";

async fn create(connection: &mut Connection, path: &str, object: &Value, traceparent: &str) -> Result<()> {
    let headers = [("traceparent", Some(traceparent)), ("Audit-ID", Some("the-request"))];
    let response = connection.call("POST", path, &headers, Some(object.to_string().into())).await?;
    let text = String::from_utf8_lossy(&response.body);
    ensure!(response.status == 201, "{path}: {} {text}", response.status);
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attribute(span: &Span, name: &str) -> Option<Attribute> {
    let found = span.attributes.iter().find(|attribute| attribute.key == name)?;
    found.value.clone().and_then(|AnyValue { value }| value)
}

/// Starts a webhook that allows all; the receiver has the `traceparent` of each call.
async fn allowing_webhook() -> Result<(String, String, mpsc::UnboundedReceiver<String>)> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let respond = move |request: hyper::Request<hyper::body::Incoming>| {
        let sender = sender.clone();
        async move {
            let traceparent = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
            sender.send(traceparent.unwrap_or_default().to_owned())?;
            let review: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
            let response = json!({
                "apiVersion": review["apiVersion"], "kind": review["kind"],
                "response": {"uid": review["request"]["uid"], "allowed": true},
            });
            Ok(Response::new(Full::new(Bytes::from(response.to_string()))))
        }
    };
    let (address, ca_bundle) = webhook::serve(&["127.0.0.1"], Arc::<AtomicUsize>::default(), respond).await?;
    Ok((format!("https://{address}/"), ca_bundle, receiver))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_a_span_of_its_clients_trace() -> Result<()> {
    let mut collector = Collector::start().await?;
    let directory = tempfile::TempDir::new()?;
    let file = directory.path().join("tracing.yaml");
    // None of the server's own; those of administrators are recorded if they say so.
    let configuration = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: {}\nsamplingRatePerMillion: 0\n",
        collector.address
    );
    std::fs::write(&file, configuration)?;
    let cluster = cluster().flag("--controllers", "").flag("--tracing-config-file", &file).start().await?;
    let mut connection = cluster.endpoint().await?.connect().await?;
    let (url, ca_bundle, mut calls) = allowing_webhook().await?;
    let webhook = json!({
        "name": "allow.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": url, "caBundle": ca_bundle},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}],
    });
    let configuration = json!({"metadata": {"name": "allow"}, "webhooks": [webhook]});
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let parent = format!("00-{TRACE_ID}-{SPAN_ID}");
    create(&mut connection, configurations, &configuration, &format!("{parent}-00")).await?;
    let path = format!("{CONFIG_MAPS}?fieldManager=hidden");
    create(&mut connection, &path, &json!({"metadata": {"name": "one"}}), &format!("{parent}-01")).await?;
    let call = timeout(DEADLINE, calls.recv()).await?.context("the webhook was not called")?;
    // Queued spans are sent before the shutdown.
    ensure!(cluster.stop().await?.success());

    let request = timeout(DEADLINE, collector.requests.recv()).await?.context("nothing was exported")?;
    let spans: Vec<&Span> = request
        .resource_spans
        .iter()
        .flat_map(|of_resource| &of_resource.scope_spans)
        .flat_map(|of_scope| &of_scope.spans)
        .collect();
    let [span] = spans.as_slice() else { anyhow::bail!("one span is sampled: {spans:#?}") };
    assert_eq!((hex(&span.trace_id).as_str(), hex(&span.parent_span_id).as_str()), (TRACE_ID, SPAN_ID));
    assert_eq!(call, format!("00-{TRACE_ID}-{}-01", hex(&span.span_id)), "the webhook continues the trace");
    assert_eq!(span.name, "POST /api/v1/namespaces/{:namespace}/configmaps");
    assert!(span.start_time_unix_nano < span.end_time_unix_nano, "{span:#?}");
    for (name, want) in [
        ("http.request.method", Attribute::String("POST".to_owned())),
        ("url.path", Attribute::String(CONFIG_MAPS.to_owned())),
        ("http.response.status_code", Attribute::Int(201)),
        ("audit-id", Attribute::String("the-request".to_owned())),
        ("user_agent.original", Attribute::String("replay/1.0".to_owned())),
        ("client.address", Attribute::String("127.0.0.1".to_owned())),
    ] {
        assert_eq!(attribute(span, name), Some(want), "{name}: {span:#?}");
    }
    assert!(!format!("{span:?}").contains("hidden"), "the query is not exported: {span:#?}");
    Ok(())
}
