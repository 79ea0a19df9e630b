//! PodTemplate: a pod template as an object.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::{Context, Strategy};
use serde_json::Value;

use crate::pod_spec::{self, PodValidationOptions};

/// The strategy of PodTemplate.
pub struct PodTemplateStrategy;

impl Strategy for PodTemplateStrategy {
    fn default(&self, object: &mut Value) {
        pod_spec::default_pod_template(&mut object["template"]);
    }

    fn prepare_for_create(&self, object: &mut Value, context: &Context<'_>) {
        pod_spec::prepare_pod_template(&mut object["template"], None, context.features);
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        pod_spec::prepare_pod_template(&mut object["template"], old.get("template"), context.features);
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        pod_spec::validate_pod_template(
            &object.get("template"),
            &PodValidationOptions::for_template(),
            errors,
        );
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let options = PodValidationOptions::for_template_update(&old.get("template"));
        pod_spec::validate_pod_template(&object.get("template"), &options, errors);
    }

    fn warnings(&self, object: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
        let template = object.get("template");
        match old.map(|old| old.get("template")) {
            Some(old) if old.value() == template.value() => Vec::new(),
            _ => pod_spec::pod_template_warnings(&template),
        }
    }
}
