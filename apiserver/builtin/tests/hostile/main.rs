//! Bodies of up to 3 MiB that cause as much work as possible. The server must respond to each of
//! them, successfully or not, within a bound.
//!
//! `cargo test -p coracle-builtin --release --test hostile -- --nocapture --test-threads 1` prints
//! the duration of each. A debug build, which takes twenty times as long, uses bodies of a
//! sixty-fourth of the size.
#![expect(clippy::disallowed_methods, reason = "a test waits and measures")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use coracle_apiserver_testing::{MERGE_PATCH, TestServer};
use http::Method;
use serde_json::json;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// A whole server, with a ServiceAccount for pods.
struct Server(TestServer);

impl Server {
    async fn start() -> Server {
        let server = Server(TestServer::start().await);
        let account = json!({"metadata": {"name": "default"}}).to_string();
        assert_eq!(server.send("v1", "serviceaccounts", None, JSON, account.into()).await, 201);
        server
    }

    /// Sends a POST, or a PUT if there is a name. Returns the status code.
    async fn send(
        &self,
        api_version: &str,
        plural: &str,
        name: Option<&str>,
        media_type: &str,
        body: Bytes,
    ) -> u16 {
        let method = if name.is_some() { Method::PUT } else { Method::POST };
        self.call(method, &self.path(api_version, plural, name), media_type, body).await
    }

    async fn patch(
        &self,
        api_version: &str,
        plural: &str,
        name: &str,
        media_type: &str,
        patch: &[u8],
    ) -> u16 {
        let path = self.path(api_version, plural, Some(name));
        self.call(Method::PATCH, &path, media_type, Bytes::copy_from_slice(patch)).await
    }

    async fn call(&self, method: Method, path: &str, media_type: &str, body: Bytes) -> u16 {
        let response = self.0.call(method, path, &[("content-type", media_type)], body).await;
        let code = response.status().as_u16();
        coracle_apiserver_testing::read(response).await;
        code
    }

    fn path(&self, api_version: &str, plural: &str, name: Option<&str>) -> String {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resources = self.0.resources.load();
        let info = resources.find(group, version, plural).expect(plural);
        let root = if group.is_empty() { "/api" } else { "/apis" };
        let namespace = if info.namespaced { "/namespaces/default" } else { "" };
        let name = name.map(|name| format!("/{name}")).unwrap_or_default();
        format!("{root}/{api_version}{namespace}/{plural}{name}")
    }
}

/// The reduction factor of all sizes.
const SCALE: usize = if cfg!(debug_assertions) { 64 } else { 1 };
const MAX_BYTES: usize = (3 << 20) / SCALE;
/// The time limit of one request, with other tests running.
const BOUND: Duration = Duration::from_secs(10);

/// Prints the duration of a request, and fails if it is too long.
async fn timed(case: &str, bytes: usize, request: impl Future<Output = u16>) -> u16 {
    assert!(bytes <= 3 << 20, "{case}: {bytes} bytes");
    let started = Instant::now();
    let code = request.await;
    let took = started.elapsed();
    let mark = if took > Duration::from_millis(200) { " <--" } else { "" };
    println!("{:>7.1} ms  {code}  {:>7} KiB  {case}{mark}", took.as_secs_f64() * 1e3, bytes >> 10);
    assert!(took < BOUND, "{case} took {took:?}");
    code
}

/// Returns as many items as fit, joined by commas.
fn many(most_bytes: usize, item: impl Fn(usize) -> String) -> String {
    joined(",", most_bytes / SCALE, usize::MAX, item)
}

fn joined(separator: &str, most_bytes: usize, most: usize, item: impl Fn(usize) -> String) -> String {
    let mut text = String::with_capacity(most_bytes);
    for i in 0..most {
        let item = item(i);
        if text.len() + separator.len() + item.len() > most_bytes {
            break;
        }
        if i > 0 {
            text.push_str(separator);
        }
        text.push_str(&item);
    }
    text
}

fn repeated(text: &str, count: usize) -> String {
    text.repeat(count / SCALE)
}

/// A line of the table of objects.
struct Object {
    case: String,
    api_version: &'static str,
    plural: &'static str,
    body: String,
}

