//! Aggregated APIs: another server's group behind this one.

use std::sync::Arc;

use anyhow::{Result, ensure};
use bytes::Bytes;
use coracle_e2e::cluster;
use coracle_e2e::wait::until;
use coracle_e2e::webhook::serve;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::{Value, json};

const GROUP: &str = "/apis/g.example.com";

async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    if request.uri().path().ends_with("/elsewhere") {
        return Ok(Response::builder().status(302).header("Location", "https://x").body(Full::default())?);
    }
    let text = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("-");
    let document = match request.uri().path() {
        "/apis/g.example.com/v1" => json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "g.example.com/v1",
            "resources": [{"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["list"]}],
        }),
        path => json!({
            "path": path, "query": request.uri().query(), "user": text("x-remote-user"),
            "authorization": text("authorization"),
        }),
    };
    Ok(Response::new(Full::new(document.to_string().into())))
}

#[tokio::test]
async fn requests_discovery_and_availability_of_another_server() -> Result<()> {
    let (address, ca_bundle) = serve(&["ext.default.svc"], Arc::default(), respond).await?;
    let cluster = cluster()
        .flag("--controllers", "-*")
        .flag("--webhook-service-url", format!("default/ext=https://{address}"))
        .start()
        .await?;
    let mut connection = cluster.endpoint().await?.connect().await?;
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    for (version, service, priority) in [("v1", "ext", 100), ("v2", "gone", 90)] {
        let object = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.g.example.com")},
            "spec": {
                "group": "g.example.com", "version": version, "groupPriorityMinimum": 100, "versionPriority": priority,
                "caBundle": ca_bundle, "service": {"namespace": "default", "name": service},
            },
        });
        let made = connection.call("POST", services, &[], Some(object.to_string().into())).await?;
        ensure!(made.status == 201, "{made:?}");
    }
    for (version, status, reason, message) in [
        ("v1", "True", "Passed", "all checks passed"),
        ("v2", "False", "ServiceNotFound", "service/gone in \"default\" is not present"),
    ] {
        let path = format!("{services}/{version}.g.example.com");
        let condition = async || -> Result<Value> {
            let found = connection.call("GET", &path, &[], None).await?;
            let object: Value = serde_json::from_slice(&found.body)?;
            Ok(object["status"]["conditions"][0].clone())
        };
        let found = until("it is checked", condition, |condition| condition["type"] == "Available").await?;
        ensure!(
            found["status"] == status && found["reason"] == reason && found["message"] == message,
            "{found}"
        );
    }

    let path = format!("{GROUP}/v1/namespaces/ns/things?limit=5");
    let answer = connection.call("GET", &path, &[("X-Remote-User", Some("mallory"))], None).await?;
    let answer: Value = serde_json::from_slice(&answer.body)?;
    let want = json!({
        "path": "/apis/g.example.com/v1/namespaces/ns/things", "query": "limit=5", "user": "coracle-admin",
        "authorization": "-",
    });
    ensure!(answer == want, "{answer}");
    let led_away = connection.call("GET", &format!("{GROUP}/v1/elsewhere"), &[], None).await?;
    let want = "the backend attempted to redirect this request, which is not permitted";
    ensure!(led_away.status == 502 && led_away.body == want, "{led_away:?}");
    let unavailable = connection.call("GET", &format!("{GROUP}/v2/things"), &[], None).await?;
    ensure!(unavailable.status == 503 && unavailable.body == "service unavailable\n", "{unavailable:?}");

    let discovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let groups = async || -> Result<Value> {
        let found = connection.call("GET", "/apis", &[("Accept", Some(discovery))], None).await?;
        let list: Value = serde_json::from_slice(&found.body)?;
        let mut items = list["items"].as_array().into_iter().flatten();
        Ok(items.find(|item| item["metadata"]["name"] == "g.example.com").cloned().unwrap_or_default())
    };
    let group = until("it is discovered", groups, |group| group["versions"][1].is_object()).await?;
    ensure!(group["versions"][0]["resources"][0]["resource"] == "things", "{group}");
    ensure!(group["versions"][1]["freshness"] == "Stale", "{group}");
    let group = connection.call("GET", GROUP, &[], None).await?;
    let group: Value = serde_json::from_slice(&group.body)?;
    ensure!(group["preferredVersion"]["groupVersion"] == "g.example.com/v1", "{group}");
    Ok(())
}
