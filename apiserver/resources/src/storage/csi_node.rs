//! CSINode.

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::volume_sources::validate_csi_driver_name;
use coracle_apimachinery::validation::{content, immutable, member};
use serde_json::Value;

const MAX_NODE_ID: usize = 256;

/// The strategy of CSINode.
pub struct CsiNodeStrategy;

impl Strategy for CsiNodeStrategy {
    fn validate(&self, node: &Field<'_>, errors: &mut Errors) {
        let mut names = HashSet::new();
        for driver in node.walk("spec.drivers").items() {
            let (name, id) = (driver.get("name"), driver.get("nodeID"));
            validate_csi_driver_name(&name, errors);
            member::required(&id, errors);
            errors.push_if(id.len() > MAX_NODE_ID, || {
                id.invalid(format!("must be {MAX_NODE_ID} characters or less"))
            });
            let count = driver.walk("allocatable.count");
            errors.push_if(count.int().is_some_and(|count| count < 0), || {
                count.invalid("must be greater than or equal to 0")
            });
            errors.push_if(!names.insert(name.str()), || name.duplicate());
            validate_topology_keys(&driver, errors);
        }
    }

    /// Validates an update. Existing drivers are immutable, except for their allocatable count.
    fn validate_update(&self, node: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        self.validate(node, errors);
        let drivers = node.walk("spec.drivers");
        for had in old.walk("spec.drivers").items() {
            for driver in drivers.items().filter(|driver| driver.get("name").str() == had.get("name").str()) {
                let (new, old) = (without_count(&driver), without_count(&had));
                immutable::immutable_as(
                    "storage.CSINodeDriver",
                    &Field::at(Some(&new), drivers.path().clone()),
                    &Field::at(Some(&old), drivers.path().clone()),
                    errors,
                );
            }
        }
    }
}

fn without_count(driver: &Field<'_>) -> Value {
    let mut driver = driver.value().cloned().unwrap_or_default();
    if let Some(members) = driver.as_object_mut() {
        members.remove("allocatable");
    }
    driver
}

/// Validates topology keys. Errors are reported for the driver.
fn validate_topology_keys(driver: &Field<'_>, errors: &mut Errors) {
    let mut keys = HashSet::new();
    for key in driver.get("topologyKeys").items().map(|key| key.with_path(driver.path().clone())) {
        member::required(&key, errors);
        errors.push_if(!keys.insert(key.str()), || key.duplicate());
        errors.invalid_each(&key, content::qualified_name(key.str()));
    }
}
