//! PodSecurity: the Pod Security Standards, by the labels of a namespace.
//!
//! Pods that violate the level of `enforce` are rejected; pods and templates of workloads that
//! violate the level of `warn` are admitted with a warning. The labels are parsed in [`policy`],
//! the rules are in [`checks`].
//!
//! Source: Kubernetes documentation, "Pod Security Standards".

mod checks;
mod policy;

use std::collections::BTreeMap;

use serde_json::Value;

use checks::{Pod, Violation};
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::field::quote;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::admission::json::{items, text};
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, Operation};
use policy::{Level, LevelVersion, Policy};

pub(super) struct PodSecurity;

/// Resources with a pod template, and the paths of its metadata and spec.
const CONTROLLERS: [(&str, &str, &str); 8] = [
    ("", "replicationcontrollers", "/spec/template"),
    ("", "podtemplates", "/template"),
    ("apps", "replicasets", "/spec/template"),
    ("apps", "deployments", "/spec/template"),
    ("apps", "statefulsets", "/spec/template"),
    ("apps", "daemonsets", "/spec/template"),
    ("batch", "jobs", "/spec/template"),
    ("batch", "cronjobs", "/spec/jobTemplate/spec/template"),
];

/// Subresources that do not change the spec.
const HARMLESS: [&str; 8] =
    ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// Annotations of audit events.
const ENFORCE_POLICY: &str = "pod-security.kubernetes.io/enforce-policy";
const AUDIT_VIOLATIONS: &str = "pod-security.kubernetes.io/audit-violations";

/// The number of existing pods that are checked when the enforced level of a namespace rises.
const MAX_PODS: usize = 3000;

