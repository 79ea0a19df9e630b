//! Nodes, APIServices and certificate signing requests.

use serde_json::Value;

use crate::conditions::{self, condition, is_true};
use crate::context::{Context, Target};
use crate::explanation::Cause;
use crate::kubectl;
use crate::reason::Reason;
use crate::text::{items, quoted, text, text_or_empty};

/// Explains why a node is not ready, or takes no pods.
pub fn node(ctx: &Context, target: Target) -> Option<Reason> {
    let short = ctx.short_of(target);
    let cause = Cause::of(ctx.reference_of(target));
    let ready = condition(target.object, "Ready");
    if let Some(ready) = ready.filter(|ready| ready["status"] != "True") {
        let (hint, cause) = match target.annotation("sim.coracle.dev/silent") {
            Some("true") => (
                " Its annotation sim.coracle.dev/silent keeps its kubelet from reporting: remove it."
                    .to_owned(),
                conditions::cause(ctx, target, ready).remedy(format!(
                    "kubectl annotate nodes {} sim.coracle.dev/silent-",
                    kubectl::named("", target.name)
                )),
            ),
            _ => {
                let is_silent = ready["status"] == "Unknown";
                let hint = if is_silent { " Its kubelet has to report again." } else { "" };
                (hint.to_owned(), conditions::cause(ctx, target, ready))
            }
        };
        let sentence = format!("{short} is not ready: {}.{hint}", conditions::describe(ctx, ready));
        return Some(Reason::failing("NotReady", sentence).because([cause]));
    }
    if ready.is_none() {
        let sentence = format!("{short} is not ready: no kubelet has reported its condition Ready.");
        return Some(Reason::progressing("not reported", sentence).because([cause.waits_for("its kubelet")]));
    }
    if target.spec()["unschedulable"] == true {
        let remedy = format!("kubectl uncordon {}", kubectl::named("", target.name));
        let sentence = format!(
            "{short} is ready, and takes no new pods because it is cordoned (spec.unschedulable). To change that: {remedy}"
        );
        return Some(
            Reason::ready("SchedulingDisabled", sentence)
                .because([cause.field("spec.unschedulable: true").remedy(remedy)]),
        );
    }
    let pressure = ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"]
        .into_iter()
        .find_map(|name| is_true(target.object, name))?;
    let sentence =
        format!("{short} is ready, and takes few new pods: {}.", conditions::describe(ctx, pressure));
    let word = quoted(text_or_empty(&pressure["type"]));
    Some(Reason::failing(word, sentence).because([conditions::cause(ctx, target, pressure)]))
}

/// Explains why an APIService is not available.
pub fn api_service(ctx: &Context, target: Target) -> Option<Reason> {
    let short = ctx.short_of(target);
    let available = condition(target.object, "Available");
    let service = &target.spec()["service"];
    let service = text(&service["name"]).map(|name| (text_or_empty(&service["namespace"]), name));
    let Some(available) = available.filter(|available| available["status"] != "True") else {
        service.filter(|_| available.is_none())?;
        let sentence = format!("{short} was not checked yet: it has no condition Available.");
        return Some(
            Reason::progressing("not checked", sentence).because([Cause::of(ctx.reference_of(target))]),
        );
    };
    let spec = target.spec();
    let group = quoted(text_or_empty(&spec["group"])) + "/" + &quoted(text_or_empty(&spec["version"]));
    let behind = service.map_or_else(String::new, |(namespace, name)| {
        format!(" It is served by {}.", ctx.reference("services", namespace, name))
    });
    let sentence = format!(
        "{short} is not available, so that no request for {group} succeeds: {}.{behind}",
        conditions::describe(ctx, available)
    );
    let explained = service.map(|(namespace, name)| service_causes(ctx, namespace, name)).unwrap_or_default();
    let word = text(&available["reason"]).map_or_else(|| "not available".to_owned(), quoted);
    Some(
        Reason::failing(word, sentence)
            .because([conditions::cause(ctx, target, available)])
            .because(explained),
    )
}

fn service_causes(ctx: &Context, namespace: &str, name: &str) -> Vec<Cause> {
    if ctx.get("services", namespace, name).is_some() {
        return ctx.explain("services", namespace, name);
    }
    vec![Cause::of(ctx.reference("services", namespace, name)).waits_for("the service does not exist")]
}

/// Explains why a certificate signing request has no certificate.
pub fn certificate_request(ctx: &Context, target: Target) -> Option<Reason> {
    let short = ctx.short_of(target);
    let signer = quoted(text_or_empty(&target.spec()["signerName"]));
    let cause = Cause::of(ctx.reference_of(target));
    let refused = ["Denied", "Failed"].into_iter().find_map(|name| is_true(target.object, name));
    if let Some(refused) = refused {
        let word = quoted(text_or_empty(&refused["type"]));
        let sentence = format!("{short} gets no certificate: {}.", conditions::describe(ctx, refused));
        return Some(Reason::failing(word, sentence).because([conditions::cause(ctx, target, refused)]));
    }
    if text(&target.status()["certificate"]).is_some() {
        return None;
    }
    if is_true(target.object, "Approved").is_some() {
        let sentence =
            format!("{short} is approved, and waits for its signer {signer} to issue the certificate.");
        let field = format!("spec.signerName: {signer}");
        return Some(
            Reason::progressing("Approved", sentence)
                .because([cause.field(field).waits_for(format!("the signer {signer}"))]),
        );
    }
    let remedy = format!("kubectl certificate approve {}", kubectl::named("", target.name));
    let sentence = format!("{short} is pending: nobody has approved or denied it. To approve it: {remedy}");
    let cause = cause.field("status.conditions: Approved").waits_for("the approval").remedy(remedy);
    Some(Reason::progressing("Pending", sentence).because([cause]))
}

/// Explains a webhook configuration with a service that does not exist or has no ready pod.
pub fn webhooks(ctx: &Context, target: Target) -> Option<Reason> {
    let broken = |webhook: &Value| {
        let service = &webhook["clientConfig"]["service"];
        let (namespace, name) = (text(&service["namespace"])?, text(&service["name"])?);
        let causes = service_causes(ctx, namespace, name);
        (!causes.is_empty()).then_some((
            quoted(text_or_empty(&webhook["name"])),
            webhook["failurePolicy"] != "Ignore",
            causes,
        ))
    };
    let (name, fails, causes) = items(&target.object["webhooks"]).take(20).find_map(broken)?;
    let effect = match fails {
        true => "requests that it is called for are refused (failurePolicy: Fail)",
        false => "requests are handled without it (failurePolicy: Ignore)",
    };
    let service = causes.first().map(|cause| cause.object.clone()).unwrap_or_default();
    let sentence = format!(
        "{} has a webhook that cannot be called, {name}: {service} cannot be reached; {effect}.",
        ctx.short_of(target)
    );
    let reason = match fails {
        true => Reason::failing("webhook not reachable", sentence),
        false => Reason::progressing("webhook not reachable", sentence),
    };
    Some(reason.because(causes))
}
