//! ValidatingAdmissionWebhook: asks all webhooks at once whether the final object is to be
//! accepted.
#![expect(clippy::disallowed_methods, reason = "durations for metrics are those of the machine")]

use std::sync::Arc;
use std::time::Instant;

use futures::future::{BoxFuture, join_all};

use super::WebhookContext;
use super::call::{Failure, call, conditions_hold, observe};
use super::configuration::Webhook;
use crate::Result;
use crate::access::authorize::Authorizer;
use crate::admission::generic::{Invocation, Source, VersionedObjects, is_exempt};
use crate::admission::metrics::WebhookLabels;
use crate::admission::{AdmissionAttributes, AsyncAdmissionPlugin};
use crate::cluster::Cluster;
use crate::telemetry::latency::{Phase, measure};

/// The plugin ValidatingAdmissionWebhook.
pub struct ValidatingAdmissionWebhook {
    context: WebhookContext,
    authorizer: Arc<Authorizer>,
    webhooks: Source<Webhook>,
}

impl ValidatingAdmissionWebhook {
    /// Creates the plugin.
    pub fn new(context: WebhookContext, authorizer: Arc<Authorizer>) -> ValidatingAdmissionWebhook {
        let (group, resource) = ("admissionregistration.k8s.io", "validatingwebhookconfigurations");
        ValidatingAdmissionWebhook {
            context,
            authorizer,
            webhooks: Source::new(group, resource, Webhook::read_all),
        }
    }

    async fn dispatch(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let webhooks = self.webhooks.load(cluster)?;
        let mut relevant = Vec::new();
        {
            let resources = self.context.resources.load_full();
            for webhook in webhooks.iter() {
                if let Some(invocation) = webhook.criteria.matches(attributes, &resources, cluster)? {
                    relevant.push((webhook, invocation));
                }
            }
        }
        let calls =
            relevant.iter().map(|(webhook, invocation)| self.ask(webhook, invocation, attributes, cluster));
        let outcomes = {
            let _timer = measure(Phase::Webhooks);
            join_all(calls).await
        };
        for (index, ((webhook, _), outcome)) in relevant.iter().zip(outcomes).enumerate() {
            let Err(failure) = outcome else { continue };
            match failure.into_error(webhook) {
                Some(error) => return Err(error),
                None => {
                    let key =
                        format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}");
                    attributes.audit.add_annotation(key, webhook.name.clone());
                }
            }
        }
        Ok(())
    }

    async fn ask(
        &self,
        webhook: &Webhook,
        invocation: &Invocation,
        attributes: &AdmissionAttributes<'_>,
        cluster: &dyn Cluster,
    ) -> Result<(), Failure> {
        let objects = VersionedObjects::new(invocation, attributes).await.map_err(Failure::Request)?;
        let labels =
            WebhookLabels { name: &webhook.name, step: "validating", operation: attributes.operation };
        let (context, authorizer) = (&self.context, &self.authorizer);
        let holds = conditions_hold(context, webhook, labels, attributes, &objects, authorizer, cluster);
        if !holds.await? {
            return Ok(());
        }
        let began = Instant::now();
        let outcome = call(context, webhook, attributes, &objects, cluster, false).await;
        observe(context, webhook, labels, began, &outcome);
        outcome.map(drop)
    }
}

impl AsyncAdmissionPlugin for ValidatingAdmissionWebhook {
    fn handles(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> bool {
        // `dispatch` reports load errors.
        let Ok(webhooks) = self.webhooks.load(cluster) else { return true };
        if webhooks.is_empty() || is_exempt(attributes) {
            return false;
        }
        let resources = self.context.resources.load();
        let mut criteria = webhooks.iter().map(|webhook| &webhook.criteria);
        criteria.any(|criteria| !matches!(criteria.matches(attributes, &resources, cluster), Ok(None)))
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'_>,
        cluster: &'a dyn Cluster,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.dispatch(attributes, cluster))
    }
}
