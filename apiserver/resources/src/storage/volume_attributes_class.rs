//! VolumeAttributesClass: immutable.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;

use super::storage_class::{is_same_map, validate_driver, validate_parameters};

/// The strategy of VolumeAttributesClass.
pub struct VolumeAttributesClassStrategy;

impl Strategy for VolumeAttributesClassStrategy {
    fn validate(&self, class: &Field<'_>, errors: &mut Errors) {
        validate_driver(&class.get("driverName"), errors);
        let parameters = class.get("parameters");
        validate_parameters(&parameters, errors);
        errors.push_if(parameters.is_empty(), || {
            parameters.required("must contain at least one key/value pair")
        });
    }

    fn validate_update(&self, class: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let (driver, parameters) = (class.get("driverName"), class.get("parameters"));
        errors.push_if(driver.str() != old.get("driverName").str(), || {
            driver.forbidden("updates to driverName are forbidden.")
        });
        errors.push_if(!is_same_map(&parameters, &old.get("parameters")), || {
            parameters.forbidden("updates to parameters are forbidden.")
        });
        self.validate(class, errors);
    }
}
