//! The call of one webhook, and the handling of its failure.
#![expect(clippy::disallowed_methods, reason = "durations for metrics are those of the machine")]

use std::sync::Arc;
use std::time::Instant;

use coracle_cel::Meter;

use super::configuration::Webhook;
use super::response::{self, Response, ResponseError};
use super::{WebhookContext, review};
use crate::Error;
use crate::access::authorize::Authorizer;
use crate::admission::AdmissionAttributes;
use crate::admission::generic::VersionedObjects;
use crate::admission::json::items;
use crate::admission::metrics::{WebhookLabels, WebhookOutcome};
use crate::admission::policy::RequestVariables;
use crate::background;
use crate::cluster::Cluster;
use crate::field::quote;
use crate::webhook::{CallError, Post};

/// The largest size of a response, in bytes: twice a patch that replaces a whole object of 3 MiB,
/// in base64.
pub const MAX_RESPONSE: usize = 8 << 20;

/// The reasons for which a webhook did not allow a request.
pub enum Failure {
    /// The call failed, or its response is invalid: the failure policy decides.
    Call {
        /// The reason.
        reason: String,
        /// The status code under which it is counted.
        code: u16,
    },
    /// The webhook denied the request.
    Denied(Error),
    /// The request fails independent of the failure policy.
    Request(Error),
}

impl Failure {
    /// Returns the error for the request; None if the webhook's `failurePolicy` ignores the
    /// failure.
    pub fn into_error(self, webhook: &Webhook) -> Option<Error> {
        match self {
            Failure::Call { reason, .. } => {
                let text = format!("failed calling webhook {}: {reason}", quote(&webhook.name));
                if webhook.fails_open {
                    tracing::warn!(configuration = %webhook.configuration, "failing open: {text}");
                    return None;
                }
                tracing::warn!(configuration = %webhook.configuration, "failing closed: {text}");
                Some(Error::Internal(text))
            }
            Failure::Denied(error) | Failure::Request(error) => Some(error),
        }
    }
}

/// Counts a call of a webhook that began at a time.
pub fn observe<T>(
    context: &WebhookContext,
    webhook: &Webhook,
    labels: WebhookLabels<'_>,
    began: Instant,
    outcome: &Result<T, Failure>,
) {
    let outcome = match outcome {
        Ok(_) => WebhookOutcome::Allowed,
        Err(Failure::Call { code, .. }) if webhook.fails_open => WebhookOutcome::FailedOpen(*code),
        Err(Failure::Call { code, .. }) => WebhookOutcome::CallFailed(*code),
        Err(Failure::Denied(error)) => WebhookOutcome::Denied(error.code()),
        Err(Failure::Request(_)) => WebhookOutcome::InternalError,
    };
    context.metrics.webhook(labels, began.elapsed(), outcome);
}

/// Returns whether the match conditions of a webhook hold, so that it is called.
pub async fn conditions_hold(
    context: &WebhookContext,
    webhook: &Webhook,
    labels: WebhookLabels<'_>,
    attributes: &AdmissionAttributes<'_>,
    objects: &VersionedObjects,
    authorizer: &Arc<Authorizer>,
    cluster: &dyn Cluster,
) -> Result<bool, Failure> {
    if items(webhook.conditions.source()).is_empty() {
        return Ok(true);
    }
    let variables =
        RequestVariables::new(attributes, objects, authorizer, cluster).map_err(Failure::Request)?;
    let began = Instant::now();
    let conditions = webhook.conditions.get().await.map_err(Failure::Request)?;
    let evaluate = |meter: &Meter| conditions.match_request(&&variables, meter);
    let matches = background::evaluate(evaluate).await.map_err(Failure::Request)?;
    context.metrics.match_conditions(labels, began.elapsed(), matches.as_ref().ok().copied());
    match matches {
        Ok(holds) => Ok(holds),
        Err(_) if webhook.fails_open => Ok(false),
        Err(text) => Err(Failure::Request(attributes.forbidden(text))),
    }
}

/// Calls a webhook. Returns its response if it allows the request.
pub async fn call(
    context: &WebhookContext,
    webhook: &Webhook,
    attributes: &AdmissionAttributes<'_>,
    objects: &VersionedObjects,
    cluster: &dyn Cluster,
    mutating: bool,
) -> Result<Response, Failure> {
    if attributes.options.dry_run() && !webhook.supports_dry_run {
        let text = format!("admission webhook {} does not support dry run", quote(&webhook.name));
        return Err(Failure::Request(Error::bad_request(text)));
    }
    let Some(version) = webhook.review_version else {
        let text = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        return Err(Failure::Call { reason: text.to_owned(), code: 400 });
    };
    let uid = uuid::Uuid::new_v4().to_string();
    let post = Post {
        config: &webhook.client,
        body: review::request(version, &uid, attributes, objects),
        timeout: webhook.timeout,
        sends_timeout: true,
        limit: MAX_RESPONSE,
    };
    let bytes = context.clients.post(post, cluster).await.map_err(|error| {
        let (act, code) = match error {
            CallError::Config(_) => ("could not get REST client", 400),
            CallError::Status { code, .. } => ("failed to call webhook", code),
            _ => ("failed to call webhook", 503),
        };
        Failure::Call { reason: format!("{act}: {error}"), code }
    })?;
    let response = response::read(&bytes, version, &uid, mutating)
        .map_err(|error: ResponseError| Failure::Call { reason: error.to_string(), code: 503 })?;
    for warning in &response.warnings {
        attributes.warn(warning.clone());
    }
    for (key, value) in &response.audit_annotations {
        attributes.audit.add_annotation(format!("{}/{key}", webhook.name), value.clone());
    }
    if !response.allowed {
        return Err(Failure::Denied(response::denial(&webhook.name, &response.status)));
    }
    Ok(response)
}
