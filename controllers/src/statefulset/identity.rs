//! The identity of a set's pod: its ordinal, name and labels, its claims and their volumes.

use std::ops::Range;

use coracle_kinds::pods;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

pub(super) const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";
const REVISION_LABEL: &str = "controller-revision-hash";

/// Returns the name of the set to which a pod's name refers, and the pod's ordinal. The ordinal is
/// `None` if it is out of range.
pub(super) fn parent_and_ordinal(pod: &str) -> Option<(&str, Option<i32>)> {
    let (parent, ordinal) = pod.rsplit_once('-')?;
    let is_number = !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| (parent, ordinal.parse().ok()))
}

pub(super) fn is_member(set: &StatefulSet, pod: &Pod) -> bool {
    let parent =
        parent_and_ordinal(pod.metadata.name.as_deref().unwrap_or_default()).map(|(parent, _)| parent);
    parent.is_some() && parent == set.metadata.name.as_deref()
}

pub(super) fn ordinal(pod: &Pod) -> Option<i32> {
    parent_and_ordinal(pod.metadata.name.as_deref()?)?.1
}

/// Returns the ordinals of a set's pods (KEP-3335).
pub(super) fn ordinals(set: &StatefulSet, can_start_anywhere: bool) -> Range<i32> {
    let spec = set.spec.as_ref();
    let start = spec.and_then(|spec| spec.ordinals.as_ref()).and_then(|ordinals| ordinals.start);
    let start = start.filter(|_| can_start_anywhere).unwrap_or(0);
    start..start.saturating_add(replicas(set))
}

pub(super) fn replicas(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Returns the name of a pod's revision.
pub(super) fn revision(pod: &Pod) -> &str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION_LABEL)).map_or("", String::as_str)
}

fn templates(set: &StatefulSet) -> &[PersistentVolumeClaim] {
    set.spec.as_ref().and_then(|spec| spec.volume_claim_templates.as_deref()).unwrap_or_default()
}

/// Iterates over the names of a pod's claims.
pub(super) fn claim_names(set: &StatefulSet, ordinal: i32) -> impl Iterator<Item = String> {
    templates(set).iter().map(move |template| claim_name(set, template, ordinal))
}

fn claim_name(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i32) -> String {
    format!("{}-{}-{ordinal}", name_of(&template.metadata), name_of(&set.metadata))
}

fn name_of(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// Returns `true` if a name is that of the set's pod with this ordinal. It allocates no string for
/// the comparison, since a plan checks all pods.
fn is_pod_name(name: &str, set: &StatefulSet, ordinal: i32) -> bool {
    let digits = name.strip_prefix(name_of(&set.metadata)).and_then(|rest| rest.strip_prefix('-'));
    digits.is_some_and(|digits| {
        let is_canonical =
            digits == "0" || digits.bytes().next().is_some_and(|first| matches!(first, b'1'..=b'9'));
        is_canonical && digits.parse() == Ok(ordinal)
    })
}

/// Returns `true` if a name is that of the claim of the set's pod with this ordinal.
fn is_claim_name(name: &str, set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i32) -> bool {
    let pod = name.strip_prefix(name_of(&template.metadata)).and_then(|rest| rest.strip_prefix('-'));
    pod.is_some_and(|pod| is_pod_name(pod, set, ordinal))
}

/// Iterates over the missing claims of a pod, as they are to be created.
pub(super) fn claims(
    set: &StatefulSet,
    ordinal: i32,
    is_there: impl Fn(&str) -> bool,
) -> impl Iterator<Item = PersistentVolumeClaim> {
    let selected = set.spec.as_ref().and_then(|spec| spec.selector.match_labels.as_ref());
    let named = templates(set).iter().map(move |template| (template, claim_name(set, template, ordinal)));
    named.filter(move |(_, name)| !is_there(name)).map(move |(template, name)| {
        let mut claim = template.clone();
        claim.metadata.name = Some(name);
        claim.metadata.namespace = set.namespace();
        if let Some(selected) = selected {
            claim.metadata.labels.get_or_insert_default().extend(selected.clone());
        }
        claim
    })
}

/// Returns a pod that does not exist yet, with the properties that a plan needs: its name and its
/// revision.
pub(super) fn placeholder(set: &StatefulSet, ordinal: i32, revision: &str) -> Pod {
    let labels = [(REVISION_LABEL.to_owned(), revision.to_owned())];
    let metadata = ObjectMeta {
        name: Some(pod_name(set, ordinal)),
        namespace: set.namespace(),
        labels: Some(labels.into()),
        ..ObjectMeta::default()
    };
    Pod { metadata, ..Pod::default() }
}

fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", name_of(&set.metadata))
}

