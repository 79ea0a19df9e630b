//! Webhooks and aggregated servers that are hostile, silent or not there: what they cost, and where
//! requests do not go.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle_e2e::cluster;
use coracle_e2e::http::{Connection, Endpoint};
use coracle_e2e::wait::{DEADLINE, until};
use coracle_e2e::webhook::{WebhookServer, serve};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, UPGRADE};
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

async fn call(connection: &mut Connection, method: &str, path: &str, body: &Value) -> Result<(u16, Value)> {
    let body = (!body.is_null()).then(|| Bytes::from(body.to_string()));
    let response = connection.call(method, path, &[], body).await?;
    Ok((response.status, serde_json::from_slice(&response.body).unwrap_or_default()))
}

async fn create(connection: &mut Connection, path: &str, object: &Value) -> Result<()> {
    let (code, made) = call(connection, "POST", path, object).await?;
    ensure!(code == 201, "{path}: {code} {made}");
    Ok(())
}

/// Builds a webhook for ConfigMaps of the namespace `default`.
fn webhook(client: Value) -> Value {
    json!({
        "metadata": {"name": "w"},
        "webhooks": [{
            "name": "w.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30, "clientConfig": client,
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        }],
    })
}

fn api_service(ca_bundle: Option<&str>) -> Value {
    json!({
        "metadata": {"name": "v1.g.example.com"},
        "spec": {
            "group": "g.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "caBundle": ca_bundle, "service": {"namespace": "default", "name": "ext"},
        },
    })
}

/// Returns the condition of the APIService, once it has one that fits.
async fn condition(connection: &mut Connection, fits: impl Fn(&Value) -> bool) -> Result<Value> {
    let path = format!("{API_SERVICES}/v1.g.example.com");
    let get = async || {
        let (_, object) = call(connection, "GET", &path, &Value::Null).await?;
        Ok(object["status"]["conditions"][0].clone())
    };
    until("its condition", get, fits).await
}

/// Builds a list of `bytes` bytes, of objects with one member.
fn objects(bytes: usize) -> String {
    let one = r#"{"":0},"#;
    format!("[{}0]", one.repeat(bytes / one.len()))
}

