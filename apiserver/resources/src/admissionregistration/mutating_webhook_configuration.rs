//! MutatingWebhookConfiguration.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::strategy::defaulting::fill;
use serde_json::{Value, json};

use super::webhooks;

/// The strategy of MutatingWebhookConfiguration.
pub struct MutatingWebhookConfigurationStrategy;

impl Strategy for MutatingWebhookConfigurationStrategy {
    fn default(&self, object: &mut Value) {
        for webhook in webhooks::of(object) {
            webhooks::default(webhook);
            fill(webhook, [("reinvocationPolicy", json!("Never"))]);
        }
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
