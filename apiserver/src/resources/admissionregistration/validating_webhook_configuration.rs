//! ValidatingWebhookConfiguration.

use crate::resources::strategy::Strategy;

/// The rules of ValidatingWebhookConfiguration.
pub struct Rules;

impl Strategy for Rules {}
