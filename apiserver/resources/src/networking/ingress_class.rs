//! IngressClass.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::immutable::immutable_text;
use coracle_apimachinery::validation::{content, member};
use serde_json::{Value, json};

const MAX_CONTROLLER: usize = 250;

/// The strategy of IngressClass.
pub struct IngressClassStrategy;

impl Strategy for IngressClassStrategy {
    fn default(&self, class: &mut Value) {
        if let Some(parameters) = class.pointer_mut("/spec/parameters")
            && parameters["scope"].is_null()
        {
            parameters["scope"] = json!("Cluster");
        }
    }

    fn validate(&self, class: &Field<'_>, errors: &mut Errors) {
        let controller = class.walk("spec.controller");
        errors.push_if(controller.len() > MAX_CONTROLLER, || controller.too_long(MAX_CONTROLLER));
        member::domain_prefixed_path(&controller, errors);
        let parameters = class.walk("spec.parameters");
        if parameters.exists() {
            validate_reference(&parameters, errors);
            validate_scope(&parameters, errors);
        }
    }

    fn validate_update(&self, class: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        immutable_text(&class.walk("spec.controller"), &old.walk("spec.controller"), errors);
        self.validate(class, errors);
    }
}

/// Validates a reference to an object by group, kind and name.
pub fn validate_reference(reference: &Field<'_>, errors: &mut Errors) {
    member::if_set(&reference.get("apiGroup"), content::dns1123_subdomain, errors);
    member::required_and(&reference.get("kind"), content::path_segment, errors);
    member::required_and(&reference.get("name"), content::path_segment, errors);
}

fn validate_scope(parameters: &Field<'_>, errors: &mut Errors) {
    let (scope, namespace) = (parameters.get("scope"), parameters.get("namespace"));
    match scope.str() {
        "Namespace" if !namespace.exists() => {
            errors.push(namespace.required("`parameters.scope` is set to 'Namespace'"));
        }
        "Namespace" => errors.invalid_each(&namespace, content::dns1123_label(namespace.str())),
        "Cluster" => errors
            .push_if(namespace.exists(), || namespace.forbidden("`parameters.scope` is set to 'Cluster'")),
        _ => errors.push(scope.not_supported(&["Cluster", "Namespace"])),
    }
}
