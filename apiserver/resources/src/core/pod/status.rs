//! A Pod's status, written by the kubelet and others.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use coracle_apimachinery::features::FeatureGates;
use coracle_apimachinery::field::{Errors, Field, quote};
use coracle_apimachinery::validation::immutable::IMMUTABLE;
use coracle_apimachinery::validation::{content, ip};
use serde_json::Value;

use super::members::set;
use crate::pod_spec::{self, ContainerType};

/// In the order in which errors are reported.
const TYPES: [ContainerType; 3] = [ContainerType::App, ContainerType::Init, ContainerType::Ephemeral];

/// Returns the QoS class that was set at creation, or the one that would be computed.
pub fn qos_class<'a>(pod: &Field<'a>) -> &'a str {
    match pod.walk("status.qosClass").str() {
        "" => pod_spec::qos_class(&pod.get("spec")),
        class => class,
    }
}

/// Restores the fields that a status update does not change (owner references) or must not remove
/// (the QoS class, observed generations), and drops those of disabled features.
pub fn prepare(pod: &mut Value, old: &Value, features: &FeatureGates) {
    set_from(pod, old, "/metadata", "ownerReferences");
    let unset = |value: Option<&Value>| value.is_none_or(|value| value == 0 || value == "");
    for member in ["qosClass", "observedGeneration"] {
        if unset(pod.pointer("/status").and_then(|status| status.get(member))) {
            set_from(pod, old, "/status", member);
        }
    }
    let old_status = old.get("status").cloned().unwrap_or_default();
    let mut before: HashMap<Value, VecDeque<Value>> = HashMap::new();
    for condition in conditions(&old_status) {
        let generation = condition["observedGeneration"].clone();
        before.entry(condition["type"].clone()).or_default().push_back(generation);
    }
    let now = pod.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in now.into_iter().flatten() {
        // Several conditions may have one type: they are matched in order.
        let known = before.get_mut(&condition["type"]).and_then(VecDeque::pop_front);
        let generation = known.filter(|generation| !generation.is_null());
        if unset(condition.get("observedGeneration")) {
            set(condition, "observedGeneration", generation);
        }
    }
    drop_disabled(pod, &old_status, features);
}

fn conditions(status: &Value) -> impl Iterator<Item = &Value> {
    status.get("conditions").and_then(Value::as_array).into_iter().flatten()
}

fn set_from(object: &mut Value, old: &Value, owner: &str, member: &str) {
    let value = old.pointer(owner).and_then(|owner| owner.get(member)).cloned();
    if let Some(owner) = object.pointer_mut(owner) {
        set(owner, member, value);
    }
}

/// Drops fields of disabled features that the old status does not have (ImageVolumeWithDigest,
/// DRANodeAllocatableResources).
fn drop_disabled(pod: &mut Value, old: &Value, features: &FeatureGates) {
    let Some(status) = pod.get_mut("status") else { return };
    if !features.is_enabled("DRANodeAllocatableResources")
        && old.get("nodeAllocatableResourceClaimStatuses").is_none()
    {
        set(status, "nodeAllocatableResourceClaimStatuses", None);
    }
    let old = Field::root(old);
    let mut mounts = TYPES
        .iter()
        .flat_map(|container_type| old.get(container_type.statuses()).items())
        .flat_map(|container| container.get("volumeMounts").items());
    if features.is_enabled("ImageVolumeWithDigest") || mounts.any(|mount| mount.get("volumeStatus").exists())
    {
        return;
    }
    for container_type in TYPES {
        for container in elements(status, container_type.statuses()) {
            for mount in elements(container, "volumeMounts") {
                set(mount, "volumeStatus", None);
            }
        }
    }
}

fn elements<'a>(owner: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    owner.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Returns warnings for non-canonical addresses.
pub fn warnings(pod: &Field<'_>, old: &Field<'_>) -> Vec<String> {
    let (status, old) = (pod.get("status"), old.get("status"));
    let changed = ["podIPs", "hostIPs"]
        .map(|list| (status.get(list), old.get(list)))
        .into_iter()
        .filter(|(new, old)| new.value() != old.value());
    let addresses = changed.flat_map(|(list, _)| list.items()).map(|address| address.get("ip"));
    addresses.filter_map(|address| ip::address_warning(&address)).collect()
}

