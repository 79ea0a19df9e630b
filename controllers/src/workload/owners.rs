//! The owners affected by a change of a dependent.

use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, Cached, Change, NamespacedName};
use coracle_object_meta::controller_of;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// Returns the owners to reconcile after a change of a dependent. These are its present and former
/// controllers. If it has no controller now, and is new or its labels or its controller have
/// changed, these are also all owners that could adopt it.
///
/// - `selects`: whether the selector of an owner matches the labels of the dependent
pub fn owners_of<O: Cached, K: Cached>(
    change: &Change<K>,
    owners: &Cache<O>,
    selects: impl Fn(&O, &ObjectMeta) -> bool,
) -> Vec<NamespacedName> {
    let controllers = change.states().filter_map(|state| controlling_owner(state.meta(), owners));
    let mut concerned: Vec<NamespacedName> =
        controllers.map(|owner| NamespacedName::of(owner.as_ref())).collect();
    concerned.dedup();
    let Some(new) = change.new.as_ref().map(|new| new.meta()) else { return concerned };
    let decides =
        |state: &K| (state.meta().labels.clone(), controller_of(state.meta()).map(|c| c.uid.clone()));
    if controller_of(new).is_none() && change.changed(decides) {
        let namespace = new.namespace.as_deref().unwrap_or_default();
        let all = owners.in_namespace(namespace);
        let could_adopt = all.iter().filter(|owner| selects(owner, new));
        concerned.extend(could_adopt.map(|owner| NamespacedName::of(owner.as_ref())));
    }
    concerned
}

/// Returns the object of kind `O` that controls a dependent.
pub fn controlling_owner<O: Cached>(dependent: &ObjectMeta, owners: &Cache<O>) -> Option<Arc<O>> {
    let controller = controller_of(dependent)?;
    referred_owner(controller, dependent.namespace.as_deref().unwrap_or_default(), owners)
}

/// Returns the object of kind `O` to which a reference refers, by name and uid. The group is not
/// compared, as in kube-controller-manager.
pub fn referred_owner<O: Cached>(
    reference: &OwnerReference,
    namespace: &str,
    owners: &Cache<O>,
) -> Option<Arc<O>> {
    let owner = || owners.get(&NamespacedName::new(namespace, &reference.name));
    let is_of_kind = reference.kind == O::kind(&());
    is_of_kind.then(owner).flatten().filter(|owner| owner.meta().uid.as_ref() == Some(&reference.uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_object_meta::selector_matches;
    use k8s_openapi::api::apps::v1::StatefulSet;
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::Selector;
    use serde_json::json;

    fn set(name: &str, uid: &str, app: &str) -> StatefulSet {
        let spec = json!({"selector": {"matchLabels": {"app": app}}, "template": {}});
        serde_json::from_value(
            json!({"metadata": {"name": name, "namespace": "n", "uid": uid}, "spec": spec}),
        )
        .unwrap()
    }

    fn pod(app: &str, controller: Option<(&str, &str, &str)>) -> Arc<Pod> {
        let owner = controller.map(|(kind, name, uid)| {
            json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true})
        });
        let owners: Vec<_> = owner.into_iter().collect();
        let meta = json!({"name": "p", "namespace": "n", "labels": {"app": app}, "ownerReferences": owners});
        Arc::new(serde_json::from_value(json!({"metadata": meta})).unwrap())
    }

    #[test]
    fn owners_are_those_that_control_or_could_adopt() {
        let sets = Cache::with([set("a", "1", "x"), set("b", "2", "x"), set("c", "3", "y")]);
        let selects = |set: &StatefulSet, pod: &ObjectMeta| {
            let selector = set.spec.as_ref().map(|spec| Selector::try_from(spec.selector.clone()));
            selector.is_some_and(|selector| selector.is_ok_and(|selector| selector_matches(&selector, pod)))
        };
        let of = |name, uid| Some(("StatefulSet", name, uid));
        for (case, old, new, want) in [
            ("a new one", None, Some(pod("z", of("a", "1"))), &["a"][..]),
            ("deleted", Some(pod("x", of("a", "1"))), None, &["a"]),
            ("of another kind", None, Some(pod("x", Some(("Job", "a", "1")))), &[]),
            ("of an earlier owner of the name", None, Some(pod("x", of("a", "9"))), &[]),
            ("from one to another", Some(pod("x", of("a", "1"))), Some(pod("x", of("b", "2"))), &["a", "b"]),
            ("released", Some(pod("y", of("a", "1"))), Some(pod("y", None)), &["a", "c"]),
            ("a new orphan", None, Some(pod("x", None)), &["a", "b"]),
            ("an orphan with other labels", Some(pod("x", None)), Some(pod("y", None)), &["c"]),
            ("an orphan without a change that matters", Some(pod("x", None)), Some(pod("x", None)), &[]),
            ("a deleted orphan", Some(pod("x", None)), None, &[]),
        ] {
            let found = owners_of(&Change { old, new }, &sets, selects);
            assert_eq!(found.iter().map(|owner| owner.name.as_str()).collect::<Vec<_>>(), want, "{case}");
        }
    }
}
