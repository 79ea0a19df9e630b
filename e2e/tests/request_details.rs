//! Details of requests that clients in the field depend on, each as kube-apiserver responds: Tables
//! of subresources, paths that do not exist, contradictions between a path and its body, documents
//! for relying parties.

use anyhow::{Context, Result};
use bytes::Bytes;
use coracle_e2e::cluster;
use coracle_e2e::http::{Connection, Endpoint};
use coracle_e2e::wait::until;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

struct Client(Connection);

impl Client {
    async fn new(endpoint: &Endpoint) -> Result<Client> {
        Ok(Client(endpoint.connect().await?))
    }

    /// Sends a request, and returns the code, the body, and the value of a header.
    async fn call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, Option<&str>)],
        body: Value,
    ) -> Result<(u16, Value)> {
        let body = (!body.is_null()).then(|| Bytes::from(body.to_string()));
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let headers = [&[("Content-Type", Some(kind))], headers].concat();
        let response = self.0.call(method, path, &headers, body).await?;
        let text = || json!(String::from_utf8_lossy(&response.body));
        Ok((response.status, serde_json::from_slice(&response.body).unwrap_or_else(|_| text())))
    }

    async fn create(&mut self, path: &str, object: Value) -> Result<()> {
        let (code, body) = self.call("POST", path, &[], object).await?;
        anyhow::ensure!(code == 201, "{path}: {body}");
        Ok(())
    }

    /// Returns the names of the columns of a Table; the code if it is not one.
    async fn columns(&mut self, method: &str, path: &str, body: Value) -> Result<String> {
        let (code, table) = self.call(method, path, &[("Accept", Some(TABLE))], body).await?;
        let Some(columns) = table["columnDefinitions"].as_array() else {
            return Ok(format!("{code} {}", table["message"].as_str().unwrap_or_default()));
        };
        let names: Vec<&str> = columns.iter().filter_map(|column| column["name"].as_str()).collect();
        Ok(names.join(" "))
    }

    async fn message(&mut self, method: &str, path: &str, body: Value) -> Result<String> {
        let (code, body) = self.call(method, path, &[], body).await?;
        let message = body["message"].as_str().or(body.as_str()).unwrap_or_default().to_owned();
        Ok(format!("{code} {message}"))
    }
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test]
async fn tables_of_subresources() -> Result<()> {
    let cluster = cluster().flag("--nodes", "0").with_service_account().start().await?;
    let mut client = Client::new(&cluster.endpoint().await?).await?;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("p")["spec"]});
    let deployment = json!({
        "metadata": {"name": "d"},
        "spec": {"replicas": 5, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    client.create("/apis/apps/v1/namespaces/default/deployments", deployment).await?;
    client.create("/api/v1/namespaces/default/pods", pod("p")).await?;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "replicas": {"type": "integer"}, "color": {"type": "string"},
    }}}});
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "selectableFields": [{"jsonPath": ".spec.color"}],
        "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
        "subresources": {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
    });
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget"});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    });
    client.create(CRDS, definition).await?;
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let code = async || Ok(client.call("GET", widgets, &[], Value::Null).await?.0);
    until("the definition is served", code, |code| *code == 200).await?;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"replicas": 2}});
    client.create(widgets, widget).await?;

    let deployment = "/apis/apps/v1/namespaces/default/deployments/d";
    let widget = "/apis/example.com/v1/namespaces/default/widgets/w";
    let of_scale = "Name Desired Available Age";
    let refused = "406 only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    for (method, path, body, want) in [
        ("GET", format!("{deployment}/scale"), Value::Null, of_scale),
        ("PATCH", format!("{deployment}/scale"), json!({"spec": {"replicas": 4}}), of_scale),
        ("GET", format!("{widget}/scale"), Value::Null, of_scale),
        ("GET", widget.to_owned(), Value::Null, "Name Color"),
        ("GET", "/api/v1/namespaces/default/pods/p/resize".to_owned(), Value::Null, refused),
        ("GET", "/api/v1/namespaces/default/pods/p/ephemeralcontainers".to_owned(), Value::Null, refused),
        ("GET", format!("{CRDS}/widgets.example.com/status"), Value::Null, refused),
    ] {
        assert_eq!(client.columns(method, &path, body).await?, want, "{method} {path}");
    }
    let columns = client.columns("GET", &format!("{deployment}/status"), Value::Null).await?;
    assert!(columns.starts_with("Name Ready Up-to-date"), "{columns}");

    let (_, document) = client.call("GET", "/openapi/v3/apis/example.com/v1", &[], Value::Null).await?;
    for kind in ["Widget", "WidgetList"] {
        let schema = &document["components"]["schemas"][format!("com.example.v1.{kind}")];
        assert_eq!(schema["x-kubernetes-selectable-fields"], json!([{"fieldPath": "spec.color"}]), "{kind}");
    }
    let (_, document) = client.call("GET", "/openapi/v3/api/v1", &[], Value::Null).await?;
    let policy =
        &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["restartPolicy"];
    let description = policy["description"].as_str().context("a description")?;
    assert!(
        description.contains("\n\nPossible enum values:\n - `\"Always\"`\n - `\"Never\"`"),
        "{description}"
    );
    Ok(())
}

