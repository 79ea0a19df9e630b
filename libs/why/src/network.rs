//! Services and Ingresses, and the finalizers of network objects.

use serde_json::Value;

use crate::context::{Context, Target};
use crate::explanation::Cause;
use crate::finalizers::Wait;
use crate::kubectl;
use crate::pods;
use crate::reason::Reason;
use crate::text::{enumerate, items, quoted, text, text_or_empty, texts};

/// The pods of a Service that are explained.
const MAX_PODS: usize = 3;

/// Explains the finalizer `service.kubernetes.io/load-balancer-cleanup`.
pub fn load_balancer(_: &Context, target: Target) -> Wait {
    let remedy = kubectl::remove_finalizer(target, "service.kubernetes.io/load-balancer-cleanup");
    Wait {
        clause: "after it has deleted the load balancer; without a cloud provider nobody does".to_owned(),
        remedy,
        causes: Vec::new(),
    }
}

/// Explains the finalizer `networking.k8s.io/service-cidr-finalizer`: addresses of Services in the
/// range.
pub fn addresses(ctx: &Context, target: Target) -> Wait {
    let ranges: Vec<String> = texts(&target.spec()["cidrs"]).take(4).map(quoted).collect();
    let clause = format!(
        "once no Service needs an address of its range {} that no other ServiceCIDR has; allocated addresses: {}",
        enumerate(&ranges),
        ctx.list("ipaddresses.networking.k8s.io", None).len()
    );
    Wait { clause, ..Wait::default() }
}

/// Explains why a Service reaches no pod, or has no address.
pub fn service(ctx: &Context, target: Target) -> Option<Reason> {
    let spec = target.spec();
    if spec["type"] == "ExternalName" {
        return None;
    }
    // Its requests are passed to that address, without pods.
    if target.annotation("coracle.dev/service-url").is_some() {
        return None;
    }
    endpoints(ctx, target).or_else(|| pending_load_balancer(ctx, target))
}

fn endpoints(ctx: &Context, target: Target) -> Option<Reason> {
    let short = ctx.short_of(target);
    let selector = target.spec()["selector"].as_object().filter(|selector| !selector.is_empty())?;
    let labels = selector.iter().take(10).map(|(key, value)| format!("{key}={}", text_or_empty(value)));
    let labels = quoted(&labels.collect::<Vec<_>>().join(","));
    let list = ctx.list("pods", Some(target.namespace));
    let matches = |pod: &&Value| selector.iter().all(|(key, value)| pod["metadata"]["labels"][key] == *value);
    let selected: Vec<Target> = list.iter().filter(matches).map(|pod| Target::listed("pods", pod)).collect();
    let cause = Cause::of(ctx.reference_of(target)).field(format!("spec.selector: {labels}"));
    if selected.is_empty() {
        let sentence = format!(
            "{short} reaches no pod because its selector {labels} matches none in namespace {}. Compare the labels of the pods: \
             kubectl get pods -n {} --show-labels",
            target.namespace, target.namespace
        );
        return Some(
            Reason::failing("no pods", sentence)
                .because([cause.waits_for(format!("a pod with the labels {labels}"))]),
        );
    }
    let is_published = |pod: &&Target| pods::is_ready(pod.object) && !pod.is_terminating();
    if target.spec()["publishNotReadyAddresses"] == true {
        return None;
    }
    if selected.iter().any(|pod| is_published(&pod)) {
        return unmatched_port(ctx, target, &selected);
    }
    let names: Vec<String> = selected.iter().map(|pod| ctx.short_of(*pod)).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    let sentence = format!(
        "{short} has no ready endpoint: its selector {labels} matches {}, which {verb} not ready.",
        enumerate(&names)
    );
    let causes: Vec<Cause> =
        selected.iter().take(MAX_PODS).flat_map(|pod| ctx.explain("pods", pod.namespace, pod.name)).collect();
    Some(
        Reason::failing("no ready endpoints", sentence)
            .because([cause.waits_for("a ready pod")])
            .because(causes),
    )
}

