//! ReplicationController.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::selector::FieldSource::AtOr;
use coracle_apimachinery::selector::SelectableFields;
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::{content, numbers};
use serde_json::{Value, json};

use crate::pod_spec::{self, PodValidationOptions};

/// The fields that a field selector may name.
pub const SELECTABLE_FIELDS: SelectableFields =
    SelectableFields::of(&[("status.replicas", AtOr("/status/replicas", "0"))]);

/// The strategy of ReplicationController.
pub struct ReplicationControllerStrategy;

impl Strategy for ReplicationControllerStrategy {
    fn default(&self, object: &mut Value) {
        default_labels(object);
        let Some(spec) = object["spec"].as_object_mut() else { return };
        spec.entry("replicas").or_insert_with(|| json!(1));
        if let Some(template) = spec.get_mut("template") {
            pod_spec::default_pod_template(template);
        }
    }

    fn prepare_for_create(&self, object: &mut Value, context: &Context<'_>) {
        if let Some(template) = object.pointer_mut("/spec/template") {
            pod_spec::prepare_pod_template(template, None, context.features);
        }
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        if let Some(template) = object.pointer_mut("/spec/template") {
            pod_spec::prepare_pod_template(template, old.pointer("/spec/template"), context.features);
        }
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        validate_spec(&object.get("spec"), &PodValidationOptions::for_template(), errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let options = PodValidationOptions::for_template_update(&old.walk("spec.template"));
        validate_spec(&object.get("spec"), &options, errors);
    }

    fn validate_status_update(&self, object: &Field<'_>, _: &Field<'_>, errors: &mut Errors) {
        validate_status(&object.get("status"), errors);
    }

    fn warnings(&self, object: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
        let (spec, template) = (object.get("spec"), object.walk("spec.template"));
        if let Some(old) = old {
            // kube-apiserver warns about the replaced template.
            let changed = old.get("spec").value() != spec.value();
            let old = old.walk("spec.template");
            return if changed { pod_spec::pod_template_warnings(&old) } else { Vec::new() };
        }
        let mut warnings = Vec::new();
        let found = content::dns1123_label(object.walk("metadata.name").str());
        if !found.is_empty() {
            warnings.push(format!(
                "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
                found.join(" ")
            ));
        }
        warnings.extend(pod_spec::pod_template_warnings(&template));
        warnings
    }
}

/// Copies the labels of the template to a controller without selector or labels.
fn default_labels(object: &mut Value) {
    let Some(labels) = object.pointer("/spec/template/metadata/labels").cloned() else { return };
    let missing = |object: &Value, owner: &str, member: &str| {
        let value = object.pointer(owner).and_then(|owner| owner.get(member)).and_then(Value::as_object);
        value.is_none_or(|map| map.is_empty())
    };
    if missing(object, "/spec", "selector") {
        object["spec"]["selector"] = labels.clone();
    }
    if missing(object, "/metadata", "labels") {
        object["metadata"]["labels"] = labels;
    }
}

fn validate_spec(spec: &Field<'_>, options: &PodValidationOptions, errors: &mut Errors) {
    let (selector, replicas) = (spec.get("selector"), spec.get("replicas"));
    numbers::not_negative(&spec.get("minReadySeconds"), errors);
    errors.push_if(selector.is_empty(), || selector.required(""));
    if replicas.exists() {
        numbers::not_negative(&replicas, errors);
    } else {
        errors.push(replicas.required(""));
    }
    let template = spec.get("template");
    if !template.exists() {
        errors.push(template.required(""));
        return;
    }
    let labels = template.walk("metadata.labels");
    let selected = selector.entries().all(|(key, value)| labels.get(key).value() == value.value());
    errors.push_if(!selected, || {
        let shown = labels.value().cloned().unwrap_or(Value::Null);
        labels.invalid_value(shown, "`selector` does not match template `labels`")
    });
    pod_spec::validate_pod_template(&template, options, errors);
    let restart = template.walk("spec.restartPolicy");
    errors.push_if(restart.str() != "Always", || restart.not_supported(&["Always"]));
    let deadline = template.walk("spec.activeDeadlineSeconds");
    errors.push_if(deadline.exists(), || {
        deadline.forbidden("activeDeadlineSeconds in ReplicationController is not Supported")
    });
}

fn validate_status(status: &Field<'_>, errors: &mut Errors) {
    for member in
        ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"]
    {
        numbers::not_negative(&status.get(member), errors);
    }
    let count = |member: &str| status.get(member).int().unwrap_or(0);
    for (part, whole, detail) in [
        ("fullyLabeledReplicas", "replicas", "cannot be greater than status.replicas"),
        ("readyReplicas", "replicas", "cannot be greater than status.replicas"),
        ("availableReplicas", "replicas", "cannot be greater than status.replicas"),
        ("availableReplicas", "readyReplicas", "cannot be greater than readyReplicas"),
    ] {
        errors.push_if(count(part) > count(whole), || status.get(part).invalid_value(count(part), detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_from_the_template() {
        let mut object =
            json!({"metadata": {"name": "rc"}, "spec": {"template": {"metadata": {"labels": {"a": "b"}}}}});
        ReplicationControllerStrategy.default(&mut object);
        assert_eq!(object["spec"]["selector"], json!({"a": "b"}));
        assert_eq!(object["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(object["spec"]["replicas"], json!(1));
    }

    #[test]
    fn specs_are_validated() {
        let pod = json!({"containers": [{"name": "c", "image": "i:1"}]});
        for (case, spec, want) in [
            ("nothing", json!({}), vec!["spec.selector: Required value", "spec.template: Required value"]),
            (
                "another selector",
                json!({"selector": {"x": "y"}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}),
                vec![
                    "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
                ],
            ),
            (
                "not for ever",
                json!({"template": {"metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "i:1"}], "restartPolicy": "Never", "activeDeadlineSeconds": 5}}}),
                vec![
                    "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
                    "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicationController is not Supported",
                ],
            ),
        ] {
            let mut object = json!({"metadata": {"name": "rc"}, "spec": spec});
            ReplicationControllerStrategy.default(&mut object);
            let mut errors = Errors::new();
            ReplicationControllerStrategy.validate(&Field::root(&object), &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), want, "{case}");
        }
    }
}