/// Returns a missing pod as it is to be created.
pub(super) fn pod(set: &StatefulSet, ordinal: i32, template: &PodTemplateSpec, revision: &str) -> Pod {
    let mut pod = pods::from_template(template, set);
    let name = pod_name(set, ordinal);
    pod.metadata.name = Some(name.clone());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name);
    spec.subdomain =
        set.spec.as_ref().and_then(|spec| spec.service_name.clone()).filter(|name| !name.is_empty());
    identify(set, &mut pod, ordinal);
    pod.metadata.labels.get_or_insert_default().insert(REVISION_LABEL.to_owned(), revision.to_owned());
    pod
}

/// Returns the pod with the right identity, or `None` if it has that identity. The API rejects
/// changes of immutable fields.
pub(super) fn repaired(set: &StatefulSet, pod: &Pod) -> Option<Pod> {
    let ordinal = ordinal(pod)?;
    let name = name_of(&pod.metadata);
    let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(POD_NAME_LABEL));
    let is_named = is_pod_name(name, set, ordinal) && label.is_some_and(|label| label == name);
    if is_named && has_volumes(set, pod) {
        return None;
    }
    let mut pod = pod.clone();
    pod.metadata.name = Some(pod_name(set, ordinal));
    identify(set, &mut pod, ordinal);
    Some(pod)
}

/// Sets the labels of a pod with a name, and the volumes of its claims, which come first.
fn identify(set: &StatefulSet, pod: &mut Pod, ordinal: i32) {
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME_LABEL.to_owned(), pod.metadata.name.clone().unwrap_or_default());
    labels.insert(POD_INDEX_LABEL.to_owned(), ordinal.to_string());
    let mut volumes: Vec<Volume> = volumes(set, ordinal).collect();
    let Some(spec) = &mut pod.spec else { return };
    let others = spec.volumes.take().unwrap_or_default();
    let is_other =
        |volume: &Volume| !templates(set).iter().any(|template| template.name_any() == volume.name);
    volumes.extend(others.into_iter().filter(is_other));
    spec.volumes = Some(volumes).filter(|volumes| !volumes.is_empty());
}

fn volumes(set: &StatefulSet, ordinal: i32) -> impl Iterator<Item = Volume> {
    templates(set).iter().map(move |template| {
        let claim_name = claim_name(set, template, ordinal);
        let claim = PersistentVolumeClaimVolumeSource { claim_name, read_only: None };
        Volume { name: template.name_any(), persistent_volume_claim: Some(claim), ..Volume::default() }
    })
}

