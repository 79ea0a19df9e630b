//! The webhooks of a stored configuration.

use std::time::Duration;

use serde_json::Value;

use crate::admission::generic::MatchCriteria;
use crate::admission::json::{items, text};
use crate::admission::policy::{Compiled, MatchConditions};
use crate::webhook::ClientConfig;

/// The default and the bounds of `timeoutSeconds`.
const DEFAULT_TIMEOUT_SECONDS: u64 = 10;
const MIN_TIMEOUT_SECONDS: u64 = 1;
const MAX_TIMEOUT_SECONDS: u64 = 30;

/// One webhook.
pub struct Webhook {
    /// The name of its configuration.
    pub configuration: String,
    /// Its name, in messages.
    pub name: String,
    /// A name that no other webhook of any configuration of the kind has.
    pub uid: String,
    /// The URL or Service of the webhook, and its CA bundle.
    pub client: ClientConfig,
    /// The requests that it is for.
    pub criteria: MatchCriteria,
    /// Further conditions of a call.
    pub conditions: Compiled<MatchConditions>,
    /// Whether a failed call is ignored: `failurePolicy: Ignore`.
    pub fails_open: bool,
    /// `timeoutSeconds`.
    pub timeout: Duration,
    /// Whether the webhook may be called for a dry run.
    pub supports_dry_run: bool,
    /// `reinvocationPolicy: IfNeeded`.
    pub reinvoke_if_needed: bool,
    /// The first version of AdmissionReview in its list that the server knows.
    pub review_version: Option<ReviewVersion>,
}

/// A version of admission.k8s.io.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    /// Returns the version as an `apiVersion`.
    pub fn api_version(self) -> &'static str {
        match self {
            ReviewVersion::V1 => "admission.k8s.io/v1",
            ReviewVersion::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

impl Webhook {
    /// Reads the webhooks of a configuration, in its order.
    pub fn read_all(configuration: &Value) -> Vec<Webhook> {
        let name = text(&configuration["metadata"]["name"]);
        let webhooks = items(&configuration["webhooks"]).iter().enumerate();
        webhooks.map(|(index, webhook)| Webhook::read(name, index, webhook)).collect()
    }

    fn read(configuration: &str, index: usize, webhook: &Value) -> Webhook {
        let name = text(&webhook["name"]);
        let seconds = webhook["timeoutSeconds"].as_u64().unwrap_or(DEFAULT_TIMEOUT_SECONDS);
        let versions = items(&webhook["admissionReviewVersions"]).iter().map(text);
        Webhook {
            configuration: configuration.to_owned(),
            name: name.to_owned(),
            uid: format!("{configuration}/{name}/{index}"),
            client: ClientConfig::read(&webhook["clientConfig"]),
            criteria: MatchCriteria::of_webhook(webhook),
            conditions: Compiled::new(&webhook["matchConditions"], MatchConditions::of_webhook),
            fails_open: webhook["failurePolicy"] == "Ignore",
            timeout: Duration::from_secs(seconds.clamp(MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS)),
            supports_dry_run: matches!(text(&webhook["sideEffects"]), "None" | "NoneOnDryRun"),
            reinvoke_if_needed: webhook["reinvocationPolicy"] == "IfNeeded",
            review_version: versions.into_iter().find_map(|version| match version {
                "v1" => Some(ReviewVersion::V1),
                "v1beta1" => Some(ReviewVersion::V1Beta1),
                _ => None,
            }),
        }
    }
}
