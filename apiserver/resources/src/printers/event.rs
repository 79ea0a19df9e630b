//! Events.

use coracle_apimachinery::render::columns::Text::Field as Described;
use coracle_apimachinery::render::columns::{Column, NAME, Row, string};
use serde_json::Value;

/// The columns of Event and Event.
pub const EVENT: &[Column] = &[
    string("Last Seen", Described("core.v1.Event.lastTimestamp"), |row| last_seen(row).into()),
    string("Type", Described("core.v1.Event.type"), |row| row.text("type")),
    string("Reason", Described("core.v1.Event.reason"), |row| row.text("reason")),
    string("Object", Described("core.v1.Event.involvedObject"), |row| {
        let object = row.get("involvedObject");
        let kind = object.get("kind").str().to_lowercase();
        match object.get("name").str() {
            "" => kind.into(),
            name => format!("{kind}/{name}").into(),
        }
    }),
    string("Subobject", Described("core.v1.ObjectReference.fieldPath"), |row| {
        row.text("involvedObject.fieldPath")
    })
    .wide(),
    string("Source", Described("core.v1.Event.source"), source).wide(),
    string("Message", Described("core.v1.Event.message"), |row| row.get("message").str().trim().into()),
    string("First Seen", Described("core.v1.Event.firstTimestamp"), |row| first_seen(row).into()).wide(),
    string("Count", Described("core.v1.Event.count"), count).wide(),
    NAME.wide(),
];

fn first_seen(row: &Row<'_>) -> String {
    if row.get("firstTimestamp").exists() { row.since("firstTimestamp") } else { row.since("eventTime") }
}

fn last_seen(row: &Row<'_>) -> String {
    if row.get("series").exists() {
        row.since("series.lastObservedTime")
    } else if row.get("lastTimestamp").exists() {
        row.since("lastTimestamp")
    } else {
        first_seen(row)
    }
}

fn count(row: &Row<'_>) -> Value {
    if row.get("series").exists() {
        return row.integer("series.count");
    }
    match row.get("count").int() {
        None | Some(0) => 1.into(),
        Some(count) => count.into(),
    }
}

/// Formats the reporting component and its host: `kubelet, node-0`.
fn source(row: &Row<'_>) -> Value {
    let either = |first: &str, second: &str| row.text_or(first, row.get(second).str());
    let component = either("source.component", "reportingComponent");
    let instance = either("source.host", "reportingInstance");
    match (component.as_str().unwrap_or_default(), instance.as_str().unwrap_or_default()) {
        (component, "") => component.into(),
        (component, instance) => format!("{component}, {instance}").into(),
    }
}
