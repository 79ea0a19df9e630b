//! The webhooks of mutating and validating configurations.

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::defaulting::{Object, fill};
use coracle_apimachinery::validation::expressions::PolicyEnv;
use coracle_apimachinery::validation::labels::{SelectorOptions, validate_label_selector};
use coracle_apimachinery::validation::{content, webhook};
use serde_json::{Value, json};

use super::policies::validate_match_conditions;
use super::rules::{
    FAILURE_POLICIES, MATCH_POLICIES, REINVOCATION_POLICIES, default_rules, validate_enum, validate_rule,
};

const NO_SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const SIDE_EFFECTS: [&str; 4] = ["None", "NoneOnDryRun", "Some", "Unknown"];
/// The versions of AdmissionReview that the server supports, in the order of preference.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const STATIC_SUFFIX: &str = ".static.k8s.io";

/// Iterates over the webhooks in a configuration.
pub fn of(configuration: &mut Value) -> impl Iterator<Item = &mut Object> {
    let webhooks = configuration.get_mut("webhooks").and_then(Value::as_array_mut);
    webhooks.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Sets the defaults of both kinds of webhook.
pub fn default(webhook: &mut Object) {
    fill(
        webhook,
        [
            ("failurePolicy", json!("Fail")),
            ("matchPolicy", json!("Equivalent")),
            ("namespaceSelector", json!({})),
            ("objectSelector", json!({})),
            ("timeoutSeconds", json!(10)),
        ],
    );
    default_rules(webhook.get_mut("rules"));
    let service = webhook.get_mut("clientConfig").and_then(|config| config.get_mut("service"));
    if let Some(service) = service.and_then(Value::as_object_mut) {
        fill(service, [("port", json!(443))]);
    }
}

/// The invalid values that an existing configuration may keep.
#[derive(Default)]
struct Tolerance {
    match_conditions: bool,
    side_effects: bool,
    review_versions: bool,
    same_names: bool,
    selector: SelectorOptions,
}

impl Tolerance {
    fn after(old: &Field<'_>, new: &Field<'_>) -> Tolerance {
        let hooks = || old.get("webhooks").items();
        let conditions = |configuration: &Field<'_>| -> Vec<Option<Value>> {
            let webhooks = configuration.get("webhooks").items();
            webhooks.map(|hook| hook.get("matchConditions").value().cloned()).collect()
        };
        let wrong_selector = |hook: &Field<'_>| {
            let mut errors = Errors::new();
            for selector in [hook.get("namespaceSelector"), hook.get("objectSelector")] {
                validate_label_selector(&selector, SelectorOptions::default(), &mut errors);
            }
            !errors.is_empty()
        };
        let allow_invalid_values = hooks().any(|hook| wrong_selector(&hook));
        let mut names = HashSet::new();
        Tolerance {
            match_conditions: conditions(new) == conditions(old),
            side_effects: hooks().any(|hook| !NO_SIDE_EFFECTS.contains(&hook.get("sideEffects").str())),
            review_versions: hooks().any(|hook| {
                let versions = hook.get("admissionReviewVersions");
                !versions.is_empty() && !speaks_a_known_version(&versions)
            }),
            same_names: !hooks().all(|hook| names.insert(hook.get("name").str())),
            selector: SelectorOptions { allow_invalid_values, ..SelectorOptions::default() },
        }
    }
}

/// Validates a configuration; `old` is its state before an update.
pub fn validate(configuration: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let tolerance = old.map_or_else(Tolerance::default, |old| Tolerance::after(old, configuration));
    let mut names = HashSet::new();
    for hook in configuration.get("webhooks").items() {
        validate_webhook(&hook, &tolerance, errors);
        let name = hook.get("name");
        let again = !names.insert(name.str()) && !name.is_empty();
        errors.push_if(again && !tolerance.same_names, || name.duplicate());
    }
}

fn validate_webhook(hook: &Field<'_>, tolerance: &Tolerance, errors: &mut Errors) {
    validate_name(&hook.get("name"), errors);
    for rule in hook.get("rules").items() {
        validate_rule(&rule, errors);
    }
    validate_enum(&hook.get("failurePolicy"), &FAILURE_POLICIES, errors);
    validate_enum(&hook.get("matchPolicy"), &MATCH_POLICIES, errors);
    let effects = hook.get("sideEffects");
    let allowed = if tolerance.side_effects { &SIDE_EFFECTS[..] } else { &NO_SIDE_EFFECTS[..] };
    errors.push_if(!effects.exists(), || {
        effects.required(format!("must specify one of {}", allowed.join(", ")))
    });
    validate_enum(&effects, allowed, errors);
    let timeout = hook.get("timeoutSeconds");
    errors.push_if(timeout.int().is_some_and(|seconds| !(1..=30).contains(&seconds)), || {
        timeout.invalid("the timeout value must be between 1 and 30 seconds")
    });
    for selector in [hook.get("namespaceSelector"), hook.get("objectSelector")] {
        validate_label_selector(&selector, tolerance.selector, errors);
    }
    validate_enum(&hook.get_if_declared("reinvocationPolicy"), &REINVOCATION_POLICIES, errors);
    webhook::validate_client_config(&hook.get("clientConfig"), errors);
    if !tolerance.match_conditions {
        validate_match_conditions(&hook.get("matchConditions"), &PolicyEnv::new(false), errors);
    }
    validate_review_versions(&hook.get("admissionReviewVersions"), tolerance, errors);
}

/// Validates a webhook's name: a domain of at least three segments.
fn validate_name(name: &Field<'_>, errors: &mut Errors) {
    let found = content::dns1123_subdomain(name.str());
    if name.is_empty() {
        errors.push(name.required(""));
    } else if !found.is_empty() {
        errors.push(name.invalid(found.join(",")));
    } else if name.str().split('.').count() < 3 {
        errors.push(name.invalid("should be a domain with at least three segments separated by dots"));
    }
}

fn speaks_a_known_version(versions: &Field<'_>) -> bool {
    versions.items().any(|version| REVIEW_VERSIONS.contains(&version.str()))
}

fn validate_review_versions(versions: &Field<'_>, tolerance: &Tolerance, errors: &mut Errors) {
    let known = REVIEW_VERSIONS.join(", ");
    if versions.is_empty() {
        return errors.push(versions.required(format!("must specify one of {known}")));
    }
    let mut seen = HashSet::new();
    for version in versions.items() {
        if !seen.insert(version.str()) {
            errors.push(version.invalid("duplicate version"));
            continue;
        }
        errors.invalid_each(&version, content::dns1035_label(version.str()));
    }
    errors.push_if(!tolerance.review_versions && !speaks_a_known_version(versions), || {
        versions.invalid(format!("must include at least one of {known}"))
    });
}

/// Returns warnings about names that are reserved for configurations in files.
pub fn name_warnings(object: &Field<'_>) -> Vec<String> {
    let reserved = object.walk("metadata.name").str().ends_with(STATIC_SUFFIX);
    reserved
        .then(|| format!("metadata.name: names ending with \"{STATIC_SUFFIX}\" are reserved for static manifest-based configurations and cannot be managed via the API"))
        .into_iter()
        .collect()
}