/// Returns `true` if the volumes of a pod refer to its claims.
pub(super) fn has_volumes(set: &StatefulSet, pod: &Pod) -> bool {
    let there = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    ordinal(pod).is_some_and(|ordinal| {
        templates(set).iter().all(|template| {
            let mut named =
                there.iter().filter(|volume| Some(&volume.name) == template.metadata.name.as_ref());
            named.any(|volume| {
                let claim = volume.persistent_volume_claim.as_ref();
                claim.is_some_and(|claim| is_claim_name(&claim.claim_name, set, template, ordinal))
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set() -> StatefulSet {
        let data = json!({"metadata": {"name": "data", "labels": {"app": "old", "tier": "db"}}, "spec": {}});
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "n", "uid": "u"},
            "spec": {
                "replicas": 3, "ordinals": {"start": 5}, "serviceName": "svc",
                "selector": {"matchLabels": {"app": "web"}},
                "template": {},
                "volumeClaimTemplates": [data],
            },
        }))
        .unwrap()
    }

    fn template() -> PodTemplateSpec {
        serde_json::from_value(json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [], "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]},
        }))
        .unwrap()
    }

    #[test]
    fn names_have_the_set_and_the_ordinal() {
        for (name, want) in [
            ("web-0", Some(("web", Some(0)))),
            ("my-web-12", Some(("my-web", Some(12)))),
            ("web-01", Some(("web", Some(1)))),
            ("web-99999999999", Some(("web", None))),
            ("web-a", None),
            ("web-", None),
            ("web", None),
        ] {
            assert_eq!(parent_and_ordinal(name), want, "{name}");
        }
    }

    #[test]
    fn names_are_compared_without_being_made() {
        let set = set();
        let template = &templates(&set)[0];
        for (name, ordinal, want) in [
            ("data-web-5", 5, true),
            ("data-web-0", 0, true),
            ("data-web-15", 15, true),
            ("data-web-05", 5, false),
            ("data-web-00", 0, false),
            ("data-web-+5", 5, false),
            ("data-web-5", 6, false),
            ("data-web-", 5, false),
            ("data-web5", 5, false),
            ("data-we-5", 5, false),
            ("web-5", 5, false),
            ("data-web-5-5", 5, false),
            ("data-web-2147483648", i32::MAX, false),
        ] {
            assert_eq!(is_claim_name(name, &set, template, ordinal), want, "{name} {ordinal}");
            assert_eq!(is_pod_name(name.trim_start_matches("data-"), &set, ordinal), want || name == "web-5");
            assert_eq!(claim_name(&set, template, ordinal) == name, want, "{name} {ordinal}");
        }
    }

    #[test]
    fn ordinals_start_where_the_set_says() {
        assert_eq!(ordinals(&set(), true), 5..8);
        assert_eq!(ordinals(&set(), false), 0..3, "the gate is off");
    }

    #[test]
    fn a_pod_has_an_identity() {
        let pod = pod(&set(), 5, &template(), "web-r1");
        let labels = json!({
            "app": "web", "apps.kubernetes.io/pod-index": "5", "controller-revision-hash": "web-r1",
            "statefulset.kubernetes.io/pod-name": "web-5",
        });
        assert_eq!(json!(pod.metadata.labels), labels);
        let want = json!({
            "containers": [], "hostname": "web-5", "subdomain": "svc",
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-5"}}, {"name": "tmp", "emptyDir": {}}],
        });
        assert_eq!(json!(pod.spec), want);
        assert!(repaired(&set(), &pod).is_none());
        assert_eq!(revision(&pod), "web-r1");
    }

    #[test]
    fn what_drifted_is_repaired() {
        let drifted = |change: fn(&mut Value)| {
            let mut pod = json!(pod(&set(), 5, &template(), "web-r1"));
            change(&mut pod);
            repaired(&set(), &serde_json::from_value(pod).unwrap())
        };
        let index = "apps.kubernetes.io/pod-index";
        assert!(
            drifted(|pod| pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = json!("9")).is_none()
        );
        let renamed = drifted(|pod| pod["metadata"]["labels"] = json!({})).unwrap();
        assert_eq!(renamed.metadata.labels.as_ref().map(|labels| labels[index].as_str()), Some("5"));
        let elsewhere =
            drifted(|pod| pod["spec"]["volumes"] = json!([{"name": "tmp", "emptyDir": {}}])).unwrap();
        assert_eq!(elsewhere.spec.unwrap().volumes.map(|volumes| volumes.len()), Some(2));
    }

    #[test]
    fn claims_are_labelled_by_template_and_selector() {
        let all: Vec<_> = claims(&set(), 7, |_| false).map(|claim| json!(claim.metadata)).collect();
        let want = json!([{"name": "data-web-7", "namespace": "n", "labels": {"app": "web", "tier": "db"}}]);
        assert_eq!(json!(all), want);
        assert_eq!(claims(&set(), 7, |name| name == "data-web-7").count(), 0);
        assert_eq!(claim_names(&set(), 7).collect::<Vec<_>>(), ["data-web-7"]);
    }
}