/// Validates a status update.
pub fn validate(pod: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (status, old_status) = (pod.get("status"), old.get("status"));
    let (spec, old_spec) = (pod.get("spec"), old.get("spec"));
    validate_conditions(&status.get("conditions"), errors);
    validate_nomination(&status.get("nominatedNodeName"), &old_status, &old_spec, errors);
    let observed = status.get("observedGeneration");
    errors.push_if(observed.int().is_some_and(|generation| generation < 0), || {
        observed.invalid("must be a non-negative integer")
    });
    let class = status.get("qosClass");
    errors.push_if(class.str() != old_status.get("qosClass").str(), || class.invalid(IMMUTABLE));
    for container_type in TYPES {
        let list = container_type.statuses();
        validate_transitions(&status.get(list), &old_status.get(list), &old_spec, container_type, errors);
    }
    validate_claim_statuses(&status.get("resourceClaimStatuses"), &spec.get("resourceClaims"), errors);
    validate_extended_claim(&status.get("extendedResourceClaimStatus"), &spec, errors);
    validate_addresses(&status.get("podIPs"), &old_status.get("podIPs"), errors);
    let hosts = status.get("hostIPs");
    if let Some(first) = hosts.items().next().map(|host| host.get("ip")) {
        errors.push_if(first.str() != status.get("hostIP").str(), || {
            first.invalid("must be equal to `hostIP`")
        });
    }
    validate_addresses(&hosts, &old_status.get("hostIPs"), errors);
    let windows = spec.walk("os.name").str() == "windows";
    for container_type in TYPES {
        for user in status.get(container_type.statuses()).items().map(|status| status.walk("user.linux")) {
            validate_user(&user, windows, errors);
        }
    }
    for container_type in TYPES {
        let known = by_name(&spec.get(container_type.list()));
        let mut claims = HashMap::new();
        for container in status.get(container_type.statuses()).items() {
            validate_health(&container, container_type, &known, &mut claims, errors);
        }
    }
}

fn validate_conditions(conditions: &Field<'_>, errors: &mut Errors) {
    const OWN: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];
    for condition in conditions.items() {
        let observed = condition.get("observedGeneration");
        errors.push_if(observed.int().is_some_and(|generation| generation < 0), || {
            observed.invalid("must be a non-negative integer")
        });
        let kind = condition.get("type");
        if !OWN.contains(&kind.str()) {
            let kind = kind.with_path(condition.path().child("Type"));
            errors.invalid_each(&kind, content::qualified_name(kind.str()));
        }
    }
}

fn validate_nomination(node: &Field<'_>, old_status: &Field<'_>, old_spec: &Field<'_>, errors: &mut Errors) {
    if node.is_empty() || node.str() == old_status.get("nominatedNodeName").str() {
        return;
    }
    errors.invalid_each(node, content::dns1123_subdomain(node.str()));
    errors.push_if(!old_spec.get("nodeName").is_empty(), || {
        node.forbidden("may not be set on pods that are already bound to a node")
    });
}

/// Validates restarts. A terminated container only restarts if its restart policy allows it.
fn validate_transitions(
    new: &Field<'_>,
    old: &Field<'_>,
    spec: &Field<'_>,
    container_type: ContainerType,
    errors: &mut Errors,
) {
    let ephemeral = container_type == ContainerType::Ephemeral;
    if !ephemeral && may_restart_as_a_whole(spec) {
        return;
    }
    let running = new.items().filter(|status| !status.walk("state.terminated").exists());
    let running: HashSet<&str> = running.map(|status| status.get("name").str()).collect();
    let containers = by_name(&spec.get(container_type.list()));
    for ended in old.items() {
        let terminated = ended.walk("state.terminated");
        let name = ended.get("name").str();
        if !terminated.exists() || !running.contains(name) {
            continue;
        }
        let code = terminated.get("exitCode").int().unwrap_or(0);
        let container = containers.get(name);
        let allowed = !ephemeral && container.is_some_and(|container| restarts(container, spec, code));
        errors.push_if(!allowed, || {
            ended
                .with_path(ended.path().child("state"))
                .forbidden("may not be transitioned to non-terminated state")
        });
    }
}

