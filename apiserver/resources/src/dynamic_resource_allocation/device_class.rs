//! DeviceClass.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::resource_list;

use super::devices::{validate_configuration, validate_list, validate_selectors};

const MAX_CONFIGURATIONS: usize = 32;

/// The strategy of DeviceClass.
pub struct DeviceClassStrategy;

impl Strategy for DeviceClassStrategy {
    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        let spec = object.get("spec");
        validate_selectors(&spec.get("selectors"), errors);
        validate_list(&spec.get("config"), MAX_CONFIGURATIONS, errors, validate_configuration);
        let name = spec.get("extendedResourceName");
        errors.push_if(name.exists() && !resource_list::is_extended(name.str()), || {
            name.invalid("must be a valid extended resource name")
        });
    }
}
