//! PersistentVolumeClaims: their protection, and why one is not bound. Beside them the protection
//! of ResourceClaims.

use serde_json::Value;

use crate::conditions;
use crate::context::{Context, Target, is_terminating};
use crate::explanation::Cause;
use crate::finalizers::Wait;
use crate::kubectl;
use crate::owners::is_owned_by;
use crate::reason::Reason;
use crate::text::{enumerate, items, quoted, reason_and_message, text, text_or_empty};

/// The resource of the claims.
pub const CLAIMS: &str = "persistentvolumeclaims";

/// The pods that are explained one by one.
const MAX_PODS: usize = 10;

/// Returns the names of the claims that a pod uses, each with the name of the pod's volume.
pub fn of_pod(pod: &Value) -> Vec<(String, String)> {
    let pod_name = text_or_empty(&pod["metadata"]["name"]);
    let named = items(&pod["spec"]["volumes"]).filter_map(|volume| {
        let name = text_or_empty(&volume["name"]);
        let claim = text(&volume["persistentVolumeClaim"]["claimName"]).map(str::to_owned);
        let ephemeral = || volume.get("ephemeral").map(|_| format!("{pod_name}-{name}"));
        Some((claim.or_else(ephemeral)?, name.to_owned()))
    });
    named.take(100).collect()
}

/// Explains the finalizer `kubernetes.io/pvc-protection`: pods with a node that use the claim, also
/// those that have ended.
pub fn protection(ctx: &Context, target: Target) -> Wait {
    let pods = ctx.list("pods", Some(target.namespace));
    let holding = pods.iter().filter(|pod| holds(pod, target)).map(|pod| Target::listed("pods", pod));
    let holding: Vec<Target> = holding.collect();
    let names: Vec<String> = holding.iter().map(|pod| ctx.short_of(*pod)).collect();
    let Some(first) = holding.first() else {
        return Wait {
            clause: "once no pod uses the claim; none does any more".to_owned(),
            ..Wait::default()
        };
    };
    let uses = if names.len() == 1 { "still uses it" } else { "still use it" };
    let ended = match has_ended(*first) && names.len() == 1 {
        true => " (a pod that has ended counts until it is deleted)",
        false => "",
    };
    let deletable: Vec<&str> =
        holding.iter().filter(|pod| !pod.is_terminating()).map(|pod| pod.name).take(3).collect();
    let remedy = match deletable.is_empty() {
        true => String::new(),
        false => kubectl::delete_all("pods", target.namespace, &deletable),
    };
    let causes = holding.iter().take(MAX_PODS).flat_map(|pod| pod_cause(ctx, *pod, target.name)).collect();
    Wait {
        clause: format!("once no pod uses the claim; {} {uses}{ended}", enumerate(&names)),
        remedy,
        causes,
    }
}

fn has_ended(pod: Target) -> bool {
    ["Succeeded", "Failed"].contains(&text_or_empty(&pod.status()["phase"]))
}

/// Returns `true` if a pod keeps a claim from being deleted: it has a node and uses the claim, or
/// the claim was created for it and it has not ended.
fn holds(pod: &Value, claim: Target) -> bool {
    let metadata = &pod["metadata"];
    let is_shut_down = is_terminating(pod) && metadata["deletionGracePeriodSeconds"] == 0;
    let is_named = |volume: &Value| volume["persistentVolumeClaim"]["claimName"] == claim.name;
    let is_own = is_owned_by(claim.object, text_or_empty(&metadata["uid"])) && !is_shut_down;
    text(&pod["spec"]["nodeName"]).is_some()
        && (items(&pod["spec"]["volumes"]).any(is_named)
            || is_own && of_pod(pod).iter().any(|(name, _)| name == claim.name))
}

