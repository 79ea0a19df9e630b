//! Adoption and release of objects by controller references. A controller manages the objects that
//! its object controls and that match its selector. It adopts matching objects without a
//! controller, and releases objects that no longer match. Nothing is adopted or released while the
//! owner is terminating.

use std::sync::Arc;

use coracle_object_meta::{controller_of, controller_ref};
use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Patch;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::cache::{Cache, Cached, Index, NamespacedName};
use super::error::Error;
use super::reconcile_context::ReconcileContext;
use super::requests::ignore_not_found;

/// Finds the objects that an owner controls, by their namespace and its uid; without a uid, those
/// without a controller.
struct ByController;

impl<K: Resource> Index<K> for ByController {
    fn keys(object: &K) -> Vec<NamespacedName> {
        let uid = controller_of(object.meta()).map_or("", |controller| &controller.uid);
        vec![NamespacedName::new(object.meta().namespace.clone().unwrap_or_default(), uid)]
    }
}

/// Returns the objects that the owner controls, and those without a controller.
pub fn candidates<K: Cached>(owner: &ObjectMeta, objects: &Cache<K>) -> Vec<Arc<K>> {
    let mut candidates = controlled(owner, objects);
    let namespace = owner.namespace.as_deref().unwrap_or_default();
    candidates.extend(objects.by::<ByController>(&NamespacedName::new(namespace, "")));
    candidates
}

/// Returns the objects that the owner controls.
pub fn controlled<K: Cached>(owner: &ObjectMeta, objects: &Cache<K>) -> Vec<Arc<K>> {
    let namespace = owner.namespace.as_deref().unwrap_or_default();
    let uid = owner.uid.as_deref().unwrap_or_default();
    objects.by::<ByController>(&NamespacedName::new(namespace, uid))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Owned,
    /// Has no controller, and should be adopted.
    Orphan,
    /// Has the owner as its controller, and should be released.
    Misplaced,
    Foreign,
}

fn relation(owner: &ObjectMeta, object: &ObjectMeta, matches: bool) -> Relation {
    let is_terminating = |meta: &ObjectMeta| meta.deletion_timestamp.is_some();
    match controller_of(object) {
        Some(controller) if Some(&controller.uid) != owner.uid.as_ref() => Relation::Foreign,
        Some(_) if matches => Relation::Owned,
        Some(_) if is_terminating(owner) => Relation::Foreign,
        Some(_) => Relation::Misplaced,
        None if matches && !is_terminating(owner) && !is_terminating(object) => Relation::Orphan,
        None => Relation::Foreign,
    }
}

/// Adopts and releases candidates, and returns the objects that the owner then controls.
///
/// # Errors
/// An object could not be adopted or released, or the owner has changed since it was cached.
pub async fn claim_objects<O, K>(
    (owners, owner): (&Arc<Cache<O>>, &O),
    objects: &Arc<Cache<K>>,
    candidates: Vec<Arc<K>>,
    matches: impl Fn(&K) -> bool,
    ctx: &ReconcileContext,
) -> Result<Vec<Arc<K>>, Error>
where
    O: Cached,
    K: Cached,
{
    claim_with_finalizer((owners, owner), objects, candidates, matches, None, ctx).await
}

/// Claims objects as [`claim_objects`] does; adopted objects get a finalizer, and released ones
/// lose it.
///
/// # Errors
/// As for [`claim_objects`].
pub async fn claim_with_finalizer<O, K>(
    (owners, owner): (&Arc<Cache<O>>, &O),
    objects: &Arc<Cache<K>>,
    candidates: Vec<Arc<K>>,
    matches: impl Fn(&K) -> bool,
    finalizer: Option<&str>,
    ctx: &ReconcileContext,
) -> Result<Vec<Arc<K>>, Error>
where
    O: Cached,
    K: Cached,
{
    let (mut owned, mut changing) = (Vec::new(), Vec::new());
    for object in candidates {
        match relation(owner.meta(), object.meta(), matches(&object)) {
            Relation::Owned => owned.push(object),
            Relation::Orphan => {
                changing.push((adoption(object.meta(), owner, finalizer), object, Relation::Orphan));
            }
            Relation::Misplaced => {
                let patch = release(object.meta(), owner.meta(), finalizer);
                changing.push((patch, object, Relation::Misplaced));
            }
            Relation::Foreign => {}
        }
    }
    if changing.iter().any(|(_, _, relation)| *relation == Relation::Orphan) {
        check_exists(owners, owner, ctx).await?;
    }
    let changes = changing.into_iter().map(|(patch, object, relation)| async move {
        let name = NamespacedName::of(object.as_ref());
        let answer = ctx.api(objects).patch(&name, Patch::Strategic(patch)).await;
        // The object was deleted, or replaced by another one of the same name: there is nothing to
        // adopt or release.
        let answer = match ignore_not_found(answer) {
            Err(kube::Error::Api(status)) if status.code == 422 && relation == Relation::Misplaced => {
                Ok(None)
            }
            answer => answer,
        };
        (relation, answer)
    });
    let mut failure = None;
    for (relation, answer) in join_all(changes).await {
        match answer {
            Err(error) => failure = Some(error),
            Ok(Some(adopted)) if relation == Relation::Orphan => owned.push(Arc::new(adopted)),
            Ok(_) => {}
        }
    }
    failure.map_or(Ok(owned), |error| Err(error.into()))
}

