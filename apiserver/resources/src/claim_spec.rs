//! The spec of claims: of PersistentVolumeClaims, of a StatefulSet's templates, and of a pod's
//! ephemeral volumes. A Pod's ephemeral claim template has the same rules as the claim created from
//! it.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::validation::labels::{self, SelectorOptions};
use coracle_apimachinery::validation::{content, member, metadata, resource_list};
use serde_json::{Value, json};

/// The access modes of volumes and claims.
pub const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
/// The values of `volumeMode`.
pub const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

/// Defaults a claim's spec; an ephemeral claim template has no other defaults.
pub fn default_claim_spec(spec: &mut Value) {
    if spec["volumeMode"].is_null() {
        spec["volumeMode"] = "Filesystem".into();
    }
    for list in ["/resources/limits", "/resources/requests"] {
        resource_list::round_up(spec.pointer_mut(list));
    }
}

/// The invalid values that an existing claim may keep.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClaimOptions {
    /// The options for the label selector.
    pub selector: SelectorOptions,
    /// Allows an apiGroup of the data source that is not a subdomain.
    pub allow_invalid_api_groups: bool,
}

impl ClaimOptions {
    /// Returns the options for an update of the spec `old`. An update may keep what is invalid in
    /// the old spec already.
    pub fn after(old: &Field<'_>) -> ClaimOptions {
        let mut found = Errors::new();
        labels::validate_label_selector(&old.get("selector"), SelectorOptions::default(), &mut found);
        let has_group = |member| old.get(member).get("apiGroup").exists();
        ClaimOptions {
            selector: SelectorOptions {
                allow_invalid_values: !found.is_empty(),
                ..SelectorOptions::default()
            },
            allow_invalid_api_groups: has_group("dataSource") || has_group("dataSourceRef"),
        }
    }
}

/// Validates a claim template inside a pod, which may only have labels, annotations and a spec.
pub fn validate_claim_template(template: &Field<'_>, errors: &mut Errors) {
    metadata::validate_template(&template.get("metadata"), errors);
    validate_claim_spec(&template.get("spec"), ClaimOptions::default(), errors);
}

/// Validates a claim's spec.
pub fn validate_claim_spec(spec: &Field<'_>, options: ClaimOptions, errors: &mut Errors) {
    let modes = spec.get("accessModes");
    errors.push_if(modes.is_empty(), || modes.required("at least 1 access mode is required"));
    labels::validate_label_selector(&spec.get("selector"), options.selector, errors);
    validate_access_modes(&modes, errors);
    validate_request(spec, errors);
    member::if_any(&spec.get("storageClassName"), content::dns1123_subdomain, errors);
    let mode = spec.get("volumeMode");
    errors
        .push_if(mode.exists() && !VOLUME_MODES.contains(&mode.str()), || mode.not_supported(&VOLUME_MODES));
    validate_data_sources(spec, options, errors);
    member::if_any(&spec.get("volumeAttributesClassName"), content::dns1123_subdomain, errors);
}

/// Validates the access modes; errors are reported for the list.
pub fn validate_access_modes(modes: &Field<'_>, errors: &mut Errors) {
    for mode in modes.items().filter(|mode| !ACCESS_MODES.contains(&mode.str())) {
        errors.push(mode.with_path(modes.path().clone()).not_supported(&ACCESS_MODES));
    }
    let is_single = |mode: &str| mode == "ReadWriteOncePod";
    let single = modes.items().any(|mode| is_single(mode.str()));
    let other = modes.items().any(|mode| !is_single(mode.str()) && ACCESS_MODES.contains(&mode.str()));
    errors
        .push_if(single && other, || modes.forbidden("may not use ReadWriteOncePod with other access modes"));
}

fn validate_request(spec: &Field<'_>, errors: &mut Errors) {
    let path = spec.path().child("resources").key("storage");
    let request = spec.walk("resources.requests").get("storage").with_path(path);
    if request.exists() {
        resource_list::validate_positive(&request, errors);
    } else {
        errors.push(request.required(""));
    }
}

fn validate_data_sources(spec: &Field<'_>, options: ClaimOptions, errors: &mut Errors) {
    let (source, reference) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    for source in [&source, &reference] {
        if source.exists() {
            validate_data_source(source, options, errors);
        }
    }
    if !source.exists() || !reference.exists() {
        return;
    }
    // kube-apiserver prints the path of the member in place of the value, which results in an empty
    // object.
    let error = |detail| spec.invalid_value(json!({}), detail);
    if !reference.get("namespace").is_empty() {
        errors.push(error("may not be specified when dataSourceRef.namespace is specified"));
    } else if ["apiGroup", "kind", "name"].iter().any(|m| source.get(m).value() != reference.get(m).value()) {
        errors.push(error("must match dataSourceRef"));
    }
}

fn validate_data_source(source: &Field<'_>, options: ClaimOptions, errors: &mut Errors) {
    let (name, kind, group) = (source.get("name"), source.get("kind"), source.get("apiGroup"));
    member::required(&name, errors);
    member::required(&kind, errors);
    errors.push_if(group.is_empty() && kind.str() != "PersistentVolumeClaim", || {
        source.invalid_value(
            kind.str(),
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        )
    });
    if !group.is_empty() && !options.allow_invalid_api_groups {
        errors.invalid_each(&group, content::dns1123_subdomain(group.str()));
    }
    member::if_any(&source.get_if_declared("namespace"), content::dns1123_label, errors);
}

/// Returns warnings about a claim's spec, including those of ephemeral volumes.
pub fn claim_spec_warnings(spec: &Field<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    for list in ["requests", "limits"] {
        let amount = spec.get("resources").get(list).get("storage");
        if resource_list::amount(&amount).milli_value() % 1000 != 0 {
            warnings.push(format!(
                "{}.resources.{list}[storage]: fractional byte value {} is invalid, must be an integer",
                spec.path(),
                coracle_apimachinery::field::quote(amount.str())
            ));
        }
    }
    warnings
}
