//! ValidatingWebhookConfiguration.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use serde_json::Value;

use super::webhooks;

/// The strategy of ValidatingWebhookConfiguration.
pub struct ValidatingWebhookConfigurationStrategy;

impl Strategy for ValidatingWebhookConfigurationStrategy {
    fn default(&self, object: &mut Value) {
        webhooks::of(object).for_each(webhooks::default);
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        webhooks::validate(object, None, errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        webhooks::validate(object, Some(old), errors);
    }

    fn warnings(&self, object: &Field<'_>, _: Option<&Field<'_>>) -> Vec<String> {
        webhooks::name_warnings(object)
    }
}
