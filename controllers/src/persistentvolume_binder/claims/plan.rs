//! The decision about a claim. Pure.
//!
//! A claim is *unbound* until it has the annotation `bind-completed`, which is set after both sides
//! were written. Then it is *bound* for ever: a claim that loses its volume is lost, not unbound.

use std::sync::Arc;

use coracle_controller_runtime::events::EventType;
use coracle_kinds::storage::{
    BETA_STORAGE_PROVISIONER, BIND_COMPLETED, BOUND_BY_CONTROLLER, ClaimExt, MIGRATED_TO, SELECTED_NODE,
    STORAGE_PROVISIONER, VolumeExt, default_class, waits_for_consumer,
};
use coracle_object_meta::{annotation, remove_annotation, set_annotation};
use coracle_volumes::migration::Migration;
use coracle_volumes::search;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;

/// An event to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    pub r#type: EventType,
    pub reason: &'static str,
    pub message: String,
}

impl EventRecord {
    pub fn normal(reason: &'static str, message: impl Into<String>) -> EventRecord {
        EventRecord { r#type: EventType::Normal, reason, message: message.into() }
    }

    pub fn warning(reason: &'static str, message: impl Into<String>) -> EventRecord {
        EventRecord { r#type: EventType::Warning, reason, message: message.into() }
    }
}

/// The objects that the decision about a claim depends on.
#[derive(Default)]
pub struct ClaimContext {
    /// The volume that the claim names.
    pub named: Option<Arc<PersistentVolume>>,
    /// The volumes without a claim and those that refer to this one. Empty if the claim names a
    /// volume or is bound.
    pub volumes: Vec<Arc<PersistentVolume>>,
    pub classes: Vec<Arc<StorageClass>>,
    /// The names of the claim's pods that have no node yet.
    pub waiting_pods: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// Bind, or complete a binding.
    Bind(Arc<PersistentVolume>),
    /// The claim that waited without a class gets the default one.
    SetClass(String),
    Provision(Arc<StorageClass>),
    /// Record an event; the claim's phase does not change.
    RecordEvent(EventRecord),
    /// Wait in phase Pending.
    Wait(Option<EventRecord>),
    /// Fail: a client reverted a change of the controller.
    Fail(EventRecord),
    /// Phase Lost, with an event when it changes.
    Lose(EventRecord),
}

pub fn plan(claim: &PersistentVolumeClaim, claim_context: &ClaimContext) -> Plan {
    match annotation(&claim.metadata, BIND_COMPLETED) {
        Some(_) => bound(claim, claim_context),
        None if claim.volume_name().is_empty() => unbound(claim, claim_context),
        None => naming(claim, claim_context),
    }
}

fn unbound(claim: &PersistentVolumeClaim, claim_context: &ClaimContext) -> Plan {
    let named = |class: &&Arc<StorageClass>| class.metadata.name.as_deref() == Some(claim.class());
    let class = claim_context.classes.iter().find(named).filter(|_| !claim.class().is_empty());
    let delayed = class.is_some_and(|class| waits_for_consumer(class));
    if let Some(volume) = search::best(claim, &claim_context.volumes, delayed) {
        return Plan::Bind(volume.clone());
    }
    if !claim.has_class()
        && let Some(default) = default_class(claim_context.classes.iter().map(Arc::as_ref))
    {
        return Plan::SetClass(default.metadata.name.clone().unwrap_or_default());
    }
    if delayed && annotation(&claim.metadata, SELECTED_NODE).is_none() {
        return Plan::Wait(Some(waiting(&claim_context.waiting_pods)));
    }
    match class {
        Some(class) => Plan::Provision(class.clone()),
        None if !claim.class().is_empty() => Plan::RecordEvent(EventRecord::warning(
            "ProvisioningFailed",
            format!("storageclass.storage.k8s.io {:?} not found", claim.class()),
        )),
        None => Plan::Wait(Some(EventRecord::normal(
            "FailedBinding",
            "no persistent volumes available for this claim and no storage class is set",
        ))),
    }
}

fn waiting(pods: &[String]) -> EventRecord {
    match pods {
        [] => EventRecord::normal(
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding",
        ),
        [pod] => EventRecord::normal("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
        pods => EventRecord::normal(
            "WaitForPodScheduled",
            format!("waiting for pods {} to be scheduled", pods.join(",")),
        ),
    }
}

/// Decides about a claim that names a volume and is not bound.
fn naming(claim: &PersistentVolumeClaim, claim_context: &ClaimContext) -> Plan {
    let Some(volume) = &claim_context.named else { return Plan::Wait(None) };
    let name = claim.volume_name();
    if volume.claim_ref().is_none() {
        return match search::mismatch(volume, claim) {
            None => Plan::Bind(volume.clone()),
            Some(why) => Plan::Wait(Some(EventRecord::warning(
                "VolumeMismatch",
                format!("Cannot bind to requested volume {name:?}: {why}"),
            ))),
        };
    }
    // A pair that a user has chosen is not checked for a mismatch.
    if volume.is_bound_to(claim) {
        return Plan::Bind(volume.clone());
    }
    let taken =
        EventRecord::warning("FailedBinding", format!("volume {name:?} already bound to a different claim."));
    match annotation(&claim.metadata, BOUND_BY_CONTROLLER) {
        None => Plan::Wait(Some(taken)),
        Some(_) => Plan::Fail(taken),
    }
}

fn bound(claim: &PersistentVolumeClaim, claim_context: &ClaimContext) -> Plan {
    let lost = |message: &str| Plan::Lose(EventRecord::warning("ClaimLost", message));
    if claim.volume_name().is_empty() {
        return lost("Bound claim has lost reference to PersistentVolume. Data on the volume is lost!");
    }
    let Some(volume) = &claim_context.named else {
        return lost("Bound claim has lost its PersistentVolume. Data on the volume is lost!");
    };
    match volume.claim_ref() {
        Some(reference) if reference.uid != claim.metadata.uid => Plan::Lose(EventRecord::warning(
            "ClaimMisbound",
            "Two claims are bound to the same volume, this one is bound incorrectly",
        )),
        _ => Plan::Bind(volume.clone()),
    }
}

/// Returns the claim with the right annotation about the migration of its provisioner, or `None` if
/// nothing changes.
pub fn annotated(claim: &PersistentVolumeClaim, migration: Migration) -> Option<PersistentVolumeClaim> {
    let plugin = annotation(&claim.metadata, STORAGE_PROVISIONER)
        .or(annotation(&claim.metadata, BETA_STORAGE_PROVISIONER))?;
    let mut marked = claim.clone();
    let is_new = match migration.driver(plugin) {
        Some(driver) if annotation(&claim.metadata, MIGRATED_TO) == Some(driver) => false,
        Some(driver) => {
            set_annotation(&mut marked.metadata, MIGRATED_TO, driver);
            true
        }
        None => remove_annotation(&mut marked.metadata, MIGRATED_TO),
    };
    is_new.then_some(marked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object<K: k8s_openapi::serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    fn claim(annotations: Value, spec: Value) -> PersistentVolumeClaim {
        let mut whole =
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        for (name, value) in spec.as_object().unwrap() {
            whole[name] = value.clone();
        }
        object(json!({
            "metadata": {"name": "c", "namespace": "n", "uid": "1", "annotations": annotations}, "spec": whole,
        }))
    }

    fn volume(claim: Option<Value>, class: &str) -> Arc<PersistentVolume> {
        Arc::new(object(json!({
            "metadata": {"name": "v"},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": claim,
                "storageClassName": class,
            },
            "status": {"phase": "Available"},
        })))
    }

    fn class(name: &str, mode: &str, is_default: bool) -> Arc<StorageClass> {
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": is_default.to_string()});
        Arc::new(object(json!({
            "metadata": {"name": name, "annotations": annotations}, "provisioner": "p", "volumeBindingMode": mode,
        })))
    }

    /// Prints a plan in a few words.
    fn render(plan: &Plan) -> String {
        let of = |word: &str, event: &EventRecord| format!("{word} {}", event.reason);
        match plan {
            Plan::Bind(_) => "bind".to_owned(),
            Plan::SetClass(class) => format!("class {class}"),
            Plan::Provision(_) => "provision".to_owned(),
            Plan::RecordEvent(event) => of("record", event),
            Plan::Wait(None) => "wait".to_owned(),
            Plan::Wait(Some(event)) => of("wait", event),
            Plan::Fail(event) => of("refuse", event),
            Plan::Lose(event) => of("lose", event),
        }
    }

    #[test]
    fn unbound_claims() {
        let now = || vec![class("now", "Immediate", false), class("later", "WaitForFirstConsumer", false)];
        let default = || vec![class("now", "Immediate", true)];
        let none = || json!({});
        let selected = || json!({SELECTED_NODE: "node-0"});
        let meant = || Some(json!({"name": "c", "namespace": "n"}));
        for (case, annotations, spec, volumes, classes, want) in [
            ("a volume fits", none(), json!({}), vec![volume(None, "")], now(), "bind"),
            ("nothing fits", none(), json!({}), vec![], now(), "wait FailedBinding"),
            ("a class comes late", none(), json!({}), vec![], default(), "class now"),
            (
                "none is wanted",
                none(),
                json!({"storageClassName": ""}),
                vec![],
                default(),
                "wait FailedBinding",
            ),
            ("provisioned", none(), json!({"storageClassName": "now"}), vec![], now(), "provision"),
            (
                "no such class",
                none(),
                json!({"storageClassName": "no"}),
                vec![],
                now(),
                "record ProvisioningFailed",
            ),
            (
                "no consumer",
                none(),
                json!({"storageClassName": "later"}),
                vec![volume(None, "later")],
                now(),
                "wait WaitForFirstConsumer",
            ),
            (
                "a node was chosen",
                selected(),
                json!({"storageClassName": "later"}),
                vec![],
                now(),
                "provision",
            ),
            (
                "the scheduler chose the volume",
                none(),
                json!({"storageClassName": "later"}),
                vec![volume(meant(), "later")],
                now(),
                "bind",
            ),
            (
                "by the old annotation",
                json!({"volume.beta.kubernetes.io/storage-class": "now"}),
                json!({}),
                vec![],
                now(),
                "provision",
            ),
        ] {
            let claim_context = ClaimContext { volumes, classes, ..ClaimContext::default() };
            assert_eq!(render(&plan(&claim(annotations, spec), &claim_context)), want, "{case}");
        }
    }

    #[test]
    fn claims_that_name_a_volume() {
        let naming = || json!({"volumeName": "v"});
        let done = || json!({BIND_COMPLETED: "yes"});
        let ours = |uid: Option<&str>| Some(json!({"name": "c", "namespace": "n", "uid": uid}));
        let other = || Some(json!({"name": "d", "namespace": "n", "uid": "2"}));
        for (case, annotations, named, want) in [
            ("not there", json!({}), None, "wait"),
            ("free", json!({}), Some(volume(None, "")), "bind"),
            ("free, but of a class", json!({}), Some(volume(None, "k")), "wait VolumeMismatch"),
            ("meant for it, whatever its class", json!({}), Some(volume(ours(None), "k")), "bind"),
            ("meant for it by uid", json!({}), Some(volume(ours(Some("1")), "")), "bind"),
            ("meant for one that was", json!({}), Some(volume(ours(Some("0")), "")), "wait FailedBinding"),
            ("another's", json!({}), Some(volume(other(), "")), "wait FailedBinding"),
            (
                "another's, though we bound it",
                json!({BOUND_BY_CONTROLLER: "yes"}),
                Some(volume(other(), "")),
                "refuse FailedBinding",
            ),
            ("bound", done(), Some(volume(ours(Some("1")), "")), "bind"),
            ("bound, and forgotten", done(), Some(volume(None, "")), "bind"),
            ("bound, and gone", done(), None, "lose ClaimLost"),
            ("bound to another's", done(), Some(volume(other(), "")), "lose ClaimMisbound"),
        ] {
            let claim_context = ClaimContext { named, ..ClaimContext::default() };
            assert_eq!(render(&plan(&claim(annotations, naming()), &claim_context)), want, "{case}");
        }
        let lost = plan(&claim(done(), json!({})), &ClaimContext::default());
        assert_eq!(render(&lost), "lose ClaimLost");
    }

    #[test]
    fn pods_that_wait_are_named() {
        for (pods, want) in [
            (vec![], "waiting for first consumer to be created before binding"),
            (vec!["a"], "waiting for pod a to be scheduled"),
            (vec!["a", "b"], "waiting for pods a,b to be scheduled"),
        ] {
            let pods: Vec<String> = pods.into_iter().map(str::to_owned).collect();
            assert_eq!(waiting(&pods).message, want);
        }
    }
}
