//! Event: one kind, served in two groups; stored as core/v1.
//!
//! [`to_core`] and [`to_events`] convert between the two versions of an object. The rules apply to
//! the stored version, whose field names kube-apiserver uses in messages for either group; only the
//! stricter rules differ by group.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::selector::FieldSource::{At, Either};
use coracle_apimachinery::selector::SelectableFields;
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::immutable::{immutable, immutable_as};
use coracle_apimachinery::validation::{content, printed};
use serde_json::Value;

/// The fields that a field selector may name.
pub const SELECTABLE_FIELDS: SelectableFields = SelectableFields::of(&[
    ("involvedObject.kind", At("/involvedObject/kind")),
    ("involvedObject.namespace", At("/involvedObject/namespace")),
    ("involvedObject.name", At("/involvedObject/name")),
    ("involvedObject.uid", At("/involvedObject/uid")),
    ("involvedObject.apiVersion", At("/involvedObject/apiVersion")),
    ("involvedObject.resourceVersion", At("/involvedObject/resourceVersion")),
    ("involvedObject.fieldPath", At("/involvedObject/fieldPath")),
    ("reason", At("/reason")),
    ("reportingComponent", At("/reportingComponent")),
    ("source", Either("/source/component", "/reportingComponent")),
    ("type", At("/type")),
]);

/// The selectable fields of group `events.k8s.io`. Events are stored in the core form: the same
/// values under other names, in the same order.
pub const EVENTS_V1_SELECTABLE_FIELDS: SelectableFields = SelectableFields::of(&[
    ("regarding.kind", At("/involvedObject/kind")),
    ("regarding.namespace", At("/involvedObject/namespace")),
    ("regarding.name", At("/involvedObject/name")),
    ("regarding.uid", At("/involvedObject/uid")),
    ("regarding.apiVersion", At("/involvedObject/apiVersion")),
    ("regarding.resourceVersion", At("/involvedObject/resourceVersion")),
    ("regarding.fieldPath", At("/involvedObject/fieldPath")),
    ("reason", At("/reason")),
    ("reportingController", At("/reportingComponent")),
    // No selector can name it: it reserves the index of `source`.
    ("\0", Either("/source/component", "/reportingComponent")),
    ("type", At("/type")),
]);

/// Members with different names in the two groups: core's, events.k8s.io's.
const RENAMED: [(&str, &str); 8] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

/// Converts an event from events.k8s.io/v1 to the stored version.
pub fn to_core(event: Value) -> Value {
    rename(event, "v1", |(core, events)| (events, core))
}

/// Converts a stored event to events.k8s.io/v1.
pub fn to_events(event: Value) -> Value {
    rename(event, "events.k8s.io/v1", |names| names)
}

fn rename(
    mut event: Value,
    api_version: &str,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) -> Value {
    if let Some(members) = event.as_object_mut() {
        for (from, to) in RENAMED.map(direction) {
            if let Some(value) = members.remove(from) {
                members.insert(to.to_owned(), value);
            }
        }
        members.insert("apiVersion".to_owned(), api_version.into());
    }
    event
}

/// The strategy of Event in the core group, with lenient rules for older clients.
pub struct EventStrategy;

impl Strategy for EventStrategy {
    fn validate(&self, event: &Field<'_>, errors: &mut Errors) {
        validate(event, "reportingComponent", errors);
    }
}

/// The strategy of Event in the group events.k8s.io.
pub struct EventsV1Strategy;

impl Strategy for EventsV1Strategy {
    fn validate(&self, event: &Field<'_>, errors: &mut Errors) {
        validate(event, "reportingController", errors);
        validate_series(event, errors);
        let time = event.get("eventTime");
        errors.push_if(time.is_empty(), || time.required(""));
        let kind = event.get("type");
        errors.push_if(!["Normal", "Warning"].contains(&kind.str()), || {
            kind.invalid_value("", format!("has invalid value: {}", kind.str()))
        });
        for old in ["firstTimestamp", "lastTimestamp", "count", "source"].map(|member| event.get(member)) {
            let unset = old.is_empty() || old.int() == Some(0);
            errors.push_if(!unset, || old.invalid_value("", "needs to be unset"));
        }
    }

