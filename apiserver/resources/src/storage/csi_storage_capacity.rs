//! CSIStorageCapacity.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::immutable::{IMMUTABLE, immutable_as};
use coracle_apimachinery::validation::labels::{self, SelectorOptions};
use coracle_apimachinery::validation::{content, node_selector, resource_list};
use serde_json::Value;

/// The strategy of CSIStorageCapacity.
pub struct CsiStorageCapacityStrategy;

impl Strategy for CsiStorageCapacityStrategy {
    fn validate(&self, capacity: &Field<'_>, errors: &mut Errors) {
        validate(capacity, SelectorOptions::default(), errors);
    }

    fn validate_update(&self, capacity: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let (topology, had) = (capacity.get("nodeTopology"), old.get("nodeTopology"));
        let mut found = Errors::new();
        labels::validate_label_selector(&had, SelectorOptions::default(), &mut found);
        let options =
            SelectorOptions { allow_invalid_values: !found.is_empty(), ..SelectorOptions::default() };
        validate(capacity, options, errors);
        immutable_as("meta.LabelSelector", &topology, &had, errors);
        let class = capacity.get("storageClassName");
        errors.push_if(class.str() != old.get("storageClassName").str(), || class.invalid(IMMUTABLE));
    }

    fn warnings(&self, capacity: &Field<'_>, _: Option<&Field<'_>>) -> Vec<String> {
        let topology = capacity.get("nodeTopology");
        let mut warnings = node_selector::expression_warnings(&topology);
        let labels = topology.get("matchLabels");
        warnings.extend(labels.entries().filter_map(|(label, _)| {
            let message = node_selector::deprecated_label(label)?;
            Some(format!("{}: {message}", labels.path().child(label)))
        }));
        warnings
    }
}

fn validate(capacity: &Field<'_>, options: SelectorOptions, errors: &mut Errors) {
    labels::validate_label_selector(&capacity.get("nodeTopology"), options, errors);
    let class = capacity.get("storageClassName");
    errors.invalid_each(&class, content::dns1123_subdomain(class.str()));
    let amount = capacity.get("capacity");
    if amount.value().is_some_and(Value::is_string) {
        resource_list::validate_not_negative(&amount, errors);
    }
}
