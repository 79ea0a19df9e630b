//! The finalizers of an object: the controller that removes each, and what it waits for.

use crate::context::{Context, Target, is_terminating};
use crate::explanation::Cause;
use crate::managed_fields::{self, Manager};
use crate::objects::Version;
use crate::text::{quoted, text_or_empty, texts};
use crate::{claims, custom_resource_definitions, jobs, kubectl, namespaces, network, owners, volumes};

/// The finalizers that are explained.
const MAX_FINALIZERS: usize = 1000;

/// The thing that the controller of a finalizer waits for.
#[derive(Debug, Default)]
pub struct Wait {
    /// The rest of the sentence that says when the controller removes the finalizer: `once no pod
    /// uses the claim; pod/a uses it`.
    pub clause: String,
    /// The action that ends the wait, as a command or a sentence without a full stop; empty if
    /// there is nothing to do.
    pub remedy: String,
    /// The objects that are waited for, and their own causes.
    pub causes: Vec<Cause>,
}

type Rule = fn(&Context, Target) -> Wait;

/// The finalizers that a controller of Kubernetes removes, the controller, and the rule that says
/// what it waits for. A name that ends in a slash stands for all finalizers that begin with it.
const RULES: [(&str, &str, Rule); 14] = [
    ("kubernetes.io/pvc-protection", "persistentvolumeclaim-protection-controller", claims::protection),
    ("kubernetes.io/pv-protection", "persistentvolume-protection-controller", volumes::protection),
    ("kubernetes.io/pv-controller", "persistentvolume-binder-controller", volumes::storage_deletion),
    (
        "external-provisioner.volume.kubernetes.io/finalizer",
        "external-provisioner of the CSI driver",
        volumes::storage_deletion,
    ),
    (
        "kubernetes.io/vac-protection",
        "volumeattributesclass-protection-controller",
        volumes::class_protection,
    ),
    ("external-attacher/", "external-attacher of the CSI driver", volumes::detachment),
    ("foregroundDeletion", "garbage collector", owners::foreground),
    ("orphan", "garbage collector", owners::orphaning),
    ("batch.kubernetes.io/job-tracking", "job controller", jobs::tracking),
    ("kubernetes", "namespace controller", namespaces::content),
    ("customresourcecleanup.apiextensions.k8s.io", "API server", custom_resource_definitions::instances),
    (
        "service.kubernetes.io/load-balancer-cleanup",
        "service controller of a cloud provider",
        network::load_balancer,
    ),
    ("resource.kubernetes.io/delete-protection", "resourceclaim controller", claims::devices),
    ("networking.k8s.io/service-cidr-finalizer", "service-cidr-controller", network::addresses),
];

/// A finalizer that keeps an object.
#[derive(Debug)]
pub struct Blocker {
    pub finalizer: String,
    /// Whether no controller of the control plane removes the finalizer.
    pub is_foreign: bool,
    /// The controller that removes the finalizer, its condition, and what can be done.
    pub sentence: String,
    /// The finalizer itself, then what is waited for.
    pub causes: Vec<Cause>,
}

/// Explains the finalizers of an object, those of the spec of a namespace included.
pub fn blockers(ctx: &Context, target: Target) -> Vec<Blocker> {
    let metadata = texts(&target.object["metadata"]["finalizers"]).map(|name| ("metadata.finalizers", name));
    let spec = texts(&target.spec()["finalizers"]).map(|name| ("spec.finalizers", name));
    let is_namespace = target.resource == "namespaces";
    let all = metadata.chain(spec.filter(|_| is_namespace)).take(MAX_FINALIZERS);
    all.map(|(field, name)| blocker(ctx, target, field, name)).collect()
}

/// Returns the writer that set a finalizer. The write must be in history: the version before it
/// lacks the finalizer, or the write created the object.
fn setter(ctx: &Context, target: Target, finalizer: &str) -> Option<Manager> {
    let past = ctx.past(target.resource, target.namespace, target.name);
    let is_same = |version: &&Version| {
        !version.is_deletion && text_or_empty(&version.object["metadata"]["uid"]) == target.uid()
    };
    let mut first = None;
    let mut is_complete = false;
    for version in past.iter().filter(is_same) {
        is_complete = !texts(&version.object["metadata"]["finalizers"]).any(|name| name == finalizer);
        if is_complete {
            break;
        }
        first = Some(version);
    }
    // No finalizer is added to an object that is being deleted.
    let (version, writer) = first
        .filter(|version| !is_terminating(&version.object))
        .and_then(|version| Some((version, version.writer.as_ref()?)))?;
    let time = version.time.clone().unwrap_or_default();
    (is_complete || writer.verb == "create").then(|| Manager { name: writer.to_string(), time })
}

fn blocker(ctx: &Context, target: Target, field: &str, name: &str) -> Blocker {
    let rule = RULES.iter().find(|(known, _, _)| match known.strip_suffix('/') {
        Some(prefix) => name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/')),
        None => *known == name,
    });
    let finalizer = quoted(name);
    let mut cause = Cause::of(ctx.reference_of(target)).field(format!("{field}: {finalizer}"));
    let manager = setter(ctx, target, name).or_else(|| managed_fields::of_finalizer(target.object, name));
    if let Some(manager) = &manager {
        cause = cause.manager(manager.name.clone()).since(manager.time.clone());
    }
    let Some((_, controller, rule)) = rule else {
        let remover =
            manager.map_or_else(|| "the program that set it".to_owned(), |manager| quoted(&manager.name));
        let waits_for = format!("{remover}: no controller of the control plane removes this finalizer");
        let remedy = match field {
            "spec.finalizers" => kubectl::finalize(target.name, name),
            _ => kubectl::remove_finalizer(target, name),
        };
        let sentence = format!(
            "no controller of the control plane removes it. It goes when {remover} removes it, or: {remedy}"
        );
        let causes = vec![cause.waits_for(waits_for).remedy(remedy)];
        return Blocker { finalizer, is_foreign: true, sentence, causes };
    };
    let Wait { clause, remedy, causes } = rule(ctx, target);
    let mut sentence = format!("the {controller} removes it {clause}");
    if !remedy.is_empty() {
        sentence += &format!(". To change that: {remedy}");
    }
    let cause = cause.waits_for(format!("the {controller}, which removes it {clause}")).remedy(remedy);
    Blocker { finalizer, is_foreign: false, sentence, causes: std::iter::once(cause).chain(causes).collect() }
}
