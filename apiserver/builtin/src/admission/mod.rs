//! The admission plugins of kube-apiserver v1.36: each is declared once, in [`PLUGINS`], with its
//! place in the chain, its default, its feature gate and its implementation. Its name and its texts
//! are kube-apiserver's; each is a small module here, but for those that know no built-in kind and
//! are the generic server's.

mod certificates;
mod default_ingress_class;
mod default_storage_class;
mod default_toleration_seconds;
mod limit_ranger;
mod param_access;
mod persistent_volume_claim_resize;
mod pod_limit;
mod pod_resize_validator;
mod pod_security;
mod pod_topology_labels;
mod priority;
mod resource_claim_access;
mod runtime_class;
mod selection;
mod service_account;
mod storage_object_in_use_protection;
mod taint_nodes_by_condition;

use std::sync::Arc;

use coracle_apimachinery::features::FeatureGates;
use coracle_apiserver::access::authorize::Authorizer;
use coracle_apiserver::admission::policy::{
    MutatingAdmissionPolicy, PolicyContext, ValidatingAdmissionPolicy,
};
use coracle_apiserver::admission::webhook::{
    MutatingAdmissionWebhook, ValidatingAdmissionWebhook, WebhookContext,
};
use coracle_apiserver::admission::{AdmissionChain, NamespaceLifecycle};
use coracle_seed::Identities;

use crate::quota::ResourceQuota;
use crate::rbac::RbacAuthorizer;
use crate::rbac::escalation::EscalationCheck;

pub use selection::{PluginError, PluginSelection};

/// The parts of the server that plugins work with.
pub struct PluginContext {
    /// Asked by plugins that allow only what a user may do otherwise.
    pub authorizer: Arc<Authorizer>,
    /// The roles and bindings.
    pub rbac: Arc<RbacAuthorizer>,
    /// The clients of webhooks, the resources, and the metrics.
    pub webhooks: WebhookContext,
    /// The source of names that are made up.
    pub identities: Arc<Identities>,
}

impl PluginContext {
    fn policies(&self) -> PolicyContext {
        PolicyContext {
            resources: self.webhooks.resources.clone(),
            authorizer: self.authorizer.clone(),
            metrics: self.webhooks.metrics.clone(),
            excluded: &REVIEWS,
        }
    }
}

/// The resources that no policy is evaluated for: every request depends on them.
///
/// Source: `k8s.io/kubernetes/pkg/kubeapiserver/admission/exclusion`.
static REVIEWS: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// A plugin of kube-apiserver.
struct PluginDeclaration {
    /// kube-apiserver's name.
    name: &'static str,
    /// Whether the plugin is enabled by default.
    is_default: bool,
    /// The feature gate without which it is off.
    gate: Option<&'static str>,
    /// Appends the plugin to the chain; None for a plugin that is not implemented and has no
    /// effect.
    attach: Option<Attach>,
}

type Attach = fn(&PluginContext, &mut AdmissionChain);

impl PluginDeclaration {
    const fn off_by_default(self) -> PluginDeclaration {
        PluginDeclaration { is_default: false, ..self }
    }

    const fn with_gate(self, gate: &'static str) -> PluginDeclaration {
        PluginDeclaration { gate: Some(gate), ..self }
    }
}

/// Declares a plugin that is on by default.
const fn on(name: &'static str, attach: Attach) -> PluginDeclaration {
    PluginDeclaration { name, is_default: true, gate: None, attach: Some(attach) }
}

/// Declares a plugin that is on by default, and not implemented: it has no effect.
const fn absent(name: &'static str) -> PluginDeclaration {
    PluginDeclaration { name, is_default: true, gate: None, attach: None }
}

