//! The live page below `/ui/`: who reaches it, its headers, and the data that it reads.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle::ControlPlane;
use coracle_e2e::http::{Connection, Endpoint, HttpResponse};
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::{binary, cluster, workloads};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use kube::config::{AuthInfo, Kubeconfig};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PICTURE: &str = "/ui/data/picture";
/// The time in which a line of a stream comes.
const DEADLINE: Duration = Duration::from_secs(20);

type Headers<'a> = [(&'a str, Option<&'a str>)];

/// Returns the server's endpoints for an administrator and for an anonymous user.
async fn endpoints(control_plane: &ControlPlane) -> Result<(Endpoint, Endpoint)> {
    let kubeconfig = Kubeconfig::from_yaml(&control_plane.kubeconfig())?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    let admin = Endpoint::new(&config)?;
    config.auth_info = AuthInfo::default();
    Ok((admin, Endpoint::new(&config)?))
}

async fn start() -> Result<ControlPlane> {
    Ok(ControlPlane::builder().ephemeral().nodes(0).start().await?)
}

async fn get(connection: &mut Connection, path: &str, headers: &Headers<'_>) -> Result<HttpResponse> {
    connection.call("GET", path, headers, None).await
}

/// Returns the path of a link.
fn path_of(link: &str) -> Result<&str> {
    Ok(&link[link.find("/ui/").context("a path")?..])
}

/// Exchanges a link for a cookie, as a browser sends it.
async fn log_in(connection: &mut Connection, control_plane: &ControlPlane) -> Result<String> {
    let link = control_plane.page_link().context("a link")?;
    let response = get(connection, path_of(&link)?, &[]).await?;
    ensure!(response.status == 303 && response.headers["location"] == "./", "{response:?}");
    let cookie = response.headers["set-cookie"].to_str()?;
    ensure!(cookie.contains("; Secure; HttpOnly; SameSite=Strict"), "{cookie}");
    Ok(cookie.split(';').next().unwrap_or_default().to_owned())
}

/// Returns the next line of a stream that has changes of nodes.
async fn next_change(stream: &mut Response<Incoming>, rest: &mut Vec<u8>) -> Result<Value> {
    loop {
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let change: Value = serde_json::from_slice(&line)?;
            let is_empty = |member: &str| change[member].as_array().is_none_or(Vec::is_empty);
            if !is_empty("changed") || !is_empty("deleted") {
                return Ok(change);
            }
        }
        let frame = tokio::time::timeout(DEADLINE, stream.body_mut().frame()).await?;
        let frame = frame.context("the stream ended")??;
        rest.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new()));
    }
}

fn node<'a>(picture: &'a Value, kind: &str, name: &str) -> Option<&'a Value> {
    let nodes = picture["objects"].as_array().or(picture["changed"].as_array())?;
    nodes.iter().find(|node| node["kind"] == kind && node["name"] == name)
}

#[tokio::test]
async fn the_page_is_for_administrators_and_for_browsers_with_a_link() -> Result<()> {
    let control_plane = start().await?;
    let (admin, nobody) = endpoints(&control_plane).await?;
    let (mut admin, mut browser) = (admin.connect().await?, nobody.connect().await?);
    let cookie = log_in(&mut browser, &control_plane).await?;
    let with_cookie = ("cookie", Some(cookie.as_str()));
    for (path, headers, want) in [
        ("/ui/", vec![with_cookie], 200),
        ("/ui", vec![with_cookie], 303),
        ("/ui/app.js", vec![with_cookie], 200),
        (PICTURE, vec![with_cookie], 200),
        ("/ui/nothing.js", vec![with_cookie], 404),
        ("/ui/data/nothing", vec![with_cookie], 404),
        ("/ui/..%2fCargo.toml", vec![with_cookie], 403),
        // Without the cookie, or with a wrong one.
        ("/ui/", vec![], 403),
        (PICTURE, vec![], 403),
        (PICTURE, vec![("cookie", Some("__Host-coracle-ui-1=x"))], 403),
        // Nothing else by the cookie.
        ("/api/v1/secrets", vec![with_cookie], 403),
        ("/api/v1/namespaces/default/pods", vec![with_cookie], 403),
        ("/coracle/v1alpha1/clock", vec![with_cookie], 403),
        ("/metrics", vec![with_cookie], 403),
        // Web pages of others, rebound names.
        (PICTURE, vec![with_cookie, ("origin", Some("https://evil.example"))], 403),
        (PICTURE, vec![with_cookie, ("sec-fetch-site", Some("cross-site"))], 403),
        (PICTURE, vec![with_cookie, ("sec-fetch-site", Some("same-site"))], 403),
        (PICTURE, vec![with_cookie, ("sec-fetch-site", Some("same-origin"))], 200),
        (PICTURE, vec![with_cookie, ("host", Some("rebound.example"))], 403),
        // An invalid bearer token does not become a cookie's user.
        (PICTURE, vec![with_cookie, ("authorization", Some("Bearer x"))], 401),
    ] {
        let response = get(&mut browser, path, &headers).await?;
        ensure!(response.status == want, "{path} {headers:?}: {}", response.status);
    }
    for (path, headers, want) in [
        ("/ui/", vec![], 200),
        (PICTURE, vec![], 200),
        (PICTURE, vec![("impersonate-user", Some("dev"))], 403),
        (PICTURE, vec![("origin", Some("https://evil.example"))], 403),
    ] {
        let response = get(&mut admin, path, &headers).await?;
        ensure!(response.status == want, "admin {path} {headers:?}: {}", response.status);
    }
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let response = browser.call(method, PICTURE, &[with_cookie], None).await?;
        ensure!(response.status == 403, "{method} with the cookie: {}", response.status);
        let response = admin.call(method, PICTURE, &[], None).await?;
        ensure!(response.status == 405, "{method}: {}", response.status);
    }
    Ok(())
}