#[tokio::test]
async fn paths_bodies_and_options_that_contradict_each_other() -> Result<()> {
    let cluster = cluster().flag("--nodes", "0").with_service_account().start().await?;
    let mut client = Client::new(&cluster.endpoint().await?).await?;
    let default = "/api/v1/namespaces/default";
    client.create(&format!("{default}/pods"), pod("p")).await?;
    client.create(&format!("{default}/serviceaccounts"), json!({"metadata": {"name": "a"}})).await?;
    let elsewhere = || json!({"metadata": {"name": "p", "namespace": "other"}});
    let other_namespace =
        "400 the namespace of the provided object does not match the namespace sent on the request";
    let unknown = "404 the server could not find the requested resource";
    let mut binding = elsewhere();
    binding["target"] = json!({"name": "n"});
    for (method, path, body, want) in [
        ("POST", format!("{default}/pods/p/eviction"), elsewhere(), other_namespace),
        ("POST", format!("{default}/pods/p/binding"), binding, other_namespace),
        (
            "POST",
            format!("{default}/serviceaccounts/a/token"),
            json!({"metadata": {"namespace": "other"}}),
            other_namespace,
        ),
        ("POST", "/api/v1/bindings".to_owned(), json!({}), unknown),
        ("GET", "/api/v1/namespaces//pods/p".to_owned(), Value::Null, "400 Namespace parameter required."),
        ("DELETE", "/api/v1/namespaces//pods/p".to_owned(), Value::Null, "400 Namespace parameter required."),
        ("POST", "/api/v1/namespaces//pods".to_owned(), pod("q"), unknown),
        (
            "POST",
            format!("{default}/pods/p/exec?command=a&dryRun=All"),
            Value::Null,
            "400 dryRun is not supported",
        ),
        ("GET", format!("{default}/pods/p/proxy/x?dryRun="), Value::Null, "400 dryRun is not supported"),
        ("GET", format!("{default}/bindings/p"), Value::Null, unknown),
        ("DELETE", "/apis/authentication.k8s.io/v1/tokenreviews/x".to_owned(), Value::Null, unknown),
        (
            "GET",
            "/apis/authentication.k8s.io/v1/tokenreviews".to_owned(),
            Value::Null,
            "405 the server does not allow this method on the requested resource",
        ),
        (
            "GET",
            "/api/v1/watch/namespaces/default/pods/p?fieldSelector=metadata.name=q".to_owned(),
            Value::Null,
            "400 fieldSelector metadata.name doesn't match requested name",
        ),
        (
            "GET",
            format!("{default}/pods/p?export=true"),
            Value::Null,
            "400 the export parameter, deprecated since v1.14, is no longer supported",
        ),
        (
            "GET",
            format!("{default}/pods/p/portforward?ports=80,x"),
            Value::Null,
            "400 cannot convert to []int32: strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
        (
            "GET",
            format!("{default}/pods/p/portforward?ports=70000"),
            Value::Null,
            "400 cannot convert to []int32: strconv.ParseUint: parsing \"70000\": value out of range",
        ),
    ] {
        assert_eq!(client.message(method, &path, body).await?, want, "{method} {path}");
    }
    let (code, _) = client.call("GET", &format!("{default}/pods/p"), &[], Value::Null).await?;
    assert_eq!(code, 200, "nothing evicted it");
    for (path, count) in [
        ("/api/v1/namespaces//pods", 1),
        ("/api/v1/namespaces//pods?fieldSelector=spec.host%3Dnowhere", 0),
        ("/api/v1/pods?fieldSelector=spec.host%3D", 1),
    ] {
        let (code, list) = client.call("GET", path, &[], Value::Null).await?;
        assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(count)), "{path}: {list}");
    }
    let token = client.call("POST", &format!("{default}/serviceaccounts/a/token"), &[], json!({})).await?.1;
    let fields = &token["metadata"]["managedFields"][0]["fieldsV1"];
    assert_eq!(*fields, json!({"f:spec": {"f:expirationSeconds": {}}}), "{token}");
    Ok(())
}

