//! What to do about a claim. Pure.
//!
//! A claim is *unbound* until the annotation `bind-completed` says that both sides were written. It then is *bound* for ever:
//! a claim that loses its volume is lost, not unbound.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;

use super::super::search;
use crate::runtime::events::Type;
use crate::volume::{
    BETA_STORAGE_PROVISIONER, BIND_COMPLETED, BOUND_BY_CONTROLLER, Claim, MIGRATED_TO, Migration,
    SELECTED_NODE, STORAGE_PROVISIONER, Volume, annotate, annotation, default_class, strip,
    waits_for_consumer,
};

/// An event to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub r#type: Type,
    pub reason: &'static str,
    pub message: String,
}

impl Notice {
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Notice {
        Notice { r#type: Type::Normal, reason, message: message.into() }
    }

    pub fn warning(reason: &'static str, message: impl Into<String>) -> Notice {
        Notice { r#type: Type::Warning, reason, message: message.into() }
    }
}

/// What is known around a claim.
#[derive(Default)]
pub struct Around {
    /// The volume that the claim names.
    pub named: Option<Arc<PersistentVolume>>,
    /// All volumes, where the claim names none and is not bound.
    pub volumes: Vec<Arc<PersistentVolume>>,
    pub classes: Vec<Arc<StorageClass>>,
    /// Pods of the claim that no node was found for yet, by name.
    pub waiting_pods: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// Bind, or repair what is missing of a binding.
    Bind(Arc<PersistentVolume>),
    /// The claim that waited without a class gets the default one.
    SetClass(String),
    Provision(Arc<StorageClass>),
    /// Nothing can be done but tell; the claim's phase is left as it is.
    Tell(Notice),
    /// Wait in phase Pending.
    Wait(Option<Notice>),
    /// Wait, and believe nothing of it: somebody undid what the controller did.
    Refuse(Notice),
    /// Phase Lost; told when it becomes so.
    Lose(Notice),
}

pub fn plan(claim: &PersistentVolumeClaim, around: &Around) -> Plan {
    match annotation(&claim.metadata, BIND_COMPLETED) {
        Some(_) => bound(claim, around),
        None if claim.volume_name().is_empty() => unbound(claim, around),
        None => naming(claim, around),
    }
}

fn unbound(claim: &PersistentVolumeClaim, around: &Around) -> Plan {
    let named = |class: &&Arc<StorageClass>| class.metadata.name.as_deref() == Some(claim.class());
    let class = around.classes.iter().find(named).filter(|_| !claim.class().is_empty());
    let delayed = class.is_some_and(|class| waits_for_consumer(class));
    if let Some(volume) = search::best(claim, &around.volumes, delayed) {
        return Plan::Bind(volume.clone());
    }
    if !claim.has_class()
        && let Some(default) = default_class(around.classes.iter().map(Arc::as_ref))
    {
        return Plan::SetClass(default.metadata.name.clone().unwrap_or_default());
    }
    if delayed && annotation(&claim.metadata, SELECTED_NODE).is_none() {
        return Plan::Wait(Some(waiting(&around.waiting_pods)));
    }
    match class {
        Some(class) => Plan::Provision(class.clone()),
        None if !claim.class().is_empty() => Plan::Tell(Notice::warning(
            "ProvisioningFailed",
            format!("storageclass.storage.k8s.io {:?} not found", claim.class()),
        )),
        None => Plan::Wait(Some(Notice::normal(
            "FailedBinding",
            "no persistent volumes available for this claim and no storage class is set",
        ))),
    }
}

fn waiting(pods: &[String]) -> Notice {
    match pods {
        [] => {
            Notice::normal("WaitForFirstConsumer", "waiting for first consumer to be created before binding")
        }
        [pod] => Notice::normal("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
        pods => Notice::normal(
            "WaitForPodScheduled",
            format!("waiting for pods {} to be scheduled", pods.join(",")),
        ),
    }
}

/// A claim that names a volume, and is not bound.
fn naming(claim: &PersistentVolumeClaim, around: &Around) -> Plan {
    let Some(volume) = &around.named else { return Plan::Wait(None) };
    let name = claim.volume_name();
    if volume.claim_ref().is_none() {
        return match search::mismatch(volume, claim) {
            None => Plan::Bind(volume.clone()),
            Some(why) => Plan::Wait(Some(Notice::warning(
                "VolumeMismatch",
                format!("Cannot bind to requested volume {name:?}: {why}"),
            ))),
        };
    }
    // Whoever meant the two for each other is not asked whether they fit.
    if volume.is_bound_to(claim) {
        return Plan::Bind(volume.clone());
    }
    let taken =
        Notice::warning("FailedBinding", format!("volume {name:?} already bound to a different claim."));
    match annotation(&claim.metadata, BOUND_BY_CONTROLLER) {
        None => Plan::Wait(Some(taken)),
        Some(_) => Plan::Refuse(taken),
    }
}

fn bound(claim: &PersistentVolumeClaim, around: &Around) -> Plan {
    let lost = |message: &str| Plan::Lose(Notice::warning("ClaimLost", message));
    if claim.volume_name().is_empty() {
        return lost("Bound claim has lost reference to PersistentVolume. Data on the volume is lost!");
    }
    let Some(volume) = &around.named else {
        return lost("Bound claim has lost its PersistentVolume. Data on the volume is lost!");
    };
    match volume.claim_ref() {
        Some(reference) if reference.uid != claim.metadata.uid => Plan::Lose(Notice::warning(
            "ClaimMisbound",
            "Two claims are bound to the same volume, this one is bound incorrectly",
        )),
        _ => Plan::Bind(volume.clone()),
    }
}

/// The claim with the mark that its provisioner was migrated; None if it has it.
pub fn marked(claim: &PersistentVolumeClaim, migration: Migration) -> Option<PersistentVolumeClaim> {
    let plugin = annotation(&claim.metadata, STORAGE_PROVISIONER)
        .or(annotation(&claim.metadata, BETA_STORAGE_PROVISIONER))?;
    let mut marked = claim.clone();
    let is_new = match migration.driver(plugin) {
        Some(driver) if annotation(&claim.metadata, MIGRATED_TO) == Some(driver) => false,
        Some(driver) => {
            annotate(&mut marked.metadata, MIGRATED_TO, driver);
            true
        }
        None => strip(&mut marked.metadata, MIGRATED_TO),
    };
    is_new.then_some(marked)
}
