//! The order of the layers that a request passes before its verb, and their effects on its
//! response.

use std::sync::Arc;

use bytes::Bytes;
use coracle_apiserver::access::authenticate::{MASTERS, UserInfo};
use coracle_apiserver::access::tls::Peer;
use coracle_apiserver::serve::{Api, Body};
use coracle_apiserver_testing::TestServer;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::ServiceExt;

async fn api() -> Api {
    TestServer::start().await.api
}

fn known(name: &str, groups: &[&str]) -> Peer {
    Peer::Known(Arc::new(UserInfo::new(name, groups).authenticated()))
}

async fn send(api: &Api, request: &str, headers: &[(&str, &str)], body: &str) -> Response<Body> {
    let (method, uri) = request.split_once(' ').expect("a method and a path");
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).expect("a request");
    api.clone().oneshot(request).await.expect("infallible")
}

/// Headers of responses, in their order.
const EVERY: &str = "content-type cache-control audit-id";
const FLOW: &str = "content-type x-kubernetes-pf-flowschema-uid x-kubernetes-pf-prioritylevel-uid \
                    cache-control audit-id";
const NOSNIFF: &str = "content-type x-content-type-options x-kubernetes-pf-flowschema-uid \
                       x-kubernetes-pf-prioritylevel-uid cache-control audit-id";
const WARNED: &str = "content-type x-kubernetes-pf-flowschema-uid x-kubernetes-pf-prioritylevel-uid warning \
                      cache-control audit-id";
const GZIP: &str = "content-type x-kubernetes-pf-flowschema-uid x-kubernetes-pf-prioritylevel-uid \
                    cache-control audit-id content-encoding vary";

#[tokio::test]
async fn checks_have_their_order_and_leave_their_headers() {
    let server = api().await;
    let root = server.for_peer(known("root", &[MASTERS]));
    let alice = server.for_peer(known("alice", &["devs"]));
    let nobody = server.for_peer(Peer::Unidentified);
    let bad_token = [("authorization", "Bearer x")];
    let json = [("content-type", "application/json")];
    let gzip = [("accept-encoding", "gzip")];
    let config_map = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"datum":{}}"#;
    let large =
        config_map.replace(r#""datum":{}"#, &format!(r#""data":{{"b":"{}"}}"#, "x".repeat(128 << 10)));
    let large = large.replace(r#""a""#, r#""large""#);
    for (api, request, headers, body, code, want) in [
        // Authentication, authorization, deadline, route, verb, body.
        (&nobody, "GET /api/v1/unknown?timeout=soon", &bad_token[..], "", 401, EVERY),
        (&nobody, "GET /api/v1/unknown?timeout=soon", &[], "", 403, NOSNIFF),
        (&alice, "GET /api/v1/unknown?timeout=soon", &[], "", 403, NOSNIFF),
        (&root, "GET /api/v1/unknown?timeout=soon", &[], "", 400, FLOW),
        (&root, "GET /api/v1/unknown", &[], "", 404, FLOW),
        (&root, "PUT /api/v1/namespaces", &json, "{", 405, FLOW),
        (&root, "POST /api/v1/namespaces/default/configmaps", &json, "{", 400, FLOW),
        (&root, "POST /api/v1/namespaces/default/configmaps", &json, config_map, 201, WARNED),
        (&root, "GET /api/v1/namespaces?watch=1&timeoutSeconds=1&timeout=soon", &[], "", 200, FLOW),
        (&root, "GET /unknown?timeout=soon", &[], "", 400, FLOW),
        (&root, "GET /unknown", &[], "", 404, NOSNIFF),
        (&root, "POST /api/v1/namespaces/default/configmaps", &json, &large, 201, FLOW),
        (&root, "GET /api/v1/namespaces/default/configmaps/large", &[], "", 200, FLOW),
        (&root, "GET /api/v1/namespaces/default/configmaps/large", &gzip, "", 200, GZIP),
        (&root, "GET /api/v1/namespaces/default/configmaps/a", &gzip, "", 200, FLOW),
    ] {
        let response = send(api, request, headers, body).await;
        let names: Vec<&str> = response.headers().keys().map(http::HeaderName::as_str).collect();
        assert_eq!((response.status().as_u16(), names.join(" ").as_str()), (code, want), "{request}");
    }
}

#[tokio::test]
async fn a_head_has_no_body_and_is_recorded_as_what_it_would_have() {
    let server = api().await;
    let root = server.for_peer(known("root", &[MASTERS]));
    let get = send(&root, "GET /healthz", &[], "").await;
    let head = send(&root, "HEAD /healthz", &[], "").await;
    let length = head.headers()["content-length"].to_str().expect("digits").to_owned();
    let body = get.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(length, body.len().to_string());
    assert!(head.into_body().collect().await.expect("no body").to_bytes().is_empty());
    let text = server.metrics().render([]);
    let counted = r#"subresource="/healthz",verb="GET",version=""} 2"#;
    assert!(text.lines().any(|line| line.contains(r#"code="200""#) && line.ends_with(counted)), "{text}");
}

#[tokio::test]
async fn a_server_that_shuts_down_ends_watches_and_refuses_new_ones() {
    let server = api().await;
    let root = server.for_peer(known("root", &[MASTERS]));
    let watch = send(&root, "GET /api/v1/configmaps?watch=true", &[], "").await;
    assert_eq!(watch.status(), 200);
    server.close();
    assert!(watch.into_body().collect().await.is_ok(), "the body ends, and is whole");

    let refused = send(&root, "GET /api/v1/configmaps?watch=true", &[], "").await;
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["retry-after"]),
        (503, &"1".parse().expect("text"))
    );
    let body = refused.into_body().collect().await.expect("a body").to_bytes();
    let status: serde_json::Value = serde_json::from_slice(&body).expect("a Status");
    assert_eq!([&status["reason"], &status["message"]], ["ServiceUnavailable", "apiserver is shutting down"]);

    let read = send(&root, "GET /api/v1/configmaps", &[], "").await;
    assert_eq!(read.status(), 200, "what does not last is served");
}
