//! Compute resources: requests, limits and claims of containers and of whole pods.
//!
//! Source: KEP-2837 (pod-level resources), KEP-753 (sidecars in addition to init containers),
//! KEP-4381 (claims).

use std::collections::{BTreeMap, BTreeSet};

use coracle_apimachinery::field::{Errors, Field, quote};
use coracle_apimachinery::validation::resource_list::{HUGE_PAGES, amount, read};
use coracle_apimachinery::validation::{content, resource_list};
use coracle_pod_resources::names::is_pod_level;
use coracle_pod_resources::{InitContainer, ResourceList, aggregate_containers};
use coracle_quantity::Quantity;
use serde_json::{Value, json};

use super::container_lists::is_sidecar;
use super::options::PodValidationOptions;

/// Returns the maximum of the resources that the containers need at any one time. `which` is
/// `requests` or `limits`.
pub fn aggregate(spec: &Field<'_>, which: &str) -> ResourceList {
    let own = |container: &Field<'_>| read(&container.get("resources").get(which));
    let (containers, init_containers) = (spec.get("containers").items(), spec.get("initContainers").items());
    aggregate_containers(
        containers.map(|container| own(&container)),
        init_containers.map(|container| InitContainer {
            resources: own(&container),
            is_restartable: is_sidecar(&container),
        }),
    )
}

/// Defaults pod-level resources from the containers: limits of huge pages, then requests.
pub fn default_pod_level(spec: &mut Value) {
    if spec.get("resources").is_none() {
        return;
    }
    let read_spec = spec.clone();
    let field = Field::root(&read_spec);
    let requirements = field.get("resources");
    let (limits, requests) = (requirements.get("limits"), requirements.get("requests"));
    if limits.is_empty() && requests.is_empty() {
        return;
    }
    let (mut limits, mut requests) = (read(&limits), read(&requests));
    for (name, quantity) in aggregate(&field, "limits") {
        if resource_list::is_huge_pages(&name) && !requests.contains_key(&name) {
            limits.entry(name).or_insert(quantity);
        }
    }
    if !limits.is_empty() {
        for (name, quantity) in aggregate(&field, "requests") {
            if is_pod_level(&name) && resource_list::is_overcommit_allowed(&name) {
                requests.entry(name).or_insert(quantity);
            }
        }
        for (name, quantity) in &limits {
            if is_pod_level(name) {
                requests.entry(name.clone()).or_insert(*quantity);
            }
        }
    }
    for (member, list) in [("limits", limits), ("requests", requests)] {
        for (name, quantity) in list {
            let known = read_spec["resources"][member].get(&name).is_some();
            if !known {
                spec["resources"][member][name] = json!(quantity.to_string());
            }
        }
    }
}

/// Validates a container's resources; `claims` are the names of the pod's claims.
pub fn validate_container(
    requirements: &Field<'_>,
    claims: &BTreeSet<&str>,
    options: &PodValidationOptions,
    errors: &mut Errors,
) {
    validate_requirements(requirements, resource_list::validate_container_name, options, errors);
    validate_claims(&requirements.get("claims"), claims, errors);
}

/// Validates a pod's overhead: the rules of a container's limits, reported as such.
pub fn validate_overhead(overhead: &Field<'_>, options: &PodValidationOptions, errors: &mut Errors) {
    let limits = json!({ "limits": overhead.value() });
    let requirements = Field::at(Some(&limits), overhead.path().clone());
    validate_requirements(&requirements, resource_list::validate_container_name, options, errors);
}

fn validate_pod_level_name(name: &str, quantity: &Field<'_>, errors: &mut Errors) {
    if resource_list::validate_name(name, quantity, errors) && !is_pod_level(name) {
        let error = quantity.not_supported(&["cpu", "hugepages-", "memory"]);
        errors.push(error.with_bad_value_text(quote(name)));
    }
}

