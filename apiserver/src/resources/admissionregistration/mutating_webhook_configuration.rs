//! MutatingWebhookConfiguration.

use crate::resources::strategy::Strategy;

/// The rules of MutatingWebhookConfiguration.
pub struct Rules;

impl Strategy for Rules {}
