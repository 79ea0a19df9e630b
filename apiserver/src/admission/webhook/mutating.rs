//! MutatingAdmissionWebhook: lets webhooks change the object, one after the other.
#![expect(clippy::disallowed_methods, reason = "durations for metrics are those of the machine")]

use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::WebhookContext;
use super::call::{Failure, call, conditions_hold, observe};
use super::configuration::Webhook;
use crate::access::authorize::Authorizer;
use crate::admission::generic::{Source, VersionedObjects, is_exempt};
use crate::admission::metrics::WebhookLabels;
use crate::admission::{AdmissionAttributes, AsyncAdmissionPlugin};
use crate::audit::Level;
use crate::cluster::Cluster;
use crate::codec::limits::Limits;
use crate::field::quote;
use crate::go_value::cannot_unmarshal;
use crate::patch::json::{self as json_patch};
use crate::telemetry::latency::{Phase, measure};
use crate::{Error, Result, codec};

const NAME: &str = "MutatingAdmissionWebhook";
/// The values in the patch of a webhook: as many as in all operations of the longest patch that
/// replaces a whole object.
const MAX_PATCH_VALUES: usize = 200_000;

/// The plugin MutatingAdmissionWebhook.
pub struct MutatingAdmissionWebhook {
    context: WebhookContext,
    authorizer: Arc<Authorizer>,
    webhooks: Source<Webhook>,
}

impl MutatingAdmissionWebhook {
    /// Creates the plugin.
    pub fn new(context: WebhookContext, authorizer: Arc<Authorizer>) -> MutatingAdmissionWebhook {
        let (group, resource) = ("admissionregistration.k8s.io", "mutatingwebhookconfigurations");
        MutatingAdmissionWebhook {
            context,
            authorizer,
            webhooks: Source::new(group, resource, Webhook::read_all),
        }
    }

    async fn dispatch(&self, attributes: &mut AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let webhooks = self.webhooks.load(cluster)?;
        let is_reinvoke = attributes.reinvocation.is_reinvoke();
        if is_reinvoke {
            attributes.reinvocation.of_plugin(NAME).resume(attributes.object);
        }
        let mut called = 0;
        for webhook in webhooks.iter() {
            let resources = self.context.resources.load_full();
            let Some(invocation) = webhook.criteria.matches(attributes, &resources, cluster)? else {
                continue;
            };
            drop(resources);
            // The reinvocation only repeats invocations of the first pass.
            if is_reinvoke && !attributes.reinvocation.of_plugin(NAME).should_reinvoke(&webhook.uid) {
                continue;
            }
            let objects = VersionedObjects::new(&invocation, attributes).await?;
            let annotation =
                format!("webhook.admission.k8s.io/round_{}_index_{called}", u8::from(is_reinvoke));
            let labels =
                WebhookLabels { name: &webhook.name, step: "admit", operation: attributes.operation };
            let (context, authorizer) = (&self.context, &self.authorizer);
            let holds = conditions_hold(context, webhook, labels, attributes, &objects, authorizer, cluster);
            let outcome = match holds.await {
                Ok(false) => continue,
                Ok(true) => {
                    let began = Instant::now();
                    let _timer = measure(Phase::Webhooks);
                    let outcome = self.invoke(webhook, attributes, &objects, &annotation, cluster).await;
                    observe(context, webhook, labels, began, &outcome);
                    outcome
                }
                Err(failure) => Err(failure),
            };
            called += 1;
            let changed = matches!(outcome, Ok(true));
            let mutation = json!({
                "configuration": webhook.configuration, "webhook": webhook.name, "mutated": changed,
            });
            attributes.audit.add_annotation(format!("mutation.{annotation}"), mutation.to_string());
            if changed {
                attributes.reinvocation.of_plugin(NAME).require_all();
                attributes.reinvocation.require();
            }
            if webhook.reinvoke_if_needed {
                attributes.reinvocation.of_plugin(NAME).add_invoked(&webhook.uid);
            }
            if let Err(failure) = outcome {
                match failure.into_error(webhook) {
                    Some(error) => return Err(error),
                    None => {
                        let key = format!("failed-open.mutating.{annotation}");
                        attributes.audit.add_annotation(key, webhook.name.clone());
                    }
                }
            }
        }
        if called > 0 {
            attributes.reinvocation.of_plugin(NAME).finish(attributes.object);
        }
        Ok(())
    }

    /// Calls a webhook, applies its patch, and returns whether that changed the object.
    ///
    /// - `annotation`: the key of its annotations in the audit event.
    async fn invoke(
        &self,
        webhook: &Webhook,
        attributes: &mut AdmissionAttributes<'_>,
        objects: &VersionedObjects,
        annotation: &str,
        cluster: &dyn Cluster,
    ) -> Result<bool, Failure> {
        let response = call(&self.context, webhook, attributes, objects, cluster, true).await?;
        if response.patch.is_empty() {
            return Ok(false);
        }
        let internal = |text: String| Failure::Request(Error::Internal(text));
        let patch = codec::json::decode_value_within(
            &response.patch,
            Limits { values: MAX_PATCH_VALUES, ..Limits::REQUEST },
        )
        .map_err(|error| undecodable(error.to_string()))?;
        match &patch {
            Value::Null => return Ok(false),
            Value::Array(operations) if operations.is_empty() => return Ok(false),
            Value::Array(operations) => {
                if let Some(other) = operations.iter().find(|operation| !operation.is_object()) {
                    return Err(undecodable(cannot_unmarshal(other, "value of type jsonpatch.Operation")));
                }
            }
            other => {
                return Err(undecodable(cannot_unmarshal(other, "value of type jsonpatch.Patch")));
            }
        }
        let Some(object) = &objects.object else {
            return Err(internal(format!(
                "admission webhook {} attempted to modify the object, which is not supported for this operation",
                quote(&webhook.name)
            )));
        };
        let sent =
            serde_json::from_slice(&objects.to_json(object)).map_err(|error| internal(error.to_string()))?;
        let patched = json_patch::apply_or_explain(sent, &patch).map_err(internal)?;
        let changed = objects.decode(patched).map_err(Failure::Request)?;
        if changed == *object {
            return Ok(false);
        }
        if attributes.audit.is_enabled() {
            let applied = json!({
                "configuration": webhook.configuration, "webhook": webhook.name, "patch": patch,
                "patchType": "JSONPatch",
            });
            let key = format!("patch.{annotation}");
            attributes.audit.add_annotation_at(Level::Request, key, applied.to_string());
        }
        let requested = self.context.resources.load_full();
        let resource = attributes.resource;
        let requested = requested.find(&resource.group, attributes.version, &resource.resource);
        let requested = requested.ok_or(Failure::Request(Error::UnknownResource))?;
        attributes.replace_object(objects.to_internal(requested, changed).await.map_err(Failure::Request)?);
        Ok(true)
    }
}

/// Returns the failure for a patch that is none: the failure policy decides.
fn undecodable(error: String) -> Failure {
    let reason = format!("received undecodable patch in webhook response: {error}");
    Failure::Call { reason, code: 503 }
}

impl AsyncAdmissionPlugin for MutatingAdmissionWebhook {
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

    fn admit<'a>(
        &'a self,
        attributes: &'a mut AdmissionAttributes<'_>,
        cluster: &'a dyn Cluster,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.dispatch(attributes, cluster))
    }
}
