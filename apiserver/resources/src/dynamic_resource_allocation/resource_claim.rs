//! ResourceClaim. Its spec and its allocation are immutable.

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::defaulting::keep_metadata;
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::immutable::immutable_as;
use coracle_apimachinery::validation::node_selector::validate_node_selector;
use serde_json::Value;

use super::devices;

const MAX_RESERVATIONS: usize = 256;

/// The strategy of ResourceClaim.
pub struct ResourceClaimStrategy;

impl Strategy for ResourceClaimStrategy {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = object.get_mut("spec") {
            devices::default_requests(spec);
        }
    }

    fn prepare_for_status_update(&self, object: &mut Value, old: &Value, _: &Context<'_>) {
        keep_metadata(object, old);
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        devices::validate_claim_spec(&object.get("spec"), errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        immutable_as("resource.ResourceClaimSpec", &object.get("spec"), &old.get("spec"), errors);
    }

    fn validate_status_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let (status, old_status) = (object.get("status"), old.get("status"));
        let reserved = status.get("reservedFor");
        let fits = devices::validate_list(&reserved, MAX_RESERVATIONS, errors, |consumer, errors| {
            for member in ["resource", "name", "uid"].map(|name| consumer.get(name)) {
                errors.push_if(member.is_empty(), || member.required(""));
            }
        });
        if fits {
            devices::refuse_duplicates(&reserved, |consumer| consumer.get("uid").str(), errors);
        }
        let (allocation, old_allocation) = (status.get("allocation"), old_status.get("allocation"));
        errors.push_if(!reserved.is_empty() && !allocation.exists(), || {
            reserved.forbidden("may not be specified when `allocated` is not set")
        });
        let deleting = object.walk("metadata.deletionTimestamp").exists();
        let known = old_status.get("reservedFor");
        let known: HashSet<&Value> = known.items().filter_map(|known| known.value()).collect();
        let grows = reserved.items().filter_map(|consumer| consumer.value()).any(|one| !known.contains(one));
        errors.push_if(deleting && allocation.exists() && grows, || {
            reserved.forbidden(
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
            )
        });
        if allocation.exists() && old_allocation.exists() {
            immutable_as("resource.AllocationResult", &allocation, &old_allocation, errors);
        } else if allocation.get("nodeSelector").exists() {
            validate_node_selector(&allocation.get("nodeSelector"), false, errors);
        }
    }
}
