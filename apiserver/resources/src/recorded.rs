//! The common parts of the tests with recorded responses of a real server: reading the cases, merge
//! patches, and the context of the requests. The formats differ in the parts of a response that
//! they recorded: see `answers.rs`, `corpus.rs`, `pod_spec/tests.rs` and `printers/tests.rs`.

use std::collections::BTreeMap;

use coracle_apimachinery::features::FeatureGates;
use coracle_apimachinery::field::Errors;
use coracle_apimachinery::schema::schema;
use coracle_apimachinery::strategy::Context;
use coracle_apimachinery::user::UserInfo;
use serde_json::Value;

/// The context of the recorded requests.
pub const CONTEXT: Context<'_> = Context {
    now: "2026-01-02T03:04:05Z",
    user: &UserInfo { name: String::new(), uid: String::new(), groups: Vec::new(), extra: BTreeMap::new() },
    features: &FeatureGates::DEFAULT,
};

/// Parses the cases of a file, one a line.
pub fn cases(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Formats the causes of a rejection as they are recorded.
pub fn causes(errors: &Errors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// Sets `apiVersion` and `kind` as stored objects have them, so that the names that strategies read
/// are checked.
pub fn set_type(object: &mut Value, group: &str, kind: &str) {
    let mut resources = schema().resources().iter();
    let resource = resources.find(|resource| resource.group == group && resource.kind == kind);
    // Kinds of subresources stay as they are.
    let Some((group, version)) = resource.map(|resource| resource.storage_version) else { return };
    object["apiVersion"] =
        if group.is_empty() { version.into() } else { format!("{group}/{version}").into() };
    object["kind"] = kind.into();
}

/// Applies a merge patch (RFC 7386).
pub fn merged(base: &Value, patch: &Value) -> Value {
    let Some(patch) = patch.as_object() else { return patch.clone() };
    let mut members = base.as_object().cloned().unwrap_or_default();
    for (name, change) in patch {
        match change {
            Value::Null => members.remove(name),
            change => {
                let value = merged(members.get(name).unwrap_or(&Value::Null), change);
                members.insert(name.clone(), value)
            }
        };
    }
    Value::Object(members)
}