fn pod_cause(ctx: &Context, pod: Target, claim: &str) -> Vec<Cause> {
    if pod.is_terminating() {
        let explained = ctx.explain(pod.resource, pod.namespace, pod.name);
        if !explained.is_empty() {
            return explained;
        }
    }
    let volume = of_pod(pod.object).into_iter().find(|(name, _)| name == claim).map(|(_, volume)| volume);
    let waits_for = match has_ended(pod) {
        true => "the deletion of the pod, which has ended and uses the claim",
        false => "the deletion of the pod, which uses the claim",
    };
    let cause =
        Cause::of(ctx.reference_of(pod)).field(format!("spec.volumes: {}", volume.unwrap_or_default()));
    vec![cause.waits_for(waits_for).remedy(kubectl::delete(pod.resource, pod.namespace, pod.name))]
}

/// Explains the finalizer `resource.kubernetes.io/delete-protection` of a ResourceClaim: its
/// consumers.
pub fn devices(ctx: &Context, target: Target) -> Wait {
    let consumers: Vec<&str> =
        items(&target.status()["reservedFor"]).filter_map(|consumer| text(&consumer["name"])).collect();
    let names: Vec<String> = consumers.iter().map(|name| ctx.short("pods", name)).collect();
    let causes = consumers.iter().take(MAX_PODS).map(|name| {
        Cause::of(ctx.reference("pods", target.namespace, name))
            .field("spec.resourceClaims")
            .waits_for("the end or the deletion of the pod, for which the claim is reserved")
    });
    let clause = match consumers.is_empty() {
        true => "once the devices are no longer allocated; no pod uses the claim any more".to_owned(),
        false => format!("once the claim is reserved for no pod; it is reserved for {}", enumerate(&names)),
    };
    Wait { clause, remedy: String::new(), causes: causes.collect() }
}

/// Explains why a claim is not bound.
pub fn reason(ctx: &Context, target: Target) -> Option<Reason> {
    match text(&target.status()["phase"]).unwrap_or("Pending") {
        "Bound" => resizing(ctx, target),
        "Lost" => Some(lost(ctx, target)),
        _ => Some(match text(&target.spec()["volumeName"]) {
            Some(volume) => waits_for_volume(ctx, target, volume),
            None => unbound(ctx, target),
        }),
    }
}

fn resizing(ctx: &Context, target: Target) -> Option<Reason> {
    let names = [
        "ControllerResizeError",
        "NodeResizeError",
        "FileSystemResizePending",
        "Resizing",
        "ModifyVolumeError",
    ];
    let condition = names.iter().find_map(|name| conditions::is_true(target.object, name))?;
    let sentence = format!(
        "{} is bound, and its volume is not yet as requested: {}.",
        ctx.short_of(target),
        conditions::describe(ctx, condition)
    );
    let name = quoted(text_or_empty(&condition["type"]));
    let reason = match name.ends_with("Error") {
        true => Reason::failing(name, sentence),
        false => Reason::progressing(name, sentence),
    };
    Some(reason.because([conditions::cause(ctx, target, condition)]))
}

fn lost(ctx: &Context, target: Target) -> Reason {
    let short = ctx.short_of(target);
    let volume = text_or_empty(&target.spec()["volumeName"]);
    let cause = Cause::of(ctx.reference_of(target)).field(format!("spec.volumeName: {volume}"));
    let volume_name = ctx.short("persistentvolumes", volume);
    let why = match ctx.get("persistentvolumes", "", volume) {
        None => format!("its volume {volume_name} no longer exists"),
        Some(_) => format!("its volume {volume_name} is bound to another claim"),
    };
    let remedy = kubectl::delete(CLAIMS, target.namespace, target.name);
    let sentence = format!(
        "{short} is lost: {why}. The claim cannot be repaired in place: delete it and make it anew ({remedy})."
    );
    let deletion = ctx.explain_deletion("persistentvolumes", "", volume);
    Reason::failing("Lost", sentence).because([cause.waits_for(why).remedy(remedy)]).because(deletion)
}

