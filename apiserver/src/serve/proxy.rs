//! Requests that another server responds to: those for aggregated APIs, with the user in headers
//! that the front proxy's certificate vouches for, and those for the HTTP servers that pods and
//! services stand for.
//!
//! Responses are passed on as they come, watches too. A connection that switches protocols (to
//! WebSocket or SPDY) becomes a tunnel to the other server, once that has accepted the handshake.
//!
//! Source: kube-aggregator's `handler_proxy.go`; apimachinery's `proxy.UpgradeAwareHandler` and
//! `proxy.Transport`. Links in pages of HTML are not rewritten.

use std::net::IpAddr;

use bytes::Bytes;
use futures::StreamExt;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::upgrade::OnUpgrade;
use tokio::sync::watch;

use super::exchange::{AUDIT_ID, RequestContext};
use super::tunnel::tunnel;
use super::{Body, respond, upgrade};
use crate::access::UserInfo;
use crate::access::websocket_token::protocols;
use crate::aggregator::RemoteApi;
use crate::registry::Registry;
use crate::webhook::{Destination, client_error};
use crate::{Error, Result};

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
    // A response that the other server compressed could not be compressed again for the client,
    // which may accept another encoding.
    header::ACCEPT_ENCODING,
];

/// Responds to a request for an aggregated API.
///
/// - `remote`: the address of the client, where there is a socket.
/// - `closing`: turns true when tunnels have to end.
pub async fn respond(
    registry: &Registry,
    api: &RemoteApi,
    context: &RequestContext,
    user: &UserInfo,
    remote: Option<IpAddr>,
    body: Bytes,
    closing: &watch::Receiver<bool>,
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
    add_origin(request.headers_mut(), context, remote);
    let upgrade = upgrade_of(parts);
    if upgrade.is_some() {
        ask_for_upgrade(request.headers_mut(), &parts.headers);
    }
    if let Err(name) = add_user(request.headers_mut(), user) {
        return respond::plain(
            500,
            "text/plain; charset=utf-8",
            format!("{name} cannot be passed on\n").into(),
        );
    }
    match client.request(request).await {
        // A client would send its credentials where another server leads it.
        Ok(response)
            if response.status().is_redirection()
                && response.headers().get(header::LOCATION).is_some_and(|location| !location.is_empty()) =>
        {
            let text = "the backend attempted to redirect this request, which is not permitted";
            respond::plain(502, "text/plain; charset=utf-8", text.into())
        }
        Ok(response) => relay(response, upgrade, closing)
            .unwrap_or_else(|| unavailable("the server switched protocols although nobody asked for it")),
        Err(error) => unavailable(&format!("error trying to reach service: {}", client_error(&error))),
    }
}

/// An HTTP server that an object stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Its addresses.
    pub destination: Destination,
    /// Whether the endpoint uses TLS. Its certificate is not verified.
    pub is_tls: bool,
    /// The host and port by which clients know it.
    pub host: String,
}

