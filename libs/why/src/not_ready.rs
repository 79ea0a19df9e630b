//! The question why an object is not ready.

use crate::context::{Context, Target};
use crate::reason::Reason;
use crate::{
    claims, cluster, conditions, custom_resource_definitions, deployments, jobs, network, pods, policies,
    stateful_sets, volumes,
};

type Rule = fn(&Context, Target) -> Option<Reason>;

/// The resources with rules of their own. All others are judged by their conditions.
const RULES: [(&str, Rule); 21] = [
    ("nodes", cluster::node),
    ("pods", pods::reason),
    (claims::CLAIMS, claims::reason),
    (volumes::VOLUMES, volumes::reason),
    ("services", network::service),
    ("ingresses.networking.k8s.io", network::ingress),
    ("resourcequotas", policies::quota),
    ("replicationcontrollers", deployments::replica_set),
    (stateful_sets::SETS, stateful_sets::reason),
    ("deployments.apps", deployments::deployment),
    (deployments::REPLICA_SETS, deployments::replica_set),
    ("daemonsets.apps", deployments::daemon_set),
    (jobs::JOBS, jobs::job),
    ("cronjobs.batch", jobs::cron_job),
    ("poddisruptionbudgets.policy", policies::budget),
    ("horizontalpodautoscalers.autoscaling", policies::autoscaler),
    ("customresourcedefinitions.apiextensions.k8s.io", custom_resource_definitions::reason),
    ("apiservices.apiregistration.k8s.io", cluster::api_service),
    ("certificatesigningrequests.certificates.k8s.io", cluster::certificate_request),
    ("validatingwebhookconfigurations.admissionregistration.k8s.io", cluster::webhooks),
    ("mutatingwebhookconfigurations.admissionregistration.k8s.io", cluster::webhooks),
];

/// Explains why an object is not ready or not complete; None if it is, or has nothing to be ready
/// for.
pub fn reason(ctx: &Context, target: Target) -> Option<Reason> {
    let rule = RULES.iter().find(|(resource, _)| *resource == target.resource);
    rule.map_or(conditions::any as Rule, |(_, rule)| *rule)(ctx, target)
}
