//! Pod templates: when two are the same.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Map, Value, json};

use coracle_quantity::Quantity;

/// The label with the hash, on ReplicaSets, in their selectors, and on pods.
pub(super) const HASH_LABEL: &str = "pod-template-hash";

/// Returns `true` if two templates are equal except for the hash. Quantities are compared by value,
/// and empty lists and maps count as absent.
pub(super) fn equals_without_hash(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    let (a, b) = (without_hash(a), without_hash(b));
    a == b || equals(&json!(a), &json!(b), "")
}

/// Returns a template without the hash label.
pub(super) fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(meta) = &mut template.metadata
        && let Some(labels) = &mut meta.labels
    {
        labels.remove(HASH_LABEL);
    }
    template
}

/// Compares two values. `field` is the name of the field that holds them.
fn equals(a: &Value, b: &Value, field: &str) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let same = |(key, a): (&String, &Value)| match b.get(key) {
                Some(b) if holds_quantities(field) => same_quantity(a, b),
                Some(b) => equals(a, b, key),
                None => is_absent(a, key),
            };
            let are_extra_absent =
                |b: &Map<String, Value>| b.iter().all(|(key, b)| a.contains_key(key) || is_absent(b, key));
            a.iter().all(same) && are_extra_absent(b)
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equals(a, b, ""))
        }
        (a, b) if matches!(field, "sizeLimit" | "divisor") => same_quantity(a, b),
        (a, b) => a == b,
    }
}

fn holds_quantities(field: &str) -> bool {
    matches!(field, "limits" | "requests" | "overhead")
}

fn same_quantity(a: &Value, b: &Value) -> bool {
    let quantity = |value: &Value| value.as_str().and_then(|text| text.parse::<Quantity>().ok());
    match (quantity(a), quantity(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// Returns `true` if a value counts as absent: an empty list or an empty map. An empty struct does
/// not count as absent, since it may choose a variant.
fn is_absent(value: &Value, field: &str) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => {
            let is_map = holds_quantities(field)
                || matches!(field, "labels" | "annotations" | "nodeSelector" | "matchLabels");
            entries.is_empty() && is_map
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(spec: Value, labels: Value) -> PodTemplateSpec {
        serde_json::from_value(json!({"metadata": {"labels": labels}, "spec": spec})).unwrap()
    }

    fn with(container: Value) -> Value {
        let mut whole = json!({"name": "c", "image": "i"});
        whole.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        json!({"containers": [whole]})
    }

    #[test]
    fn templates_are_compared_by_meaning() {
        let labels = || json!({"app": "web"});
        let cpu = |cpu: &str| with(json!({"resources": {"limits": {"cpu": cpu}}}));
        let volume =
            |volume: Value| json!({"containers": [], "volumes": [{"name": "v", "emptyDir": volume}]});
        for (case, a, b, want) in [
            ("the same", with(json!({})), with(json!({})), true),
            ("another image", with(json!({})), with(json!({"image": "j"})), false),
            ("a quantity in another form", cpu("1"), cpu("1000m"), true),
            ("another quantity", cpu("1"), cpu("1001m"), false),
            ("an empty list", with(json!({"args": []})), with(json!({})), true),
            (
                "an empty map",
                with(json!({"resources": {"limits": {}}})),
                with(json!({"resources": {}})),
                true,
            ),
            ("an empty struct", with(json!({"securityContext": {}})), with(json!({})), false),
            ("a size", volume(json!({"sizeLimit": "1Gi"})), volume(json!({"sizeLimit": "1024Mi"})), true),
            ("a size more", volume(json!({"sizeLimit": "1Gi"})), volume(json!({})), false),
        ] {
            let (a, b) = (template(a, labels()), template(b, json!({"app": "web", HASH_LABEL: "x"})));
            assert_eq!(equals_without_hash(&a, &b), want, "{case}");
            assert_eq!(equals_without_hash(&b, &a), want, "{case}, the other way round");
        }
        let (a, b) = (template(with(json!({})), labels()), template(with(json!({})), json!({"app": "x"})));
        assert!(!equals_without_hash(&a, &b), "labels");
    }
}
