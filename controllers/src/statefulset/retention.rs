//! The owner of a claim (KEP-1847): the set, its pod or none, by the set's retention policy. The
//! garbage collector deletes the claims.
//!
//! References to other objects are kept. A claim that is owned by an earlier set or pod of the same
//! name is not changed; if another object controls a claim, neither the set nor the pod becomes its
//! owner.

use coracle_object_meta::controller_ref;
use k8s_openapi::Resource;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// The retention policy: whether the claims of a pod are deleted when its set is deleted, and when
/// it is scaled down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    deletes_when_deleted: bool,
    deletes_when_scaled: bool,
}

impl Policy {
    pub fn of(set: &StatefulSet) -> Policy {
        let spec = set.spec.as_ref();
        let policy = spec.and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
        let deletes = |what: Option<&String>| what.is_some_and(|what| what == "Delete");
        Policy {
            deletes_when_deleted: deletes(policy.and_then(|policy| policy.when_deleted.as_ref())),
            deletes_when_scaled: deletes(policy.and_then(|policy| policy.when_scaled.as_ref())),
        }
    }

    fn retains(self) -> bool {
        !self.deletes_when_deleted && !self.deletes_when_scaled
    }

    fn owner(self, is_condemned: bool) -> Owner {
        match (self.deletes_when_deleted, self.deletes_when_scaled) {
            (_, true) if is_condemned => Owner::Pod,
            (true, _) => Owner::Set,
            (false, _) => Owner::Nobody,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Nobody,
    Set,
    Pod,
}

/// The change of a claim's owners.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnerUpdate {
    /// Whether another object controls the claim although the policy requires the set or the pod as
    /// its owner.
    pub has_conflicting_controller: bool,
    /// The claim as it should be, if it is not.
    pub change: Option<Box<PersistentVolumeClaim>>,
}

/// An object that may own a claim, as a reference to it would have it.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    api_version: &'a str,
    kind: &'a str,
    name: &'a str,
    uid: &'a str,
}

impl<'a> Candidate<'a> {
    fn of<K: Resource + kube::Resource>(object: &'a K) -> Candidate<'a> {
        let meta = object.meta();
        Candidate {
            api_version: K::API_VERSION,
            kind: K::KIND,
            name: meta.name.as_deref().unwrap_or_default(),
            uid: meta.uid.as_deref().unwrap_or_default(),
        }
    }

    /// Returns `true` if a reference is to an object of this kind and name, with any uid.
    fn is_namesake(self, owner: &OwnerReference) -> bool {
        self.name == owner.name && self.kind == owner.kind && self.api_version == owner.api_version
    }

    /// Returns `true` if a reference is to this object, by its uid.
    fn is(self, owner: &OwnerReference) -> bool {
        self.uid == owner.uid
    }

    /// Returns `true` if one of the references is to another object of the same kind and name.
    fn is_later_than(self, refs: &[OwnerReference]) -> bool {
        refs.iter().find(|owner| self.is_namesake(owner)).is_some_and(|owner| !self.is(owner))
    }
}

/// Returns the change of a claim's owners.
///
/// - `pod`: the pod of the claim, which may not exist yet
pub(super) fn owner_update(
    claim: &PersistentVolumeClaim,
    set: &StatefulSet,
    pod: &Pod,
    is_condemned: bool,
) -> OwnerUpdate {
    let policy = Policy::of(set);
    let candidates = [Candidate::of(set), Candidate::of(pod)];
    let [as_set, as_pod] = candidates;
    let refs = claim.metadata.owner_references.as_deref().unwrap_or_default();
    let conflicts = |owner: &OwnerReference| match candidates.iter().find(|one| one.is_namesake(owner)) {
        Some(namesake) => !namesake.is(owner),
        None => owner.controller == Some(true),
    };
    let has_conflicting_controller = !policy.retains() && refs.iter().any(conflicts);
    if candidates.iter().any(|one| one.is_later_than(refs)) {
        return OwnerUpdate { has_conflicting_controller, change: None };
    }
    let owner = if has_conflicting_controller { Owner::Nobody } else { policy.owner(is_condemned) };
    let owned_by = |one: Candidate| refs.iter().any(|owner| one.is(owner));
    let is_not_controller =
        |owner: &OwnerReference| candidates.iter().any(|one| one.is(owner)) && owner.controller != Some(true);
    let is_fine = owned_by(as_set) == (owner == Owner::Set)
        && owned_by(as_pod) == (owner == Owner::Pod)
        && !refs.iter().any(is_not_controller);
    if is_fine {
        return OwnerUpdate { has_conflicting_controller, change: None };
    }
    let is_other = |owner: &&OwnerReference| !candidates.iter().any(|one| one.is_namesake(owner));
    let mut owners: Vec<OwnerReference> = refs.iter().filter(is_other).cloned().collect();
    match owner {
        Owner::Nobody => {}
        Owner::Set => owners.push(controller_ref(set)),
        Owner::Pod => owners.push(controller_ref(pod)),
    }
    let mut changed = Box::new(claim.clone());
    changed.metadata.owner_references = Some(owners).filter(|owners| !owners.is_empty());
    OwnerUpdate { has_conflicting_controller, change: Some(changed) }
}

/// Returns `true` if a claim is owned by an earlier pod of the same name. A new pod then has to
/// wait for a new claim.
pub(super) fn blocks(claim: &PersistentVolumeClaim, set: &StatefulSet, pod: &Pod) -> bool {
    let refs = claim.metadata.owner_references.as_deref().unwrap_or_default();
    Policy::of(set).deletes_when_scaled && Candidate::of(pod).is_later_than(refs)
}

/// Iterates over the pods that own a claim.
pub(super) fn pods(claim: &PersistentVolumeClaim) -> impl Iterator<Item = &str> {
    let owners = claim.metadata.owner_references.iter().flatten();
    owners.filter(|owner| owner.api_version == "v1" && owner.kind == "Pod").map(|owner| owner.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Builds an owner from a letter: `S` the set, `P` the pod, `s` and `p` without being
    /// controllers, `2` an earlier pod of the name, `X` another controller, `x` another owner.
    fn owner(letter: char) -> Value {
        let (api_version, kind, name, uid) = match letter {
            'S' | 's' => ("apps/v1", "StatefulSet", "web", "S"),
            'P' | 'p' => ("v1", "Pod", "web-0", "P"),
            '2' => ("v1", "Pod", "web-0", "2"),
            _ => ("v1", "ConfigMap", "x", "x"),
        };
        let mut owner = json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid});
        if !letter.is_ascii_lowercase() {
            owner["controller"] = json!(true);
            owner["blockOwnerDeletion"] = json!(true);
        }
        owner
    }

