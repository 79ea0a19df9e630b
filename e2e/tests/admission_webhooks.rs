//! Admission webhooks: what they are sent, what their responses do, and what servers that misbehave
//! end in.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle_e2e::http::{Connection, HttpResponse};
use coracle_e2e::wait::until;
use coracle_e2e::webhook::{Handler, WebhookServer, first, patch};
use coracle_e2e::{Cluster, cluster};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn start() -> Result<(Cluster, Connection)> {
    let cluster = cluster().flag("--controllers", "-*").start().await?;
    let connection = cluster.endpoint().await?.connect().await?;
    Ok((cluster, connection))
}

async fn call(connection: &mut Connection, method: &str, path: &str, body: &Value) -> Result<(u16, Value)> {
    let body = if body.is_null() { None } else { Some(Bytes::from(body.to_string())) };
    let content_type = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let response = connection.call(method, path, &[("Content-Type", Some(content_type))], body).await?;
    parse(&response)
}

fn parse(response: &HttpResponse) -> Result<(u16, Value)> {
    let body = serde_json::from_slice(&response.body)
        .with_context(|| format!("{} {:?}", response.status, response.body))?;
    Ok((response.status, body))
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// Builds a configuration of one webhook for all requests about ConfigMaps of the namespace
/// `default`, with other members.
fn configuration(kind: &str, name: &str, url: &str, ca_bundle: &str, changes: &Value) -> Value {
    let mut webhook = json!({
        "name": format!("{name}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": url, "caBundle": ca_bundle},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
    });
    for (member, value) in changes.as_object().into_iter().flatten() {
        webhook[member] = value.clone();
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": name}, "webhooks": [webhook],
    })
}

async fn configure(connection: &mut Connection, configuration: &Value) -> Result<()> {
    let kind = configuration["kind"].as_str().unwrap_or_default().to_lowercase();
    let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}s");
    let (code, body) = call(connection, "POST", &path, configuration).await?;
    ensure!(code == 201, "{body}");
    Ok(())
}

async fn remove(connection: &mut Connection, kind: &str, name: &str) -> Result<()> {
    let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/{name}");
    let (code, body) = call(connection, "DELETE", &path, &Value::Null).await?;
    ensure!(code == 200, "{body}");
    Ok(())
}

fn allow() -> Handler {
    Arc::new(|_, _| json!({"allowed": true}))
}

#[tokio::test]
async fn webhooks_are_sent_the_request_and_decide_it() -> Result<()> {
    let handler: Handler = Arc::new(|_, request| match request["name"].as_str() {
        Some("bad") => {
            json!({"allowed": false, "status": {"message": "no", "code": 403, "reason": "Forbidden"}})
        }
        _ => json!({"allowed": true, "warnings": ["careful"]}),
    });
    let server = WebhookServer::start(&["127.0.0.1"], handler).await?;
    let (_cluster, mut connection) = start().await?;
    let changes = json!({});
    let webhook = configuration("Validating", "w", &server.url("/v"), &server.ca_bundle, &changes);
    configure(&mut connection, &webhook).await?;

    let path = format!("{CONFIG_MAPS}?fieldManager=me&dryRun=All");
    let response = connection.call("POST", &path, &[], Some(config_map("good").to_string().into())).await?;
    ensure!(response.status == 201, "{response:?}");
    ensure!(response.headers["warning"] == "299 - \"careful\"", "{:?}", response.headers);
    let review = first(server.take_reviews())?;
    let request = &review["request"];
    ensure!(review["apiVersion"] == "admission.k8s.io/v1" && review["kind"] == "AdmissionReview");
    for (member, want) in [
        ("kind", json!({"group": "", "version": "v1", "kind": "ConfigMap"})),
        ("resource", json!({"group": "", "version": "v1", "resource": "configmaps"})),
        ("requestKind", json!({"group": "", "version": "v1", "kind": "ConfigMap"})),
        ("name", json!("good")),
        ("namespace", json!("default")),
        ("operation", json!("CREATE")),
        ("dryRun", json!(true)),
        ("oldObject", json!(null)),
        (
            "options",
            json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"], "fieldManager": "me"}),
        ),
    ] {
        ensure!(request[member] == want, "{member}: {}", request[member]);
    }
    ensure!(request["userInfo"]["username"] == "coracle-admin", "{}", request["userInfo"]);
    ensure!(request["object"]["kind"] == "ConfigMap" && request["object"]["metadata"]["uid"].is_string());

    let (code, body) = call(&mut connection, "POST", CONFIG_MAPS, &config_map("bad")).await?;
    ensure!(code == 403 && body["reason"] == "Forbidden", "{body}");
    ensure!(body["message"] == "admission webhook \"w.example.com\" denied the request: no", "{body}");

    // An update and a deletion have the old object, and the connection is kept.
    call(&mut connection, "POST", CONFIG_MAPS, &config_map("c")).await?;
    let path = format!("{CONFIG_MAPS}/c");
    server.take_reviews();
    call(&mut connection, "PATCH", &path, &json!({"data": {"a": "b"}})).await?;
    let request = first(server.take_reviews())?["request"].take();
    ensure!(request["operation"] == "UPDATE" && request["options"]["kind"] == "UpdateOptions", "{request}");
    ensure!(request["object"]["data"]["a"] == "b" && request["oldObject"]["data"].is_null());
    call(&mut connection, "DELETE", &path, &json!(null)).await?;
    let request = first(server.take_reviews())?["request"].take();
    ensure!(request["operation"] == "DELETE" && request["object"].is_null(), "{request}");
    ensure!(request["oldObject"]["data"]["a"] == "b" && request["options"]["kind"] == "DeleteOptions");
    // Of five requests; one that comes early may find the connection still in use.
    ensure!(server.connections() < 3, "{} connections", server.connections());
    Ok(())
}

