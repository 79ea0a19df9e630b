//! DeviceClass.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::resource_list;

use super::devices::validate_configuration;
use super::lists::validate_list;
use super::selectors::validate_selectors;

const MAX_CONFIGURATIONS: usize = 32;

/// The strategy of DeviceClass.
pub struct DeviceClassStrategy;

impl Strategy for DeviceClassStrategy {
    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        validate_spec(&object.get("spec"), None, errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate_spec(&object.get("spec"), Some(&old.get("spec")), errors);
    }
}

fn validate_spec(spec: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    validate_selectors(&spec.get("selectors"), errors);
    let configurations = spec.get("config");
    let is_new = old.is_none_or(|old| old.get("config").value() != configurations.value());
    validate_list(&configurations, MAX_CONFIGURATIONS, errors, |config, errors| {
        validate_configuration(config, is_new, errors);
    });
    let name = spec.get("extendedResourceName");
    errors.push_if(name.exists() && !resource_list::is_extended(name.str()), || {
        name.invalid("must be a valid extended resource name")
    });
}