/// Passes a request on.
///
/// - `path`: the path at the other server
/// - `closing`: turns true when tunnels have to end
///
/// # Errors
/// 503 if there is no response.
pub async fn request_upstream(
    registry: &Registry,
    upstream: &Upstream,
    parts: &Parts,
    path: &str,
    body: Bytes,
    closing: &watch::Receiver<bool>,
) -> Result<Response<Body>> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::ServiceUnavailable(format!("error trying to reach service: {error}"))
    };
    let prefix = parts.uri.path().strip_suffix(path).unwrap_or_default();
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let reads = parts.method == Method::GET || parts.method == Method::HEAD;
    if path.is_empty() && reads && upgrade_of(parts).is_none() {
        // Relative links of the page would lead elsewhere.
        let location = HeaderValue::from_str(&format!("{prefix}/{query}")).map_err(|error| failed(&error))?;
        let mut redirect = Response::new(Body::empty());
        *redirect.status_mut() = StatusCode::MOVED_PERMANENTLY;
        redirect.headers_mut().insert(header::LOCATION, location);
        return Ok(redirect);
    }
    let scheme = if upstream.is_tls { "https" } else { "http" };
    let url = format!("{scheme}://{}{}{query}", upstream.host, if path.is_empty() { "/" } else { path });
    let request = Request::builder().method(&parts.method).uri(url).body(Full::new(body));
    let mut request = request.map_err(|error| failed(&error))?;
    *request.headers_mut() = passed_on(&parts.headers);
    // The client's address is not passed on, and its own claim is not trusted.
    request.headers_mut().remove("x-forwarded-for");
    let uri = HeaderValue::from_str(parts.uri.path()).map_err(|error| failed(&error))?;
    request.headers_mut().insert("x-forwarded-uri", uri);
    if let Some(host) = parts.headers.get(header::HOST) {
        request.headers_mut().insert("x-forwarded-host", host.clone());
        // As `UpgradeAwareHandler` without `UseLocationHost`.
        request.headers_mut().insert(header::HOST, host.clone());
    }
    let upgrade = upgrade_of(parts);
    if upgrade.is_some() {
        ask_for_upgrade(request.headers_mut(), &parts.headers);
    }
    let client = registry.webhook_clients().address_client(&upstream.destination, upstream.is_tls);
    let client = client.map_err(|error| failed(&error))?;
    let response = client.request(request).await.map_err(|error| failed(&client_error(&error)))?;
    let response = relay(response, upgrade, closing);
    let mut response =
        response.ok_or_else(|| failed(&"the server switched protocols although nobody asked for it"))?;
    let location = response.headers().get(header::LOCATION).and_then(|location| location.to_str().ok());
    if let Some(location) = location.and_then(|location| proxied_location(prefix, location, upstream)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Returns a location of another server as clients reach it through this one; None if it needs no
/// change.
fn proxied_location(prefix: &str, location: &str, upstream: &Upstream) -> Option<HeaderValue> {
    let uri: http::Uri = location.parse().ok()?;
    let mut addresses = upstream.destination.addresses.iter();
    let is_own = uri.authority().is_none_or(|authority| {
        authority == upstream.host.as_str()
            || addresses.any(|address| authority == address.to_string().as_str())
    });
    let path = uri.path_and_query()?.as_str();
    let is_path = path.starts_with('/') && !path.starts_with(prefix);
    HeaderValue::from_str(&format!("{prefix}{path}")).ok().filter(|_| is_own && is_path)
}

/// Returns the response of another server for the client; None if that server switched protocols
/// without a request of the client.
///
/// - `upgrade`: the connection of a client that requested another protocol
fn relay(
    mut response: Response<hyper::body::Incoming>,
    upgrade: Option<OnUpgrade>,
    closing: &watch::Receiver<bool>,
) -> Option<Response<Body>> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let far = hyper::upgrade::on(&mut response);
        let mut headers = passed_on(response.headers());
        keep_upgrade(&mut headers, response.headers());
        return Some(upgrade::switch(upgrade?, headers, tunnel(far), closing.clone()));
    }
    let (head, body) = response.into_parts();
    let chunks = body.into_data_stream().take_while(|chunk| std::future::ready(chunk.is_ok()));
    let chunks = chunks.filter_map(|chunk| std::future::ready(chunk.ok()));
    let mut response = Response::new(Body::stream(chunks));
    *response.status_mut() = head.status;
    *response.headers_mut() = passed_on(&head.headers);
    // A client sees by it that a response was broken off.
    if let Some(length) = head.headers.get(header::CONTENT_LENGTH) {
        response.headers_mut().insert(header::CONTENT_LENGTH, length.clone());
    }
    Some(response)
}

fn unavailable(text: &str) -> Response<Body> {
    respond::plain(503, "text/plain; charset=utf-8", format!("{text}\n").into())
}

/// Returns the headers that are passed on. A client cannot name a user by headers, and
/// impersonation has taken place already.
fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let names_a_user = |name: &str| name.starts_with("x-remote-") || name.starts_with("impersonate-");
    // Headers that the sender names in `Connection` are hop-by-hop too.
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<&str> = named.flat_map(|value| value.split(',')).map(str::trim).collect();
    let is_passed_on = |name: &HeaderName| {
        !NOT_PASSED_ON.contains(name)
            && name != "keep-alive"
            && !names_a_user(name.as_str())
            && !named.iter().any(|known| known.eq_ignore_ascii_case(name.as_str()))
    };
    let headers = headers.iter().filter(|(name, _)| is_passed_on(name));
    headers.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns the connection of a request for another protocol; None over HTTP/2 and in process.
fn upgrade_of(parts: &Parts) -> Option<OnUpgrade> {
    let mut connection = parts.headers.get_all(header::CONNECTION).iter();
    let asks = connection
        .any(|value| value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains("upgrade")));
    let upgrade = parts.extensions.get::<OnUpgrade>().cloned();
    upgrade.filter(|_| asks && parts.headers.contains_key(header::UPGRADE))
}

/// Copies the headers of a handshake as the client sent them. The other server does not see the
/// client's token.
fn ask_for_upgrade(headers: &mut HeaderMap, asked: &HeaderMap) {
    keep_upgrade(headers, asked);
    if headers.remove(header::SEC_WEBSOCKET_PROTOCOL).is_some()
        && let Ok(offered) = HeaderValue::from_str(&protocols(asked).join(", "))
        && !offered.is_empty()
    {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, offered);
    }
}

fn keep_upgrade(headers: &mut HeaderMap, from: &HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(protocol) = from.get(header::UPGRADE) {
        headers.insert(header::UPGRADE, protocol.clone());
    }
}

