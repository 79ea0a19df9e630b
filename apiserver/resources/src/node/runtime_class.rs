//! RuntimeClass.

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::immutable::IMMUTABLE;
use coracle_apimachinery::validation::labels::validate_labels;
use coracle_apimachinery::validation::{content, node_selector, printed};

use crate::pod_spec::{self, PodValidationOptions};

/// The strategy of RuntimeClass.
pub struct RuntimeClassStrategy;

impl Strategy for RuntimeClassStrategy {
    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        let handler = object.get("handler");
        if handler.is_empty() {
            errors.push(handler.required(""));
        } else {
            errors.invalid_each(&handler, content::dns1123_label(handler.str()));
        }
        let overhead =
            object.get("overhead").get("podFixed").with_path(object.get("overhead").path().clone());
        pod_spec::resources::validate_overhead(&overhead, &PodValidationOptions::default(), errors);
        validate_labels(&object.walk("scheduling.nodeSelector"), errors);
        validate_tolerations(&object.walk("scheduling.tolerations"), errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        self.validate(object, errors);
        let handler = object.get("handler");
        errors.push_if(handler.str() != old.get("handler").str(), || handler.invalid(IMMUTABLE));
    }

    fn warnings(&self, object: &Field<'_>, _: Option<&Field<'_>>) -> Vec<String> {
        let selector = object.walk("scheduling.nodeSelector");
        let deprecated = selector.entries().filter_map(|(key, _)| node_selector::deprecated_label(key));
        deprecated.map(|message| format!("{}: {message}", selector.path())).collect()
    }
}

/// Validates tolerations. They are merged into those of a pod, so each may be listed once.
fn validate_tolerations(tolerations: &Field<'_>, errors: &mut Errors) {
    pod_spec::scheduling::validate_tolerations(tolerations, &PodValidationOptions::default(), errors);
    let key = |toleration: &Field<'_>| {
        ["key", "operator", "value", "effect"].map(|name| toleration.get(name).str().to_owned())
    };
    let mut seen = HashSet::new();
    for toleration in tolerations.items() {
        let again = !seen.insert(key(&toleration));
        errors.push_if(again, || printed::duplicate(&toleration, "core.Toleration"));
    }
}