#[tokio::test]
async fn a_link_works_once() -> Result<()> {
    let control_plane = start().await?;
    let (_, nobody) = endpoints(&control_plane).await?;
    let mut browser = nobody.connect().await?;
    let link = control_plane.page_link().context("a link")?;
    let path = path_of(&link)?;
    let head = browser.call("HEAD", path, &[], None).await?;
    ensure!(head.status == 404, "a HEAD uses nothing up: {}", head.status);
    ensure!(get(&mut browser, path, &[]).await?.status == 303);
    for path in [path, "/ui/login?token=", "/ui/login", "/ui/login?token=AAAA"] {
        let response = get(&mut browser, path, &[]).await?;
        ensure!(response.status == 403 && !response.headers.contains_key("set-cookie"), "{path}");
        let text = String::from_utf8_lossy(&response.body).into_owned();
        ensure!(text.contains("system:anonymous"), "{path}: {text}");
    }
    // A user who may see the page gets instructions.
    let cookie = log_in(&mut browser, &control_plane).await?;
    let response = get(&mut browser, path, &[("cookie", Some(&cookie))]).await?;
    let text = String::from_utf8_lossy(&response.body).into_owned();
    ensure!(response.status == 403 && text.contains("This link is not valid"), "{text}");
    // A request that another site causes does not use a link up.
    let link = control_plane.page_link().context("a link")?;
    let foreign = [("sec-fetch-site", Some("cross-site"))];
    ensure!(get(&mut browser, path_of(&link)?, &foreign).await?.status == 403);
    ensure!(get(&mut browser, path_of(&link)?, &[]).await?.status == 303);
    // Of another server, and of a fork.
    let (other, fork) = (start().await?, control_plane.fork().await?);
    for other in [&other, &fork] {
        let (_, nobody) = endpoints(other).await?;
        let mut elsewhere = nobody.connect().await?;
        let link = control_plane.page_link().context("a link")?;
        ensure!(get(&mut elsewhere, path_of(&link)?, &[]).await?.status == 403);
        let cookie = log_in(&mut elsewhere, other).await?;
        ensure!(get(&mut elsewhere, PICTURE, &[("cookie", Some(&cookie))]).await?.status == 200);
        ensure!(get(&mut browser, PICTURE, &[("cookie", Some(&cookie))]).await?.status == 403);
    }
    Ok(())
}

