//! StorageClass, and the rules that it shares with VolumeAttributesClass: the driver's name and its
//! parameters.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::immutable::{immutable, immutable_text};
use coracle_apimachinery::validation::{content, labels, member, node_selector};
use serde_json::{Value, json};

const MAX_PARAMETERS: usize = 512;
/// The limit of all parameters' names and values together, in bytes.
const MAX_PARAMETERS_SIZE: usize = 256 * 1024;

/// The strategy of StorageClass.
pub struct StorageClassStrategy;

impl Strategy for StorageClassStrategy {
    fn default(&self, class: &mut Value) {
        for (member, value) in [("reclaimPolicy", "Delete"), ("volumeBindingMode", "Immediate")] {
            if class[member].is_null() {
                class[member] = json!(value);
            }
        }
    }

    fn validate(&self, class: &Field<'_>, errors: &mut Errors) {
        validate_driver(&class.get("provisioner"), errors);
        validate_parameters(&class.get("parameters"), errors);
        let policy = class.get("reclaimPolicy");
        if !policy.is_empty() {
            member::one_of(&policy, &["Delete", "Retain"], errors);
        }
        let mode = class.get("volumeBindingMode");
        errors.push_if(!mode.exists(), || mode.required(""));
        member::one_of(&mode, &["Immediate", "WaitForFirstConsumer"], errors);
        validate_topologies(&class.get("allowedTopologies"), errors);
    }

    fn validate_update(&self, class: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        self.validate(class, errors);
        let (parameters, was) = (class.get("parameters"), old.get("parameters"));
        errors.push_if(!is_same_map(&parameters, &was), || {
            parameters.invalid_or_null(coracle_apimachinery::validation::immutable::IMMUTABLE)
        });
        immutable_text(&class.get("provisioner"), &old.get("provisioner"), errors);
        for member in ["reclaimPolicy", "volumeBindingMode"] {
            immutable(&class.get(member), &old.get(member), errors);
        }
    }

    fn warnings(&self, class: &Field<'_>, _: Option<&Field<'_>>) -> Vec<String> {
        let terms = class.get("allowedTopologies").items();
        let keys = terms.flat_map(|term| term.get("matchLabelExpressions").items()).map(|e| e.get("key"));
        keys.filter_map(|key| {
            Some(format!("{}: {}", key.path(), node_selector::deprecated_label(key.str())?))
        })
        .collect()
    }
}

/// Returns `true` if two maps are equal; an empty one equals an absent one.
pub fn is_same_map(new: &Field<'_>, old: &Field<'_>) -> bool {
    new.value() == old.value() || (new.is_empty() && old.is_empty())
}

/// Validates the name of a provisioner or driver: a qualified name of any case.
pub fn validate_driver(name: &Field<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(name.required(""));
        return;
    }
    let lower = name.str().to_lowercase();
    let found = content::qualified_name(&lower);
    errors.extend(found.into_iter().map(|e| name.invalid_value(lower.as_str(), e)));
}

/// Validates the parameters of a driver.
pub fn validate_parameters(parameters: &Field<'_>, errors: &mut Errors) {
    if parameters.len() > MAX_PARAMETERS {
        errors.push(parameters.too_long(MAX_PARAMETERS));
        return;
    }
    for (name, _) in parameters.entries() {
        errors.push_if(name.is_empty(), || parameters.invalid_value("", "field can not be empty."));
    }
    let size: usize = parameters.entries().map(|(name, value)| name.len() + value.len()).sum();
    errors.push_if(size > MAX_PARAMETERS_SIZE, || parameters.too_long(MAX_PARAMETERS_SIZE));
}

/// Validates the terms of the topologies: unique keys, and no two equal terms.
fn validate_topologies(topologies: &Field<'_>, errors: &mut Errors) {
    let mut seen: HashMap<BTreeMap<&str, BTreeSet<&str>>, usize> = HashMap::new();
    for term in topologies.items() {
        let expressions = term.get("matchLabelExpressions");
        let mut requirements = BTreeMap::new();
        for expression in expressions.items() {
            let (key, values) = (expression.get("key"), expression.get("values"));
            member::required(&values, errors);
            let mut set = BTreeSet::new();
            for value in values.items() {
                errors.push_if(!set.insert(value.str()), || value.duplicate());
            }
            labels::validate_label_name(&key, errors);
            errors.push_if(requirements.insert(key.str(), set).is_some(), || key.duplicate());
        }
        // kube-apiserver first compares with as many empty terms as there are terms.
        let imagined = if requirements.is_empty() { topologies.len() } else { 0 };
        let equal = seen.entry(requirements).or_default();
        errors.extend(std::iter::repeat_n(expressions.duplicate_value(""), imagined + *equal));
        *equal += 1;
    }
}