/// Responds with a document whose lists of objects have `bytes` in all, in a place that the name of
/// the object chooses.
async fn hostile_review(request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body)?;
    let (uid, name) = (&review["request"]["uid"], review["request"]["name"].as_str().unwrap_or_default());
    let list = objects((8 << 20) - 1000);
    let (beside, within) = match name {
        "beside" => (format!(r#""x":{list},"#), String::new()),
        "request" => (format!(r#""request":{list},"#), String::new()),
        "unknown" => (String::new(), format!(r#","x":{list}"#)),
        _ => (String::new(), format!(r#","status":{{"details":{{"causes":{list}}}}}"#)),
    };
    let document = format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",{beside}"response":{{"uid":{uid},"allowed":true{within}}}}}"#
    );
    Ok(Response::new(Full::new(document.into())))
}

#[tokio::test]
async fn a_response_of_a_webhook_takes_little_more_memory_than_its_bytes() -> Result<()> {
    let (address, ca_bundle) = serve(&["127.0.0.1"], Arc::default(), hostile_review).await?;
    let cluster = cluster().flag("--nodes", "0").flag("--controllers", "-*").start().await?;
    let mut connection = cluster.endpoint().await?.connect().await?;
    let client = json!({"url": format!("https://{address}"), "caBundle": ca_bundle});
    create(&mut connection, WEBHOOKS, &webhook(client)).await?;
    cluster.reset_most_resident()?;
    let before = cluster.resident()?;
    for (name, want) in [("beside", 201), ("request", 201), ("unknown", 201), ("causes", 500)] {
        let object = json!({"metadata": {"name": name}});
        let (code, made) = call(&mut connection, "POST", CONFIG_MAPS, &object).await?;
        let grown = cluster.most_resident()? - before;
        println!("{name}: {grown:.0} MB more");
        ensure!(grown < 4.0 * 8.0 + 8.0, "{name}: {grown:.0} MB more for a response of 8 MiB");
        ensure!(code == want, "{name}: {code} {made}");
        let message = made["message"].as_str().unwrap_or_default();
        ensure!(code == 201 || message.contains("exceeded max number of"), "{name}: {message}");
    }
    Ok(())
}

/// Serves an aggregated API with documents of the maximum size.
async fn hostile_api(request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    let document = match request.uri().path() {
        "/apis/g.example.com/v1" => {
            let list = objects((3 << 20) - 1000);
            format!(r#"{{"x":{list},"resources":[{{"name":"things","kind":"Thing"}}]}}"#)
        }
        "/openapi/v3" => {
            let list = objects((1 << 20) - 1000);
            format!(
                r#"{{"x":{list},"paths":{{"apis/g.example.com/v1":{{"serverRelativeURL":"/openapi/v3/apis/g.example.com/v1"}}}}}}"#
            )
        }
        "/openapi/v2" => {
            let list = objects((2 << 20) - 1000);
            format!(
                r##"{{"x":{list},"paths":{{
                    "/apis/g.example.com/v1/things":{{"get":{{"x":{{"$ref":"#/definitions/Thing"}},"y":{{"$ref":"#/definitions/Many"}}}}}},
                    "/apis/g.example.com/v1/many":{list}}},
                    "definitions":{{"Thing":{{"type":"object"}},"Many":{{"x":{list}}}}}}}"##
            )
        }
        path => anyhow::bail!("{path}"),
    };
    Ok(Response::new(Full::new(document.into())))
}

#[tokio::test]
async fn documents_of_an_aggregated_server_take_little_more_memory_than_their_bytes() -> Result<()> {
    let (address, ca_bundle) = serve(&["ext.default.svc"], Arc::default(), hostile_api).await?;
    let cluster = cluster()
        .flag("--nodes", "0")
        .flag("--controllers", "-*")
        .flag("--webhook-service-url", format!("default/ext=https://{address}"))
        .start()
        .await?;
    let mut connection = cluster.endpoint().await?.connect().await?;
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    // The documents of this server itself take memory too.
    for accept in ["application/json", PROTOBUF] {
        let found = connection.call("GET", "/openapi/v2", &[("Accept", Some(accept))], None).await?;
        ensure!(found.status == 200, "{found:?}");
    }
    let most = cluster.most_resident()?;
    create(&mut connection, API_SERVICES, &api_service(Some(&ca_bundle))).await?;
    condition(&mut connection, |condition| condition["status"] == "True").await?;
    let openapi = async || {
        let found = connection.call("GET", "/openapi/v2", &[], None).await?;
        let document: Value = serde_json::from_slice(&found.body)?;
        Ok((document["paths"]["/apis/g.example.com/v1/things"].clone(), document["definitions"].clone()))
    };
    let (_, definitions) = until("its document", openapi, |(path, _)| path.is_object()).await?;
    let grown = cluster.most_resident()? - most;
    println!("{grown:.0} MB more");
    ensure!(grown < 4.0 * 8.0, "{grown:.0} MB more for documents of 12 MiB");
    ensure!(definitions["Thing"]["type"] == "object" && definitions["Many"].is_null());
    let found = connection.call("GET", "/openapi/v2", &[("Accept", Some(PROTOBUF))], None).await?;
    ensure!(found.status == 200 && found.body.windows(5).any(|bytes| bytes == b"Thing"));
    let (_, index) = call(&mut connection, "GET", "/openapi/v3", &Value::Null).await?;
    ensure!(index["paths"]["apis/g.example.com/v1"]["serverRelativeURL"].is_string(), "{index}");
    let (_, groups) = call(&mut connection, "GET", "/apis/g.example.com", &Value::Null).await?;
    ensure!(groups["name"] == "g.example.com", "{groups}");
    let grown = cluster.most_resident()? - most;
    ensure!(grown < 4.0 * 8.0, "{grown:.0} MB more for version 2 as protobuf");
    Ok(())
}

/// Accepts every handshake, and then neither sends nor closes anything.
async fn silent(mut request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    let mut response = Response::new(Full::default());
    if request.headers().contains_key(UPGRADE) {
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert(UPGRADE, "test".parse()?);
        response.headers_mut().insert(CONNECTION, "Upgrade".parse()?);
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let _open = upgrade.await;
            std::future::pending::<()>().await;
        });
    }
    Ok(response)
}

/// Opens a connection to the aggregated server that switched protocols.
async fn tunnel(endpoint: &Endpoint) -> Result<TlsStream<TcpStream>> {
    let mut stream = endpoint.tls(b"http/1.1").await?;
    let head = "GET /apis/g.example.com/v1/tunnel HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: test\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        response.push(timeout(DEADLINE, stream.read_u8()).await.context("no response")??);
    }
    ensure!(response.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&response));
    Ok(stream)
}