/// Explains a named target port that no container of the pods has.
fn unmatched_port(ctx: &Context, target: Target, selected: &[Target]) -> Option<Reason> {
    let has = |name: &str| {
        selected.iter().any(|pod| {
            let containers = items(&pod.spec()["containers"]).chain(items(&pod.spec()["initContainers"]));
            containers.flat_map(|container| items(&container["ports"])).any(|port| port["name"] == name)
        })
    };
    let named = items(&target.spec()["ports"])
        .filter_map(|port| text(&port["targetPort"]))
        .find(|name| !has(name))?;
    let sentence = format!(
        "{} has no endpoint for its target port {}: no container of its pods has a port of that name.",
        ctx.short_of(target),
        quoted(named)
    );
    let cause =
        Cause::of(ctx.reference_of(target)).field(format!("spec.ports: targetPort={}", quoted(named)));
    Some(Reason::failing("no port", sentence).because([cause]))
}

fn pending_load_balancer(ctx: &Context, target: Target) -> Option<Reason> {
    let is_assigned = items(&target.status()["loadBalancer"]["ingress"]).next().is_some();
    if target.spec()["type"] != "LoadBalancer" || is_assigned {
        return None;
    }
    let class = text(&target.spec()["loadBalancerClass"]);
    let waits_for = match class {
        Some(class) => format!("an address from the controller of its loadBalancerClass {}", quoted(class)),
        None => "an address from the controller of load balancers".to_owned(),
    };
    let sentence = format!(
        "{} has no external address: it waits for {waits_for}. It has none as long as no such controller runs.",
        ctx.short_of(target)
    );
    let cause = Cause::of(ctx.reference_of(target)).field("status.loadBalancer").waits_for(waits_for);
    Some(Reason::progressing("no address", sentence).because([cause]))
}

/// Explains why an Ingress is not served: its class, its services, or its address.
pub fn ingress(ctx: &Context, target: Target) -> Option<Reason> {
    let short = ctx.short_of(target);
    let cause = Cause::of(ctx.reference_of(target));
    let class =
        text(&target.spec()["ingressClassName"]).or_else(|| target.annotation("kubernetes.io/ingress.class"));
    let Some(class) = class else {
        let sentence = format!(
            "{short} has no class, and no IngressClass was the default when it was created, so that a controller that \
             serves Ingresses of its class alone passes it over. Set spec.ingressClassName."
        );
        return Some(Reason::failing("no class", sentence).because([cause.field("spec.ingressClassName")]));
    };
    if target.spec()["ingressClassName"] == class
        && ctx.get("ingressclasses.networking.k8s.io", "", class).is_none()
    {
        let sentence =
            format!("{short} is served by no controller: its IngressClass {} does not exist.", quoted(class));
        let field = format!("spec.ingressClassName: {}", quoted(class));
        return Some(Reason::failing("class not found", sentence).because([cause.field(field)]));
    }
    let rules = items(&target.spec()["rules"])
        .flat_map(|rule| items(&rule["http"]["paths"]))
        .map(|path| &path["backend"]);
    let backends = rules.chain(std::iter::once(&target.spec()["defaultBackend"])).take(100);
    let is_missing = |name: &&str| ctx.get("services", target.namespace, name).is_none();
    let missing = backends.filter_map(|backend| text(&backend["service"]["name"])).find(is_missing);
    if let Some(service) = missing {
        let named = ctx.short("services", service);
        let sentence = format!("{short} leads to {named}, which does not exist.");
        let cause = cause.field("spec.rules").waits_for(format!("{named}, which does not exist"));
        return Some(Reason::failing("service not found", sentence).because([cause]));
    }
    if items(&target.status()["loadBalancer"]["ingress"]).next().is_none() {
        let sentence = format!(
            "{short} has no address: it waits for the controller of its class {}. It has none as long as that does not run.",
            quoted(class)
        );
        let cause = cause
            .field("status.loadBalancer")
            .waits_for(format!("the controller of the class {}", quoted(class)));
        return Some(Reason::progressing("no address", sentence).because([cause]));
    }
    None
}
