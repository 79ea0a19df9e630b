//! `coracle replay`: the recorded writes of clients, sent to a running control plane.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use coracle_record::{Entry, Limits, Record, Request};
use http::Method;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tokio::time::Instant;

use crate::cli::ReplayFlags;
use crate::kubeconfig_client::client;
use crate::output::say;
use crate::process::unreachable;

/// The time that the server has to respond.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The differences that are printed.
const MAX_PRINTED: usize = 20;

/// The outcome of a replay.
#[derive(Debug, Default)]
struct Outcome {
    sent: usize,
    /// The requests that had another status code than they have in the record.
    different: usize,
    /// The requests that are not sent, since their secrets are not in the record.
    redacted: usize,
}

/// Sends the recorded requests that changed something, in their order. Returns `true` if all had the
/// status codes of the record.
///
/// - `kubeconfig`: None for kubectl's
///
/// # Errors
/// The file is not an intact record, or the control plane cannot be reached.
#[expect(clippy::disallowed_methods, reason = "the pauses are of the machine's time")]
pub async fn replay(kubeconfig: Option<&Path>, flags: &ReplayFlags) -> Result<bool> {
    let record = Record::open(&flags.record, Limits::default())?;
    let (client, url) = client(kubeconfig, READ_TIMEOUT).await?;
    let mut outcome = Outcome::default();
    let mut pace = Pace { speed: flags.speed, began: None };
    for entry in record.entries() {
        let Entry::Request(request) = entry? else { continue };
        if *request.fork != *flags.fork || !is_replayed(&request) {
            continue;
        }
        if record.header().redacted && is_redacted(&request) {
            outcome.redacted += 1;
            continue;
        }
        if let Some(due) = pace.due(request.time, Instant::now()) {
            tokio::time::sleep_until(due).await;
        }
        let code = send(&client, &request).await.map_err(|error| unreachable(&url, error))?;
        outcome.sent += 1;
        if code != request.code {
            outcome.different += 1;
            if outcome.different <= MAX_PRINTED {
                let Request { verb, path, code: before, .. } = &*request;
                say!("{verb} {path}: {code}, and {before} in the record");
            }
        }
    }
    if outcome.different > MAX_PRINTED {
        say!("... and {} more", outcome.different - MAX_PRINTED);
    }
    if outcome.redacted > 0 {
        let left_out = requests(outcome.redacted);
        say!("{left_out} left out: their secrets are not in the record (--record-secrets)");
    }
    if let Some(damage) = record.damage() {
        say!("{damage}");
    }
    let (sent, different) = (requests(outcome.sent), outcome.different);
    say!("{sent} sent to {url}, {different} of them with another response");
    Ok(different == 0)
}

/// Formats a number of requests.
fn requests(count: usize) -> String {
    if count == 1 { "1 request".to_owned() } else { format!("{count} requests") }
}

/// Returns `true` if a request was a successful write of a client. The writes of the control plane
/// itself follow from these.
fn is_replayed(request: &Request) -> bool {
    let changes = ["create", "update", "patch", "delete", "deletecollection"].contains(&&*request.verb);
    changes && !request.resource.is_empty() && (200..300).contains(&request.code) && !request.is_own
}

/// Returns `true` if the body of a request has secrets, which are not in a record.
fn is_redacted(request: &Request) -> bool {
    let secrets = [
        ("", "secrets", ""),
        ("", "serviceaccounts", "token"),
        ("authentication.k8s.io", "tokenreviews", ""),
    ];
    let place = (&*request.group, &*request.resource, &*request.subresource);
    secrets.contains(&place) && request.body.is_some()
}

/// Returns the body to send. It leaves out the fields that identify an object or a version of the
/// recorded control plane, since the new control plane has others.
fn body(request: &Request) -> Vec<u8> {
    let Some(body) = &request.body else { return Vec::new() };
    let Ok(mut value) = serde_json::from_slice::<Value>(body) else { return body.to_vec() };
    // A JSON patch is a list. Its tests stay as the author wrote them.
    let Some(members) = value.as_object_mut() else { return body.to_vec() };
    members.remove("preconditions");
    if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
        ["resourceVersion", "uid", "creationTimestamp"]
            .iter()
            .for_each(|member| drop(metadata.remove(*member)));
    }
    value.to_string().into_bytes()
}