#[tokio::test]
async fn mutating_webhooks_change_objects_in_order_and_again_if_needed() -> Result<()> {
    let handler: Handler = Arc::new(|path, request| {
        let annotations = &request["object"]["metadata"]["annotations"];
        match path {
            "/first" => {
                // It sees in the second pass what came after it.
                let seen = if annotations["second"].is_null() { "nothing" } else { "second" };
                patch(&json!([{"op": "add", "path": "/metadata/annotations/first", "value": seen}]))
            }
            "/second" if annotations["second"].is_null() => {
                patch(&json!([{"op": "add", "path": "/metadata/annotations/second", "value": "x"}]))
            }
            "/wrong" => patch(&json!([{"op": "remove", "path": "/spec/nothing"}])),
            _ => json!({"allowed": true}),
        }
    });
    let server = WebhookServer::start(&["127.0.0.1"], handler).await?;
    let (_cluster, mut connection) = start().await?;
    for (name, changes) in [("a", json!({"reinvocationPolicy": "IfNeeded"})), ("b", json!({}))] {
        let url = server.url(if name == "a" { "/first" } else { "/second" });
        let webhook = configuration("Mutating", name, &url, &server.ca_bundle, &changes);
        configure(&mut connection, &webhook).await?;
    }
    let mut object = config_map("c");
    object["metadata"]["annotations"] = json!({"a": "b"});
    let (code, body) = call(&mut connection, "POST", CONFIG_MAPS, &object).await?;
    ensure!(code == 201, "{body}");
    let want = json!({"a": "b", "first": "second", "second": "x"});
    ensure!(body["metadata"]["annotations"] == want, "{body}");
    let operations: Vec<Value> =
        server.take_reviews().into_iter().map(|r| r["request"]["name"].clone()).collect();
    ensure!(operations.len() == 3, "first, second, first again: {operations:?}");

    for name in ["a", "b"] {
        remove(&mut connection, "mutating", name).await?;
    }
    let ignore = json!({"failurePolicy": "Ignore"});
    let webhook = configuration("Mutating", "c", &server.url("/wrong"), &server.ca_bundle, &ignore);
    configure(&mut connection, &webhook).await?;
    let (code, body) = call(&mut connection, "POST", CONFIG_MAPS, &config_map("d")).await?;
    let want = "Internal error occurred: remove operation does not apply: doc is missing path: \"/spec/nothing\": missing value";
    ensure!(code == 500 && body["message"] == want, "{body}");
    Ok(())
}