/// Returns the containers of a list by name; the first one for duplicate names.
fn by_name<'a>(containers: &Field<'a>) -> HashMap<&'a str, Field<'a>> {
    let mut by_name = HashMap::new();
    for container in containers.items() {
        by_name.entry(container.get("name").str()).or_insert(container);
    }
    by_name
}

fn may_restart_as_a_whole(spec: &Field<'_>) -> bool {
    ["initContainers", "containers"].iter().any(|list| {
        let rules = spec.get(list);
        let mut rules = rules.items().flat_map(|container| container.get("restartPolicyRules").items());
        rules.any(|rule| rule.get("action").str() == "RestartAllContainers")
    })
}

/// Checks whether a container restarts after an exit code.
///
/// Source: KEP-5307 (restart rules of containers).
fn restarts(container: &Field<'_>, spec: &Field<'_>, code: i64) -> bool {
    let by_policy = |policy: &str| match policy {
        "Never" => Some(false),
        "OnFailure" => Some(code != 0),
        "Always" => Some(true),
        _ => None,
    };
    let own = container.get("restartPolicy");
    let matches = |rule: &Field<'_>| {
        let listed = rule.walk("exitCodes.values").items().any(|value| value.int() == Some(code));
        match rule.walk("exitCodes.operator").str() {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    };
    if own.exists() {
        let rule = container.get("restartPolicyRules").items().find(|rule| matches(rule));
        if rule.is_some_and(|rule| rule.get("action").str().starts_with("Restart")) {
            return true;
        }
        if let Some(restarts) = by_policy(own.str()) {
            return restarts;
        }
    }
    by_policy(spec.get("restartPolicy").str()).unwrap_or(true)
}

fn validate_claim_statuses(statuses: &Field<'_>, claims: &Field<'_>, errors: &mut Errors) {
    let known: BTreeSet<&str> = claims.items().map(|claim| claim.get("name").str()).collect();
    let mut seen = BTreeSet::new();
    for status in statuses.items() {
        let (name, claim) = (status.get("name"), status.get("resourceClaimName"));
        errors.push_if(!known.contains(name.str()), || {
            name.invalid("must match the name of an entry in `spec.resourceClaims`")
        });
        errors.push_if(!seen.insert(name.str()), || name.duplicate());
        if claim.exists() {
            errors.invalid_each(&claim, content::dns1123_subdomain(claim.str()));
        }
    }
}

fn validate_extended_claim(status: &Field<'_>, spec: &Field<'_>, errors: &mut Errors) {
    if !status.exists() {
        return;
    }
    let (mappings, claim) = (status.get("requestMappings"), status.get("resourceClaimName"));
    errors.push_if(mappings.is_empty(), || mappings.required("at least one request mapping is required"));
    let (init, app) = (spec.get("initContainers"), spec.get("containers"));
    let containers: HashMap<&str, Field<'_>> =
        init.items().chain(app.items()).map(|container| (container.get("name").str(), container)).collect();
    let mut seen = BTreeSet::new();
    for mapping in mappings.items() {
        let (name, resource) = (mapping.get("containerName"), mapping.get("resourceName"));
        let request = mapping.get("requestName");
        match containers.get(name.str()) {
            None => errors.push(name.invalid(
                "must match the name of an entry in spec.initContainers.name or spec.containers.name",
            )),
            Some(container) => {
                let requests = container.walk("resources.requests");
                errors.push_if(!requests.get(resource.str()).exists(), || {
                    resource.invalid("must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests")
                });
            }
        }
        let reported = request.with_path(status.path().child("requestName"));
        errors.invalid_each(&reported, content::dns1123_label(request.str()));
        if !seen.insert((name.str(), resource.str(), request.str())) {
            errors.extend([name.duplicate(), resource.duplicate(), request.duplicate()]);
        }
    }
    if claim.is_empty() {
        errors.push(claim.required(""));
    } else {
        errors.invalid_each(&claim, content::dns1123_subdomain(claim.str()));
    }
}

