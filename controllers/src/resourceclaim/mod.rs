//! resourceclaim-controller: creates the claims of pods from their templates, and releases claims
//! that no pod consumes any more.
//!
//! Of a pod that is not terminating (`generated.rs`):
//! 1. each entry of `spec.resourceClaims` with a template has its claim, found by owner and
//!    annotation or created;
//! 2. all names go to `status.resourceClaimStatuses`;
//! 3. once the pod is bound, it is added to the consumers of those of its claims that are
//!    allocated.
//!
//! Of a claim (`consumers.rs`): consumers that are deleted or done are removed; without any the
//! allocation is given up, the finalizer goes, and a claim that was made for a pod that is done is
//! deleted. Claims of a deleted pod are deleted by the garbage collector. Nothing here
//! allocates a claim: that is the scheduler's business.

mod consumers;
mod generated;

use std::fmt;
use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_conflict, ignore_not_found,
    uid_precondition,
};
use coracle_kinds::pods;
use coracle_object_meta::{annotation, controller_of, is_controlled_by};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::ResourceExt;
use kube::api::Patch;
use prometheus::CounterVec;
use serde_json::json;

use crate::settings::{Context, Settings};
use consumers::Step;
use generated::{CLAIM_NAME, Entry, entries, is_generated_entry, recorded_name};

/// The field manager of `status.resourceClaimStatuses`.
const MANAGER: &str = "ResourceClaimController";

pub struct ResourceClaimController {
    pods: Arc<Cache<Pod>>,
    claims: Arc<Cache<ResourceClaim>>,
    templates: Arc<Cache<ResourceClaimTemplate>>,
    recorder: Recorder,
    creates: CounterVec,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    Pod(NamespacedName),
    Claim(NamespacedName),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Pod(name) => write!(f, "pod {name}"),
            Key::Claim(name) => write!(f, "claim {name}"),
        }
    }
}

impl Initialize<Settings> for ResourceClaimController {
    fn new(context: &Context) -> ResourceClaimController {
        ResourceClaimController {
            pods: context.cache(),
            claims: context.cache(),
            templates: context.cache(),
            recorder: context.recorder("resource_claim"),
            creates: context.metrics.counter(
                "resourceclaim_controller_creates_total",
                "Number of ResourceClaims creation requests, categorized by creation status and admin access",
                &["status", "admin_access"],
            ),
        }
    }
}

impl Controller for ResourceClaimController {
    const NAME: &'static str = "resourceclaim-controller";
    const QUEUE_NAME: &'static str = "resource_claim";
    type Key = Key;

    fn sources(&self, sources: &mut Sources<Key>) {
        let (pods, all_pods) = (self.pods.clone(), self.pods.clone());
        sources
            .on(&self.pods, |change, queue| {
                let Some(name) = change.name() else { return };
                let has_claims = |pod: &Arc<Pod>| {
                    pod.spec
                        .as_ref()
                        .is_some_and(|spec| spec.resource_claims.iter().flatten().next().is_some())
                };
                if !change.states().any(has_claims) {
                    return;
                }
                // Reservations of claims that the pod no longer consumes are released.
                let claims = change.states().flat_map(|pod| generated::claim_names(pod));
                claims.for_each(|claim| queue.add(Key::Claim(NamespacedName::new(&name.namespace, claim))));
                queue.add(Key::Pod(name));
            })
            .on(&self.claims, move |change, queue| {
                change.name().into_iter().for_each(|name| queue.add(Key::Claim(name)));
                let owners = change.states().filter_map(|claim| {
                    let owner = controller_of(&claim.metadata).filter(|owner| owner.kind == "Pod")?;
                    Some(NamespacedName::new(claim.namespace()?, &owner.name))
                });
                owners.filter(|owner| pods.get(owner).is_some()).for_each(|owner| queue.add(Key::Pod(owner)));
            })
            .on(&self.templates, move |change, queue| {
                let (Some(name), Some(_)) = (change.name(), &change.new) else { return };
                let waiting = all_pods
                    .in_namespace(&name.namespace)
                    .into_iter()
                    .filter(|pod| entries(pod).any(|entry| entry.template == name.name));
                waiting.for_each(|pod| queue.add(Key::Pod(NamespacedName::of(pod.as_ref()))));
            });
    }

    async fn reconcile(&self, key: &Key, ctx: &ReconcileContext) -> Result<Action, Error> {
        match key {
            Key::Pod(name) => self.reconcile_pod(name, ctx).await?,
            Key::Claim(name) => self.reconcile_claim(name, ctx).await?,
        }
        Ok(Action::AwaitChange)
    }
}

