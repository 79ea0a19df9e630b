//! Details of the server that clients, dashboards and operators depend on, each as kube-apiserver
//! has it: metrics, service account tokens, APIServices of definitions, aggregated servers.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use coracle_e2e::cluster;
use coracle_e2e::http::{Connection, Endpoint};
use coracle_e2e::wait::until;
use coracle_e2e::webhook::serve;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAMESPACE: &str = "/api/v1/namespaces/default";

struct Client(Connection);

impl Client {
    async fn new(endpoint: &Endpoint) -> Result<Client> {
        Ok(Client(endpoint.connect().await?))
    }

    async fn call_with(
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

    async fn call(&mut self, method: &str, path: &str, body: Value) -> Result<(u16, Value)> {
        self.call_with(method, path, &[], body).await
    }

    async fn create(&mut self, path: &str, object: Value) -> Result<Value> {
        let (code, body) = self.call("POST", path, object).await?;
        ensure!(code == 201, "{path}: {body}");
        Ok(body)
    }

    async fn metrics(&mut self) -> Result<String> {
        let (_, text) = self.call("GET", "/metrics", Value::Null).await?;
        Ok(text.as_str().context("a text")?.to_owned())
    }
}

/// Returns the sum of the values of the lines that contain all of these texts.
fn sum(metrics: &str, texts: &[&str]) -> f64 {
    let lines = metrics.lines().filter(|line| texts.iter().all(|text| line.contains(text)));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[tokio::test]
async fn metrics_count_requests_that_reach_a_handler() -> Result<()> {
    let cluster = cluster().flag("--controllers", "-*").start().await?;
    let mut client = Client::new(&cluster.endpoint().await?).await?;
    let stranger = [("Impersonate-User", Some("stranger"))];
    let bad_token = [("Authorization", Some("Bearer bad"))];
    let secrets = format!("{NAMESPACE}/secrets");
    for (method, path, headers, want) in [
        ("GET", secrets.as_str(), &stranger[..], 403),
        ("PUT", &secrets, &[], 405),
        ("GET", "/api/v1/namespaces/default/unknown", &[], 404),
        ("GET", &format!("{secrets}/absent"), &[], 404),
        ("GET", &secrets, &[], 200),
        ("GET", &format!("{NAMESPACE}/endpoints"), &[], 200),
    ] {
        let (code, body) = client.call_with(method, path, headers, Value::Null).await?;
        ensure!(code == want, "{method} {path}: {code} {body}");
    }
    // A client certificate has precedence over a token.
    let config = coracle_e2e::http::config(cluster.kubeconfig()).await?;
    let mut nobody = Client::new(&Endpoint::with_token(&config, "bad")?).await?;
    ensure!(nobody.call_with("GET", &secrets, &bad_token, Value::Null).await?.0 == 401);

    let metrics = client.metrics().await?;
    let total = |texts: &[&str]| sum(&metrics, &[&["apiserver_request_total{"], texts].concat());
    for (texts, want) in [
        (&[r#"resource="secrets""#, r#"code="403""#][..], 0.0),
        (&[r#"resource="secrets""#, r#"code="405""#], 0.0),
        (&[r#"resource="secrets""#, r#"code="401""#], 0.0),
        (&[r#"resource="unknown""#], 0.0),
        (&[r#"resource="secrets""#, r#"code="404""#, r#"verb="GET""#], 1.0),
        (&[r#"resource="secrets""#, r#"code="200""#, r#"verb="LIST""#], 1.0),
    ] {
        ensure!(total(texts) == want, "{texts:?}: {} instead of {want}", total(texts));
    }
    for (text, want) in [
        (r#"authentication_attempts{result="error"}"#, 1.0),
        (r#"authorization_attempts_total{result="no-opinion"}"#, 1.0),
        (
            r#"apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints",subresource="",version="v1"}"#,
            1.0,
        ),
        (r#"aggregator_unavailable_apiservice{name="v1.apps"}"#, 0.0),
        (r#"apiserver_current_inqueue_requests{request_kind="readOnly"}"#, 0.0),
    ] {
        let line = metrics.lines().find(|line| line.starts_with(text));
        ensure!(line == Some(&format!("{text} {want}")), "{text} {want}: {line:?}");
    }
    ensure!(metrics.contains(r#"apiserver_storage_objects{resource="events"}"#));
    ensure!(!metrics.contains(r#"resource="events.events.k8s.io""#), "events are stored once");
    ensure!(metrics.contains(r#"le="1e+06""#) && !metrics.contains(r#"le="1000000""#), "as Go prints it");
    ensure!(sum(&metrics, &["apiserver_client_certificate_expiration_seconds_count"]) > 0.0);
    ensure!(sum(&metrics, &["apiserver_flowcontrol_request_execution_seconds_count{"]) > 0.0);
    Ok(())
}

#[tokio::test]
async fn a_deleted_api_service_of_a_definition_is_created_anew() -> Result<()> {
    let cluster = cluster().flag("--controllers", "-*").start().await?;
    let mut client = Client::new(&cluster.endpoint().await?).await?;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "things", "kind": "Thing"});
    // As conversions of the internal type, this has no webhook.
    let conversion = json!({"strategy": "None", "webhook": {}});
    let spec = json!({
        "group": "details.example.com", "scope": "Namespaced", "names": names, "versions": [version],
        "conversion": conversion,
    });
    let definition = json!({"metadata": {"name": "things.details.example.com"}, "spec": spec});
    let created = client.create(CRDS, definition).await?;
    ensure!(created["spec"]["conversion"] == json!({"strategy": "None"}), "{created}");

    let path = format!("{API_SERVICES}/v1.details.example.com");
    let uid = async |client: &mut Client, other: &str| {
        let found = async || Ok(client.call("GET", &path, Value::Null).await?.1);
        let found = until("it has an APIService", found, |object| {
            object["metadata"]["uid"].as_str().is_some_and(|uid| uid != other)
        });
        anyhow::Ok(found.await?["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    };
    let first = uid(&mut client, "").await?;
    ensure!(client.call("DELETE", &path, Value::Null).await?.0 == 200);
    uid(&mut client, &first).await?;

    let definition = format!("{CRDS}/things.details.example.com");
    let options = json!({"preconditions": {"uid": "x"}});
    let (code, refused) = client.call("DELETE", &definition, options).await?;
    let text = "Operation cannot be fulfilled on customresourcedefinitions.apiextensions.k8s.io \
                \"things.details.example.com\": Precondition failed: UID in precondition: x, UID in object meta: ";
    ensure!(code == 409 && refused["message"].as_str().is_some_and(|is| is.starts_with(text)), "{refused}");
    ensure!(client.call("DELETE", &definition, Value::Null).await?.0 == 200);
    let code = async || Ok(client.call("GET", &path, Value::Null).await?.0);
    until("it has none", code, |code| *code == 404).await?;
    Ok(())
}

#[tokio::test]
async fn tokens_of_service_accounts() -> Result<()> {
    let cluster = cluster().flag("--nodes", "0").with_service_account().start().await?;
    let mut client = Client::new(&cluster.endpoint().await?).await?;
    // That of a pod, as its projected volume asks for it, is valid for a year.
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    client.create(&format!("{NAMESPACE}/pods"), json!({"metadata": {"name": "p"}, "spec": spec})).await?;
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p"});
    for (seconds, bound, want) in [
        (3607, bound.clone(), (365 * 24 * 3600, json!(3607))),
        (3607, Value::Null, (3607, Value::Null)),
        (3600, bound, (3600, Value::Null)),
    ] {
        let spec = json!({"expirationSeconds": seconds, "boundObjectRef": bound});
        let requested = client
            .create(&format!("{NAMESPACE}/serviceaccounts/default/token"), json!({"spec": spec}))
            .await?;
        let token = requested["status"]["token"].as_str().context("a token")?;
        let claims = token.split('.').nth(1).context("claims")?;
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims)?)?;
        let time = |value: &Value| value.as_i64().unwrap_or_default();
        let issued = time(&claims["iat"]);
        let warns = &claims["kubernetes.io"]["warnafter"];
        let warns = if warns.is_null() { Value::Null } else { json!(time(warns) - issued) };
        ensure!((time(&claims["exp"]) - issued, warns) == want, "{claims}");
        ensure!(requested["spec"]["expirationSeconds"] == seconds, "{requested}");
    }

    // The use of one in a Secret is recorded there.
    let secret = json!({
        "metadata": {"name": "t", "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token",
    });
    client.create(&format!("{NAMESPACE}/secrets"), secret).await?;
    let path = format!("{NAMESPACE}/secrets/t");
    let stored = async || Ok(client.call("GET", &path, Value::Null).await?.1);
    let stored = until("it has a token", stored, |secret| secret["data"]["token"].is_string()).await?;
    let token = STANDARD.decode(stored["data"]["token"].as_str().unwrap_or_default())?;
    let config = coracle_e2e::http::config(cluster.kubeconfig()).await?;
    let mut account = Client::new(&Endpoint::with_token(&config, &String::from_utf8(token)?)?).await?;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let reviewed = account.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review).await?;
    ensure!(
        reviewed["status"]["userInfo"]["username"] == "system:serviceaccount:default:default",
        "{reviewed}"
    );
    let labels = async || Ok(client.call("GET", &path, Value::Null).await?.1["metadata"].take());
    let is_labeled =
        |metadata: &Value| metadata["labels"]["kubernetes.io/legacy-token-last-used"].is_string();
    let metadata = until("its use is recorded", labels, is_labeled).await?;
    let date = metadata["labels"]["kubernetes.io/legacy-token-last-used"].as_str().unwrap_or_default();
    ensure!(date.len() == 10 && date.starts_with("20"), "{metadata}");
    let manager =
        json!({"f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/legacy-token-last-used": {}}}});
    let mut managers = metadata["managedFields"].as_array().into_iter().flatten();
    ensure!(
        managers.any(|entry| entry["manager"] == "kube-apiserver" && entry["fieldsV1"] == manager),
        "{metadata}"
    );
    Ok(())
}

#[tokio::test]
async fn a_watch_takes_no_format_that_is_preferred_less_than_yaml() -> Result<()> {
    let cluster = cluster().flag("--controllers", "-*").start().await?;
    let mut client = Client::new(&cluster.endpoint().await?).await?;
    let watch = format!("{NAMESPACE}/configmaps?watch=1&timeoutSeconds=1");
    for (accept, want) in [
        ("application/yaml, application/json", 406),
        ("application/json;q=0.1, application/yaml", 406),
        ("application/json, application/yaml", 200),
    ] {
        let (code, body) = client.call_with("GET", &watch, &[("Accept", Some(accept))], Value::Null).await?;
        ensure!(code == want, "{accept}: {code} {body}");
    }
    Ok(())
}

async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    let names = ["audit-id", "x-forwarded-for", "x-forwarded-uri", "x-forwarded-proto"];
    let text = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("-");
    let headers: Vec<&str> = names.into_iter().map(text).collect();
    let document =
        json!({"kind": "APIResourceList", "apiVersion": "v1", "resources": [], "headers": headers});
    Ok(Response::new(Full::new(document.to_string().into())))
}

#[tokio::test]
async fn aggregated_servers_see_where_a_request_comes_from() -> Result<()> {
    let (address, ca_bundle) = serve(&["ext.default.svc"], Arc::default(), echo).await?;
    let url = format!("default/ext=https://{address}");
    let cluster = cluster().flag("--controllers", "-*").flag("--webhook-service-url", url).start().await?;
    let mut client = Client::new(&cluster.endpoint().await?).await?;
    let spec = json!({
        "group": "g.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
        "caBundle": ca_bundle, "service": {"namespace": "default", "name": "ext"},
    });
    client.create(API_SERVICES, json!({"metadata": {"name": "v1.g.example.com"}, "spec": spec})).await?;
    let headers = [("Audit-ID", Some("mine")), ("X-Forwarded-For", Some("192.0.2.1"))];
    let path = "/apis/g.example.com/v1/things?a=b";
    let call = async || client.call_with("GET", path, &headers, Value::Null).await;
    let (_, seen) = until("it is available", call, |(code, _)| *code == 200).await?;
    let want = json!(["mine", "192.0.2.1, 127.0.0.1", "/apis/g.example.com/v1/things", "https"]);
    ensure!(seen["headers"] == want, "{seen}");
    Ok(())
}
