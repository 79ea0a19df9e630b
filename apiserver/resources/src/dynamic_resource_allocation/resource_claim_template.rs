//! ResourceClaimTemplate.

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::{Part, Strategy};
use coracle_apimachinery::validation::immutable::immutable_as;
use coracle_apimachinery::validation::metadata::validate_template;
use serde_json::Value;

use super::{admin_access, devices};

/// The strategy of ResourceClaimTemplate.
pub struct ResourceClaimTemplateStrategy;

impl Strategy for ResourceClaimTemplateStrategy {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = object.pointer_mut("/spec/spec") {
            devices::default_requests(spec);
        }
    }

    fn validate_in_cluster(
        &self,
        object: &Field<'_>,
        old: Option<&Field<'_>>,
        _: Part,
        cluster: &dyn Cluster,
        errors: &mut Errors,
    ) -> Result<()> {
        match old {
            Some(_) => Ok(()),
            None => {
                let requests = object.walk("spec.spec.devices.requests");
                admin_access::validate_requests(object, &requests, cluster, errors)
            }
        }
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        validate_template(&object.walk("spec.metadata"), errors);
        devices::validate_claim_spec(&object.walk("spec.spec"), errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        self.validate(object, errors);
        immutable_as("resource.ResourceClaimTemplateSpec", &object.get("spec"), &old.get("spec"), errors);
    }
}