/// Checks that the owner still exists on the server, since objects adopted by a deleted owner would
/// have to be cleaned up by hand.
async fn check_exists<O: Cached>(
    owners: &Arc<Cache<O>>,
    owner: &O,
    ctx: &ReconcileContext,
) -> Result<(), Error> {
    let live = ctx.api(owners).get(&NamespacedName::of(owner)).await?;
    let gone =
        |why| Err(Error::Unfinished(format!("can't adopt for {} {}: {why}", O::kind(&()), owner.name_any())));
    match live.as_ref().map(Resource::meta).filter(|live| live.uid == owner.meta().uid) {
        None => gone("the original is gone"),
        Some(live) if live.deletion_timestamp.is_some() => gone("it has just been deleted"),
        Some(_) => Ok(()),
    }
}

fn adoption(object: &ObjectMeta, owner: &impl Resource<DynamicType = ()>, finalizer: Option<&str>) -> Value {
    let mut meta = json!({"uid": object.uid, "ownerReferences": [controller_ref(owner)]});
    if let Some(finalizer) = finalizer {
        meta["finalizers"] = json!([finalizer]);
    }
    json!({"metadata": meta})
}

fn release(object: &ObjectMeta, owner: &ObjectMeta, finalizer: Option<&str>) -> Value {
    let mut meta = json!({"uid": object.uid, "ownerReferences": [{"$patch": "delete", "uid": owner.uid}]});
    if let Some(finalizer) = finalizer {
        meta["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
    }
    json!({"metadata": meta})
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    #[test]
    fn candidates_are_the_owners_and_nobodys() {
        let pod = |namespace: &str, name: &str, controller: &str| -> Pod {
            let owner =
                json!({"apiVersion": "v1", "kind": "K", "name": "n", "uid": controller, "controller": true});
            let owners: Vec<Value> = (!controller.is_empty()).then_some(owner).into_iter().collect();
            let meta = json!({"namespace": namespace, "name": name, "uid": name, "ownerReferences": owners});
            serde_json::from_value(json!({"metadata": meta})).unwrap()
        };
        let pods = [("a", "1", "o"), ("a", "2", "x"), ("a", "3", ""), ("b", "4", "o"), ("b", "5", "")];
        let cache = Cache::with(pods.map(|(namespace, name, controller)| pod(namespace, name, controller)));
        let found = candidates(&pod("a", "o", "").metadata, &cache);
        assert_eq!(found.iter().map(|pod| pod.name_any()).collect::<Vec<_>>(), ["1", "3"]);
    }

    #[test]
    fn objects_are_adopted_and_released() {
        let meta = |uid: &str, controller: Option<&str>, terminating: bool| {
            let mut meta = json!({"uid": uid});
            if let Some(uid) = controller {
                meta["ownerReferences"] =
                    json!([{"apiVersion": "v1", "kind": "K", "name": "n", "uid": uid, "controller": true}]);
            }
            if terminating {
                meta["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            serde_json::from_value::<ObjectMeta>(meta).unwrap()
        };
        use Relation::*;
        for (case, owner_going, controller, terminating, matches, want) in [
            ("owned", false, Some("o"), false, true, Owned),
            ("owned while both are terminating", true, Some("o"), true, true, Owned),
            ("another's", false, Some("x"), false, true, Foreign),
            ("no longer selected", false, Some("o"), false, false, Misplaced),
            ("kept by a terminating owner", true, Some("o"), false, false, Foreign),
            ("an orphan", false, None, false, true, Orphan),
            ("an orphan that is terminating", false, None, true, true, Foreign),
            ("not for a terminating owner", true, None, false, true, Foreign),
            ("an orphan, not selected", false, None, false, false, Foreign),
        ] {
            let owner = meta("o", None, owner_going);
            assert_eq!(relation(&owner, &meta("p", controller, terminating), matches), want, "{case}");
        }
    }
}
