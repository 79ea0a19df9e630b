//! ServiceCIDR.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::defaulting::keep_metadata;
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::immutable::IMMUTABLE;
use coracle_apimachinery::validation::ip::{self, Cidr};
use coracle_apimachinery::validation::printed;
use serde_json::Value;

/// The strategy of ServiceCIDR.
pub struct ServiceCidrStrategy;

impl Strategy for ServiceCidrStrategy {
    fn prepare_for_status_update(&self, range: &mut Value, old: &Value, _: &Context<'_>) {
        keep_metadata(range, old);
    }

    fn validate(&self, range: &Field<'_>, errors: &mut Errors) {
        let blocks = range.walk("spec.cidrs");
        if blocks.is_empty() {
            errors.push(blocks.required("at least one CIDR required"));
            return;
        }
        if blocks.len() > 2 {
            let spec = range.get("spec").with_path(blocks.path().clone());
            errors.push(printed::invalid(
                &spec,
                "networking.ServiceCIDRSpec",
                "may only hold up to 2 values",
            ));
            return;
        }
        for block in blocks.items() {
            errors.extend(ip::cidr(block.str()).map(|e| block.invalid(e)));
        }
        let families: Vec<bool> =
            blocks.items().filter_map(|b| Cidr::parse(b.str())).map(|b| b.address.is_ipv4()).collect();
        errors.push_if(matches!(families.as_slice(), [a, b] if a == b), || {
            blocks.invalid(
                "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
            )
        });
    }

    /// Validates an update: a block of the other IP family may be added, nothing else may change.
    fn validate_update(&self, range: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let (blocks, was) = (range.walk("spec.cidrs"), old.walk("spec.cidrs"));
        let joined = (was.len(), blocks.len()) == (1, 2);
        if was.len() != blocks.len() && !joined {
            errors.push(blocks.invalid_or_null(IMMUTABLE));
            return;
        }
        for (block, was) in blocks.items().zip(was.items()) {
            errors.push_if(block.str() != was.str(), || block.invalid(IMMUTABLE));
        }
        if joined {
            self.validate(range, errors);
        }
    }
}