#[tokio::test]
async fn a_webhook_that_asks_for_patience_is_called_again() -> Result<()> {
    let server = WebhookServer::start(&["127.0.0.1"], allow()).await?;
    let (_cluster, mut connection) = start().await?;
    for (path, code, calls) in [("/busy", 201, 3), ("/overloaded", 500, 11)] {
        let webhook = configuration("Validating", "w", &server.url(path), &server.ca_bundle, &json!({}));
        configure(&mut connection, &webhook).await?;
        let (got, body) = call(&mut connection, "POST", CONFIG_MAPS, &config_map("c")).await?;
        ensure!(got == code, "{body}");
        let reviews = server.take_reviews();
        ensure!(reviews.len() == calls, "{path}: {} calls", reviews.len());
        ensure!(server.connections() == 1, "{} connections", server.connections());
        remove(&mut connection, "validating", "w").await?;
    }
    Ok(())
}

#[tokio::test]
async fn servers_that_misbehave_end_in_the_failure_policy() -> Result<()> {
    let handler: Handler = Arc::new(|path, _| match path {
        "/wrong-uid" => json!({"uid": "x", "allowed": true}),
        _ => patch(&json!([{"op": "add", "path": "/data", "value": {}}])),
    });
    let server = WebhookServer::start(&["127.0.0.1"], handler).await?;
    let other = WebhookServer::start(&["example.com"], allow()).await?;
    let (_cluster, mut connection) = start().await?;
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = plain.local_addr()?.port();
    tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        while let Ok((mut socket, _)) = plain.accept().await {
            let _ = socket.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n").await;
        }
    });
    let timeout_seconds = |url: &str| if url.ends_with("/slow") { 1 } else { 30 };
    let post =
        |url: &str| format!("failed to call webhook: Post \"{url}?timeout={}s\": ", timeout_seconds(url));
    let cases = [
        (server.url("/slow"), &server.ca_bundle, post(&server.url("/slow")) + "context deadline exceeded"),
        (server.url("/crash"), &server.ca_bundle, post(&server.url("/crash")) + "EOF"),
        (
            server.url("/redirect"),
            &server.ca_bundle,
            "failed to call webhook: the server responded with the status code 302 but did not return more information"
                .to_owned(),
        ),
        (
            server.url("/large"),
            &server.ca_bundle,
            "failed to call webhook: the response is larger than 8388608 bytes".to_owned(),
        ),
        (
            server.url("/error"),
            &server.ca_bundle,
            "failed to call webhook: an error on the server (\"boom\") has prevented the request from succeeding"
                .to_owned(),
        ),
        (
            server.url("/overloaded"),
            &server.ca_bundle,
            "failed to call webhook: the server has received too many requests and has asked us to try again later"
                .to_owned(),
        ),
        (
            server.url("/wrong-uid"),
            &server.ca_bundle,
            "received invalid webhook response: expected response.uid=".to_owned(),
        ),
        (
            server.url("/patch"),
            &server.ca_bundle,
            "received invalid webhook response: validating webhook may not return response.patch".to_owned(),
        ),
        (
            server.url("/allow"),
            &other.ca_bundle,
            post(&server.url("/allow"))
                + "tls: failed to verify certificate: x509: certificate signed by unknown authority",
        ),
        (
            other.url("/allow"),
            &other.ca_bundle,
            post(&other.url("/allow"))
                + "tls: failed to verify certificate: x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs",
        ),
        (
            format!("https://127.0.0.1:{port}/x"),
            &other.ca_bundle,
            post(&format!("https://127.0.0.1:{port}/x")) + "http: server gave HTTP response to HTTPS client",
        ),
    ];
    for (url, ca_bundle, want) in cases {
        let changes = json!({"timeoutSeconds": timeout_seconds(&url)});
        configure(&mut connection, &configuration("Validating", "w", &url, ca_bundle, &changes)).await?;
        let (code, body) = call(&mut connection, "POST", CONFIG_MAPS, &config_map("c")).await?;
        let want = format!("Internal error occurred: failed calling webhook \"w.example.com\": {want}");
        let message = body["message"].as_str().unwrap_or_default();
        ensure!(code == 500 && message.starts_with(&want), "{url}\n got {message}\nwant {want}");

        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/w";
        let (_, mut stored) = call(&mut connection, "GET", path, &json!(null)).await?;
        stored["webhooks"][0]["failurePolicy"] = "Ignore".into();
        let (code, body) = call(&mut connection, "PUT", path, &stored).await?;
        ensure!(code == 200, "{body}");
        let dry_run = format!("{CONFIG_MAPS}?dryRun=All");
        let (code, body) = call(&mut connection, "POST", &dry_run, &config_map("c")).await?;
        ensure!(code == 201, "{url} fails open: {body}");
        remove(&mut connection, "validating", "w").await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_webhook_that_hangs_holds_up_nobody_else() -> Result<()> {
    let server = WebhookServer::start(&["127.0.0.1"], allow()).await?;
    let (cluster, mut connection) = start().await?;
    call(&mut connection, "POST", CONFIG_MAPS, &config_map("c")).await?;
    let changes = json!({"timeoutSeconds": 20, "objectSelector": {"matchLabels": {"slow": "yes"}}});
    let webhook = configuration("Mutating", "w", &server.url("/slow"), &server.ca_bundle, &changes);
    configure(&mut connection, &webhook).await?;
    let mut hanging = Vec::new();
    for _ in 0..20 {
        let mut other = cluster.endpoint().await?.connect().await?;
        hanging.push(tokio::spawn(async move {
            let labels = json!({"metadata": {"labels": {"slow": "yes"}}});
            call(&mut other, "PATCH", &format!("{CONFIG_MAPS}/c"), &labels).await
        }));
    }
    until("the webhook is called", async || Ok(server.connections()), |connections| *connections >= 20)
        .await?;
    let began = Instant::now();
    for data in 0..20 {
        let patch = json!({"data": {"n": data.to_string()}});
        let (code, body) = call(&mut connection, "PATCH", &format!("{CONFIG_MAPS}/c"), &patch).await?;
        ensure!(code == 200, "{body}");
    }
    ensure!(began.elapsed() < Duration::from_secs(5), "others waited {:?}", began.elapsed());
    hanging.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

#[tokio::test]
async fn services_lead_to_configured_urls_and_subresources_are_seen_as_themselves() -> Result<()> {
    let server = WebhookServer::start(&["hook.default.svc"], allow()).await?;
    let url = server.url("");
    let cluster =
        cluster().flag("--controllers", "-*").flag("--webhook-service-url", format!("default/hook={url}"));
    let cluster = cluster.start().await?;
    let mut connection = cluster.endpoint().await?.connect().await?;
    let service = |name: &str| json!({"service": {"namespace": "default", "name": name, "path": "/x"}, "caBundle": server.ca_bundle});
    let rule = |resources: Value| json!([{"apiGroups": ["", "apps"], "apiVersions": ["v1"], "resources": resources, "operations": ["*"]}]);
    let changes = json!({
        "clientConfig": service("hook"),
        "rules": rule(json!(["serviceaccounts/token", "deployments/scale", "pods/exec", "pods/eviction"])),
    });
    configure(&mut connection, &configuration("Validating", "w", "", "", &changes)).await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}});
    call(&mut connection, "POST", "/api/v1/namespaces/default/serviceaccounts", &account).await?;
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = "/api/v1/namespaces/default/serviceaccounts/sa/token";
    let (code, body) = call(&mut connection, "POST", path, &token).await?;
    ensure!(code == 201, "{body}");
    let request = first(server.take_reviews())?["request"].take();
    ensure!(
        request["kind"] == json!({"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"})
    );
    ensure!(request["subResource"] == "token" && request["resource"]["resource"] == "serviceaccounts");

    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let (code, body) = call(&mut connection, "POST", deployments, &deployment).await?;
    ensure!(code == 201, "{body}");
    let path = format!("{deployments}/d/scale");
    let (code, body) = call(&mut connection, "PATCH", &path, &json!({"spec": {"replicas": 3}})).await?;
    ensure!(code == 200, "{body}");
    let request = first(server.take_reviews())?["request"].take();
    ensure!(
        request["kind"]["kind"] == "Scale" && request["requestKind"]["group"] == "autoscaling",
        "{request}"
    );
    ensure!(request["object"]["spec"]["replicas"] == 3 && request["oldObject"]["spec"]["replicas"] == 1);

    let missing = json!({"clientConfig": service("gone"), "rules": rule(json!(["configmaps"]))});
    configure(&mut connection, &configuration("Validating", "x", "", "", &missing)).await?;
    let (code, body) = call(&mut connection, "POST", CONFIG_MAPS, &config_map("c")).await?;
    let want = "Internal error occurred: failed calling webhook \"x.example.com\": failed to call webhook: Post \"https://gone.default.svc:443/x?timeout=10s\": service \"gone\" not found";
    ensure!(code == 500 && body["message"] == want, "{body}");
    Ok(())
}