#[tokio::test]
async fn a_tunnel_ends_with_its_client_although_the_server_is_silent() -> Result<()> {
    const TUNNELS: usize = 20;
    let (address, ca_bundle) = serve(&["ext.default.svc"], Arc::default(), silent).await?;
    let cluster = cluster()
        .flag("--nodes", "0")
        .flag("--controllers", "-*")
        .flag("--webhook-service-url", format!("default/ext=https://{address}"))
        .start()
        .await?;
    let endpoint = cluster.endpoint().await?;
    let mut connection = endpoint.connect().await?;
    create(&mut connection, API_SERVICES, &api_service(Some(&ca_bundle))).await?;
    condition(&mut connection, |condition| condition["status"] == "True").await?;
    let before = cluster.open_files()?;
    let mut tunnels = Vec::new();
    for _ in 0..TUNNELS {
        tunnels.push(tunnel(&endpoint).await?);
    }
    let open = cluster.open_files()?;
    // One of them may have an idle connection that was open before.
    ensure!(open + 4 >= before + 2 * TUNNELS, "{open} files, {before} before");
    // Half of the clients close only their own direction.
    for (index, mut tunnel) in tunnels.into_iter().enumerate() {
        tunnel.shutdown().await?;
        if index % 2 == 0 {
            let mut rest = Vec::new();
            timeout(DEADLINE, tunnel.read_to_end(&mut rest)).await.context("it stays open")??;
        }
    }
    // The checks of the APIService keep a connection or two.
    until("the tunnels are closed", async || cluster.open_files(), |open| *open <= before + 4).await?;
    Ok(())
}

#[tokio::test]
async fn addresses_of_simulated_pods_are_not_dialled() -> Result<()> {
    let cluster = cluster().with_service_account().start().await?;
    let mut connection = cluster.endpoint().await?.connect().await?;
    let service = json!({
        "metadata": {"name": "ext"},
        "spec": {"selector": {"app": "ext"}, "ports": [{"name": "https", "port": 443, "targetPort": 9443}]},
    });
    create(&mut connection, SERVICES, &service).await?;
    let pod = |name: &str, host_network: bool| {
        json!({
            "metadata": {"name": name, "labels": {"app": "ext"}},
            "spec": {"hostNetwork": host_network, "containers": [{"name": "c", "image": "i"}]},
        })
    };
    for (name, host_network) in [("p", false), ("h", true)] {
        create(&mut connection, "/api/v1/namespaces/default/pods", &pod(name, host_network)).await?;
    }
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name%3Dext";
    let ready = async || {
        let (_, slices) = call(&mut connection, "GET", slices, &Value::Null).await?;
        let endpoints = slices["items"][0]["endpoints"].as_array().cloned().unwrap_or_default();
        Ok(endpoints.iter().filter(|endpoint| endpoint["conditions"]["ready"] == true).count())
    };
    until("both pods are ready", ready, |ready| *ready == 2).await?;

    create(&mut connection, API_SERVICES, &api_service(None)).await?;
    let simulated = "no endpoints available for service \"ext\": its pods are simulated";
    let message = |condition: &Value| condition["message"].as_str().unwrap_or_default().to_owned();
    let known = condition(&mut connection, |condition| message(condition).contains("simulated")).await?;
    ensure!(known["status"] == "False" && message(&known).starts_with(simulated), "{known}");

    let client = json!({"service": {"namespace": "default", "name": "ext"}});
    create(&mut connection, WEBHOOKS, &webhook(client)).await?;
    let secret = json!({"metadata": {"name": "c"}, "data": {"k": "v"}});
    let (code, refused) = call(&mut connection, "POST", CONFIG_MAPS, &secret).await?;
    let text = message(&refused);
    ensure!(code == 500 && text.contains(simulated), "{code} {refused}");
    for way_out in ["--webhook-service-url default/ext=https://", "coracle.dev/service-url: https://"] {
        ensure!(text.contains(way_out), "{text}");
    }
    Ok(())
}

#[tokio::test]
async fn proxies_of_the_environment_are_not_used() -> Result<()> {
    let proxy = TcpListener::bind("127.0.0.1:0").await?;
    let (url, connections) = (format!("http://{}", proxy.local_addr()?), Arc::new(AtomicUsize::new(0)));
    let accepted = connections.clone();
    tokio::spawn(async move {
        while proxy.accept().await.is_ok() {
            accepted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let server = WebhookServer::start(&["127.0.0.1"], Arc::new(|_, _| json!({"allowed": true}))).await?;
    let mut builder = cluster().flag("--nodes", "0").flag("--controllers", "-*");
    for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        builder = builder.env(name, &url);
    }
    let cluster = builder.start().await?;
    let mut connection = cluster.endpoint().await?.connect().await?;
    let client = json!({"url": server.url("/allow"), "caBundle": server.ca_bundle});
    create(&mut connection, WEBHOOKS, &webhook(client)).await?;
    create(&mut connection, CONFIG_MAPS, &json!({"metadata": {"name": "c"}})).await?;
    ensure!(server.take_reviews().len() == 1, "the webhook was called directly");
    ensure!(connections.load(Ordering::Relaxed) == 0, "the proxy was asked");
    Ok(())
}
