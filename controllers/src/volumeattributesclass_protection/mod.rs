//! volumeattributesclass-protection-controller: keeps a finalizer on each VolumeAttributesClass
//! until it is deleted and no claim or volume uses it.
//!
//! A class is reconciled when it changes, and when a claim or a volume names it no longer:
//! 1. one that is not terminating gets the finalizer `kubernetes.io/vac-protection`;
//! 2. one that is terminating keeps it while a claim or a volume uses it, as far as the caches
//!    know;
//! 3. all volumes and claims are listed from the server, and the finalizer is removed if none uses
//!    it.
//!
//! A claim uses the class that its spec names, the one that its volume has, and the one that its
//! volume is being changed to.
//!
//! Source: `pkg/controller/volume/vacprotection`.

use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, Cached, Index, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_not_found,
};
use coracle_kinds::storage::{ClaimExt, VolumeExt};
use coracle_object_meta::{has_finalizer, set_finalizer};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::settings::{Context, Settings};

const PROTECTION: &str = "kubernetes.io/vac-protection";

/// The controller.
pub struct VolumeAttributesClassProtectionController {
    reader: Client,
    classes: Arc<Cache<VolumeAttributesClass>>,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    volumes: Arc<Cache<PersistentVolume>>,
}

impl Initialize<Settings> for VolumeAttributesClassProtectionController {
    fn new(context: &Context) -> VolumeAttributesClassProtectionController {
        VolumeAttributesClassProtectionController {
            reader: context.unrecorded.clone(),
            classes: context.cache(),
            claims: context.cache(),
            volumes: context.cache(),
        }
    }
}

impl Controller for VolumeAttributesClassProtectionController {
    const NAME: &'static str = "volumeattributesclass-protection-controller";
    const QUEUE_NAME: &'static str = "vacprotection";
    /// A class.
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources
            .on_each(&self.classes)
            .on(&self.claims, |change, queue| {
                if change.changed(classes_of_claim) {
                    change.old.iter().flat_map(|old| classes_of_claim(old)).for_each(|name| queue.add(name));
                }
            })
            .on(&self.volumes, |change, queue| {
                if change.changed(classes_of_volume) {
                    change.old.iter().flat_map(|old| classes_of_volume(old)).for_each(|name| queue.add(name));
                }
            });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(class) = self.classes.get(name) else { return Ok(Action::AwaitChange) };
        let is_terminating = class.metadata.deletion_timestamp.is_some();
        let is_protected = has_finalizer(&class.metadata, PROTECTION);
        let has_to_change = match (is_terminating, is_protected) {
            (true, true) => !self.is_used(name).await?,
            (false, is_protected) => !is_protected,
            (true, false) => false,
        };
        if has_to_change {
            let mut changed = class.as_ref().clone();
            set_finalizer(&mut changed.metadata, PROTECTION, !is_protected);
            ignore_not_found(ctx.api(&self.classes).replace(&changed).await)?;
        }
        Ok(Action::AwaitChange)
    }
}

impl VolumeAttributesClassProtectionController {
    async fn is_used(&self, class: &NamespacedName) -> Result<bool, Error> {
        if !self.volumes.by::<ByAttributesClass>(class).is_empty()
            || !self.claims.by::<ByAttributesClass>(class).is_empty()
        {
            return Ok(true);
        }
        let is_used = self
            .any_live(|volume: &PersistentVolume| classes_of_volume(volume).contains(class))
            .await?
            || self.any_live(|claim: &PersistentVolumeClaim| classes_of_claim(claim).contains(class)).await?;
        Ok(is_used)
    }

    /// Returns `true` if any object on the server satisfies a predicate. It reads them page by
    /// page.
    async fn any_live<K: Cached>(&self, is_such: impl Fn(&K) -> bool) -> Result<bool, Error> {
        const PAGE: u32 = 500;
        let api = Api::<K>::all(self.reader.clone());
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = api.list(&params).await?;
            if page.items.iter().any(&is_such) {
                return Ok(true);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(false),
            }
        }
    }
}

/// Finds the claims and the volumes that use a class.
struct ByAttributesClass;

impl Index<PersistentVolumeClaim> for ByAttributesClass {
    fn keys(claim: &PersistentVolumeClaim) -> Vec<NamespacedName> {
        classes_of_claim(claim)
    }
}

impl Index<PersistentVolume> for ByAttributesClass {
    fn keys(volume: &PersistentVolume) -> Vec<NamespacedName> {
        classes_of_volume(volume)
    }
}

fn classes_of_claim(claim: &PersistentVolumeClaim) -> Vec<NamespacedName> {
    let status = claim.status.as_ref();
    let current = status.and_then(|status| status.current_volume_attributes_class_name.as_deref());
    let modifying = status.and_then(|status| status.modify_volume_status.as_ref());
    let target = modifying.and_then(|status| status.target_volume_attributes_class_name.as_deref());
    let mut names = vec![claim.attributes_class()];
    names.extend(current.into_iter().chain(target));
    named(names)
}

fn classes_of_volume(volume: &PersistentVolume) -> Vec<NamespacedName> {
    named(vec![volume.attributes_class()])
}

/// Returns each name once.
fn named(mut names: Vec<&str>) -> Vec<NamespacedName> {
    names.retain(|name| !name.is_empty());
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(|name| NamespacedName::new("", name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_claim_or_a_volume_uses() {
        for (spec, status, want) in [
            (json!({}), json!({}), &[][..]),
            (json!({"volumeAttributesClassName": ""}), json!({}), &[]),
            (json!({"volumeAttributesClassName": "a"}), json!({}), &["a"]),
            (json!({}), json!({"currentVolumeAttributesClassName": "a"}), &["a"]),
            (
                json!({"volumeAttributesClassName": "c"}),
                json!({
                    "currentVolumeAttributesClassName": "a",
                    "modifyVolumeStatus": {"targetVolumeAttributesClassName": "b", "status": "Pending"},
                }),
                &["a", "b", "c"],
            ),
            (
                json!({"volumeAttributesClassName": "a"}),
                json!({"currentVolumeAttributesClassName": "a"}),
                &["a"],
            ),
        ] {
            let claim = serde_json::from_value(json!({"spec": spec, "status": status})).unwrap();
            let names: Vec<_> = classes_of_claim(&claim).into_iter().map(|name| name.name).collect();
            assert_eq!(names, want, "{spec} {status}");
            let volume = serde_json::from_value(json!({"spec": spec})).unwrap();
            let names = classes_of_volume(&volume);
            let of_spec = spec["volumeAttributesClassName"].as_str().filter(|name| !name.is_empty());
            assert_eq!(names.first().map(|name| name.name.as_str()), of_spec, "{spec}");
        }
    }
}