fn objects() -> impl Iterator<Item = Object> {
    let lines = include_str!("objects.tsv").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [api_version, plural, count, case, frame, item] = columns[..] else { panic!("{line}") };
        let count = count.parse::<usize>().map_or(usize::MAX, |divisor| 14_000 / SCALE / divisor);
        // Texts are not lists.
        let separator = if frame.contains("\"ITEMS") { "" } else { "," };
        let items = joined(separator, MAX_BYTES - frame.len(), count, |i| {
            let (port, high, low) = (i % 65535 + 1, i >> 8 & 255, i & 255);
            let item = item.replace("#p", &port.to_string()).replace("#h", &high.to_string());
            item.replace("#l", &low.to_string()).replace('#', &i.to_string())
        });
        let body = frame.replacen("ITEMS", &items, 1);
        Object { case: format!("{plural}: {case}"), api_version, plural, body }
    })
}

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;

#[tokio::test]
async fn hostile_objects_are_answered_in_time() {
    for Object { case, api_version, plural, body } in objects() {
        // Each case has a server of its own, so that objects left by one do not affect the next.
        let server = Server::start().await;
        let name = if plural == "customresourcedefinitions" { "ps.a.b" } else { "p" };
        let send = |name, body: String| server.send(api_version, plural, name, JSON, body.into());
        let created = timed(&case, body.len(), send(None, body.clone())).await;
        if created >= 400 && plural == "pods" {
            // A rejected creation does not reach the rules for changes, so an object is created
            // first.
            assert_eq!(send(None, POD.to_owned()).await, 201, "a small pod");
        } else if created >= 400 {
            continue;
        }
        timed(&format!("{case}, PUT"), body.len(), send(Some(name), body.clone())).await;
        let changed = body.replace("\"i\"", "\"j\"").replace(":1}", ":2}").replace("\"k", "\"l");
        timed(&format!("{case}, PUT of others"), body.len(), send(Some(name), changed)).await;
    }
}