#[tokio::test]
async fn conversion_webhooks_convert_what_is_stored_in_another_version() -> Result<()> {
    let handler: Handler = Arc::new(|path, request| {
        let mut objects = request["objects"].clone();
        for object in objects.as_array_mut().into_iter().flatten() {
            object["apiVersion"] = request["desiredAPIVersion"].clone();
            if path == "/lies" {
                object["metadata"]["name"] = "other".into();
            }
            let is_v2 = request["desiredAPIVersion"] == "e.example.com/v2";
            let (from, to) = if is_v2 { ("old", "new") } else { ("new", "old") };
            let value = object["spec"][from].take();
            object["spec"] = json!({to: value});
        }
        json!({"result": {"status": "Success"}, "convertedObjects": objects})
    });
    let server = WebhookServer::start(&["127.0.0.1"], handler).await?;
    let (_cluster, mut connection) = start().await?;
    let version = |name: &str, field: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": {field: {"type": "string"}}}}}}})
    };
    let client = |path: &str| json!({"url": server.url(path), "caBundle": server.ca_bundle});
    let conversion = |path: &str| json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client(path)}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.e.example.com"}, "spec": {"group": "e.example.com", "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version("v1", "old", true), version("v2", "new", false)],
            "conversion": conversion("/convert")}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, body) = call(&mut connection, "POST", definitions, &definition).await?;
    ensure!(code == 201, "{body}");
    let mut widgets = served_path(&mut connection).await?;
    let widget = |name: &str| json!({"apiVersion": "e.example.com/v2", "kind": "Widget", "metadata": {"name": name}, "spec": {"new": "x"}});
    for name in ["a", "b"] {
        let (code, body) = call(&mut connection, "POST", &widgets, &widget(name)).await?;
        ensure!(code == 201 && body["spec"] == json!({"new": "x"}), "{code} {body}");
    }
    server.take_reviews();
    let (_, list) = call(&mut connection, "GET", &widgets, &json!(null)).await?;
    ensure!(list["items"][1]["spec"] == json!({"new": "x"}), "{list}");
    let reviews = server.take_reviews();
    ensure!(reviews.len() == 1 && reviews[0]["request"]["objects"].as_array().is_some_and(|l| l.len() == 2));
    widgets = widgets.replace("/v2/", "/v1/");
    let (_, stored) = call(&mut connection, "GET", &format!("{widgets}/a"), &json!(null)).await?;
    ensure!(stored["spec"] == json!({"old": "x"}), "{stored}");

    let path = format!("{definitions}/widgets.e.example.com");
    let lies = json!({"spec": {"conversion": conversion("/lies")}});
    let (code, body) = call(&mut connection, "PATCH", &path, &lies).await?;
    ensure!(code == 200, "{body}");
    let widgets = widgets.replace("/v1/", "/v2/");
    let want = "conversion webhook for e.example.com/v1, Kind=Widget returned invalid object: must have the same name: a != other";
    let path = format!("{widgets}/a");
    let get = async || call(&mut connection, "GET", &path, &json!(null)).await;
    let last = until("the definition takes effect", get, |(code, _)| *code != 200).await?;
    ensure!(last.0 == 500 && last.1["message"] == want, "{last:?}");
    Ok(())
}

/// Returns the path of the widgets, once they are served.
async fn served_path(connection: &mut Connection) -> Result<String> {
    let path = "/apis/e.example.com/v2/widgets";
    let get = async || Ok(connection.call("GET", path, &[], None).await?.status);
    until("the widgets are served", get, |code| *code == 200).await?;
    Ok(path.to_owned())
}
