//! Times that the API accepts and [`Timestamp`] does not: the last two days of the year 9999.
//!
//! A client may write such a time, as one that never comes; the object that has it must not keep
//! controllers from seeing all others of its kind.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// The latest time that a [`Timestamp`] can be.
const LATEST: &str = "9999-12-30T22:00:00Z";

/// Maps of texts that clients choose, which are not times of the API.
const TEXTS: [&str; 3] = ["annotations", "data", "labels"];

/// Returns the text of an object with later times replaced by the latest one; None if it has none.
pub fn clamped(text: &str) -> Option<String> {
    let mut object = serde_json::from_str(text).ok()?;
    clamp(&mut object).then(|| object.to_string())
}

/// Replaces times; returns whether there was one.
fn clamp(value: &mut Value) -> bool {
    match value {
        Value::Array(items) => items.iter_mut().fold(false, |found, item| clamp(item) | found),
        Value::Object(members) => {
            members.iter_mut().fold(false, |found, (name, member)| clamp_member(name, member) | found)
        }
        _ => false,
    }
}

fn clamp_member(name: &str, member: &mut Value) -> bool {
    match member {
        Value::String(text) if is_time(name) && is_too_late(text) => {
            LATEST.clone_into(text);
            true
        }
        Value::Object(_) if TEXTS.contains(&name) => false,
        member => clamp(member),
    }
}

/// Returns `true` for the names of times: `renewTime`, `timeAdded`, `deletionTimestamp`,
/// `startedAt`.
fn is_time(name: &str) -> bool {
    name.starts_with("time") || name.contains("Time") || name.ends_with("At")
}

fn is_too_late(text: &str) -> bool {
    text.starts_with("9999-12-3") && text.ends_with('Z') && text.parse::<Timestamp>().is_err()
}
