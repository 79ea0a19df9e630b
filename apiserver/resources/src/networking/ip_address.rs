//! IPAddress: its name is the address.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::immutable::immutable_as;
use coracle_apimachinery::validation::{content, member};

/// The strategy of IPAddress.
pub struct IpAddressStrategy;

impl Strategy for IpAddressStrategy {
    fn validate(&self, address: &Field<'_>, errors: &mut Errors) {
        let parent = address.walk("spec.parentRef");
        if !parent.exists() {
            errors.push(parent.required(""));
            return;
        }
        member::if_any(&parent.get("group"), content::dns1123_subdomain, errors);
        member::required_and(&parent.get("resource"), content::path_segment, errors);
        member::required_and(&parent.get("name"), content::path_segment, errors);
        member::if_any(&parent.get("namespace"), content::path_segment, errors);
    }

    fn validate_update(&self, address: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        self.validate(address, errors);
        let (parent, was) = (address.walk("spec.parentRef"), old.walk("spec.parentRef"));
        immutable_as("?networking.ParentReference", &parent, &was, errors);
    }
}
