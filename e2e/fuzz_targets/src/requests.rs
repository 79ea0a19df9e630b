//! Requests: their first line means one thing, and whatever they are, they get a response and store
//! nothing in a dry run.

use bytes::Bytes;
use coracle_apimachinery::request::info::{RequestInfo, ResourceRequest, Verb};
use coracle_apimachinery::request::options::{DeleteOptions, ListOptions, Query, WriteKind, WriteOptions};
use coracle_apimachinery::{Error, Result};
use http::{Method, Request};
use http_body_util::BodyExt;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::server::server;

/// The longest body of a response that is read.
const MAX_RESPONSE: usize = 64 << 20;

/// Tests a method and a target: the canonical path of a request has the same meaning, and options
/// are parsed or refused by their type.
pub fn request_line(data: &[u8]) -> bool {
    let Ok(line) = std::str::from_utf8(data) else { return false };
    let Some((method, target)) = line.split_once(' ') else { return false };
    let Ok(method) = method.parse::<Method>() else { return false };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = Query::parse(query);
    options(&query);
    let RequestInfo::Resource(info) = RequestInfo::parse(&method, path, &query) else { return false };
    let printed = path_of(&info);
    let again = RequestInfo::parse(&method, &printed, &query);
    assert_eq!(again, RequestInfo::Resource(info), "{printed} is not {path}");
    true
}

/// Returns the canonical path of a request, percent-encoded.
fn path_of(info: &ResourceRequest) -> String {
    const NOT_IN_SEGMENTS: &AsciiSet = &CONTROLS.add(b'%').add(b' ').add(b'?').add(b'#');
    let mut path = match info.group.as_str() {
        "" => String::new(),
        _ => String::from("/apis"),
    };
    if info.group.is_empty() {
        path.push_str("/api");
    }
    let mut add = |segment: &str| {
        path.push('/');
        path.extend(utf8_percent_encode(segment, NOT_IN_SEGMENTS));
    };
    if !info.group.is_empty() {
        add(&info.group);
    }
    add(&info.version);
    if info.watch_prefix {
        add("watch");
    }
    if info.verb == Verb::Proxy {
        add("proxy");
    }
    if info.in_namespace {
        add("namespaces");
        add(&info.namespace);
    }
    add(&info.resource);
    if info.named {
        add(&info.name);
        if !info.subresource.is_empty() || info.extra_segments > 0 {
            add(&info.subresource);
        }
        (0..info.extra_segments).for_each(|_| add("x"));
    }
    // One slash at the end means nothing.
    path.push('/');
    path
}

/// Reads a query as the options of each verb.
fn options(query: &Query) {
    fn refused<T>(result: Result<T>) {
        let Err(error) = result else { return };
        assert!(matches!(error, Error::BadRequest(_) | Error::Invalid { .. }), "{error} ({})", error.code());
    }
    refused(query.timeout());
    refused(ListOptions::parse(query, false));
    refused(ListOptions::parse(query, true));
    for kind in [WriteKind::Create, WriteKind::Update, WriteKind::Patch, WriteKind::Apply] {
        refused(WriteOptions::parse(query, kind));
    }
    refused(DeleteOptions::from_query(query));
}

/// Tests a whole request: `METHOD TARGET`, headers, an empty line, the body. The server responds
/// without a panic; a JSON response is valid JSON; and as every write is a dry run, nothing is
/// stored.
pub fn request(data: &[u8]) -> bool {
    let (head, body) = match data.windows(2).position(|window| window == b"\n\n") {
        Some(end) => (&data[..end], &data[end + 2..]),
        None => (data, &b""[..]),
    };
    let Ok(head) = std::str::from_utf8(head) else { return false };
    let mut lines = head.lines();
    let Some((method, target)) = lines.next().and_then(|line| line.split_once(' ')) else { return false };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let options = Query::parse(query);
    // These wait for what does not come.
    if ["resourceVersion", "continue", "timeout", "timeoutSeconds"].iter().any(|name| options.has(name)) {
        return false;
    }
    let mut request = Request::builder().method(method).uri(format!("{path}?dryRun=All&{query}"));
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        request = request.header(name, value);
    }
    // The options of a deletion would be those of the body alone.
    let body = if method == "DELETE" { Bytes::new() } else { Bytes::copy_from_slice(body) };
    let Ok(request) = request.body(body) else { return false };
    let (is_write, info) =
        (!matches!(method, "GET" | "HEAD"), RequestInfo::parse(request.method(), path, &options));
    // A watch may never send another event.
    let is_watch = matches!(info, RequestInfo::Resource(info) if info.verb == Verb::Watch);
    let server = server();
    let before = server.registry().store.revision();
    server.runtime.block_on(async {
        let response = server.call(request).await;
        let status = response.status().as_u16();
        let is_json =
            response.headers().get("content-type").is_some_and(|media_type| media_type == "application/json");
        if !is_json || response.headers().contains_key("content-encoding") {
            assert!(status != 500 || is_write, "{status}");
            return status < 300;
        }
        let mut body = response.into_body();
        let mut text = Vec::new();
        while !is_watch && let Some(frame) = body.frame().await {
            text.extend(frame.expect("a body without errors").into_data().unwrap_or_default());
            assert!(text.len() <= MAX_RESPONSE, "a response of more than {MAX_RESPONSE} bytes");
        }
        let shown = String::from_utf8_lossy(&text);
        assert!(!shown.contains("caused apiserver to panic"), "{head}");
        for value in serde_json::Deserializer::from_slice(&text).into_iter::<serde_json::Value>() {
            value.unwrap_or_else(|error| panic!("{error}: {shown}"));
        }
        let after = server.registry().store.revision();
        assert_eq!(after, before, "a dry run stores nothing, {status}: {shown}");
        status < 300
    })
}