    fn letters(claim: &PersistentVolumeClaim) -> String {
        let owners = claim.metadata.owner_references.iter().flatten();
        owners
            .map(|o| if o.controller == Some(true) { o.uid.to_uppercase() } else { o.uid.to_lowercase() })
            .collect()
    }

    fn set(policy: &str) -> StatefulSet {
        let word = |at| if policy.as_bytes()[at] == b'D' { "Delete" } else { "Retain" };
        let policy = json!({"whenDeleted": word(0), "whenScaled": word(1)});
        let spec = json!({"selector": {}, "template": {}, "persistentVolumeClaimRetentionPolicy": policy});
        serde_json::from_value(json!({"metadata": {"name": "web", "uid": "S"}, "spec": spec})).unwrap()
    }

    fn claim(owners: &str) -> PersistentVolumeClaim {
        let owners: Vec<Value> = owners.chars().map(owner).collect();
        serde_json::from_value(json!({"metadata": {"ownerReferences": owners}})).unwrap()
    }

    fn pod() -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "web-0", "uid": "P"}})).unwrap()
    }

    #[test]
    fn claims_have_the_owner_that_the_policy_wants() {
        for (policy, is_condemned, owners, want) in [
            ("RR", false, "", "="),
            ("RR", false, "S", ""),
            ("RR", true, "xP", "x"),
            ("RR", false, "X", "="),
            ("DR", false, "", "S"),
            ("DR", true, "", "S"),
            ("DR", true, "P", "S"),
            ("DR", false, "s", "S"),
            ("RD", false, "", "="),
            ("RD", false, "SP", ""),
            ("RD", true, "x", "xP"),
            ("RD", true, "P", "="),
            ("RD", true, "p", "P"),
            ("DD", false, "P", "S"),
            ("DD", true, "Sx", "xP"),
            ("DD", true, "P", "="),
            ("DD", true, "2", "! ="),
            ("DD", false, "S2", "! ="),
            ("DD", false, "X", "! ="),
            ("DD", false, "XS", "! X"),
            ("DD", false, "Xs", "! X"),
        ] {
            let update = owner_update(&claim(owners), &set(policy), &pod(), is_condemned);
            let change = update.change.as_ref().map_or("=".to_owned(), |change| letters(change));
            let shown = if update.has_conflicting_controller { format!("! {change}") } else { change };
            assert_eq!(shown, want, "{policy} {is_condemned} {owners}");
        }
    }

    #[test]
    fn a_new_pod_waits_for_a_new_claim() {
        let unborn: Pod = serde_json::from_value(json!({"metadata": {"name": "web-0"}})).unwrap();
        for (policy, owners, want) in
            [("RD", "P", true), ("DD", "x2", true), ("DR", "P", false), ("RD", "S", false), ("RD", "", false)]
        {
            assert_eq!(blocks(&claim(owners), &set(policy), &unborn), want, "{policy} {owners}");
        }
        assert_eq!(pods(&claim("xP")).collect::<Vec<_>>(), ["web-0"]);
    }
}