#[tokio::test]
async fn hostile_patches_are_answered_in_time() {
    let server = Server::start().await;
    let zeros = many(1 << 20, |_| "0".into());
    let revision = format!(
        r#"{{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{{"name":"r"}},"revision":1,"data":{{"l":[{zeros}]}}}}"#
    );
    let created = server.send("apps/v1", "controllerrevisions", None, JSON, revision.into()).await;
    assert_eq!(created, 201);
    let env = many(1 << 20, |i| format!(r#"{{"name":"A{i}","value":"x"}}"#));
    let deployment = format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"p"}},"spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},"template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{{"name":"c","image":"i","env":[{env}]}}]}}}}}}}}"#
    );
    assert_eq!(server.send("apps/v1", "deployments", None, JSON, deployment.into()).await, 201);
    assert_eq!(server.send("v1", "pods", None, JSON, POD.into()).await, 201);

    let operations = |count: usize, one: &dyn Fn(usize) -> String| {
        format!("[{}]", (0..count).map(one).collect::<Vec<_>>().join(","))
    };
    let env_patch = |inner: &str| {
        format!(r#"{{"spec":{{"template":{{"spec":{{"containers":[{{"name":"c",{inner}}}]}}}}}}}}"#)
    };
    for (case, plural, name, media_type, patch) in [
        (
            "inserts at the front",
            "controllerrevisions",
            "r",
            JSON_PATCH,
            operations(10_000, &|_| r#"{"op":"add","path":"/data/l/0","value":1}"#.into()),
        ),
        (
            "fewer inserts at the front",
            "controllerrevisions",
            "r",
            JSON_PATCH,
            operations(50, &|_| r#"{"op":"add","path":"/data/l/0","value":1}"#.into()),
        ),
        (
            "removals at the front",
            "controllerrevisions",
            "r",
            JSON_PATCH,
            operations(10_000, &|_| r#"{"op":"remove","path":"/data/l/0"}"#.into()),
        ),
        (
            "copies",
            "controllerrevisions",
            "r",
            JSON_PATCH,
            operations(10_000, &|i| format!(r#"{{"op":"copy","from":"/data/l","path":"/data/m{i}"}}"#)),
        ),
        (
            "moves",
            "controllerrevisions",
            "r",
            JSON_PATCH,
            operations(10_000, &|i| {
                format!(
                    r#"{{"op":"move","from":"/data/{}","path":"/data/{}"}}"#,
                    if i % 2 == 0 { "l" } else { "m" },
                    if i % 2 == 0 { "m" } else { "l" }
                )
            }),
        ),
        (
            "tests",
            "controllerrevisions",
            "r",
            JSON_PATCH,
            operations(10_000, &|_| r#"{"op":"test","path":"/data/l","value":[0,0,0]}"#.into()),
        ),
        (
            "a large value",
            "controllerrevisions",
            "r",
            JSON_PATCH,
            format!(r#"[{{"op":"add","path":"/data/x","value":[{}]}}]"#, many(3_145_000, |_| "0".into())),
        ),
        (
            "long paths",
            "controllerrevisions",
            "r",
            JSON_PATCH,
            format!(r#"[{{"op":"add","path":"{}","value":1}}]"#, repeated("/a", 1_500_000)),
        ),
        (
            "too many operations",
            "controllerrevisions",
            "r",
            JSON_PATCH,
            format!("[{}]", many(3_145_000, |_| "{}".into())),
        ),
        (
            "a large merge",
            "controllerrevisions",
            "r",
            MERGE_PATCH,
            format!(r#"{{"data":{{{}}}}}"#, many(3_145_000, |i| format!(r#""{i}":0"#))),
        ),
        (
            "removals",
            "controllerrevisions",
            "r",
            MERGE_PATCH,
            format!(r#"{{"data":{{{}}}}}"#, many(3_145_000, |i| format!(r#""{i}":null"#))),
        ),
        (
            "merged lists",
            "deployments",
            "p",
            STRATEGIC_PATCH,
            env_patch(&format!(
                r#""env":[{}]"#,
                many(2 << 20, |i| format!(r#"{{"name":"A{i}","value":"y"}}"#))
            )),
        ),
        (
            "lists of others",
            "deployments",
            "p",
            STRATEGIC_PATCH,
            env_patch(&format!(
                r#""env":[{}]"#,
                many(2 << 20, |i| format!(r#"{{"name":"B{i}","value":"y"}}"#))
            )),
        ),
        (
            "deletions",
            "deployments",
            "p",
            STRATEGIC_PATCH,
            env_patch(&format!(
                r#""env":[{}]"#,
                many(2 << 20, |i| format!(r#"{{"name":"A{i}","$patch":"delete"}}"#))
            )),
        ),
        (
            "an order",
            "deployments",
            "p",
            STRATEGIC_PATCH,
            env_patch(&format!(
                r#""$setElementOrder/env":[{}]"#,
                many(2 << 20, |i| format!(r#"{{"name":"A{i}"}}"#))
            )),
        ),
        (
            "an order and deletions",
            "deployments",
            "p",
            STRATEGIC_PATCH,
            env_patch(&format!(
                r#""$setElementOrder/env":[{}],"env":[{}]"#,
                many(1 << 20, |i| format!(r#"{{"name":"A{}"}}"#, i * 2)),
                many(1 << 20, |i| format!(r#"{{"name":"A{}","$patch":"delete"}}"#, i * 2 + 1))
            )),
        ),
        (
            "an empty order",
            "deployments",
            "p",
            STRATEGIC_PATCH,
            env_patch(&format!(
                r#""$setElementOrder/env":[],"env":[{}]"#,
                many(2 << 20, |i| format!(r#"{{"name":"C{i}"}}"#))
            )),
        ),
        (
            "retained keys",
            "deployments",
            "p",
            STRATEGIC_PATCH,
            format!(
                r#"{{"spec":{{"strategy":{{"$retainKeys":[{}]}}}}}}"#,
                many(3_145_000, |i| format!("\"{i}\""))
            ),
        ),
        (
            "primitives to delete",
            "deployments",
            "p",
            STRATEGIC_PATCH,
            format!(
                r#"{{"metadata":{{"$deleteFromPrimitiveList/finalizers":[{}]}}}}"#,
                many(3_145_000, |i| format!("\"{i}\""))
            ),
        ),
        (
            "another spec",
            "pods",
            "p",
            STRATEGIC_PATCH,
            format!(
                r#"{{"spec":{{"volumes":[{}]}}}}"#,
                many(2 << 20, |i| format!(r#"{{"name":"v{i}","emptyDir":null}}"#))
            ),
        ),
        (
            "environment",
            "pods",
            "p",
            STRATEGIC_PATCH,
            format!(
                r#"{{"spec":{{"containers":[{{"name":"c","env":[{}]}}]}}}}"#,
                many(2 << 20, |i| format!(r#"{{"name":"A{i}"}}"#))
            ),
        ),
        (
            "tolerations",
            "pods",
            "p",
            MERGE_PATCH,
            format!(
                r#"{{"spec":{{"tolerations":[{}]}}}}"#,
                many(2 << 20, |i| format!(r#"{{"key":"k{i}"}}"#))
            ),
        ),
    ] {
        let api_version = if plural == "pods" { "v1" } else { "apps/v1" };
        let request = server.patch(api_version, plural, name, media_type, patch.as_bytes());
        timed(&format!("{media_type}: {case}"), patch.len(), request).await;
    }
}

#[tokio::test]
async fn hostile_yaml_is_answered_in_time() {
    let server = Server::start().await;
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: p}\n";
    for (case, text) in [
        (
            "aliases of a long string",
            format!(
                "{head}a: &a {}\ndata: {{b: [{}]}}",
                repeated("x", 20_000),
                many(1 << 20, |_| "*a".into())
            ),
        ),
        (
            "aliases of aliases",
            format!(
                "{head}a: &a [{}]\nb: &b [{}]\nc: [{}]",
                many(1000, |_| "x".into()),
                many(1000, |_| "*a".into()),
                many(1000, |_| "*b".into())
            ),
        ),
        (
            "keys",
            format!(
                "{head}data:\n{}",
                (0..200_000 / SCALE).map(|i| format!("  k{i}: x\n")).collect::<String>()
            ),
        ),
        ("repeated keys", format!("{head}data:\n{}", repeated("  k: x\n", 400_000))),
        ("anchors", format!("{head}data: {{a: [{}]}}", many(3_145_000, |i| format!("&a{i} x")))),
        ("a flow of scalars", format!("{head}data: {{a: [{}]}}", many(3_145_000, |_| "x".into()))),
        (
            "a deep flow of scalars",
            format!("{head}data: {{a: {}{}", "[".repeat(100), many(900_000, |_| "x".into())),
        ),
        ("a block of scalars", format!("{head}data:\n{}", repeated("- x\n", 700_000))),
        ("a block of nothing", format!("{head}data:\n{}", repeated("- - - -\n", 380_000))),
        ("an unclosed string", format!("{head}data: \"{}", repeated("x\n", 1_500_000))),
        ("a folded string", format!("{head}data: {{k: \"{}\"}}", repeated("x\n\n", 1_000_000))),
        (
            "tags",
            format!(
                "%TAG !a! !{}\n---\n{head}data:\n{}",
                repeated("x", 1 << 20),
                repeated("- !a!x y\n", 200_000)
            ),
        ),
        (
            "directives",
            format!(
                "{}---\n{head}",
                (0..100_000 / SCALE).map(|i| format!("%TAG !a{i}! !x\n")).collect::<String>()
            ),
        ),
        ("comments", format!("{head}{}", repeated("# x\n", 700_000))),
        ("blanks", format!("{head}{}", repeated(" \n", 1_500_000))),
        ("documents", format!("{head}{}", repeated("---\na: 1\n", 300_000))),
        (
            "merges",
            format!(
                "{head}a: &a {{{}}}\ndata: {{<<: [{}]}}",
                many(1 << 20, |i| format!("k{i}: x")),
                many(1 << 20, |_| "*a".into())
            ),
        ),
        ("question marks", format!("{head}data:\n{}", repeated("  ? x\n", 400_000))),
        ("long lines of spaces", format!("{head}data:{}x", repeated(" ", 3_000_000))),
    ] {
        let bytes = Bytes::from(text);
        let size = bytes.len();
        let request = server.send("v1", "configmaps", Some("p"), YAML, bytes);
        timed(&format!("YAML: {case}"), size, request).await;
    }
}
