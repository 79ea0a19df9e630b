//! The overrides that a pod inherits: those of its controller, of that one's controller, and so on,
//! and at last those of its namespace.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::overrides::PREFIX;

/// The owners above each other that are looked at: a CronJob, a Job, a pod are two.
const MAX_OWNERS: usize = 4;

/// Annotations that configure the simulation, by their keys.
pub type Overrides = BTreeMap<String, String>;

/// A kind that pods inherit from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the kinds' own names")]
pub enum OwnerKind {
    CronJob,
    DaemonSet,
    Deployment,
    Job,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
}

impl OwnerKind {
    /// Returns the kind of the owner that a reference names; None if pods do not inherit from it.
    pub fn of(owner: &OwnerReference) -> Option<OwnerKind> {
        Some(match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("batch/v1", "CronJob") => OwnerKind::CronJob,
            ("apps/v1", "DaemonSet") => OwnerKind::DaemonSet,
            ("apps/v1", "Deployment") => OwnerKind::Deployment,
            ("batch/v1", "Job") => OwnerKind::Job,
            ("apps/v1", "ReplicaSet") => OwnerKind::ReplicaSet,
            ("v1", "ReplicationController") => OwnerKind::ReplicationController,
            ("apps/v1", "StatefulSet") => OwnerKind::StatefulSet,
            _ => return None,
        })
    }

    /// Returns the API group and the plural name.
    pub fn resource(self) -> (&'static str, &'static str) {
        match self {
            OwnerKind::CronJob => ("batch", "cronjobs"),
            OwnerKind::DaemonSet => ("apps", "daemonsets"),
            OwnerKind::Deployment => ("apps", "deployments"),
            OwnerKind::Job => ("batch", "jobs"),
            OwnerKind::ReplicaSet => ("apps", "replicasets"),
            OwnerKind::ReplicationController => ("", "replicationcontrollers"),
            OwnerKind::StatefulSet => ("apps", "statefulsets"),
        }
    }
}

/// Returns the overrides of an object.
pub fn overrides_of(meta: &ObjectMeta) -> Overrides {
    let ours = meta.annotations.iter().flatten().filter(|(key, _)| key.starts_with(PREFIX));
    ours.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Returns the owners of a pod, the nearest first.
///
/// - `find`: the metadata of the object of a kind and a name in the namespace of the pod
pub fn owners(
    pod: &ObjectMeta,
    find: impl Fn(OwnerKind, &str) -> Option<ObjectMeta>,
) -> Vec<(OwnerKind, ObjectMeta)> {
    let controller = |meta: &ObjectMeta| {
        let reference = coracle_object_meta::controller_of(meta)?;
        let kind = OwnerKind::of(reference)?;
        let found = find(kind, &reference.name)?;
        (found.uid.as_deref() == Some(reference.uid.as_str())).then_some((kind, found))
    };
    std::iter::successors(controller(pod), |(_, meta)| controller(meta)).take(MAX_OWNERS).collect()
}

/// Returns the overrides that a pod inherits, the nearest first. A ReplicaSet has copies of the
/// annotations of its Deployment, which are never removed; so those of the Deployment count.
///
/// - `owners`: from [`owners`]
/// - `namespace`: the metadata of that namespace
pub fn inherited(owners: &[(OwnerKind, ObjectMeta)], namespace: Option<&ObjectMeta>) -> Vec<Overrides> {
    let has_deployment = owners.iter().any(|(kind, _)| *kind == OwnerKind::Deployment);
    let counted = owners.iter().filter(|(kind, _)| !(has_deployment && *kind == OwnerKind::ReplicaSet));
    let all = counted.map(|(_, meta)| meta).chain(namespace).map(overrides_of);
    all.filter(|overrides| !overrides.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn meta(uid: &str, value: &str, owner: Option<(&str, &str)>) -> ObjectMeta {
        let owners = owner.map(|(kind, uid)| {
            json!([{"apiVersion": "batch/v1", "kind": kind, "name": uid, "uid": uid, "controller": true}])
        });
        let annotations = json!({"sim.coracle.dev/log": value, "other": "x"});
        let meta = json!({"name": uid, "uid": uid, "annotations": annotations, "ownerReferences": owners});
        serde_json::from_value(meta).unwrap()
    }

    fn values(inherited: &[Overrides]) -> Vec<&str> {
        inherited.iter().flat_map(BTreeMap::values).map(String::as_str).collect()
    }

    #[test]
    fn owners_come_before_the_namespace() {
        let owner = |kind, name: &str| match (kind, name) {
            (OwnerKind::Job, "j") => Some(meta("j", "job", Some(("CronJob", "c")))),
            (OwnerKind::CronJob, "c") => Some(meta("c", "cronjob", None)),
            (OwnerKind::Job, "other") => Some(meta("j", "job", None)),
            _ => None,
        };
        let namespace = meta("n", "namespace", None);
        for (pod, want) in [
            (Some(("Job", "j")), &["job", "cronjob", "namespace"][..]),
            (Some(("Job", "other")), &["namespace"]),
            (Some(("Workflow", "j")), &["namespace"]),
            (None, &["namespace"]),
        ] {
            let owners = owners(&meta("p", "pod", pod), owner);
            assert_eq!(values(&inherited(&owners, Some(&namespace))), want, "{pod:?}");
        }
        assert_eq!(inherited(&[], Some(&ObjectMeta::default())), []);
        let rollout = [
            (OwnerKind::ReplicaSet, meta("r", "copy", None)),
            (OwnerKind::Deployment, meta("d", "now", None)),
        ];
        assert_eq!(values(&inherited(&rollout, None)), ["now"]);
        assert_eq!(values(&inherited(&rollout[..1], None)), ["copy"]);
    }

    #[test]
    fn a_circle_of_owners_ends() {
        let owner = |_, _: &str| Some(meta("j", "job", Some(("Job", "j"))));
        assert_eq!(owners(&meta("p", "pod", Some(("Job", "j"))), owner).len(), MAX_OWNERS);
    }
}