#[tokio::test]
async fn the_end_of_initial_events_is_shown_without_objects() -> Result<()> {
    let cluster = cluster().flag("--controllers", "").start().await?;
    let mut client = Client::new(&cluster.endpoint().await?).await?;
    let path = "/api/v1/namespaces/default/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                &allowWatchBookmarks=true&includeObject=None&timeoutSeconds=1";
    let response = client.0.call("GET", path, &[("Accept", Some(TABLE))], None).await?;
    let text = String::from_utf8_lossy(&response.body).into_owned();
    let bookmark: Value = serde_json::from_str(text.lines().next().context("an event")?)?;
    let object = &bookmark["object"]["rows"][0]["object"];
    assert_eq!(object["kind"], "PartialObjectMetadata", "{text}");
    assert_eq!(object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true", "{text}");
    Ok(())
}

#[tokio::test]
async fn relying_parties_find_the_keys_of_service_accounts() -> Result<()> {
    let cluster = cluster().flag("--controllers", "").start().await?;
    let mut client = Client::new(&cluster.endpoint().await?).await?;
    let (code, configuration) =
        client.call("GET", "/.well-known/openid-configuration", &[], Value::Null).await?;
    assert_eq!(code, 200, "{configuration}");
    assert_eq!(configuration["issuer"], "https://kubernetes.default.svc");
    let keys = configuration["jwks_uri"].as_str().context("a URI")?;
    assert!(keys.starts_with("https://127.0.0.1:") && keys.ends_with("/openid/v1/jwks"), "{keys}");
    let (_, keys) = client.call("GET", "/openid/v1/jwks", &[("Accept", Some("*/*"))], Value::Null).await?;
    let algorithm = &keys["keys"][0]["alg"];
    assert_eq!(configuration["id_token_signing_alg_values_supported"], json!([algorithm]), "{keys}");
    let refused =
        client.call("GET", "/openid/v1/jwks", &[("Accept", Some("application/json"))], Value::Null).await?;
    assert_eq!(refused.0, 406);
    assert_eq!(client.call("POST", "/openid/v1/jwks", &[], json!({})).await?.0, 405);
    Ok(())
}

#[tokio::test]
async fn a_request_without_tls_is_answered_in_words() -> Result<()> {
    let cluster = cluster().flag("--controllers", "").start().await?;
    let mut socket = cluster.endpoint().await?.socket().await?;
    socket.write_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    let mut response = String::new();
    socket.read_to_string(&mut response).await?;
    assert_eq!(response, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n");
    Ok(())
}

/// Reads the head of a response, and as much of its body as the head announces.
async fn read_response(stream: &mut (impl AsyncReadExt + Unpin)) -> Result<String> {
    let mut response = Vec::new();
    loop {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).await?;
        anyhow::ensure!(count > 0, "the end after {}", String::from_utf8_lossy(&response));
        response.extend_from_slice(&bytes[..count]);
        let text = String::from_utf8_lossy(&response).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length: Option<usize> =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.context("a length")? {
            return Ok(text);
        }
    }
}

#[tokio::test]
async fn a_refusal_before_the_body_leaves_the_connection_open() -> Result<()> {
    let cluster = cluster().flag("--controllers", "").start().await?;
    let endpoint = cluster.endpoint().await?;
    let post = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\n\
                Content-Type: application/json\r\nImpersonate-User: nobody\r\n";
    let mut stream = endpoint.tls(b"http/1.1").await?;
    stream.write_all(format!("{post}Content-Length: 2\r\n\r\n").as_bytes()).await?;
    stream.flush().await?;
    stream.write_all(b"{}").await?;
    let refused = read_response(&mut stream).await?;
    assert!(refused.starts_with("HTTP/1.1 403 ") && !refused.contains("connection: close"), "{refused}");
    stream.write_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    let version = read_response(&mut stream).await?;
    assert!(version.starts_with("HTTP/1.1 200 "), "{version}");

    for more in ["Content-Length: 1000000\r\n", "Content-Length: 2\r\nExpect: 100-continue\r\n"] {
        let mut stream = endpoint.tls(b"http/1.1").await?;
        stream.write_all(format!("{post}{more}\r\n").as_bytes()).await?;
        let refused = read_response(&mut stream).await?;
        assert!(refused.starts_with("HTTP/1.1 403 ") && refused.contains("connection: close"), "{refused}");
    }
    Ok(())
}

#[tokio::test]
async fn flows_are_those_of_the_impersonated_user() -> Result<()> {
    let cluster = cluster().flag("--controllers", "").start().await?;
    let mut client = Client::new(&cluster.endpoint().await?).await?;
    let account = "system:serviceaccount:kube-system:generic-garbage-collector";
    for (path, user, want) in [
        ("/api/v1/nodes", account, Some("kube-system-service-accounts")),
        ("/api/v1/nodes", "bob", Some("global-default")),
        ("/livez/ping", "bob", Some("probes")),
        ("/api/v1/namespaces/default/pods/x/log", "bob", None),
    ] {
        let headers = [("Impersonate-User", Some(user))];
        let response = client.0.call("GET", path, &headers, None).await?;
        let uid = response.headers.get("x-kubernetes-pf-flowschema-uid").cloned();
        let Some(want) = want else {
            assert_eq!(uid, None, "{path}");
            continue;
        };
        let schema = format!("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{want}");
        let (_, schema) = client.call("GET", &schema, &[], Value::Null).await?;
        let uid = uid.context("a flow")?;
        assert_eq!(schema["metadata"]["uid"], uid.to_str()?, "{path} as {user}");
    }
    Ok(())
}

#[tokio::test]
async fn a_list_by_name_is_one_page_and_a_watch_ends_with_a_bookmark() -> Result<()> {
    let cluster = cluster().flag("--controllers", "").start().await?;
    let endpoint = cluster.endpoint().await?;
    let mut client = Client::new(&endpoint).await?;
    let config_maps = "/api/v1/namespaces/default/configmaps";
    for name in ["a", "b", "c"] {
        client.create(config_maps, json!({"metadata": {"name": name}})).await?;
    }
    let path = format!("{config_maps}?fieldSelector=metadata.name%3Da&limit=1");
    let (_, list) = client.call("GET", &path, &[], Value::Null).await?;
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
    assert_eq!(list["metadata"]["continue"], Value::Null, "{list}");

    let watch = format!(
        "{config_maps}?watch=1&fieldSelector=metadata.name%3Dnone&allowWatchBookmarks=true&timeoutSeconds=7"
    );
    let mut writer = Client::new(&endpoint).await?;
    let watching = client.0.open("GET", &watch, &[], None).await?;
    writer.create(config_maps, json!({"metadata": {"name": "d"}})).await?;
    let text = http_body_util::BodyExt::collect(watching.into_body()).await?.to_bytes();
    // The first line is the bookmark after the initial events.
    let last_line = std::str::from_utf8(&text)?.lines().last().context("a bookmark")?;
    let bookmark: Value = serde_json::from_str(last_line)?;
    assert_eq!(bookmark["type"], "BOOKMARK", "{bookmark}");
    let (_, last) = writer.call("GET", &format!("{config_maps}/d"), &[], Value::Null).await?;
    let revision = |object: &Value| object["metadata"]["resourceVersion"].as_str().map(str::parse::<u64>);
    let (bookmarked, last) = (revision(&bookmark["object"]), revision(&last));
    assert!(bookmarked.context("a revision")?? >= last.context("a revision")??, "{bookmark}");
    Ok(())
}

#[tokio::test]
async fn pages_about_the_process_and_its_health() -> Result<()> {
    let cluster = cluster().flag("--controllers", "").flag("--event-ttl", "2h").start().await?;
    let mut client = Client::new(&cluster.endpoint().await?).await?;
    let accept = |kind: &str| format!("application/json;g=config.k8s.io;v=v1beta1;as={kind}");
    let statusz = accept("Statusz");
    let (code, status) = client.call("GET", "/statusz", &[("Accept", Some(&statusz))], Value::Null).await?;
    assert_eq!((code, &status["emulationVersion"]), (200, &json!("1.36")), "{status}");
    let paths = json!(["/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"]);
    assert_eq!(status["paths"], paths);
    let flagz = accept("Flagz");
    let (_, flags) = client.call("GET", "/flagz", &[("Accept", Some(&flagz))], Value::Null).await?;
    assert_eq!(flags["flags"]["event-ttl"], "2h", "{flags}");
    let (_, health) = client.call("GET", "/readyz?verbose", &[], Value::Null).await?;
    for line in
        ["[+]etcd-readiness ok", "[+]poststarthook/crd-informer-synced ok", "[+]autoregister-completion ok"]
    {
        assert!(health.as_str().context("text")?.contains(line), "{health}");
    }
    let (_, indicators) = client.call("GET", "/metrics/slis", &[], Value::Null).await?;
    let line = r#"kubernetes_healthcheck{name="etcd-readiness",type="readyz"} 1"#;
    assert!(indicators.as_str().context("text")?.contains(line), "{indicators}");
    Ok(())
}