/// Sends a request. Returns the status code.
async fn send(client: &Client, request: &Request) -> Result<u16, kube::Error> {
    let method = match &*request.verb {
        "create" => Method::POST,
        "update" => Method::PUT,
        "patch" => Method::PATCH,
        _ => Method::DELETE,
    };
    let mut sent = http::Request::builder().method(method).uri(&*request.path);
    if !request.content_type.is_empty() {
        sent = sent.header(http::header::CONTENT_TYPE, &*request.content_type);
    }
    let sent = sent.body(kube::client::Body::from(body(request))).map_err(kube::Error::HttpError)?;
    Ok(client.send(sent).await?.status().as_u16())
}

/// The speed at which requests follow each other.
struct Pace {
    /// The speed as a multiple of that in the record; None for no pauses.
    speed: Option<f64>,
    /// The time of the first request in the record, and the time at which it was sent.
    began: Option<(Timestamp, Instant)>,
}

impl Pace {
    /// Returns the time at which a request is sent; None for at once.
    fn due(&mut self, time: Timestamp, now: Instant) -> Option<Instant> {
        let speed = self.speed?;
        let (first, began) = *self.began.get_or_insert((time, now));
        let since = Duration::try_from(time.duration_since(first)).unwrap_or_default();
        Some(began + since.div_f64(speed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(verb: &str, resource: &str, is_own: bool, code: u16) -> Request {
        Request {
            fork: "".into(),
            time: Timestamp::UNIX_EPOCH,
            duration: Duration::ZERO,
            user: "alice".into(),
            user_agent: "".into(),
            is_own,
            verb: verb.into(),
            group: "".into(),
            resource: resource.into(),
            subresource: "".into(),
            namespace: "".into(),
            name: "".into(),
            path: "/".into(),
            code,
            reason: "".into(),
            message: "".into(),
            content_type: "".into(),
            body: None,
        }
    }

    #[test]
    fn writes_of_clients_that_succeeded_are_sent_again() {
        for (case, sent, want) in [
            ("a write", request("create", "pods", false, 201), true),
            ("a read", request("get", "pods", false, 200), false),
            ("a path that is no resource", request("post", "", false, 200), false),
            ("a refused write", request("create", "pods", false, 409), false),
            ("a controller", request("create", "pods", true, 201), false),
        ] {
            assert_eq!(is_replayed(&sent), want, "{case}");
        }
    }

    #[test]
    fn bodies_name_no_version_of_the_recorded_control_plane() {
        let sent = |text: &'static str| {
            let body = body(&Request { body: Some(text.into()), ..request("update", "pods", false, 200) });
            String::from_utf8(body).expect("text")
        };
        let object =
            r#"{"metadata":{"name":"a","resourceVersion":"7","uid":"u"},"preconditions":{"uid":"u"}}"#;
        assert_eq!(sent(object), r#"{"metadata":{"name":"a"}}"#);
        assert_eq!(sent(r#"[{"op":"test"}]"#), r#"[{"op":"test"}]"#);
        assert_eq!(sent("kind: Pod"), "kind: Pod");
    }

    #[test]
    fn requests_follow_each_other_at_the_speed_of_the_flag() {
        let (at, now) = (|second| Timestamp::from_second(second).expect("a time"), Instant::now());
        for (speed, want) in [(None, None), (Some(1.0), Some(60)), (Some(60.0), Some(1))] {
            let mut pace = Pace { speed, began: None };
            pace.due(at(100), now);
            let due = pace.due(at(160), now).map(|due| due.duration_since(now).as_secs());
            assert_eq!(due, want, "{speed:?}");
            let earlier = pace.due(at(30), now).map(|due| due.duration_since(now).as_secs());
            assert_eq!(earlier, want.map(|_| 0), "{speed:?}");
        }
    }
}