#[tokio::test]
async fn responses_forbid_everything_that_the_page_does_not_need() -> Result<()> {
    let control_plane = start().await?;
    let mut admin = endpoints(&control_plane).await?.0.connect().await?;
    for (path, content_type, cache) in [
        ("/ui/", "text/html; charset=utf-8", "no-cache"),
        ("/ui/app.js", "text/javascript; charset=utf-8", "no-cache"),
        ("/ui/style.css", "text/css; charset=utf-8", "no-cache"),
        ("/ui/icon.svg", "image/svg+xml", "no-cache"),
        (PICTURE, "application/json", "no-store"),
    ] {
        let response = get(&mut admin, path, &[]).await?;
        let header =
            |name: &str| response.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
        ensure!(header("content-type") == content_type && header("cache-control") == cache, "{response:?}");
        let policy = header("content-security-policy");
        ensure!(
            policy.starts_with("default-src 'none'; script-src 'self'; ") && !policy.contains("unsafe"),
            "{policy}"
        );
        ensure!(
            policy.contains("frame-ancestors 'none'") && policy.contains("form-action 'none'"),
            "{policy}"
        );
        ensure!(header("x-content-type-options") == "nosniff" && header("referrer-policy") == "no-referrer");
        ensure!(header("cross-origin-opener-policy") == "same-origin");
        if let Some(etag) = response.headers.get("etag").and_then(|etag| etag.to_str().ok()) {
            let again = get(&mut admin, path, &[("if-none-match", Some(etag))]).await?;
            ensure!(again.status == 304 && again.body.is_empty(), "{path}: {}", again.status);
        }
    }
    // Kubernetes' clients do not see it.
    let root = get(&mut admin, "/", &[]).await?;
    ensure!(!String::from_utf8_lossy(&root.body).contains("/ui"));
    Ok(())
}

#[tokio::test]
async fn it_is_turned_off_with_the_testing_api() -> Result<()> {
    let control_plane = ControlPlane::builder().ephemeral().nodes(0).testing_api(false).start().await?;
    ensure!(control_plane.page_link().is_none());
    let (admin, nobody) = endpoints(&control_plane).await?;
    for path in ["/ui", "/ui/", "/ui/app.js", PICTURE, "/ui/login?token=x"] {
        let status = get(&mut admin.connect().await?, path, &[]).await?.status;
        ensure!(status == 404, "{path}: {status}");
        let status = get(&mut nobody.connect().await?, path, &[]).await?.status;
        ensure!(status == 403, "{path} as nobody: {status}");
    }
    Ok(())
}

#[tokio::test]
async fn a_picture_is_exact_at_each_revision() -> Result<()> {
    let control_plane = start().await?;
    let admin = endpoints(&control_plane).await?.0;
    let mut client = JsonClient::new(&admin).await?;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    let created = client.create(CONFIG_MAPS, held).await?;
    let terminating = client.delete(&format!("{CONFIG_MAPS}/held")).await?;
    let path = format!("{CONFIG_MAPS}/held");
    client.patch(&path, json!({"metadata": {"finalizers": null}})).await?;
    client.until_deleted(&path).await?;
    let revision = |object: &Value| -> Result<u64> {
        Ok(object["metadata"]["resourceVersion"].as_str().context("a revision")?.parse()?)
    };
    let (created, terminating) = (revision(&created)?, revision(&terminating)?);
    for (at, want) in [(created - 1, None), (created, Some("ready")), (terminating, Some("terminating"))] {
        let picture = client.get(&format!("{PICTURE}?at={at}")).await?;
        ensure!(picture["resourceVersion"] == json!(at.to_string()), "{at}");
        let node = node(&picture, "ConfigMap", "held");
        ensure!(node.and_then(|node| node["state"].as_str()) == want, "{at}: {node:?}");
    }
    let now = client.get(PICTURE).await?;
    ensure!(node(&now, "ConfigMap", "held").is_none() && now["isTruncated"] == false, "{now}");
    // The object itself, and its explanation, at that moment too.
    let query = format!("resource=configmaps&namespace=default&name=held&at={terminating}");
    let object = client.get(&format!("/ui/data/object?{query}")).await?;
    ensure!(object["object"]["metadata"]["deletionTimestamp"].is_string(), "{object}");
    let why = client.get(&format!("/ui/data/why?{query}")).await?;
    ensure!(why["answers"][0]["question"] == "present", "{why}");
    for (path, want) in [
        (format!("{PICTURE}?at=99999999"), 410),
        (format!("{PICTURE}?at=x"), 422),
        (format!("{PICTURE}?watch=1&since=99999999"), 410),
        ("/ui/data/object?resource=configmaps&name=held".to_owned(), 404),
        ("/ui/data/object?resource=nothing&name=held".to_owned(), 404),
        ("/ui/data/object".to_owned(), 422),
    ] {
        let (status, answer) = client.send("GET", &path, None).await?;
        ensure!(status == want, "{path}: {status} {answer}");
    }
    Ok(())
}