    fn validate_update(&self, event: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate(event, "reportingController", errors);
        if event.get("series").value() != old.get("series").value() {
            validate_series(event, errors);
        }
        let pair = |member| (event.get(member), old.get(member));
        let stays = |member: &str, errors: &mut Errors| {
            let (new, old) = (event.get(member), old.get(member));
            if new.str() != old.str() {
                errors.push(new.invalid(coracle_apimachinery::validation::immutable::IMMUTABLE));
            }
        };
        let (new, was) = pair("involvedObject");
        immutable_as("core.ObjectReference", &new, &was, errors);
        stays("reason", errors);
        stays("message", errors);
        let (new, was) = pair("source");
        immutable_as("core.EventSource", &new, &was, errors);
        for member in ["firstTimestamp", "lastTimestamp"] {
            immutable(&event.get(member), &old.get(member), errors);
        }
        let (new, was) = pair("count");
        let count = |field: &Field<'_>| field.int().unwrap_or(0);
        errors.push_if(count(&new) != count(&was), || {
            new.invalid_value(count(&new), coracle_apimachinery::validation::immutable::IMMUTABLE)
        });
        stays("reason", errors);
        stays("type", errors);
        let (new, was) = pair("eventTime");
        immutable(&new, &was, errors);
        stays("action", errors);
        let (new, was) = pair("related");
        errors.push_if(new.value() != was.value(), || {
            let error = new.invalid(coracle_apimachinery::validation::immutable::IMMUTABLE);
            match new.value() {
                Some(value) => {
                    error.with_bad_value_text(printed::internal("core.ObjectReference", Some(value)))
                }
                None => error.with_bad_value_text("null".to_owned()),
            }
        });
        let (new, was) = (event.get("reportingComponent"), old.get("reportingComponent"));
        errors.push_if(new.str() != was.str(), || {
            new.with_path(event.path().child("reportingController"))
                .invalid(coracle_apimachinery::validation::immutable::IMMUTABLE)
        });
        stays("reportingInstance", errors);
    }
}

/// Validates the rules of every event. Events with an `eventTime` are of the new API, which has
/// stricter rules.
fn validate(event: &Field<'_>, reporter: &str, errors: &mut Errors) {
    let namespace = event.walk("metadata.namespace").str();
    let object_namespace = event.walk("involvedObject.namespace");
    let is_new = !event.get("eventTime").is_empty();
    let outside = if is_new { ["default", "kube-system"] } else { ["default", ""] };
    let fits = match object_namespace.str() {
        "" => outside.contains(&namespace),
        inside => is_new || inside == namespace,
    };
    errors.push_if(!fits, || object_namespace.invalid("does not match event.namespace"));
    if is_new {
        let reporter = event.get("reportingComponent").with_path(event.path().child(reporter));
        errors.push_if(reporter.is_empty(), || reporter.required(""));
        errors.invalid_each(&reporter, content::qualified_name(reporter.str()));
        for (member, max, required) in [
            ("reportingInstance", 128, true),
            ("action", 128, true),
            ("reason", 128, true),
            ("message", 1024, false),
        ] {
            let member = event.get(member);
            errors.push_if(required && member.is_empty(), || member.required(""));
            errors.push_if(member.len() > max, || {
                member.invalid_value("", format!("can have at most {max} characters"))
            });
        }
    }
    let reported = event.walk("metadata.namespace").with_path(event.path().child("namespace"));
    errors.invalid_each(&reported, content::dns1123_subdomain(namespace));
}

fn validate_series(event: &Field<'_>, errors: &mut Errors) {
    let series = event.get("series");
    if !series.exists() {
        return;
    }
    let (count, last) = (series.get("count"), series.get("lastObservedTime"));
    errors.push_if(count.int().unwrap_or(0) < 2, || count.invalid_value("", "should be at least 2"));
    errors.push_if(last.is_empty(), || last.required(""));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_representations_round_trip() {
        let stored = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
            "involvedObject": {"name": "p"}, "message": "m", "source": {"component": "c"}, "count": 2,
            "firstTimestamp": "2026-01-01T00:00:00Z", "reportingComponent": "r", "reason": "R"});
        let shown = to_events(stored.clone());
        assert_eq!(
            shown,
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
                "regarding": {"name": "p"}, "note": "m", "deprecatedSource": {"component": "c"}, "deprecatedCount": 2,
                "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z", "reportingController": "r", "reason": "R"})
        );
        assert_eq!(to_core(shown), stored);
    }
}
