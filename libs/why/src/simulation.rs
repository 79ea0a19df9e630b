//! The annotations that script simulated pods. Their reference is
//! `docs/reference/simulated-pods.md`; pods inherit them as in `coracle_behavior::inheritance`,
//! which decodes objects and so is not used here.

use serde_json::Value;

use crate::context::{Context, Target};
use crate::owners::{Lookup, controller, look_up};
use crate::text::{text, text_or_empty};

/// The most controllers above each other that a pod inherits from: a CronJob and its Job are two.
const MAX_CONTROLLERS: usize = 4;

/// The kinds that pods inherit from.
const KINDS: [&str; 7] =
    ["CronJob", "DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"];

/// Returns `true` if neither the simulated scheduler nor a simulated kubelet takes care of a pod.
pub fn is_ignored(pod: Target) -> bool {
    pod.annotation("sim.coracle.dev/ignore") == Some("true")
}

/// Returns the value of an annotation that a pod has or inherits, and the name of the object that
/// has it in a sentence: the pod, the nearest of its controllers, or its namespace.
pub fn inherited(ctx: &Context, pod: Target, annotation: &str) -> Option<(String, String)> {
    let of = |object: &Value| text(&object["metadata"]["annotations"][annotation]).map(str::to_owned);
    if let Some(value) = of(pod.object) {
        return Some((value, "the pod".to_owned()));
    }
    let heir = |object: &Value| controller(object).filter(|owner| KINDS.contains(&owner.kind.as_str()));
    let mut owner = heir(pod.object);
    for _ in 0..MAX_CONTROLLERS {
        let Some((named, Lookup::Found(object))) =
            owner.map(|owner| (owner.short(), look_up(ctx, pod.namespace, &owner)))
        else {
            break;
        };
        owner = heir(&object);
        // A ReplicaSet has copies of the annotations of its Deployment, which are never removed.
        let is_copy = owner.as_ref().is_some_and(|owner| owner.kind == "Deployment");
        if let Some(value) = of(&object).filter(|_| !is_copy) {
            return Some((value, named));
        }
    }
    let value = ctx.get("namespaces", "", pod.namespace).as_ref().and_then(of)?;
    Some((value, ctx.short("namespaces", pod.namespace)))
}

/// Returns the name of the object whose annotation lists the images that a pod cannot have.
pub fn missing_images(ctx: &Context, pod: Target) -> Option<String> {
    const ANNOTATION: &str = "sim.coracle.dev/missing-images";
    if let Some((_, named)) = inherited(ctx, pod, ANNOTATION) {
        return Some(named);
    }
    let name = text_or_empty(&pod.spec()["nodeName"]);
    let node = ctx.get("nodes", "", name)?;
    text(&node["metadata"]["annotations"][ANNOTATION]).map(|_| ctx.short("nodes", name))
}