/// Every plugin that kube-apiserver knows, in the order of its chain.
static PLUGINS: [PluginDeclaration; 41] = [
    absent("AlwaysAdmit").off_by_default(),
    absent("NamespaceAutoProvision").off_by_default(),
    on("NamespaceLifecycle", |_, chain| chain.add(NamespaceLifecycle)),
    absent("NamespaceExists").off_by_default(),
    absent("LimitPodHardAntiAffinityTopology").off_by_default(),
    on("LimitRanger", |_, chain| chain.add(limit_ranger::LimitRanger)),
    on("ServiceAccount", |context, chain| {
        chain.add_async(service_account::DefaultServiceAccountWait);
        chain.add(service_account::ServiceAccount { identities: context.identities.clone() });
    }),
    absent("NodeRestriction").off_by_default(),
    on("TaintNodesByCondition", |_, chain| chain.add(taint_nodes_by_condition::TaintNodesByCondition)),
    absent("AlwaysPullImages").off_by_default(),
    absent("ImagePolicyWebhook").off_by_default(),
    on("PodSecurity", |_, chain| chain.add(pod_security::PodSecurity)),
    absent("PodNodeSelector").off_by_default(),
    on("Priority", |_, chain| chain.add(priority::Priority)),
    on("DefaultTolerationSeconds", |_, chain| {
        chain.add(default_toleration_seconds::DefaultTolerationSeconds)
    }),
    absent("PodTolerationRestriction").off_by_default(),
    absent("EventRateLimit").off_by_default(),
    absent("ExtendedResourceToleration").off_by_default(),
    on("DefaultStorageClass", |_, chain| chain.add(default_storage_class::DefaultStorageClass)),
    on("StorageObjectInUseProtection", |_, chain| {
        chain.add(storage_object_in_use_protection::StorageObjectInUseProtection)
    }),
    absent("PodGroupProtection"),
    absent("OwnerReferencesPermissionEnforcement").off_by_default(),
    on("PersistentVolumeClaimResize", |_, chain| {
        chain.add(persistent_volume_claim_resize::PersistentVolumeClaimResize)
    }),
    on("RuntimeClass", |_, chain| chain.add(runtime_class::RuntimeClass)),
    on("CertificateApproval", |context, chain| {
        chain.add(certificates::CertificateApproval { authorizer: context.authorizer.clone() });
    }),
    on("CertificateSigning", |context, chain| {
        chain.add(certificates::CertificateSigning { authorizer: context.authorizer.clone() });
    }),
    absent("ClusterTrustBundleAttest"),
    on("CertificateSubjectRestriction", |_, chain| chain.add(certificates::CertificateSubjectRestriction)),
    on("DefaultIngressClass", |_, chain| chain.add(default_ingress_class::DefaultIngressClass)),
    absent("DenyServiceExternalIPs").off_by_default(),
    on("PodTopologyLabels", |_, chain| chain.add(pod_topology_labels::PodTopologyLabels))
        .with_gate("PodTopologyLabelsAdmission"),
    absent("PodGroupWorkloadExists"),
    absent("NodeDeclaredFeatureValidator"),
    absent("JobValidation"),
    on("PodResizeValidator", |_, chain| chain.add(pod_resize_validator::PodResizeValidator)),
    on("MutatingAdmissionPolicy", |context, chain| {
        chain.add_async(MutatingAdmissionPolicy::new(context.policies()));
    }),
    on("MutatingAdmissionWebhook", |context, chain| {
        chain.add_async(MutatingAdmissionWebhook::new(context.webhooks.clone(), context.authorizer.clone()));
    }),
    on("ValidatingAdmissionPolicy", |context, chain| {
        chain.add_async(ValidatingAdmissionPolicy::new(context.policies()));
    }),
    on("ValidatingAdmissionWebhook", |context, chain| {
        chain
            .add_async(ValidatingAdmissionWebhook::new(context.webhooks.clone(), context.authorizer.clone()));
    }),
    on("ResourceQuota", |_, chain| chain.reserve_quotas_by(ResourceQuota::default())),
    absent("AlwaysDeny").off_by_default(),
];

/// Builds the chain of the enabled plugins. Four links have no name, so that no selection disables
/// them. The limit of all pods comes first, so that rejected pods cost least. The checks that
/// kube-apiserver makes between the two passes are the first of the second one, for policies and
/// the status of ResourceClaims, and the last of the first one, for RBAC objects.
///
/// - `max_pods`: of all namespaces together
pub fn chain(
    selection: &PluginSelection,
    features: &FeatureGates,
    max_pods: usize,
    context: &PluginContext,
) -> AdmissionChain {
    for missing in not_implemented(selection) {
        tracing::warn!(plugin = missing, "this admission plugin is not implemented and does nothing");
    }
    let mut chain = AdmissionChain::default();
    chain.measure_by(context.webhooks.metrics.clone());
    chain.add(pod_limit::PodLimit { max: max_pods });
    chain.add(param_access::ParamAccess {
        authorizer: context.authorizer.clone(),
        resources: context.webhooks.resources.clone(),
    });
    if features.is_enabled("DRAResourceClaimGranularStatusAuthorization") {
        chain.add(resource_claim_access::ResourceClaimAccess { authorizer: context.authorizer.clone() });
    }
    let is_on = |plugin: &&PluginDeclaration| {
        selection.is_enabled(plugin.name) && plugin.gate.is_none_or(|gate| features.is_enabled(gate))
    };
    for attach in PLUGINS.iter().filter(is_on).filter_map(|plugin| plugin.attach) {
        attach(context, &mut chain);
    }
    chain.add(EscalationCheck { authorizer: context.authorizer.clone(), rbac: context.rbac.clone() });
    chain
}

/// Iterates over the plugins that the operator enabled explicitly, and that are not implemented.
fn not_implemented(selection: &PluginSelection) -> impl Iterator<Item = &'static str> {
    let is_missing =
        |name: &&str| PLUGINS.iter().any(|plugin| plugin.name == *name && plugin.attach.is_none());
    selection.asked_for().filter(is_missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugins_are_those_of_kube_apiserver() {
        let recorded = include_str!("../../testdata/admission_plugins.txt");
        let lines: Vec<Vec<&str>> = recorded.lines().map(|line| line.split(", ").collect()).collect();
        let [_, on_by_default, all] = lines.as_slice() else { panic!("{recorded}") };
        let declared: Vec<&str> =
            PLUGINS.iter().filter(|plugin| plugin.is_default).map(|plugin| plugin.name).collect();
        assert_eq!(&declared, on_by_default, "in this order");
        let mut declared: Vec<&str> = PLUGINS.iter().map(|plugin| plugin.name).collect();
        declared.sort_unstable();
        assert_eq!(&declared, all);
    }

    #[test]
    fn a_plugin_that_was_asked_for_and_does_nothing_is_reported() {
        let selection = PluginSelection::new(&["AlwaysDeny", "Priority"], &[]).expect("known");
        assert_eq!(not_implemented(&selection).collect::<Vec<_>>(), ["AlwaysDeny"]);
    }

    #[test]
    fn the_gates_of_plugins_are_known() {
        for gate in PLUGINS.iter().filter_map(|plugin| plugin.gate) {
            let known = FeatureGates::new([(gate, false)]);
            assert!(known.is_ok_and(|gates| !gates.is_enabled(gate)), "{gate}");
        }
    }
}