/// Adds the headers by which the other server sees where a request comes from, and the id of its
/// audit event.
///
/// - `remote`: the address of the client, where there is a socket.
///
/// Source: `NewRequestForProxy` of k8s.io/apiserver, `proxy.Transport` of apimachinery, and
/// `net/http/httputil`.
fn add_origin(headers: &mut HeaderMap, context: &RequestContext, remote: Option<IpAddr>) {
    const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
    headers.insert(AUDIT_ID, context.audit_id.clone());
    if let Ok(path) = HeaderValue::from_str(context.parts.uri.path()) {
        headers.insert(HeaderName::from_static("x-forwarded-uri"), path);
    }
    let scheme = HeaderValue::from_static("https");
    headers.insert(HeaderName::from_static("x-forwarded-proto"), scheme);
    let Some(remote) = remote else { return };
    let prior = headers.get_all(&FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let chain: Vec<String> = prior.map(str::to_owned).chain([remote.to_canonical().to_string()]).collect();
    if let Ok(chain) = HeaderValue::from_str(&chain.join(", ")) {
        headers.insert(FORWARDED_FOR, chain);
    }
}

/// Adds the headers that name the user.
///
/// # Errors
/// The name of a header that would name another user: its value has characters that no header has,
/// or white space at its ends, which the other server would remove.
fn add_user(headers: &mut HeaderMap, user: &UserInfo) -> std::result::Result<(), String> {
    let mut add = |name: &str, value: &str| -> std::result::Result<(), String> {
        let is_kept = value.trim_matches([' ', '\t']) == value;
        let header = HeaderName::from_bytes(name.as_bytes()).ok();
        let header = header.zip(HeaderValue::from_bytes(value.as_bytes()).ok()).filter(|_| is_kept);
        let (name, value) = header.ok_or_else(|| name.to_owned())?;
        headers.append(name, value);
        Ok(())
    };
    add("x-remote-user", &user.name)?;
    if !user.uid.is_empty() {
        add("x-remote-uid", &user.uid)?;
    }
    for group in &user.groups {
        add("x-remote-group", group)?;
    }
    for (key, values) in &user.extra {
        let key = escape(key);
        for value in values {
            add(&format!("x-remote-extra-{key}"), value)?;
        }
    }
    Ok(())
}

/// Returns a key of a user's extra as part of a header's name. Characters that are invalid there
/// are percent-encoded.
fn escape(key: &str) -> String {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    key.bytes()
        .map(|byte| if is_token(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::testing;

    #[test]
    fn handshakes_are_passed_on_without_the_token() {
        let mut asked = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "abc"),
            ("sec-websocket-protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.YQ"),
        ] {
            asked.insert(name, HeaderValue::from_static(value));
        }
        let mut headers = passed_on(&asked);
        ask_for_upgrade(&mut headers, &asked);
        for (name, want) in [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "abc"),
            ("sec-websocket-protocol", "v5.channel.k8s.io"),
        ] {
            assert_eq!(headers.get(name).and_then(|value| value.to_str().ok()), Some(want), "{name}");
        }
    }

    #[test]
    fn requests_show_where_they_come_from() {
        let context = testing::received("GET", "/apis/x/v1/a?b=c", &[("audit-id", "id")]).context;
        for (prior, remote, want) in [
            (&[][..], None, None),
            (&[], Some("192.0.2.7"), Some("192.0.2.7")),
            (&[], Some("::ffff:192.0.2.7"), Some("192.0.2.7")),
            (&["a", "b, c"], Some("2001:db8::7"), Some("a, b, c, 2001:db8::7")),
            (&["a"], None, Some("a")),
        ] {
            let mut headers = HeaderMap::new();
            for value in prior {
                headers.append("x-forwarded-for", HeaderValue::from_static(value));
            }
            add_origin(&mut headers, &context, remote.map(|text| text.parse().expect("an address")));
            let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
            assert_eq!(text("x-forwarded-for"), want);
            assert_eq!(text("x-forwarded-uri"), Some("/apis/x/v1/a"));
            assert_eq!(text("x-forwarded-proto"), Some("https"));
            assert_eq!(text("audit-id"), Some("id"));
        }
    }

    #[test]
    fn a_user_whom_headers_would_change_is_not_passed_on() {
        for (name, group, want) in [
            ("jürgen", "devs", None),
            (" alice", "devs", Some("x-remote-user")),
            ("alice", "system:masters ", Some("x-remote-group")),
            ("alice", "devs\nx-remote-group: system:masters", Some("x-remote-group")),
        ] {
            let refused = add_user(&mut HeaderMap::new(), &UserInfo::new(name, &[group])).err();
            assert_eq!(refused.as_deref(), want, "{name:?} {group:?}");
        }
    }

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
        add_user(&mut headers, &user).expect("passed on");
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
