//! Settling: after it nothing happens but by timers and clients; what keeps a control plane from it
//! is named.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::random::Rng;
use coracle_e2e::random_workloads::write_some;
use coracle_e2e::webhook::WebhookServer;
use coracle_e2e::{cluster, workloads};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

const SETTLE: &str = "/coracle/v1alpha1/settle";

/// Returns the revision at which a control plane has settled.
async fn settle(client: &mut JsonClient) -> Result<u64> {
    let settled = client.call("POST", SETTLE, Some(json!({"quietFor": "0s"}))).await?;
    ensure!(settled["settled"] == true, "{settled}");
    settled["resourceVersion"].as_str().context("a version")?.parse().context("a number")
}

/// Returns the error of a control plane that does not settle.
async fn unsettled(client: &mut JsonClient) -> Result<Value> {
    let named = async {
        loop {
            let body = json!({"quietFor": "0s", "timeout": "200ms"});
            let (status, answer) = client.send("POST", SETTLE, Some(body)).await?;
            if status == 504 {
                return anyhow::Ok(answer);
            }
        }
    };
    timeout(Duration::from_secs(20), named).await.context("it settles all the time")?
}

#[tokio::test]
async fn nothing_happens_after_it() -> Result<()> {
    // The clock stands still, so that no timer fires in the meantime.
    let cluster = cluster().flag("--clock", "manual").flag("--nodes", "3").start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let mut random = Rng(7);
    for round in 0..12 {
        write_some(&mut client, &mut random, round, async |_| Ok(())).await?;
        let settled = settle(&mut client).await?;
        sleep(Duration::from_millis(if round == 11 { 1000 } else { 150 })).await;
        let later = settle(&mut client).await?;
        ensure!(later == settled, "round {round}: something was written after {settled}: {later}");
        client.call("POST", "/coracle/v1alpha1/clock", Some(json!({"advance": "20s"}))).await?;
    }
    Ok(())
}

/// Checks that no pause is left of a namespace that was deleted: a test that deletes its namespace
/// would wait for it.
#[tokio::test]
async fn nothing_is_awaited_for_a_namespace_that_was_deleted() -> Result<()> {
    let cluster = cluster().flag("--nodes", "0").start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    client.create("/api/v1/namespaces", json!({"metadata": {"name": "short-lived"}})).await?;
    settle(&mut client).await?;
    let namespace = "/api/v1/namespaces/short-lived";
    client.delete(namespace).await?;
    client.until_deleted(namespace).await?;
    let clock = client.get("/coracle/v1alpha1/clock?limit=1000").await?;
    let pauses = clock["nextTimers"].as_array().context("timers")?.iter();
    let pauses: Vec<_> = pauses.filter(|timer| timer["name"] == "namespace-deletion").collect();
    ensure!(pauses.is_empty(), "{pauses:?}");
    Ok(())
}

