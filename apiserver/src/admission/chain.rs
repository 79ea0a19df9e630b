//! The chain: kube-apiserver's plugins in its order.

use std::sync::Arc;

use super::policy::{MutatingAdmissionPolicy, PolicyContext, ValidatingAdmissionPolicy};
use super::webhook::{MutatingAdmissionWebhook, ValidatingAdmissionWebhook, WebhookContext};
use super::{
    AdmissionAttributes, AdmissionPlugin, AsyncAdmissionPlugin, PluginSelection, certificates,
    default_ingress_class, default_storage_class, default_toleration_seconds, escalation, limit_ranger,
    namespace_lifecycle, persistent_volume_claim_resize, pod_limit, pod_resize_validator, pod_security,
    pod_topology_labels, priority, runtime_class, service_account, storage_object_in_use_protection,
    taint_nodes_by_condition,
};
use crate::Result;
use crate::access::authorize::Authorizer;
use crate::cluster::Cluster;
use crate::features::FeatureGates;
use crate::telemetry::latency::{Phase, measure};

const RESOURCE_QUOTA: &str = "ResourceQuota";

/// Whether the feature gate of a plugin is on; true for plugins without one.
fn is_featured(plugin: &str, features: &FeatureGates) -> bool {
    plugin != "PodTopologyLabels" || features.is_enabled("PodTopologyLabelsAdmission")
}

/// One plugin of the chain.
enum Link {
    Sync(Box<dyn AdmissionPlugin>),
    Async(Box<dyn AsyncAdmissionPlugin>),
}

impl Link {
    fn name(&self) -> &'static str {
        match self {
            Link::Sync(plugin) => plugin.name(),
            Link::Async(plugin) => plugin.name(),
        }
    }
}

/// The plugins, in order.
pub struct AdmissionChain {
    links: Vec<Link>,
    reserves_quota: bool,
}

impl AdmissionChain {
    /// kube-apiserver's default plugins, with its default features.
    pub fn standard(authorizer: &Arc<Authorizer>, webhooks: &WebhookContext) -> AdmissionChain {
        AdmissionChain::new(&PluginSelection::default(), &FeatureGates::DEFAULT, authorizer, webhooks)
    }

    /// The plugins that are on, and what kube-apiserver's RBAC storage checks between the two passes.
    pub fn new(
        selection: &PluginSelection,
        features: &FeatureGates,
        authorizer: &Arc<Authorizer>,
        webhooks: &WebhookContext,
    ) -> AdmissionChain {
        let authorizer = || Arc::clone(authorizer);
        let policies = PolicyContext {
            resources: webhooks.resources.clone(),
            authorizer: authorizer(),
            metrics: webhooks.metrics.clone(),
        };
        let mut links = vec![
            sync(namespace_lifecycle::NamespaceLifecycle),
            sync(limit_ranger::LimitRanger),
            Link::Async(Box::new(service_account::DefaultServiceAccountWait)),
            sync(service_account::ServiceAccount::default()),
            sync(taint_nodes_by_condition::TaintNodesByCondition),
            sync(pod_security::PodSecurity),
            sync(priority::Priority),
            sync(default_toleration_seconds::DefaultTolerationSeconds),
            sync(default_storage_class::DefaultStorageClass),
            sync(storage_object_in_use_protection::StorageObjectInUseProtection),
            sync(persistent_volume_claim_resize::PersistentVolumeClaimResize),
            sync(runtime_class::RuntimeClass),
            sync(certificates::CertificateApproval { authorizer: authorizer() }),
            sync(certificates::CertificateSigning { authorizer: authorizer() }),
            sync(certificates::CertificateSubjectRestriction),
            sync(default_ingress_class::DefaultIngressClass),
            sync(pod_topology_labels::PodTopologyLabels),
            sync(pod_resize_validator::PodResizeValidator),
            Link::Async(Box::new(MutatingAdmissionPolicy::new(policies.clone()))),
            Link::Async(Box::new(MutatingAdmissionWebhook::new(webhooks.clone(), authorizer()))),
            Link::Async(Box::new(ValidatingAdmissionPolicy::new(policies))),
            Link::Async(Box::new(ValidatingAdmissionWebhook::new(webhooks.clone(), authorizer()))),
        ];
        let implemented: Vec<&str> = links.iter().map(Link::name).chain([RESOURCE_QUOTA]).collect();
        for missing in selection.missing(&implemented) {
            tracing::warn!(plugin = missing, "this admission plugin is not implemented and does nothing");
        }
        links.retain(|link| selection.is_enabled(link.name()) && is_featured(link.name(), features));
        links.push(sync(escalation::EscalationCheck { authorizer: authorizer() }));
        AdmissionChain { links, reserves_quota: selection.is_enabled(RESOURCE_QUOTA) }
    }

    /// Rejects the creation of pods while there are `max` of them. It comes first, so that what is rejected costs least.
    pub fn with_max_pods(mut self, max: usize) -> AdmissionChain {
        self.links.insert(0, sync(pod_limit::PodLimit { max }));
        self
    }

    /// Appends a plugin.
    #[cfg(test)]
    pub(crate) fn with(mut self, plugin: impl AsyncAdmissionPlugin + 'static) -> AdmissionChain {
        self.links.push(Link::Async(Box::new(plugin)));
        self
    }

    /// Whether ResourceQuota is enabled. The registry reserves quota itself, in the commit of the object.
    pub fn reserves_quota(&self) -> bool {
        self.reserves_quota
    }

    /// Whether an asynchronous plugin handles the request, so that the chain may take long.
    pub fn waits(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> bool {
        let waits = |link: &Link| matches!(link, Link::Async(plugin) if plugin.handles(attributes, cluster));
        self.links.iter().any(waits)
    }

    /// The first pass: plugins may change the object. It is repeated once if a webhook or policy changed it.
    ///
    /// # Errors
    /// That of the first plugin that rejects the request.
    pub async fn admit(&self, attributes: &mut AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let _timer = measure(Phase::Admission);
        self.admit_once(attributes, cluster).await?;
        if attributes.reinvocation.begin_reinvoke() {
            self.admit_once(attributes, cluster).await?;
        }
        Ok(())
    }

    async fn admit_once(
        &self,
        attributes: &mut AdmissionAttributes<'_>,
        cluster: &dyn Cluster,
    ) -> Result<()> {
        for link in &self.links {
            match link {
                Link::Sync(plugin) => plugin.admit(attributes, cluster)?,
                Link::Async(plugin) if plugin.handles(attributes, cluster) => {
                    plugin.admit(attributes, cluster).await?;
                }
                Link::Async(_) => {}
            }
        }
        Ok(())
    }

    /// The second pass: plugins see the final object.
    ///
    /// # Errors
    /// That of the first plugin that rejects the request.
    pub async fn validate(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let _timer = measure(Phase::Admission);
        for link in &self.links {
            match link {
                Link::Sync(plugin) => plugin.validate(attributes, cluster)?,
                Link::Async(plugin) if plugin.handles(attributes, cluster) => {
                    plugin.validate(attributes, cluster).await?;
                }
                Link::Async(_) => {}
            }
        }
        Ok(())
    }
}

fn sync(plugin: impl AdmissionPlugin + 'static) -> Link {
    Link::Sync(Box::new(plugin))
}
