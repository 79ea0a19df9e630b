//! A pod's spec: its parts in kube-apiserver's order, and the parts that are too small for a file
//! of their own.
//!
//! Start at [`validate_pod_spec`].

use std::collections::BTreeSet;

use coracle_apimachinery::field::{Errors, Field, Path};
use coracle_apimachinery::validation::{content, ip, labels, metadata, printed};

use super::container_lists::containers;
use super::containers::{self, Pod};
use super::options::PodValidationOptions;
use super::{annotations, resources, scheduling, security, volumes};

/// Validates a template (`field` is the template itself). Errors in its metadata are reported
/// without `metadata` in their path, as kube-apiserver does.
pub fn validate_pod_template(template: &Field<'_>, options: &PodValidationOptions, errors: &mut Errors) {
    let (metadata, spec) = (template.get("metadata"), template.get("spec"));
    let part = |member: &'static str| metadata.get(member).with_path(template.path().child(member));
    labels::validate_labels(&part("labels"), errors);
    metadata::validate_annotations(&part("annotations"), errors);
    annotations::validate(&part("annotations"), &spec, options, errors);
    let nameless = Field::at(None, metadata.path().clone());
    validate_pod_spec(&spec, &nameless, options, errors);
    annotations::validate_profiles_match(&metadata.get("annotations"), &spec, errors);
    let ephemeral = spec.get("ephemeralContainers");
    errors.push_if(!ephemeral.is_empty(), || {
        ephemeral.forbidden("ephemeral containers not allowed in pod template")
    });
}

/// Validates a pod's spec; `metadata` is the pod's, absent for a template.
pub fn validate_pod_spec(
    spec: &Field<'_>,
    metadata: &Field<'_>,
    options: &PodValidationOptions,
    errors: &mut Errors,
) {
    let grace = spec.get("terminationGracePeriodSeconds");
    errors.push_if(!grace.exists(), || grace.required(""));
    let mountable = volumes::validate(&spec.get("volumes"), metadata.get("name").str(), options, errors);
    let claims = spec.get("resourceClaims");
    validate_claims(&claims, metadata, errors);
    let claims: Vec<&str> = claims.items().map(|claim| claim.get("name").str()).collect();
    let claims: BTreeSet<&str> = claims.into_iter().filter(|name| !name.is_empty()).collect();
    let pod = Pod { spec, volumes: &mountable, claims: &claims, options };
    containers::validate(&pod, errors);
    resources::validate_pod_level(spec, &claims, options, errors);
    validate_host_network_ports(spec, options, errors);
    require_choice(&spec.get("restartPolicy"), &["Always", "OnFailure", "Never"], errors);
    let dns_policy = spec.get("dnsPolicy");
    require_choice(&dns_policy, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], errors);
    labels::validate_labels(&spec.get("nodeSelector"), errors);
    security::validate_pod(spec, options, errors);
    scheduling::validate_affinity(&spec.get("affinity"), options, errors);
    validate_dns(&spec.get("dnsConfig"), dns_policy.str(), errors);
    for gate in spec.get("readinessGates").items() {
        check(&gate.get("conditionType"), content::qualified_name, errors);
    }
    scheduling::validate_gates(&spec.get("schedulingGates"), errors);
    scheduling::validate_spread(&spec.get("topologySpreadConstraints"), options, errors);
    security::validate_host_processes(spec, errors);
    security::validate_host_users(spec, options, errors);
    validate_hostname_override(spec, errors);
    check_given(&spec.get("serviceAccountName"), content::dns1123_subdomain, errors);
    check_given(&spec.get("nodeName"), content::dns1123_subdomain, errors);
    let deadline = spec.get("activeDeadlineSeconds");
    if let Some(seconds) = deadline.int() {
        errors.invalid_each(&deadline, content::in_range(seconds, 1, i64::from(i32::MAX)));
    }
    check_given(&spec.get("hostname"), content::dns1123_label, errors);
    check_given(&spec.get("subdomain"), content::dns1123_label, errors);
    scheduling::validate_tolerations(&spec.get("tolerations"), options, errors);
    validate_host_aliases(&spec.get("hostAliases"), errors);
    check_given(&spec.get("priorityClassName"), content::dns1123_subdomain, errors);
    let runtime = spec.get("runtimeClassName");
    if runtime.exists() {
        check(&runtime, content::dns1123_subdomain, errors);
    }
    let preemption = spec.get("preemptionPolicy");
    if preemption.exists() {
        require_choice(&preemption, &["PreemptLowerPriority", "Never"], errors);
    }
    resources::validate_overhead(&spec.get("overhead"), options, errors);
    security::validate_os(spec, errors);
    validate_env_files(spec, errors);
}

type Rule = fn(&str) -> Vec<String>;

fn check(field: &Field<'_>, rule: Rule, errors: &mut Errors) {
    errors.invalid_each(field, rule(field.str()));
}

fn check_given(field: &Field<'_>, rule: Rule, errors: &mut Errors) {
    if !field.is_empty() {
        check(field, rule, errors);
    }
}

fn require_choice(choice: &Field<'_>, known: &[&str], errors: &mut Errors) {
    if choice.is_empty() {
        errors.push(choice.required(""));
    } else {
        errors.push_if(!known.contains(&choice.str()), || choice.not_supported(known));
    }
}

