//! ResourceClaim. Its spec and its allocation are immutable.

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::defaulting::keep_metadata;
use coracle_apimachinery::strategy::{Context, Part, Strategy};
use coracle_apimachinery::validation::immutable::immutable_as;
use serde_json::Value;

use super::{admin_access, allocation, devices};

/// The strategy of ResourceClaim.
pub struct ResourceClaimStrategy;

impl Strategy for ResourceClaimStrategy {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = object.get_mut("spec") {
            devices::default_requests(spec);
        }
        if let Some(status) = object.get_mut("status") {
            devices::default_results(status);
        }
    }

    fn prepare_for_status_update(&self, object: &mut Value, old: &Value, _: &Context<'_>) {
        keep_metadata(object, old);
        if let Some(status) = object.get_mut("status") {
            allocation::drop_deallocated(status, &old["status"]);
        }
    }

    fn validate_in_cluster(
        &self,
        object: &Field<'_>,
        old: Option<&Field<'_>>,
        part: Part,
        cluster: &dyn Cluster,
        errors: &mut Errors,
    ) -> Result<()> {
        match (old, part) {
            (None, _) => {
                let requests = object.walk("spec.devices.requests");
                admin_access::validate_requests(object, &requests, cluster, errors)
            }
            (Some(old), Part::Status) => admin_access::validate_results(object, old, cluster, errors),
            _ => Ok(()),
        }
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        devices::validate_claim_spec(&object.get("spec"), errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        immutable_as("resource.ResourceClaimSpec", &object.get("spec"), &old.get("spec"), errors);
    }

    fn validate_status_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let is_terminating = object.walk("metadata.deletionTimestamp").exists();
        let (spec, status) = (object.get("spec"), object.get("status"));
        allocation::validate_status(&spec, &status, &old.get("status"), is_terminating, errors);
    }
}
