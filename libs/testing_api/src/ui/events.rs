//! The Events of the page.

use coracle_why::Objects;
use serde::Serialize;
use serde_json::Value;

use crate::why::StoredObjects;

/// The maximum number of Events of an answer: the newest ones.
const MAX_EVENTS: usize = 500;
/// The characters of a message that are kept.
const MAX_MESSAGE_LENGTH: usize = 1000;

/// The Events of a moment.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Events {
    /// The Events, newest first.
    events: Vec<Event>,
    /// Whether there are more.
    is_truncated: bool,
}

/// An Event.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    revision: String,
    time: String,
    #[serde(rename = "type")]
    event_type: String,
    reason: String,
    message: String,
    count: i64,
    source: String,
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

/// Reads the Events, of all objects or of that with a uid.
pub fn read(objects: &StoredObjects, uid: Option<&str>) -> Events {
    let is_meant = |event: &Value| uid.is_none_or(|uid| event["involvedObject"]["uid"] == uid);
    let mut found = objects.newest_first("events").filter(is_meant);
    let events = found.by_ref().take(MAX_EVENTS).map(|found| event(&found)).collect();
    let is_truncated = found.next().is_some() || objects.is_truncated();
    Events { events, is_truncated }
}

fn event(event: &Value) -> Event {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let involved = &event["involvedObject"];
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    let time = times.into_iter().find(|time| time.is_string()).map(text).unwrap_or_default();
    let source = [&event["source"]["component"], &event["reportingComponent"]];
    let source = source.into_iter().map(text).find(|source| !source.is_empty()).unwrap_or_default();
    let count = event["series"]["count"].as_i64().or(event["count"].as_i64()).unwrap_or(1);
    Event {
        time,
        event_type: text(&event["type"]),
        reason: text(&event["reason"]),
        message: text(&event["message"]).chars().take(MAX_MESSAGE_LENGTH).collect(),
        count,
        source,
        kind: text(&involved["kind"]),
        namespace: text(&involved["namespace"]),
        name: text(&involved["name"]),
        uid: text(&involved["uid"]),
        revision: text(&event["metadata"]["resourceVersion"]),
    }
}
