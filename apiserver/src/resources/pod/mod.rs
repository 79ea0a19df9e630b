//! What Pods and pod templates share: defaults, rules and warnings of a pod's spec.
//!
//! Every kind that carries a template calls the functions here with the template and its path; the Pod kind itself adds
//! what only a live pod has (status, updates, subresources) in `resources::core::pod`.
//!
//! Everything is at the feature gates' defaults of Kubernetes 1.36.

mod options;

pub use options::Options;

use serde_json::Value;

use crate::field::{Errors, Field};

/// Fills in a template: its pod spec, as a template (a Pod gets some defaults more, see `core::pod`).
pub fn default_pod_template(template: &mut Value) {
    if let Some(spec) = template.get_mut("spec") {
        default_pod_spec(spec);
    }
}

/// Fills in a pod's spec.
pub fn default_pod_spec(spec: &mut Value) {
    let _ = spec;
}

/// Drops what is not switched on; to be called when an object with a template is created or updated.
pub fn prepare_pod_template(template: &mut Value, old: Option<&Value>) {
    let _ = (template, old);
}

/// The rules of a template (`field` is the template itself): labels, annotations and pod spec.
pub fn validate_pod_template(template: &Field<'_>, options: &Options, errors: &mut Errors) {
    validate_pod_spec(&template.get("spec"), &template.get("metadata"), options, errors);
}

/// The rules of a pod's spec; `metadata` is that of the pod or the template.
pub fn validate_pod_spec(spec: &Field<'_>, metadata: &Field<'_>, options: &Options, errors: &mut Errors) {
    let _ = (spec, metadata, options, errors);
}

/// Texts for `Warning` headers about a template; `old` is what it was before an update.
pub fn pod_template_warnings(template: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
    let _ = (template, old);
    Vec::new()
}