impl AdmissionPlugin for PodSecurity {
    fn validate(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        if !matches!(attributes.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        if attributes.is("", "namespaces") {
            return validate_namespace(attributes, cluster);
        }
        if attributes.is_any("", "pods") && !HARMLESS.contains(&attributes.subresource) {
            return validate_pod(attributes, cluster);
        }
        if let Some((_, _, template)) = CONTROLLERS.iter().find(|(g, r, _)| attributes.is(g, r))
            && let Some(template) = attributes.object.pointer(template)
        {
            let policy = policy_of(attributes, cluster)?;
            audit(attributes, policy.audit, &Pod::of(template));
            warn(attributes, policy.warn, &Pod::of(template));
        }
        Ok(())
    }
}

fn policy_of(attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<Policy> {
    let namespace = cluster.get(&GroupResource::new("", "namespaces"), "", attributes.namespace)?;
    Ok(Policy::of_labels(&namespace.unwrap_or_default()["metadata"]["labels"]).0)
}

fn validate_pod(attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
    if attributes.old_object.is_some_and(|old| !changes_images(&attributes.object["spec"], &old["spec"])) {
        return Ok(());
    }
    let policy = policy_of(attributes, cluster)?;
    let pod = Pod::of(attributes.object);
    if attributes.audit.is_enabled() {
        attributes.audit.add_annotation(ENFORCE_POLICY, policy.enforce.to_string());
    }
    audit(attributes, policy.audit, &pod);
    let violations = checks::evaluate(policy.enforce, &pod);
    if !violations.is_empty() {
        let detail = format!("violates PodSecurity \"{}\": {}", policy.enforce, details(&violations));
        return Err(attributes.forbidden(detail));
    }
    warn(attributes, policy.warn, &pod);
    Ok(())
}

/// Annotates the audit event with what violates the level that is audited.
fn audit(attributes: &AdmissionAttributes<'_>, level: LevelVersion, pod: &Pod<'_>) {
    if !attributes.audit.is_enabled() {
        return;
    }
    let violations = checks::evaluate(level, pod);
    if !violations.is_empty() {
        let text = format!("would violate PodSecurity \"{level}\": {}", details(&violations));
        attributes.audit.add_annotation(AUDIT_VIOLATIONS, text);
    }
}

fn warn(attributes: &AdmissionAttributes<'_>, level: LevelVersion, pod: &Pod<'_>) {
    let violations = checks::evaluate(level, pod);
    if !violations.is_empty() {
        attributes.warn(format!("would violate PodSecurity \"{level}\": {}", details(&violations)));
    }
}

fn details(violations: &[Violation]) -> String {
    violations.iter().map(|v| format!("{} ({})", v.reason, v.detail)).collect::<Vec<_>>().join(", ")
}

/// Returns `true` if an update changes an image or adds an ephemeral container: the only relevant
/// fields that an update may change.
fn changes_images(new: &Value, old: &Value) -> bool {
    let changed = |list: &str| {
        let (new, old) = (items(&new[list]), items(&old[list]));
        new.len() != old.len() || new.iter().zip(old).any(|(n, o)| n["image"] != o["image"])
    };
    let debugs = items(&new["ephemeralContainers"]).iter().any(|container| {
        let same = |o: &&Value| o["name"] == container["name"];
        items(&old["ephemeralContainers"]).iter().find(same).is_none_or(|o| o["image"] != container["image"])
    });
    changed("containers") || changed("initContainers") || debugs
}

/// Validates the labels of a namespace, and warns of existing pods that violate a stricter level.
fn validate_namespace(attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
    let labels = |object: &Value| Policy::of_labels(&object["metadata"]["labels"]);
    let (new, errors) = labels(attributes.object);
    let old = attributes.old_object.map(labels);
    let known = old.as_ref().is_some_and(|(_, old_errors)| *old_errors == errors);
    if !errors.is_empty() && !known {
        return Err(Error::invalid(&attributes.kind.group_kind(), attributes.shown_name(), errors));
    }
    let Some((old, _)) = old else { return Ok(()) };
    let relaxed = new.enforce.version == old.enforce.version && new.enforce.level <= old.enforce.level;
    if new.enforce.level == Level::Privileged || relaxed {
        return Ok(());
    }
    let name = text(&attributes.object["metadata"]["name"]);
    let pods = cluster.list(&GroupResource::new("", "pods"), name)?;
    let mut offenders: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pod in pods.iter().take(MAX_PODS) {
        let violations = checks::evaluate(new.enforce, &Pod::of(pod));
        if !violations.is_empty() {
            let reasons: Vec<&str> = violations.iter().map(|v| v.reason.as_str()).collect();
            offenders.entry(reasons.join(", ")).or_default().push(text(&pod["metadata"]["name"]));
        }
    }
    if pods.len() > MAX_PODS {
        let all = pods.len();
        attributes.warn(format!(
            "new PodSecurity enforce level only checked against the first {MAX_PODS} of {all} existing pods"
        ));
    }
    if !offenders.is_empty() {
        attributes.warn(format!(
            "existing pods in namespace {} violate the new PodSecurity enforce level \"{}\"",
            quote(name),
            new.enforce
        ));
    }
    let mut lines: Vec<String> =
        offenders.into_iter().map(|(reasons, pods)| offence(&reasons, &pods)).collect();
    lines.sort();
    lines.into_iter().for_each(|line| attributes.warn(line));
    Ok(())
}

fn offence(reasons: &str, pods: &[&str]) -> String {
    let first = pods.iter().min().copied().unwrap_or("");
    match pods.len() {
        0 | 1 => format!("{first}: {reasons}"),
        2 => format!("{first} (and 1 other pod): {reasons}"),
        n => format!("{first} (and {} other pods): {reasons}", n - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_apiserver::admission::testing::{Request, World};
    use serde_json::json;

    fn namespace(labels: Value) -> Value {
        json!({"kind": "Namespace", "metadata": {"name": "ns", "labels": labels}})
    }

    fn privileged(name: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "ns"},
               "spec": {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": true}}]}})
    }

    fn outcome(mut request: Request, world: &World) -> (String, Vec<String>) {
        let result = request.validate(&PodSecurity, world);
        let text = result.map_or_else(|e| format!("{} {e}", e.code()), |()| "ok".to_owned());
        (text, request.warnings.into_texts())
    }

    #[test]
    fn violations_are_rejected_or_reported_as_warnings() {
        let pod = || Request::new("", "pods", "ns", privileged("p"));
        let deployment = || {
            Request::new(
                "apps",
                "deployments",
                "ns",
                json!({"metadata": {"name": "d"}, "spec": {"template": privileged("")}}),
            )
        };
        let why = r#"privileged (container "c" must not set securityContext.privileged=true)"#;
        let refused = format!(r#"403 pods "p" is forbidden: violates PodSecurity "baseline:latest": {why}"#);
        let warning = |level: &str| vec![format!(r#"would violate PodSecurity "{level}": {why}"#)];
        let enforce = json!({"pod-security.kubernetes.io/enforce": "baseline"});
        let warn = json!({"pod-security.kubernetes.io/warn": "baseline", "pod-security.kubernetes.io/warn-version": "v1.30"});
        for (case, labels, request, want) in [
            ("no labels", json!({}), pod(), ("ok".to_owned(), vec![])),
            ("enforced", enforce.clone(), pod(), (refused.clone(), vec![])),
            (
                "not for templates",
                enforce.clone(),
                deployment(),
                ("ok".to_owned(), warning("baseline:latest")),
            ),
            (
                "a new image",
                enforce.clone(),
                pod().update(json!({"spec": {"containers": [{"image": "j"}]}})),
                (refused, vec![]),
            ),
            ("an old pod", enforce.clone(), pod().update(privileged("p")), ("ok".to_owned(), vec![])),
            ("status", enforce, pod().update(json!({})).of("status"), ("ok".to_owned(), vec![])),
            ("warned of", warn.clone(), pod(), ("ok".to_owned(), warning("baseline:v1.30"))),
            ("a template warned of", warn, deployment(), ("ok".to_owned(), warning("baseline:v1.30"))),
        ] {
            let world = World::default().with("", "namespaces", namespace(labels));
            assert_eq!(outcome(request, &world), want, "{case}");
        }
    }

    #[test]
    fn labels_are_validated_and_existing_pods_reported() {
        let update = |labels: Value, old: Value| {
            Request::new("", "namespaces", "ns", namespace(labels)).update(namespace(old))
        };
        let bad = json!({"pod-security.kubernetes.io/enforce": "none"});
        let baseline = json!({"pod-security.kubernetes.io/enforce": "baseline"});
        let world = World::default().with("", "pods", privileged("b")).with("", "pods", privileged("a"));
        let invalid = r#"422 Namespace "ns" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "none": must be one of privileged, baseline, restricted"#;
        let warnings = vec![
            r#"existing pods in namespace "ns" violate the new PodSecurity enforce level "baseline:latest""#
                .to_owned(),
            "a (and 1 other pod): privileged".to_owned(),
        ];
        for (request, want) in [
            (Request::new("", "namespaces", "ns", namespace(bad.clone())), (invalid.to_owned(), vec![])),
            (update(bad.clone(), json!({})), (invalid.to_owned(), vec![])),
            (update(bad.clone(), bad), ("ok".to_owned(), vec![])),
            (update(baseline.clone(), json!({})), ("ok".to_owned(), warnings)),
            (update(baseline.clone(), baseline), ("ok".to_owned(), vec![])),
        ] {
            assert_eq!(outcome(request, &world), want);
        }
    }
}
