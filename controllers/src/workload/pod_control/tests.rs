//! Pod control over a scripted API.

use std::convert::Infallible;

use coracle_clock::Clock;
use coracle_controller_runtime::Context;
use coracle_controller_runtime::metrics::Metrics;
use http::{Request, Response};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;

const LAST: &str = "Last";

/// Creates a client of an API that responds to requests for pods with this response. Also returns
/// the reasons and messages of the events that are written.
fn api(code: u16, response: Value) -> (Client, mpsc::UnboundedReceiver<(String, String)>) {
    let (sender, events) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (sender, response) = (sender.clone(), response.to_string());
        async move {
            let is_event = request.uri().path().contains("/events");
            let body = request.into_body().collect_bytes().await.unwrap_or_default();
            let (code, text) = if is_event {
                let event: Value = serde_json::from_slice(&body).unwrap();
                let text = |field: &str| event[field].as_str().unwrap().to_owned();
                sender.send((text("reason"), text("message"))).unwrap();
                (201, event.to_string())
            } else {
                (code, response)
            };
            let response = Response::builder().status(code).body(Body::from(text.into_bytes())).unwrap();
            Ok::<_, Infallible>(response)
        }
    });
    (Client::new(service, "default"), events)
}

fn pod(labels: Value) -> Arc<Pod> {
    let meta = json!({"name": "web-1", "namespace": "n", "uid": "u", "labels": labels});
    Arc::new(serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta})).unwrap())
}

fn refusal(code: u16, reason: &str, cause: Option<&str>) -> (u16, Value) {
    let causes: Vec<Value> =
        cause.map(|reason| json!({"reason": reason, "message": "", "field": ""})).into_iter().collect();
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "refused", "reason": reason, "code": code,
        "details": {"causes": causes},
    });
    (code, status)
}

/// Returns the outcome, and the events about the owner.
async fn outcome(
    (code, response): (u16, Value),
    pod: &Arc<Pod>,
    creates: bool,
) -> (Result<(), String>, Vec<(String, String)>) {
    let (client, mut written) = api(code, response);
    let (clock, _mock) = Clock::mock(Timestamp::UNIX_EPOCH);
    let context = Context::new(client.clone(), clock, Metrics::default(), ());
    let recorder = context.recorder("test");
    let control = PodControl::new(recorder.clone(), Arc::new(Cache::with([])));
    let owner = json!({"metadata": {"name": "web", "namespace": "n", "uid": "o"}});
    let owner: ReplicaSet = serde_json::from_value(owner).unwrap();
    let ctx = ReconcileContext::new(client.clone());
    let outcome = match creates {
        true => control.create_pods(&owner, &[pod.as_ref().clone()], &ctx).await,
        false => control.delete_pods(&owner, std::slice::from_ref(pod), &ctx).await,
    };
    recorder.normal(&owner, LAST, "");
    let mut events = Vec::new();
    while let Some(event) = written.recv().await
        && event.0 != LAST
    {
        events.push(event);
    }
    (outcome.map_err(|error| error.message()), events)
}

#[tokio::test]
async fn creations_and_deletions_are_recorded() {
    let labelled = pod(json!({"app": "web"}));
    let ok = |code| (code, json!(labelled.as_ref()));
    let terminating = || refusal(403, "Forbidden", Some("NamespaceTerminating"));
    let refused = || Err("refused".to_owned());
    for (case, creates, response, want, event) in [
        ("created", true, ok(201), Ok(()), Some(("SuccessfulCreate", "Created pod: web-1"))),
        (
            "refused",
            true,
            refusal(403, "Forbidden", None),
            refused(),
            Some(("FailedCreate", "Error creating: refused")),
        ),
        ("in a terminating namespace", true, terminating(), Ok(()), None),
        ("deleted", false, ok(200), Ok(()), Some(("SuccessfulDelete", "Deleted pod: web-1"))),
        ("deleted before", false, refusal(404, "NotFound", None), Ok(()), None),
        ("another by now", false, refusal(409, "Conflict", None), Ok(()), None),
        (
            "not to be deleted",
            false,
            refusal(403, "Forbidden", None),
            Err("unable to delete pods: refused".to_owned()),
            Some(("FailedDelete", "Error deleting: refused")),
        ),
    ] {
        let (found, events) = outcome(response, &labelled, creates).await;
        assert_eq!(found, want, "{case}");
        let event = event.map(|(reason, message)| (reason.to_owned(), message.to_owned()));
        assert_eq!(events, event.into_iter().collect::<Vec<_>>(), "{case}");
    }
    let (found, events) = outcome((500, json!({})), &pod(json!({})), true).await;
    assert_eq!((found, events), (Err("unable to create pods, no labels".to_owned()), Vec::new()));
}