impl ResourceClaimController {
    async fn reconcile_pod(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<(), Error> {
        let Some(pod) = self.pods.get(name) else { return Ok(()) };
        if pods::is_terminating(&pod) || pods::is_terminal(&pod) {
            return Ok(());
        }
        let mut names = Vec::new();
        for entry in entries(&pod) {
            match self.provide(&pod, &entry, ctx).await {
                Ok(claim) => names.push((entry.name, claim)),
                Err(error) => {
                    let message = format!("PodResourceClaim {}: {}", entry.name, error.message());
                    self.recorder.warning(pod.as_ref(), "FailedResourceClaimCreation", message);
                    return Err(error);
                }
            }
        }
        let is_recorded = |(entry, claim): &(&str, String)| recorded_name(&pod, entry) == Some(claim);
        if !names.iter().all(is_recorded) {
            let statuses =
                names.iter().map(|(entry, claim)| json!({"name": entry, "resourceClaimName": claim}));
            let applied = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": pod.name_any(), "uid": pod.uid()},
                "status": {"resourceClaimStatuses": statuses.collect::<Vec<_>>()},
            });
            let pods = ctx.api(&self.pods).managed_by(MANAGER);
            ignore_not_found(pods.patch_status_unread(name, Patch::Apply(applied)).await)?;
        }
        if pods::node(&pod).is_some() {
            for claim in generated::claim_names(&pod) {
                self.reserve(&pod, claim, ctx).await?;
            }
        }
        Ok(())
    }

    /// Returns the name of an entry's claim. Creates the claim if it does not exist.
    async fn provide(&self, pod: &Pod, entry: &Entry<'_>, ctx: &ReconcileContext) -> Result<String, Error> {
        let namespace = pod.namespace().unwrap_or_default();
        if let Some(name) = recorded_name(pod, entry.name)
            && let Some(claim) = self.claims.get(&NamespacedName::new(&namespace, name))
        {
            return match is_controlled_by(&claim.metadata, pod) {
                true => Ok(name.clone()),
                false => Err(Error::Unfinished(format!(
                    "ResourceClaim {name} was not created for pod {} (pod is not owner)",
                    NamespacedName::of(pod)
                ))),
            };
        }
        let claims = self.claims.in_namespace(&namespace);
        let existing = claims.iter().find(|claim| {
            is_controlled_by(&claim.metadata, pod)
                && annotation(&claim.metadata, CLAIM_NAME) == Some(entry.name)
        });
        if let Some(claim) = existing {
            return Ok(claim.name_any());
        }
        let Some(template) = self.templates.get(&NamespacedName::new(&namespace, entry.template)) else {
            let name = entry.template;
            return Err(Error::Unfinished(format!(
                "resource claim template {name:?}: resourceclaimtemplate.resource.k8s.io {name:?} not found"
            )));
        };
        let claim = generated::claim(pod, entry, &template);
        let admin_access = if generated::has_admin_access(&claim) { "true" } else { "false" };
        match ctx.api(&self.claims).create(&claim).await {
            Ok(created) => {
                self.creates.with_label_values(&["success", admin_access]).inc();
                Ok(created.name_any())
            }
            Err(error) => {
                self.creates.with_label_values(&["failure", admin_access]).inc();
                Err(error.into())
            }
        }
    }

    /// Adds a pod to the consumers of an allocated claim.
    async fn reserve(&self, pod: &Pod, claim: &str, ctx: &ReconcileContext) -> Result<(), Error> {
        let name = NamespacedName::new(pod.namespace().unwrap_or_default(), claim);
        let Some(claim) = self.claims.get(&name) else { return Ok(()) };
        // A claim that was made for another pod is not this one's.
        if is_generated_entry(pod, &name.name) && !is_controlled_by(&claim.metadata, pod) {
            return Ok(());
        }
        match consumers::with_consumer(&claim, pod) {
            Some(changed) => self.replace_status(&changed, ctx).await,
            None => Ok(()),
        }
    }

    async fn reconcile_claim(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<(), Error> {
        let Some(claim) = self.claims.get(name) else { return Ok(()) };
        let pod = |consumer: &str| self.pods.get(&NamespacedName::new(&name.namespace, consumer));
        match consumers::plan(&claim, pod) {
            None => {}
            Some(Step::ReplaceStatus(changed)) => {
                let replaced = ignore_not_found(ctx.api(&self.claims).replace_status(&changed).await)?;
                if let Some(released) = replaced.and_then(|claim| consumers::released(&claim)) {
                    ignore_not_found(ctx.api(&self.claims).replace(&released).await)?;
                }
            }
            Some(Step::RemoveFinalizer(changed)) => {
                ignore_not_found(ctx.api(&self.claims).replace(&changed).await)?;
            }
            Some(Step::Delete) => {
                let deleted = ctx.api(&self.claims).delete(&claim, &uid_precondition(claim.as_ref())).await;
                ignore_not_found(ignore_conflict(deleted))?;
            }
        }
        Ok(())
    }

    async fn replace_status(&self, changed: &ResourceClaim, ctx: &ReconcileContext) -> Result<(), Error> {
        ignore_not_found(ctx.api(&self.claims).replace_status(changed).await)?;
        Ok(())
    }
}
