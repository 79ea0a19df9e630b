//! Requests for aggregated APIs: passed on to the server of the APIService, with the user in headers that the front proxy's
//! certificate vouches for.
//!
//! Responses are passed on as they come, watches too. Connections that switch protocols are not proxied.
//!
//! Source: kube-aggregator's `handler_proxy.go`.

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full};

use super::exchange::RequestContext;
use super::{Body, respond};
use crate::access::UserInfo;
use crate::aggregator::RemoteApi;
use crate::registry::Registry;
use crate::webhook::client_error;

/// Headers that are between two neighbours only, and those that this server makes itself.
static NOT_PASSED_ON: [HeaderName; 11] = [
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::AUTHORIZATION,
    // What the other server compresses could not be compressed for the client, who may accept something else.
    header::ACCEPT_ENCODING,
];

/// Responds to a request for an aggregated API.
pub async fn respond(
    registry: &Registry,
    api: &RemoteApi,
    context: &RequestContext,
    user: &UserInfo,
    body: Bytes,
) -> Response<Body> {
    if !api.is_available {
        return unavailable("service unavailable");
    }
    let Ok(client) = registry.webhook_clients().service_client(&api.service, &api.tls, registry) else {
        return unavailable("service unavailable");
    };
    let parts = &context.parts;
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let service = &api.service;
    let url = format!("https://{}.{}.svc:{}{path}", service.name, service.namespace, service.port);
    let Ok(mut request) = Request::builder().method(&parts.method).uri(url).body(Full::new(body)) else {
        return unavailable("service unavailable");
    };
    *request.headers_mut() = passed_on(&parts.headers);
    add_user(request.headers_mut(), user);
    match client.request(request).await {
        Ok(response) => {
            let (head, body) = response.into_parts();
            let chunks = body.into_data_stream().take_while(|chunk| std::future::ready(chunk.is_ok()));
            let chunks = chunks.filter_map(|chunk| std::future::ready(chunk.ok()));
            let mut response = Response::new(Body::stream(chunks));
            *response.status_mut() = head.status;
            *response.headers_mut() = passed_on(&head.headers);
            response
        }
        Err(error) => unavailable(&format!("error trying to reach service: {}", client_error(&error))),
    }
}

fn unavailable(text: &str) -> Response<Body> {
    respond::plain(503, "text/plain; charset=utf-8", format!("{text}\n").into())
}

/// The headers that are passed on. A client cannot name a user by headers, and an impersonation has taken place already.
fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let names_a_user = |name: &str| name.starts_with("x-remote-") || name.starts_with("impersonate-");
    let is_passed_on = |name: &HeaderName| {
        !NOT_PASSED_ON.contains(name) && name != "keep-alive" && !names_a_user(name.as_str())
    };
    let headers = headers.iter().filter(|(name, _)| is_passed_on(name));
    headers.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn add_user(headers: &mut HeaderMap, user: &UserInfo) {
    let mut add = |name: &str, value: &str| {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    };
    add("x-remote-user", &user.name);
    if !user.uid.is_empty() {
        add("x-remote-uid", &user.uid);
    }
    for group in &user.groups {
        add("x-remote-group", group);
    }
    for (key, values) in &user.extra {
        let key = escape(key);
        for value in values {
            add(&format!("x-remote-extra-{key}"), value);
        }
    }
}

/// A key of a user's extra as part of a header's name: what cannot stand there is percent-encoded.
fn escape(key: &str) -> String {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    key.bytes()
        .map(|byte| if is_token(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_those_that_authenticated() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-remote-user", "mallory"),
            ("x-remote-group", "system:masters"),
            ("impersonate-user", "mallory"),
            ("authorization", "Bearer x"),
            ("accept", "a"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let mut headers = passed_on(&headers);
        let mut user = UserInfo::new("alice", &["g", "h"]);
        user.extra.insert("example.com/key".to_owned(), vec!["v".to_owned()]);
        add_user(&mut headers, &user);
        let mut got: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")))
            .collect();
        got.sort();
        assert_eq!(
            got,
            [
                "accept: a",
                "x-remote-extra-example.com%2fkey: v",
                "x-remote-group: g",
                "x-remote-group: h",
                "x-remote-user: alice",
            ]
        );
    }
}