/// Validates the device claims of a pod.
fn validate_claims(claims: &Field<'_>, metadata: &Field<'_>, errors: &mut Errors) {
    let mirror = metadata.get("annotations").get(annotations::MIRROR).exists();
    let mut names = BTreeSet::new();
    for claim in claims.items() {
        if mirror {
            let pod = claim.with_path(Path::root().key(""));
            errors.push(pod.forbidden("static pods do not support resource claims"));
            continue;
        }
        let name = claim.get("name");
        if name.is_empty() {
            errors.push(name.required(""));
        } else if names.insert(name.str()) {
            check(&name, content::dns1123_label, errors);
        } else {
            errors.push(name.duplicate());
        }
        let (direct, template) = (claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName"));
        let error = match (direct.exists(), template.exists()) {
            (true, true) => {
                Some("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
            }
            (false, false) => Some("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
            _ => None,
        };
        errors.extend(error.map(|detail| printed::invalid(&claim, "core.PodResourceClaim", detail)));
        for reference in [direct, template] {
            if reference.exists() {
                check(&reference, content::dns1123_subdomain, errors);
            }
        }
    }
}

/// Validates ports on the host's network: a container port is a host port there.
fn validate_host_network_ports(spec: &Field<'_>, options: &PodValidationOptions, errors: &mut Errors) {
    if !spec.get("hostNetwork").bool() {
        return;
    }
    for port in spec.get("containers").items().flat_map(|container| container.get("ports").items()) {
        let (host, own) = (port.get("hostPort"), port.get("containerPort"));
        let number = host.int().unwrap_or(0);
        let wrong = (options.is_pod || number != 0) && number != own.int().unwrap_or(0);
        errors.push_if(wrong, || {
            host.invalid_value(number, "must match `containerPort` when `hostNetwork` is true")
        });
    }
}

fn validate_dns(config: &Field<'_>, policy: &str, errors: &mut Errors) {
    const MAX_SERVERS: usize = 3;
    const MAX_SEARCHES: usize = 32;
    const MAX_SEARCH_CHARACTERS: usize = 2048;
    let (servers, searches) = (config.get("nameservers"), config.get("searches"));
    if policy == "None" {
        if !config.exists() {
            errors.push(config.required("must provide `dnsConfig` when `dnsPolicy` is None"));
            return;
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.push(servers.required(detail));
            return;
        }
    }
    errors.push_if(servers.len() > MAX_SERVERS, || {
        servers.invalid(format!("must not have more than {MAX_SERVERS} nameservers"))
    });
    for server in servers.items() {
        errors.extend(ip::legacy_address(server.str()).map(|error| server.invalid(error)));
    }
    errors.push_if(searches.len() > MAX_SEARCHES, || {
        searches.invalid(format!("must not have more than {MAX_SEARCHES} search paths"))
    });
    let characters = searches.items().map(|search| search.len() + 1).sum::<usize>().saturating_sub(1);
    errors.push_if(characters > MAX_SEARCH_CHARACTERS, || {
        searches.invalid(format!(
            "must not have more than {MAX_SEARCH_CHARACTERS} characters (including spaces) in the search list"
        ))
    });
    for search in searches.items().filter(|search| search.str() != ".") {
        let domain = search.str().strip_suffix('.').unwrap_or(search.str());
        for error in content::dns1123_subdomain_with_underscore(domain) {
            errors.push(search.invalid_value(domain, error));
        }
    }
    for option in config.get("options").items() {
        errors.push_if(option.get("name").is_empty(), || option.required("must not be empty"));
    }
}

fn validate_host_aliases(aliases: &Field<'_>, errors: &mut Errors) {
    for alias in aliases.items() {
        let address = alias.get("ip");
        errors.extend(ip::legacy_address(address.str()).map(|error| address.invalid(error)));
        for name in alias.get("hostnames").items() {
            check(&name, content::dns1123_subdomain, errors);
        }
    }
}

fn validate_hostname_override(spec: &Field<'_>, errors: &mut Errors) {
    const MAX: usize = 64;
    let name = spec.get("hostnameOverride");
    if !name.exists() {
        return;
    }
    for member in ["setHostnameAsFQDN", "hostNetwork"] {
        errors.push_if(spec.get(member).bool(), || {
            name.forbidden(format!("may not be specified when {member} is true"))
        });
    }
    errors.push_if(name.len() > MAX, || name.too_long(MAX));
    check(&name, content::dns1123_subdomain, errors);
}

/// Requires an emptyDir volume of the pod for variables from a file.
fn validate_env_files(spec: &Field<'_>, errors: &mut Errors) {
    for container in containers(spec) {
        for variable in container.get("env").items() {
            let name = variable.walk("valueFrom.fileKeyRef.volumeName");
            if !variable.walk("valueFrom.fileKeyRef").exists() {
                continue;
            }
            match spec.get("volumes").items().filter(|v| v.get("name").str() == name.str()).last() {
                None => errors.push(name.not_found()),
                Some(volume) => errors.push_if(!volume.get("emptyDir").exists(), || {
                    name.invalid("referenced volume must be of type emptyDir")
                }),
            }
        }
    }
}