type NameRule = fn(&str, &Field<'_>, &mut Errors);

fn validate_requirements(
    requirements: &Field<'_>,
    name_rule: NameRule,
    options: &PodValidationOptions,
    errors: &mut Errors,
) {
    let (limits, requests) = (requirements.get("limits"), requirements.get("requests"));
    for (name, quantity) in limits.entries() {
        name_rule(name, &quantity, errors);
        resource_list::validate_amount(name, &quantity, errors);
        validate_huge_pages(&quantity, name, options, errors);
    }
    for (name, quantity) in requests.entries() {
        name_rule(name, &quantity, errors);
        resource_list::validate_amount(name, &quantity, errors);
        let limit = limits.get(name);
        if limit.exists() {
            let (wanted, most) = (amount(&quantity), amount(&limit));
            let relation = match wanted.cmp(&most) {
                std::cmp::Ordering::Equal => None,
                _ if !resource_list::is_overcommit_allowed(name) => Some("equal to"),
                std::cmp::Ordering::Greater => Some("less than or equal to"),
                std::cmp::Ordering::Less => None,
            };
            errors.extend(relation.map(|relation| {
                let detail = format!("must be {relation} {name} limit of {}", limit.str());
                requests.invalid_value(quantity.str(), detail)
            }));
        } else if !resource_list::is_overcommit_allowed(name) {
            errors.push(limits.required("Limit must be set for non overcommitable resources"));
        }
        validate_huge_pages(&quantity, name, options, errors);
    }
    let any =
        |holds: fn(&str) -> bool| limits.entries().chain(requests.entries()).any(|(name, _)| holds(name));
    errors
        .push_if(any(resource_list::is_huge_pages) && !any(|name| name == "cpu" || name == "memory"), || {
            requirements.forbidden("HugePages require cpu or memory")
        });
}

/// Returns whether the quantity is a multiple of the page size in the name.
pub fn fits_huge_page(name: &str, quantity: &Quantity) -> bool {
    let size = name.strip_prefix(HUGE_PAGES).and_then(|size| size.parse::<Quantity>().ok());
    size.is_some_and(|size| {
        size.is_positive() && size.milli_value() % 1000 == 0 && quantity.value() % size.value() == 0
    })
}

fn validate_huge_pages(
    quantity: &Field<'_>,
    name: &str,
    options: &PodValidationOptions,
    errors: &mut Errors,
) {
    let allowed = options.allow_indivisible_huge_pages || fits_huge_page(name, &amount(quantity));
    errors.push_if(resource_list::is_huge_pages(name) && !allowed, || {
        quantity.invalid(format!("{} is not positive integer multiple of {name}", quantity.str()))
    });
}

fn validate_claims(claims: &Field<'_>, known: &BTreeSet<&str>, errors: &mut Errors) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    // The number of entries for a name, for one request or all.
    let mut entries: BTreeMap<&str, usize> = BTreeMap::new();
    for claim in claims.items() {
        let (name, request) = (claim.get("name").str(), claim.get("request"));
        if name.is_empty() {
            errors.push(claim.required(""));
            continue;
        }
        if seen.contains(name) {
            errors.push(claim.duplicate_value(name));
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                errors.invalid_each(&request, content::dns1123_label(request.str()));
                key = format!("{name}/{}", request.str());
            }
            if seen.contains(&key) {
                errors.push(claim.duplicate_value(key.as_str()));
            } else if request.is_empty() {
                // The whole claim overlaps with each earlier request of it.
                let overlaps = entries.get(name).copied().unwrap_or_default();
                errors.extend(std::iter::repeat_n(claim.duplicate_value(name), overlaps));
            }
            if seen.insert(key) {
                *entries.entry(name).or_default() += 1;
            }
        }
        if !known.contains(name) {
            let mut error = claim.not_found().with_bad_value_text(quote(name));
            let list: Vec<&str> = known.iter().copied().collect();
            error.detail = match list.as_slice() {
                [] => "must be one of the names in pod.spec.resourceClaims which is empty".to_owned(),
                list => format!("must be one of the names in pod.spec.resourceClaims: {}", list.join(", ")),
            };
            errors.push(error);
        }
    }
}

/// Validates pod-level resources; `claims` are the names of the pod's claims.
pub fn validate_pod_level(
    spec: &Field<'_>,
    claims: &BTreeSet<&str>,
    options: &PodValidationOptions,
    errors: &mut Errors,
) {
    let requirements = spec.get("resources");
    if !requirements.exists() {
        return;
    }
    if spec.walk("os.name").str() == "windows" {
        errors.push(requirements.forbidden("may not be set for a windows pod"));
        return;
    }
    let own = requirements.get("claims");
    errors.push_if(own.exists(), || own.forbidden("claims may not be set for Resources at pod-level"));
    validate_requirements(&requirements, validate_pod_level_name, options, errors);
    validate_claims(&own, claims, errors);
    validate_consistency(spec, &requirements, errors);
}

/// Validates that the resources of the containers do not exceed the pod's.
fn validate_consistency(spec: &Field<'_>, requirements: &Field<'_>, errors: &mut Errors) {
    for (list, relevant) in [
        ("requests", (|_| true) as fn(&str) -> bool),
        ("limits", resource_list::is_huge_pages as fn(&str) -> bool),
    ] {
        for (name, sum) in aggregate(spec, list) {
            let quantity = requirements.get(list).entry(&name);
            errors.push_if(quantity.exists() && relevant(&name) && sum > amount(&quantity), || {
                quantity
                    .invalid(format!("must be greater than or equal to aggregate container {list} of {sum}"))
            });
        }
    }
    for (i, container) in spec.get("containers").items().enumerate() {
        for (name, limit) in container.walk("resources.limits").entries() {
            let most = requirements.get("limits").get(name);
            errors.push_if(most.exists() && amount(&limit) > amount(&most), || {
                let path = requirements.path().child("containers").index(i).key(name).child("limits");
                limit
                    .with_path(path)
                    .invalid(format!("must be less than or equal to pod limits of {}", most.str()))
            });
        }
    }
}
