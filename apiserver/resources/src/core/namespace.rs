//! Namespace: it has its own name as a label, and is deleted once its spec has no finalizers.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::selector::FieldSource::At;
use coracle_apimachinery::selector::SelectableFields;
use coracle_apimachinery::strategy::{Context, Part, Strategy};
use coracle_apimachinery::validation::{content, metadata};
use serde_json::{Value, json};

/// The fields that a field selector may name.
pub const SELECTABLE_FIELDS: SelectableFields =
    SelectableFields::of(&[("status.phase", At("/status/phase"))]).cluster_scoped();

const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The namespace controller's finalizer, in the spec.
const KUBERNETES: &str = "kubernetes";

/// The strategy of Namespace.
pub struct NamespaceStrategy;

impl Strategy for NamespaceStrategy {
    fn default(&self, namespace: &mut Value) {
        label_with_name(namespace);
        if namespace["status"]["phase"].as_str().unwrap_or("").is_empty() {
            namespace["status"]["phase"] = "Active".into();
        }
    }

    fn prepare_for_create(&self, namespace: &mut Value, _: &Context<'_>) {
        namespace["status"] = json!({"phase": "Active"});
        label_with_name(namespace);
        let mut finalizers = finalizers(namespace);
        if !finalizers.iter().any(|finalizer| finalizer == KUBERNETES) {
            finalizers.push(KUBERNETES.into());
        }
        namespace["spec"]["finalizers"] = finalizers.into();
    }

    fn prepare_for_update(&self, namespace: &mut Value, old: &Value, _: &Context<'_>) {
        namespace["spec"] = old.get("spec").cloned().unwrap_or_else(|| json!({}));
        label_with_name(namespace);
    }

    fn is_released(&self, namespace: &Value) -> bool {
        finalizers(namespace).is_empty()
    }

    fn validate(&self, namespace: &Field<'_>, errors: &mut Errors) {
        let finalizers = namespace.walk("spec.finalizers");
        for finalizer in finalizers.items() {
            validate_finalizer(&finalizer.with_path(finalizers.path().clone()), errors);
        }
    }

    fn validate_status_update(&self, namespace: &Field<'_>, _: &Field<'_>, errors: &mut Errors) {
        let terminating = namespace.walk("metadata.deletionTimestamp").exists();
        let (phase, empty) = if terminating { ("Terminating", "not empty") } else { ("Active", "empty") };
        let is = namespace.walk("status.phase");
        errors.push_if(is.str() != phase, || {
            is.with_path(namespace.path().child("status").child("Phase"))
                .invalid(format!("may only be '{phase}' if `deletionTimestamp` is {empty}"))
        });
    }

    fn validate_subresource_update(
        &self,
        _: Part,
        namespace: &Field<'_>,
        _: &Field<'_>,
        errors: &mut Errors,
    ) {
        for finalizer in namespace.walk("spec.finalizers").items() {
            validate_finalizer(&finalizer, errors);
        }
    }
}

fn label_with_name(namespace: &mut Value) {
    if let Some(name) = namespace.pointer("/metadata/name").filter(|name| *name != "").cloned() {
        namespace["metadata"]["labels"][NAME_LABEL] = name;
    }
}

fn finalizers(namespace: &Value) -> Vec<Value> {
    namespace.pointer("/spec/finalizers").and_then(Value::as_array).cloned().unwrap_or_default()
}

fn validate_finalizer(finalizer: &Field<'_>, errors: &mut Errors) {
    errors.invalid_each(finalizer, content::qualified_name(finalizer.str()));
    metadata::validate_standard_finalizer(finalizer, errors);
}