#[tokio::test]
async fn one_stream_has_the_changes_of_all_objects() -> Result<()> {
    let control_plane = start().await?;
    let admin = endpoints(&control_plane).await?.0;
    let mut client = JsonClient::new(&admin).await?;
    let picture = client.get(PICTURE).await?;
    let since = picture["resourceVersion"].as_str().context("a revision")?;
    let mut connection = admin.connect().await?;
    let path = format!("{PICTURE}?watch=1&since={since}");
    let mut stream = connection.open("GET", &path, &[], None).await?;
    ensure!(stream.status() == 200, "{stream:?}");
    let (mut rest, created) =
        (Vec::new(), client.create(CONFIG_MAPS, json!({"metadata": {"name": "a"}})).await?);
    let uid = &created["metadata"]["uid"];
    let change = next_change(&mut stream, &mut rest).await?;
    let found = node(&change, "ConfigMap", "a").context("the new object")?;
    ensure!(&found["uid"] == uid && found["state"] == "ready", "{change}");
    // A state that follows from another object's.
    let pods = "/api/v1/namespaces/default/pods";
    let metadata = json!({"name": "p", "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": uid}]});
    client
        .create(pods, json!({"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "c"}]}}))
        .await?;
    loop {
        let change = next_change(&mut stream, &mut rest).await?;
        if let Some(pod) = node(&change, "Pod", "p") {
            ensure!(&pod["owners"][0] == uid, "{change}");
            break;
        }
    }
    client.delete(&format!("{CONFIG_MAPS}/a")).await?;
    loop {
        let change = next_change(&mut stream, &mut rest).await?;
        if change["deleted"].as_array().is_some_and(|deleted| deleted.contains(uid)) {
            return Ok(());
        }
    }
}

#[tokio::test]
async fn streams_are_bounded_and_end_with_the_server() -> Result<()> {
    let control_plane = start().await?;
    let admin = endpoints(&control_plane).await?.0;
    let mut streams = Vec::new();
    let path = format!("{PICTURE}?watch=1");
    for _ in 0..16 {
        let mut connection = admin.connect().await?;
        let stream = connection.open("GET", &path, &[], None).await?;
        ensure!(stream.status() == 200, "{stream:?}");
        streams.push((connection, stream));
    }
    let mut one_more = admin.connect().await?;
    ensure!(get(&mut one_more, &path, &[]).await?.status == 429);
    // A page that is closed makes place for another one.
    drop(streams.pop());
    let began = std::time::Instant::now();
    loop {
        let response = one_more.open("GET", &path, &[], None).await?;
        if response.status() == 200 {
            break;
        }
        response.into_body().collect().await?;
        ensure!(began.elapsed() < DEADLINE, "the place is not free");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::timeout(DEADLINE, control_plane.shutdown()).await??;
    Ok(())
}

#[tokio::test]
async fn secrets_never_reach_the_page() -> Result<()> {
    let control_plane = start().await?;
    let mut client = JsonClient::new(&endpoints(&control_plane).await?.0).await?;
    let applied = "kubectl.kubernetes.io/last-applied-configuration";
    let annotations = json!({applied: "hunter2", "kapp.k14s.io/original": "hunter2"});
    let secret =
        json!({"metadata": {"name": "s", "annotations": annotations}, "stringData": {"password": "hunter2"}});
    let secrets = "/api/v1/namespaces/default/secrets";
    client.create(secrets, secret).await?;
    client
        .patch(&format!("{secrets}/s"), json!({"stringData": {"password": "hunter22", "more": "hunter2"}}))
        .await?;
    let object = "resource=secrets&namespace=default&name=s";
    for path in [
        PICTURE.to_owned(),
        format!("/ui/data/object?{object}"),
        format!("/ui/data/log?{object}&diff=true"),
        format!("/ui/data/why?{object}"),
        "/ui/data/log?diff=true".to_owned(),
    ] {
        let text = client.get(&path).await?.to_string();
        ensure!(!text.contains("hunter2") && !text.contains("aHVudGVyM"), "{path}: {text}");
    }
    let log = client.get(&format!("/ui/data/log?{object}&diff=true")).await?;
    let fields = log["entries"][0]["fields"].as_array().context("fields")?;
    ensure!(fields.iter().any(|field| field["path"] == ".data.more"), "{log}");
    let shown = client.get(&format!("/ui/data/object?{object}")).await?;
    ensure!(shown["object"]["data"]["password"] == "(redacted)", "{shown}");
    Ok(())
}

#[tokio::test]
async fn a_claim_in_use_is_drawn_with_what_it_waits_for() -> Result<()> {
    let cluster = cluster::cluster().with_service_account().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let labels = json!({"app": "web"});
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let mount =
        json!([{"name": "app", "image": "app", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]);
    let set = json!({"metadata": {"name": "web"}, "spec": {"replicas": 1, "serviceName": "web", "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": mount}}, "volumeClaimTemplates": [claim]}});
    let sets = workloads::apps("default", "statefulsets");
    client.create(&sets, set).await?;
    client.until(&format!("{sets}/web"), |set| set["status"]["readyReplicas"] == 1).await?;
    client.delete("/api/v1/namespaces/default/persistentvolumeclaims/data-web-0").await?;
    cluster.settle().await?;
    let picture = client.get(PICTURE).await?;
    let find = |kind: &str, name: &str| node(&picture, kind, name).context(format!("{kind} {name}"));
    let (set, pod, claim) =
        (find("StatefulSet", "web")?, find("Pod", "web-0")?, find("PersistentVolumeClaim", "data-web-0")?);
    ensure!(pod["owners"][0] == set["uid"] && pod["state"] == "ready", "{pod}");
    ensure!(claim["state"] == "terminating" && claim["blockedBy"] == json!([pod["uid"]]), "{claim}");
    ensure!(claim["finalizers"] == json!(["kubernetes.io/pvc-protection"]), "{claim}");
    ensure!(pod["edges"][0] == json!({"type": "claim", "to": claim["uid"]}), "{pod}");
    let events =
        client.get(&format!("/ui/data/events?uid={}", pod["uid"].as_str().unwrap_or_default())).await?;
    let events = events["events"].as_array().context("Events")?;
    ensure!(!events.is_empty() && events.iter().all(|event| event["name"] == "web-0"), "{events:?}");
    let log = client.get("/ui/data/log?resource=pods&namespace=default&name=web-0&diff=true").await?;
    ensure!(log["entries"].as_array().is_some_and(|entries| entries.len() > 1), "{log}");
    Ok(())
}

/// Returns the beginning of the response to a request over plain HTTP.
async fn status_of(address: &str, request: &str) -> Result<String> {
    let mut socket = TcpStream::connect(address).await?;
    socket.write_all(request.as_bytes()).await?;
    let mut line = String::new();
    tokio::time::timeout(DEADLINE, BufReader::new(socket).read_line(&mut line)).await??;
    Ok(line.split(' ').nth(1).unwrap_or_default().to_owned())
}

#[tokio::test]
async fn coracle_ui_passes_on_gets_of_the_page_below_a_secret_path_alone() -> Result<()> {
    let cluster = cluster::cluster().flag("--nodes", "0").start().await?;
    let mut command = Command::new(binary::coracle());
    command.args(["ui", "--no-browser", "--kubeconfig"]).arg(cluster.kubeconfig()).kill_on_drop(true);
    let mut ui = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut link = String::new();
    BufReader::new(ui.stdout.take().context("standard output")?).read_line(&mut link).await?;
    let (address, path) =
        link.trim().strip_prefix("http://").and_then(|link| link.split_once('/')).context("an address")?;
    let prefix = path.strip_suffix("/ui/").context("the page")?;
    ensure!(address.starts_with("127.0.0.1:") && prefix.len() == 64, "{link}");
    for (method, path, host, want) in [
        ("GET", format!("/{prefix}/ui/"), address, "200"),
        ("GET", format!("/{prefix}{PICTURE}"), address, "200"),
        ("GET", format!("/{prefix}{PICTURE}?at=x"), address, "422"),
        ("GET", format!("/{prefix}{PICTURE}"), "rebound.example", "403"),
        ("POST", format!("/{prefix}{PICTURE}"), address, "405"),
        ("GET", format!("/{prefix}/api/v1/secrets"), address, "404"),
        ("GET", format!("/{prefix}/ui/../api/v1/secrets"), address, "404"),
        ("GET", "/ui/".to_owned(), address, "404"),
        ("GET", "/".to_owned(), address, "404"),
    ] {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let status = status_of(address, &request).await?;
        ensure!(status == want, "{method} {path} {host}: {status}");
    }
    cluster.stop().await?;
    let request = format!("GET /{prefix}/ui/ HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    ensure!(status_of(address, &request).await? == "502", "without the control plane");
    ui.kill().await?;
    Ok(())
}

#[tokio::test]
async fn coracle_ui_says_why_there_is_no_page() -> Result<()> {
    let cluster = cluster::cluster().flag("--nodes", "0").flag("--testing-api", "false").start().await?;
    let mut command = Command::new(binary::coracle());
    let output =
        command.args(["ui", "--no-browser", "--kubeconfig"]).arg(cluster.kubeconfig()).output().await?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        !output.status.success() && text.contains("has no page") && text.contains("--testing-api=false"),
        "{text}"
    );
    Ok(())
}
