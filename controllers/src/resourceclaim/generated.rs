//! The claims that are made for a pod: their entries in the pod, their names, what they are made
//! of.

use coracle_object_meta::{controller_ref, set_annotation};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

/// The annotation of a generated claim with the name of its entry in the pod.
pub const CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// The longest prefix of a generated name: the suffix has five characters, and a dash may precede
/// it.
const MAX_PREFIX_LENGTH: usize = 57;

/// An entry of `spec.resourceClaims` with a template.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub name: &'a str,
    pub template: &'a str,
}

/// Iterates over the entries of a pod that have a template.
pub fn entries(pod: &Pod) -> impl Iterator<Item = Entry<'_>> {
    let claims = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    claims.filter_map(|claim| {
        Some(Entry { name: &claim.name, template: claim.resource_claim_template_name.as_deref()? })
    })
}

/// Returns the name of an entry's claim in the status of the pod.
pub fn recorded_name<'a>(pod: &'a Pod, entry: &str) -> Option<&'a String> {
    let statuses = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    statuses.into_iter().find(|status| status.name == entry)?.resource_claim_name.as_ref()
}

/// Iterates over the names of all known claims of a pod: those that its spec names, and those
/// generated for it.
pub fn claim_names(pod: &Pod) -> impl Iterator<Item = &str> {
    let claims = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    claims.filter_map(|claim| {
        claim.resource_claim_name.as_deref().or_else(|| recorded_name(pod, &claim.name).map(String::as_str))
    })
}

/// Returns `true` if a claim of a pod was generated from a template.
pub fn is_generated_entry(pod: &Pod, claim: &str) -> bool {
    entries(pod).any(|entry| recorded_name(pod, entry.name).is_some_and(|name| name == claim))
}

/// Builds the claim of an entry.
pub fn claim(pod: &Pod, entry: &Entry<'_>, template: &ResourceClaimTemplate) -> ResourceClaim {
    let mut claim = ResourceClaim { spec: template.spec.spec.clone(), ..ResourceClaim::default() };
    if let Some(meta) = &template.spec.metadata {
        claim.metadata.labels.clone_from(&meta.labels);
        claim.metadata.annotations.clone_from(&meta.annotations);
    }
    set_annotation(&mut claim.metadata, CLAIM_NAME, entry.name);
    claim.metadata.namespace = pod.namespace();
    claim.metadata.generate_name = Some(generate_name(&pod.name_any(), entry.name));
    // The deletion of the pod does not wait for its claims.
    claim.metadata.owner_references =
        Some(vec![OwnerReference { block_owner_deletion: None, ..controller_ref(pod) }]);
    claim
}

/// Returns the prefix `POD-ENTRY-` of a claim's name. Long names are shortened.
fn generate_name(pod: &str, entry: &str) -> String {
    let whole = format!("{pod}-{entry}-");
    if whole.len() <= MAX_PREFIX_LENGTH {
        return whole;
    }
    let part =
        |name: &str| -> String { name.chars().take(name.len() * MAX_PREFIX_LENGTH / whole.len()).collect() };
    format!("{}-{}", part(pod), part(entry))
}

/// Returns `true` if a request of a claim asks for access that is reserved for administrators.
pub fn has_admin_access(claim: &ResourceClaim) -> bool {
    let requests = claim.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten());
    requests
        .into_iter()
        .any(|request| request.exactly.as_ref().is_some_and(|exactly| exactly.admin_access == Some(true)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn claims_are_named_after_pod_and_entry() {
        let (pod, entry) = ("p".repeat(60), "e".repeat(20));
        for (pod, entry, want) in [
            ("web", "gpu", "web-gpu-".to_owned()),
            (pod.as_str(), entry.as_str(), format!("{}-{}", "p".repeat(41), "e".repeat(13))),
        ] {
            assert_eq!(generate_name(pod, entry), want);
        }
    }

    #[test]
    fn a_claim_is_made_of_its_template() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "n", "uid": "u"},
            "spec": {"containers": [], "resourceClaims": [
                {"name": "gpu", "resourceClaimTemplateName": "t"}, {"name": "shared", "resourceClaimName": "s"},
            ]},
            "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "web-gpu-x"}]},
        }))
        .unwrap();
        let template: ResourceClaimTemplate = serde_json::from_value(json!({
            "metadata": {"name": "t"},
            "spec": {
                "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "x", "adminAccess": true}}]}},
            },
        }))
        .unwrap();
        let entry = entries(&pod).next().unwrap();
        let claim = claim(&pod, &entry, &template);
        let meta = json!({
            "namespace": "n", "generateName": "web-gpu-", "labels": {"a": "b"},
            "annotations": {"c": "d", CLAIM_NAME: "gpu"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u", "controller": true}],
        });
        assert_eq!(serde_json::to_value(&claim.metadata).unwrap(), meta);
        assert!(has_admin_access(&claim));
        assert_eq!(claim_names(&pod).collect::<Vec<_>>(), ["web-gpu-x", "s"]);
        assert!(is_generated_entry(&pod, "web-gpu-x") && !is_generated_entry(&pod, "s"));
    }
}