/// Explains a claim that names a volume and is not bound to it yet.
fn waits_for_volume(ctx: &Context, target: Target, volume: &str) -> Reason {
    let short = ctx.short_of(target);
    let named = ctx.short("persistentvolumes", volume);
    let cause = Cause::of(ctx.reference_of(target)).field(format!("spec.volumeName: {volume}"));
    let Some(found) = ctx.get("persistentvolumes", "", volume) else {
        let waits_for = format!("{named}, which does not exist");
        let sentence = format!(
            "{short} is pending because it asks for {waits_for}. It is bound when that volume is created."
        );
        return Reason::progressing("volume not found", sentence).because([cause.waits_for(waits_for)]);
    };
    let claim = &found["spec"]["claimRef"];
    let is_own = claim["name"] == target.name && claim["namespace"] == target.namespace;
    if let Some(other) = text(&claim["name"]).filter(|_| !is_own) {
        let other = ctx.reference(CLAIMS, text_or_empty(&claim["namespace"]), other);
        let waits_for = format!("{named}, which is bound to another claim, {other}");
        let sentence = format!(
            "{short} is pending because it asks for {waits_for}. Name another volume in spec.volumeName of a new claim."
        );
        return Reason::failing("volume of another claim", sentence).because([cause.waits_for(waits_for)]);
    }
    let mismatch =
        ctx.last_event(target, &["VolumeMismatch", "FailedBinding"]).map(|event| reason_and_message(&event));
    let why = match mismatch {
        _ if is_terminating(&found) => format!("{named} is being deleted"),
        Some(message) => message,
        None => format!("the persistentvolume-binder-controller has not bound {named} to it yet"),
    };
    let sentence = format!("{short} is pending because it asks for {named}: {why}.");
    let volume = ctx.explain("persistentvolumes", "", volume);
    Reason::progressing("not bound", sentence).because([cause.waits_for(why)]).because(volume)
}

/// Explains a claim that names no volume: the binder has to find one, or its class has to provision
/// one.
fn unbound(ctx: &Context, target: Target) -> Reason {
    let short = ctx.short_of(target);
    let annotated =
        target.object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    let cause = Cause::of(ctx.reference_of(target));
    let size = text(&target.spec()["resources"]["requests"]["storage"]).unwrap_or("its size");
    let Some(class) = annotated.or_else(|| target.spec()["storageClassName"].as_str()) else {
        let default = default_class(ctx);
        let (waits_for, sentence) = match &default {
            Some(class) => (
                format!("the persistentvolume-binder-controller, which gives it the default class {class}"),
                format!(
                    "{short} is pending because it names no StorageClass; it gets the default one, {class}, in a moment."
                ),
            ),
            None => (
                format!("an Available volume without class that fits it ({size}), or a default StorageClass"),
                format!(
                    "{short} is pending because it names no StorageClass, no StorageClass is the default, and no volume fits it. \
                     Name a class in spec.storageClassName, mark one as default, or create a volume."
                ),
            ),
        };
        return Reason::progressing("no StorageClass", sentence)
            .because([cause.field("spec.storageClassName").waits_for(waits_for)]);
    };
    let cause = cause.field(format!("spec.storageClassName: {}", quoted(class)));
    if class.is_empty() {
        let waits_for = format!("an Available volume without class that fits it ({size})");
        let sentence = format!(
            "{short} is pending because spec.storageClassName is \"\", so that no volume is made for it: it waits for {waits_for}."
        );
        return Reason::progressing("no volume", sentence).because([cause.waits_for(waits_for)]);
    }
    let named = ctx.short("storageclasses.storage.k8s.io", class);
    let Some(found) = ctx.get("storageclasses.storage.k8s.io", "", class) else {
        let list = ctx.list("storageclasses.storage.k8s.io", None);
        let names: Vec<&str> = list.iter().filter_map(|class| text(&class["metadata"]["name"])).collect();
        let known = if names.is_empty() {
            "there is none".to_owned()
        } else {
            format!("there is {}", enumerate(&names))
        };
        let waits_for = format!("{named}, which does not exist; {known}");
        let sentence = format!(
            "{short} is pending because its class {named} does not exist ({known}). Create that StorageClass or a \
             volume of that class, or make the claim anew with another class."
        );
        return Reason::failing("StorageClass not found", sentence).because([cause.waits_for(waits_for)]);
    };
    of_class(ctx, target, &named, &found, cause)
}