#[tokio::test]
async fn it_waits_for_what_a_write_causes() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    settle(&mut client).await?;
    let path = workloads::apps("default", "deployments");
    client.create(&path, workloads::replicated("web", 5)).await?;
    settle(&mut client).await?;
    let deployment = client.get(&format!("{path}/web")).await?;
    ensure!(deployment["status"]["readyReplicas"] == 5, "{deployment}");
    let options = json!({"propagationPolicy": "Foreground"});
    client.call("DELETE", &format!("{path}/web"), Some(options)).await?;
    settle(&mut client).await?;
    // Its containers take a moment to stop, which is a timer.
    client.until_deleted(&format!("{path}/web")).await?;
    settle(&mut client).await?;
    ensure!(client.list(&workloads::pods("default")).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn who_writes_all_the_time_is_named() -> Result<()> {
    let cluster = cluster().start().await?;
    let endpoint = cluster.endpoint().await?;
    let mut writer = endpoint.connect().await?;
    let writing = tokio::spawn(async move {
        let headers = [("user-agent", Some("hot-loop/1")), ("content-type", Some("application/json"))];
        for number in 0.. {
            let map = json!({"metadata": {"name": format!("m{number}")}}).to_string();
            let maps = "/api/v1/namespaces/default/configmaps";
            if writer.call("POST", maps, &headers, Some(map.into())).await.is_err() {
                return;
            }
        }
    });
    let mut client = JsonClient::new(&endpoint).await?;
    let body = json!({"quietFor": "100ms", "timeout": "500ms"});
    let (status, answer) = client.send("POST", SETTLE, Some(body)).await?;
    writing.abort();
    let message = answer["message"].as_str().unwrap_or_default();
    ensure!(status == 504 && answer["reason"] == "Timeout", "{answer}");
    ensure!(message.contains("\"hot-loop/1\" writes configmaps: "), "{message}");
    ensure!(answer["details"]["causes"][0]["reason"] == "Writes", "{answer}");
    settle(&mut client).await?;
    Ok(())
}

#[tokio::test]
async fn a_request_that_hangs_is_named() -> Result<()> {
    let cluster = cluster().start().await?;
    let endpoint = cluster.endpoint().await?;
    let mut client = JsonClient::new(&endpoint).await?;
    // It accepts connections, and never says anything.
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let certificate = WebhookServer::start(&["127.0.0.1"], std::sync::Arc::new(|_, _| json!({}))).await?;
    let hook = json!({"metadata": {"name": "hangs"}, "webhooks": [{"name": "hangs.example.com",
        "clientConfig": {"url": format!("https://{}/", silent.local_addr()?), "caBundle": certificate.ca_bundle},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "timeoutSeconds": 5, "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore"}]});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    client.create(hooks, hook).await?;
    settle(&mut client).await?;
    let mut other = JsonClient::new(&endpoint).await?;
    let creating = tokio::spawn(async move {
        other.create("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "a"}})).await
    });
    let answer = unsettled(&mut client).await?;
    let message = answer["message"].as_str().unwrap_or_default().to_owned();
    ensure!(message.contains("POST /api/v1/namespaces/default/configmaps"), "{message}");
    creating.await??;
    settle(&mut client).await?;
    Ok(())
}

#[tokio::test]
async fn it_waits_for_clients_by_their_user_agents() -> Result<()> {
    let cluster = cluster().start().await?;
    let endpoint = cluster.endpoint().await?;
    let mut client = JsonClient::new(&endpoint).await?;
    settle(&mut client).await?;
    let body = json!({"userAgents": ["my-operator/*"], "timeout": "200ms", "quietFor": "0s"});
    let (status, answer) = client.send("POST", SETTLE, Some(body.clone())).await?;
    ensure!(status == 504 && answer.to_string().contains("my-operator/*"), "{answer}");
    let mut operator = endpoint.connect().await?;
    operator.call("GET", "/api/v1/nodes", &[("user-agent", Some("my-operator/v2"))], None).await?;
    client.call("POST", SETTLE, Some(body)).await?;
    Ok(())
}

#[tokio::test]
async fn bad_requests_are_refused() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    for (body, want) in [
        (json!({"timeout": "soon"}), 422),
        (json!({"timeout": "-1s"}), 422),
        (json!({"timeout": "100000h"}), 422),
        (json!({"quietFor": "1e9s"}), 422),
        (json!({"quietfor": "1s"}), 400),
        (json!({"userAgents": vec!["x"; 101]}), 422),
        (json!([]), 400),
        (json!({}), 200),
    ] {
        let (status, answer) = client.send("POST", SETTLE, Some(body.clone())).await?;
        ensure!(status == want, "{body}: {status} {answer}");
    }
    let mut connection = cluster.endpoint().await?.connect().await?;
    for (media_type, want) in [
        ("application/x-www-form-urlencoded", 403),
        ("text/plain", 403),
        ("multipart/form-data; boundary=x", 403),
        ("application/yaml", 415),
        ("application/json; charset=utf-8", 200),
    ] {
        let headers = [("content-type", Some(media_type))];
        let response = connection.call("POST", SETTLE, &headers, Some("{}".into())).await?;
        ensure!(response.status == want, "{media_type}: {}", response.status);
    }
    Ok(())
}

#[tokio::test]
async fn several_wait_at_a_time() -> Result<()> {
    let cluster = cluster().start().await?;
    let endpoint = cluster.endpoint().await?;
    let waiting = (0..20).map(|_| async {
        let mut client = JsonClient::new(&endpoint).await?;
        client.call("POST", SETTLE, Some(json!({}))).await
    });
    let settled: Vec<Result<Value>> = futures::future::join_all(waiting).await;
    ensure!(settled.iter().all(Result::is_ok), "{settled:?}");
    Ok(())
}

#[tokio::test]
async fn a_watch_that_is_not_read_is_named() -> Result<()> {
    let cluster = cluster().start().await?;
    let endpoint = cluster.endpoint().await?;
    let mut client = JsonClient::new(&endpoint).await?;
    let maps = "/api/v1/namespaces/default/configmaps";
    // More than the buffers of a connection hold.
    let map = |number: usize| json!({"metadata": {"name": format!("m{number}")}, "data": {"a": "x".repeat(900_000)}});
    let request =
        "GET /api/v1/configmaps?watch=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: reads-nothing/1\r\n\r\n";
    let mut held = Vec::new();
    for (first, why) in
        [(0, "has events that it has not taken"), (20, "has not taken what was there at its beginning")]
    {
        let mut socket = endpoint.tls(b"http/1.1").await?;
        if first == 0 {
            socket.write_all(request.as_bytes()).await?;
            settle(&mut client).await?;
        }
        for number in first..first + 20 {
            client.create(maps, map(number)).await?;
        }
        if first != 0 {
            held.clear();
            settle(&mut client).await?;
            socket.write_all(request.as_bytes()).await?;
        }
        held.push(socket);
        let answer = unsettled(&mut client).await?;
        let message = answer["message"].as_str().unwrap_or_default();
        let want = format!("a watch of configmaps by \"reads-nothing/1\" {why}");
        ensure!(message.contains(&want), "{message}");
    }
    Ok(())
}