/// Validates addresses: one, or one of each IP family. Existing addresses are not validated.
fn validate_addresses(addresses: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let known: BTreeSet<&str> = old.items().map(|old| old.get("ip").str()).collect();
    for address in addresses.items() {
        let text = address.get("ip").str();
        let error = ip::legacy_address(text).filter(|_| !known.contains(text));
        errors.extend(error.map(|error| address.invalid_value(text, error)));
    }
    if addresses.len() < 2 {
        return;
    }
    let parse = |address: &Field<'_>| ip::parse(address.get("ip").str());
    if let Some((i, wrong)) = addresses.items().enumerate().find(|(_, address)| parse(address).is_none()) {
        let text = wrong.get("ip").str();
        let detail = format!("failed to check for dual stack with error:invalid IP[{i}]: {text}");
        errors.push(addresses.internal(detail));
    }
    let parsed: Vec<_> = addresses.items().filter_map(|address| parse(&address)).collect();
    let dual = parsed.len() == addresses.len()
        && parsed.iter().any(|ip| ip.is_ipv4())
        && parsed.iter().any(|ip| ip.is_ipv6());
    errors.push_if(!dual || addresses.len() > 2, || {
        let shown = addresses.items().map(|a| format!(r#"{{"IP":{}}}"#, quote(a.get("ip").str())));
        addresses
            .invalid("may specify no more than one IP for each IP family")
            .with_bad_value_text(format!("[{}]", shown.collect::<Vec<_>>().join(",")))
    });
}

fn validate_user(user: &Field<'_>, windows: bool, errors: &mut Errors) {
    if !user.exists() {
        return;
    }
    if windows {
        errors.push(user.forbidden("cannot be set for a windows pod"));
        return;
    }
    let groups = user.get("supplementalGroups");
    for id in [user.get("uid"), user.get("gid")].into_iter().chain(groups.items()) {
        errors.invalid_each(&id, content::in_range(id.int().unwrap_or(0), 0, i64::from(i32::MAX)));
    }
}

/// Validates the health of a container's devices.
///
/// - `containers`: those of the spec by name; `claims`: the claimed devices of each, as far as they
///   were looked up.
fn validate_health<'a>(
    status: &Field<'_>,
    container_type: ContainerType,
    containers: &HashMap<&'a str, Field<'a>>,
    claims: &mut HashMap<&'a str, HashSet<String>>,
    errors: &mut Errors,
) {
    const HEALTH: [&str; 3] = ["Healthy", "Unhealthy", "Unknown"];
    const MAX_MESSAGE: usize = 1024;
    let devices = status.get("allocatedResourcesStatus");
    if container_type == ContainerType::Ephemeral {
        errors
            .push_if(!devices.is_empty(), || devices.forbidden("must not be specified in container status"));
        return;
    }
    let name = status.get("name").str();
    let container = containers.get(name);
    for device in devices.items() {
        let of = device.get("name");
        let error = container.and_then(|container| unknown_device(container, of.str(), claims));
        errors.extend(error.map(|error| of.invalid(error)));
        let mut ids = BTreeSet::new();
        for resource in device.get("resources").items() {
            let (health, message) = (resource.get("health"), resource.get("message"));
            errors.push_if(!HEALTH.contains(&health.str()), || health.not_supported(&HEALTH));
            if message.exists() {
                errors.push_if(message.is_empty(), || message.required("must be non-empty if specified"));
                errors.push_if(message.len() > MAX_MESSAGE, || message.too_long(MAX_MESSAGE));
            }
            let id = resource.get("resourceID");
            errors.push_if(!ids.insert(id.str()), || id.duplicate());
        }
    }
}

/// Returns the reason if a container cannot have a device of this name.
fn unknown_device<'a>(
    container: &Field<'a>,
    name: &str,
    claims: &mut HashMap<&'a str, HashSet<String>>,
) -> Option<&'static str> {
    let requirements = container.get("resources");
    if !name.starts_with("claim:") {
        let requested = requirements.get("requests").get(name).exists();
        return (!requested).then_some("must match one of the container's resource requests");
    }
    let claims = claims.entry(container.get("name").str()).or_insert_with(|| {
        let claims = requirements.get("claims");
        let claims = claims.items().map(|claim| {
            let (claim, request) = (claim.get("name").str(), claim.get("request").str());
            if request.is_empty() { format!("claim:{claim}") } else { format!("claim:{claim}/{request}") }
        });
        claims.collect()
    });
    (!claims.contains(name)).then_some(
        "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty",
    )
}
