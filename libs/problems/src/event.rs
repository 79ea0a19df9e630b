//! Events as lines.

use serde_json::Value;

use crate::resource::object_name;
use crate::text::{count, one_line, text};

/// An event, of any object.
#[derive(Clone, Debug)]
pub struct Event {
    /// The uid of the object.
    pub uid: String,
    /// Whether its type is Warning.
    pub is_warning: bool,
    /// The time in seconds, in RFC 3339, and the revision: later events are greater.
    pub age: (String, u64),
    /// The event with its time, type and object.
    pub line: String,
}

impl Event {
    /// Reads an event of the core group.
    pub fn of(event: &Value) -> Event {
        let object = &event["involvedObject"];
        let group = text(&object["apiVersion"]).and_then(|version| version.split_once('/'));
        let group = group.map_or("", |(group, _)| group);
        let kind = text(&object["kind"]).unwrap_or("object");
        let name = object_name(group, kind, &object["namespace"], &object["name"]);
        let time = time(event);
        let clock = time.get(11..).map_or_else(String::new, |clock| format!("{clock}Z "));
        let class = text(&event["type"]).unwrap_or("Normal");
        let (reason, message) = (text(&event["reason"]), text(&event["message"]));
        let times = match count(&event["count"]).max(count(&event["series"]["count"])) {
            0 | 1 => String::new(),
            times => format!(" ({times} times)"),
        };
        let what = crate::text::join([reason, message]);
        Event {
            uid: text(&object["uid"]).unwrap_or_default().to_owned(),
            is_warning: class == "Warning",
            age: (time.to_owned(), revision(event)),
            line: format!("{}{times}", one_line(&format!("{clock}{class} {name}: {what}"))),
        }
    }
}

/// Returns the last time of the event, without fractions of a second.
fn time(event: &Value) -> &str {
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    times.into_iter().find_map(text).and_then(|time| time.get(..19)).unwrap_or_default()
}

fn revision(event: &Value) -> u64 {
    text(&event["metadata"]["resourceVersion"]).and_then(|version| version.parse().ok()).unwrap_or_default()
}
