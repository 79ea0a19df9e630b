//! The relaxed rules of an update: each mistake that the old object has is allowed in the new one.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::validation::{labels, node_selector, paths, resource_list};

use super::container_lists::{containers, is_sidecar};
use super::options::PodValidationOptions;
use super::{annotations, resources, scheduling, security};

impl PodValidationOptions {
    /// Returns the options for an update of the template `old`.
    pub fn for_template_update(old: &Field<'_>) -> PodValidationOptions {
        PodValidationOptions::for_update(old, false)
    }

    /// Returns the options for an update of the Pod `old`.
    pub fn for_pod_update(old: &Field<'_>) -> PodValidationOptions {
        PodValidationOptions::for_update(old, true)
    }

    fn for_update(old: &Field<'_>, is_pod: bool) -> PodValidationOptions {
        let spec = old.get("spec");
        let cost = annotations::deletion_cost(&old.walk("metadata.annotations"));
        PodValidationOptions {
            is_pod,
            allow_invalid_deletion_cost: !annotations::is_deletion_cost(&cost),
            allow_invalid_selector_values: has_invalid_affinity_selectors(&spec),
            allow_invalid_node_affinity_values: node_selector::has_invalid_values(
                &spec.walk("affinity.nodeAffinity").get(scheduling::REQUIRED),
            ),
            allow_indivisible_huge_pages: has_indivisible_huge_pages(&spec),
            allow_invalid_spread_selectors: any_spread(&spec, |constraint, errors| {
                let options = labels::SelectorOptions::default();
                labels::validate_label_selector(&constraint.get("labelSelector"), options, errors);
            }),
            allow_unmerged_label_keys: any_spread(&spec, scheduling::validate_label_keys),
            allow_non_local_token_path: has_non_local_token_path(&spec),
            allow_sysctls_of_host_namespaces: spec.walk("securityContext.sysctls").items().any(|sysctl| {
                fails(|errors| {
                    security::validate_host_sysctl(&spec, &sysctl.get("name"), errors);
                })
            }),
            any_selinux_change_policy: spec.walk("securityContext.seLinuxChangePolicy").exists(),
            allow_comparing_tolerations: spec
                .get("tolerations")
                .items()
                .any(|toleration| matches!(toleration.get("operator").str(), "Lt" | "Gt")),
            allow_user_namespaces_with_devices: has_user_namespaces_with_devices(&spec),
            allow_restarting_init_on_resize: restarts_init_on_resize(&spec),
        }
    }
}

fn fails(check: impl FnOnce(&mut Errors)) -> bool {
    let mut errors = Errors::new();
    check(&mut errors);
    !errors.is_empty()
}

fn any_spread(spec: &Field<'_>, check: impl Fn(&Field<'_>, &mut Errors)) -> bool {
    let constraints = spec.get("topologySpreadConstraints");
    constraints.items().any(|constraint| fails(|errors| check(&constraint, errors)))
}

fn has_invalid_affinity_selectors(spec: &Field<'_>) -> bool {
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let pods = spec.get("affinity").get(kind);
        let preferred = pods.get(scheduling::PREFERRED);
        let preferred = preferred.items().map(|term| term.get("podAffinityTerm"));
        let mut terms = pods.get(scheduling::REQUIRED).items().chain(preferred);
        terms.any(|term| fails(|errors| scheduling::validate_pod_affinity_selectors(&term, false, errors)))
    })
}

fn has_indivisible_huge_pages(spec: &Field<'_>) -> bool {
    let of_containers = containers(spec).flat_map(|container| {
        let requirements = container.get("resources");
        [requirements.get("limits"), requirements.get("requests")]
    });
    of_containers.chain([spec.get("overhead")]).any(|list| {
        resource_list::read(&list).iter().any(|(name, quantity)| {
            resource_list::is_huge_pages(name) && !resources::fits_huge_page(name, quantity)
        })
    })
}

fn has_non_local_token_path(spec: &Field<'_>) -> bool {
    let mut tokens = spec
        .get("volumes")
        .items()
        .flat_map(|volume| volume.walk("projected.sources").items())
        .map(|source| source.get("serviceAccountToken"))
        .filter(Field::exists);
    tokens.any(|token| !paths::not_reserved(token.get("path").str()).is_empty())
}

fn has_user_namespaces_with_devices(spec: &Field<'_>) -> bool {
    let own_users = spec.get("hostUsers").exists() && !spec.get("hostUsers").bool();
    own_users && containers(spec).any(|container| !container.get("volumeDevices").is_empty())
}

fn restarts_init_on_resize(spec: &Field<'_>) -> bool {
    spec.get("initContainers").items().filter(|container| !is_sidecar(container)).any(|container| {
        let policies = container.get("resizePolicy");
        policies.items().any(|policy| policy.get("restartPolicy").str() == "RestartContainer")
    })
}