/// Returns the name of the default StorageClass.
fn default_class(ctx: &Context) -> Option<String> {
    const MARKS: [&str; 2] =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    let list = ctx.list("storageclasses.storage.k8s.io", None);
    let is_default =
        |class: &&Value| MARKS.iter().any(|mark| class["metadata"]["annotations"][*mark] == "true");
    let name = list.iter().find(is_default).and_then(|class| text(&class["metadata"]["name"]))?;
    Some(ctx.short("storageclasses.storage.k8s.io", name))
}

fn of_class(ctx: &Context, target: Target, named: &str, class: &Value, cause: Cause) -> Reason {
    let short = ctx.short_of(target);
    let provisioner = quoted(text_or_empty(&class["provisioner"]));
    let is_selected = target.annotation("volume.kubernetes.io/selected-node").is_some();
    if class["volumeBindingMode"] == "WaitForFirstConsumer" && !is_selected {
        return first_consumer(ctx, target, named, cause);
    }
    if let Some(event) = ctx.last_event(target, &["ProvisioningFailed"]) {
        let message = quoted(text_or_empty(&event["message"]));
        let sentence = format!(
            "{short} is pending because its volume could not be made by {provisioner} ({named}): {message}. That is tried again."
        );
        let cause =
            cause.since(crate::context::event_time(&event)).waits_for(format!("{provisioner}: {message}"));
        return Reason::failing("ProvisioningFailed", sentence).because([cause]);
    }
    if provisioner == "kubernetes.io/no-provisioner" {
        let waits_for = format!("an Available volume of {named} that fits it: this class makes no volumes");
        let sentence = format!("{short} is pending because it waits for {waits_for}. Create a volume.");
        return Reason::progressing("no volume", sentence).because([cause.waits_for(waits_for)]);
    }
    let waits_for = format!("the provisioner {provisioner} of {named}, which has to make its volume");
    let slow = class["parameters"]["sim.coracle.dev/provision-after"]
        .as_str()
        .map(|after| format!(" Its parameter sim.coracle.dev/provision-after is {}.", quoted(after)));
    let sentence = format!(
        "{short} is pending because it waits for {waits_for}. If that lasts, no program of that provisioner runs.{}",
        slow.unwrap_or_default()
    );
    Reason::progressing("provisioning", sentence).because([cause.waits_for(waits_for)])
}

fn first_consumer(ctx: &Context, target: Target, named: &str, cause: Cause) -> Reason {
    let short = ctx.short_of(target);
    let pods = ctx.list("pods", Some(target.namespace));
    let uses = |pod: &&Value| of_pod(pod).iter().any(|(name, _)| name == target.name);
    let users: Vec<Target> = pods.iter().filter(uses).map(|pod| Target::listed("pods", pod)).collect();
    let names: Vec<String> = users.iter().map(|pod| ctx.short_of(*pod)).collect();
    let (waits_for, hint) = match names.is_empty() {
        true => {
            ("the first pod that uses it, and there is none".to_owned(), "Create a pod that uses the claim.")
        }
        false => (
            format!("the scheduler to choose a node for {}", enumerate(&names)),
            "Its volume is made on that node.",
        ),
    };
    let sentence = format!(
        "{short} is pending because {named} has volumeBindingMode: WaitForFirstConsumer: it waits for {waits_for}. {hint}"
    );
    let causes: Vec<Cause> =
        users.iter().take(3).flat_map(|pod| ctx.explain(pod.resource, pod.namespace, pod.name)).collect();
    Reason::progressing("WaitForFirstConsumer", sentence)
        .because([cause.waits_for(waits_for)])
        .because(causes)
}

/// Returns `true` if a claim is owned by an earlier pod of this name. A StatefulSet waits until
/// such a claim is deleted before it creates the pod again.
///
/// - `pod`: the name of a pod that does not exist
pub fn is_stale(claim: &Value, pod: &str) -> bool {
    items(&claim["metadata"]["ownerReferences"]).any(|owner| owner["kind"] == "Pod" && owner["name"] == pod)
}
