//! The rules of a Service, in the order in which kube-apiserver reports errors.

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::validation::immutable::IMMUTABLE;
use coracle_apimachinery::validation::{content, ip, labels, member, printed};
use serde_json::json;

use super::spec::{NONE, TOPOLOGY_HINTS, TOPOLOGY_MODE, is_externally_accessible};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const FAMILY_POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
/// The protocols of ports.
pub const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const TRAFFIC_POLICIES: [&str; 2] = ["Cluster", "Local"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];
const MAX_AFFINITY_SECONDS: i64 = 86400;
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";
const SET_ONCE: &str = "may not change once set";

/// Validates a Service; `old` is its state before an update.
pub fn validate(service: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let spec = service.get("spec");
    let ports = spec.get("ports");
    validate_topology_annotations(service, errors);
    errors.push_if(
        ports.is_empty() && !is_headless(service) && spec.get("type").str() != "ExternalName",
        || ports.required(""),
    );
    validate_union(service, errors);
    validate_ports(&ports, errors);
    labels::validate_labels(&spec.get("selector"), errors);
    validate_affinity(&spec, errors);
    validate_addresses(service, old, errors);
    validate_external_ips(&spec, old, errors);
    member::required_one_of(&spec.get("type"), &TYPES, errors);
    if spec.get("type").str() == "ClusterIP" {
        for node_port in ports.items().map(|port| port.get("nodePort")).filter(is_set) {
            errors.push(node_port.forbidden("may not be used when `type` is 'ClusterIP'"));
        }
    }
    validate_ports_differ(&ports, errors);
    validate_source_ranges(service, old, errors);
    let balanced = spec.get("type").str() == "LoadBalancer";
    let allocate = spec.get("allocateLoadBalancerNodePorts");
    errors.push_if(allocate.exists() && !balanced, || allocate.forbidden(ONLY_BALANCED));
    validate_balancer_class(service, errors);
    validate_traffic(&spec, errors);
}

/// Validates an update of a Service.
pub fn validate_update(service: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let external = |service: &Field<'_>| service.walk("spec.type").str() == "ExternalName";
    if !external(service) && !external(old) {
        validate_addresses_change(service, old, errors);
        validate_families_change(service, old, errors);
    }
    let balanced = |service: &Field<'_>| service.walk("spec.type").str() == "LoadBalancer";
    let class = service.walk("spec.loadBalancerClass");
    let class_changed = class.value() != old.walk("spec.loadBalancerClass").value();
    errors.push_if(balanced(service) && balanced(old) && class_changed, || class.invalid_or_null(SET_ONCE));
    validate_balancer_class(service, errors);
    let health = |service: &Field<'_>| service.walk("spec.healthCheckNodePort").int().unwrap_or(0);
    let checked =
        needs_health_check_node_port(&service.get("spec")) && needs_health_check_node_port(&old.get("spec"));
    errors.push_if(checked && health(service) != health(old), || {
        service.walk("spec.healthCheckNodePort").forbidden(IMMUTABLE)
    });
    validate(service, Some(old), errors);
}

/// Checks for a port that is not the zero value.
fn is_set(port: &Field<'_>) -> bool {
    port.int().unwrap_or(0) != 0
}

pub(super) fn is_headless(service: &Field<'_>) -> bool {
    let mut addresses = service.walk("spec.clusterIPs").items();
    addresses.len() == 1 && addresses.next().is_some_and(|ip| ip.str() == NONE)
}

fn needs_health_check_node_port(spec: &Field<'_>) -> bool {
    spec.get("type").str() == "LoadBalancer" && spec.get("externalTrafficPolicy").str() == "Local"
}

fn validate_topology_annotations(service: &Field<'_>, errors: &mut Errors) {
    let annotations = service.walk("metadata.annotations");
    let (hints, mode) = (annotations.get(TOPOLOGY_HINTS), annotations.entry(TOPOLOGY_MODE));
    errors.push_if(hints.exists() && mode.exists() && hints.str() != mode.str(), || {
        mode.invalid(format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified"))
    });
}

/// Validates the fields that each type requires and excludes.
fn validate_union(service: &Field<'_>, errors: &mut Errors) {
    let spec = service.get("spec");
    match spec.get("type").str() {
        kind @ ("LoadBalancer" | "NodePort") if is_headless(service) => {
            for address in spec.get("clusterIPs").items().take(1) {
                errors.push(address.invalid(format!("may not be set to 'None' for {kind} services")));
            }
        }
        "ExternalName" => {
            for member in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"].map(|member| spec.get(member)) {
                errors.push_if(!member.is_empty(), || {
                    member.forbidden("may not be set for ExternalName services")
                });
            }
            let name = spec.get("externalName");
            let domain = name.str().strip_suffix('.').unwrap_or(name.str());
            if domain.is_empty() {
                errors.push(name.required(""));
            }
            let found = if domain.is_empty() { vec![] } else { content::dns1123_subdomain(domain) };
            errors.extend(found.into_iter().map(|e| name.invalid_value(domain, e)));
        }
        _ => {}
    }
}

fn validate_ports(ports: &Field<'_>, errors: &mut Errors) {
    let several = ports.len() > 1;
    let mut names = HashSet::new();
    for port in ports.items() {
        let name = port.get("name");
        if !name.is_empty() {
            errors.invalid_each(&name, content::dns1123_label(name.str()));
            errors.push_if(!names.insert(name.str()), || name.duplicate());
        } else {
            errors.push_if(several, || name.required(""));
        }
        member::port_number(&port.get("port"), errors);
        member::required_one_of(&port.get("protocol"), &PROTOCOLS, errors);
        member::port(&port.get("targetPort"), errors);
        member::if_set(&port.get("appProtocol"), content::qualified_name, errors);
    }
}

fn validate_affinity(spec: &Field<'_>, errors: &mut Errors) {
    let (affinity, config) = (spec.get("sessionAffinity"), spec.get("sessionAffinityConfig"));
    member::required_one_of(&affinity, &["ClientIP", "None"], errors);
    match affinity.str() {
        "ClientIP" => {
            let (client, timeout) = (config.get("clientIP"), config.walk("clientIP.timeoutSeconds"));
            match [&config, &client, &timeout].into_iter().find(|field| !field.exists()) {
                Some(missing) => errors.push(missing.required("when session affinity type is ClientIP")),
                None => {
                    errors.push_if(!(1..=MAX_AFFINITY_SECONDS).contains(&timeout.int().unwrap_or(0)), || {
                        timeout
                            .invalid(format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}"))
                    })
                }
            }
        }
        "None" => errors
            .push_if(config.exists(), || config.forbidden("must not be set when session affinity is None")),
        _ => {}
    }
}

/// Returns the values that an old object already has in a list, which are not validated again.
fn known<'a>(old: Option<&Field<'a>>, list: &'a str) -> HashSet<&'a str> {
    let lists = old.into_iter().map(|old| old.get("spec").get(list));
    lists.flat_map(|list| list.items()).map(|known| known.str().trim()).collect()
}

/// Validates `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy`, individually and
/// together.
pub(super) fn validate_addresses(service: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let spec = service.get("spec");
    if spec.get("type").str() == "ExternalName" {
        return;
    }
    let (address, addresses) = (spec.get("clusterIP"), spec.get("clusterIPs"));
    let first = addresses.items().next().map_or("", |first| first.str());
    if address.is_empty() {
        errors.push_if(!addresses.is_empty(), || {
            addresses.invalid("must be empty when `clusterIP` is not specified")
        });
    } else if addresses.is_empty() {
        errors.push(addresses.required(""));
    } else {
        errors.push_if(first != address.str(), || addresses.invalid("first value must match `clusterIP`"));
    }
    validate_families(&spec, errors);
    if !validate_each_address(&addresses, old, errors) {
        return;
    }
    let parsed: Vec<_> = addresses.items().filter_map(|address| ip::parse(address.str())).collect();
    let families = parsed.iter().map(|address| address.is_ipv4());
    if addresses.len() > 1 {
        let both = families.clone().any(|v4| v4) && families.clone().any(|v4| !v4);
        errors.push_if(!both, || addresses.invalid("may specify no more than one IP for each IP family"));
    }
    if !is_headless(service) {
        let pairs = addresses.items().zip(spec.get("ipFamilies").items()).zip(families);
        for (i, ((address, family), v4)) in pairs.enumerate() {
            let fits = family.str() == if v4 { "IPv4" } else { "IPv6" } || !FAMILIES.contains(&family.str());
            errors.push_if(!fits, || {
                let family = family.str();
                address.invalid(format!("expected an {family} value as indicated by `ipFamilies[{i}]`"))
            });
        }
    }
}

fn validate_families(spec: &Field<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for family in spec.get("ipFamilies").items() {
        errors.push_if(!FAMILIES.contains(&family.str()), || family.not_supported(&FAMILIES));
        errors.push_if(!seen.insert(family.str()), || family.duplicate());
    }
    member::one_of(&spec.get("ipFamilyPolicy"), &FAMILY_POLICIES, errors);
}

/// Validates each address, and returns whether all are valid, or the only one is `None`.
fn validate_each_address(addresses: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) -> bool {
    let known = known(old, "clusterIPs");
    let mut valid = true;
    for (i, address) in addresses.items().enumerate() {
        if i == 0 && address.str() == NONE {
            if addresses.len() > 1 {
                valid = false;
                errors.push(addresses.invalid("'None' must be the first and only value"));
            }
            continue;
        }
        if known.contains(address.str()) {
            continue;
        }
        if let Some(error) = ip::legacy_address(address.str()) {
            valid = false;
            errors.push(address.invalid(error));
        }
    }
    errors.push_if(addresses.len() > 2, || addresses.invalid("may only hold up to 2 values"));
    valid
}

fn validate_external_ips(spec: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let known = known(old, "externalIPs");
    for address in spec.get("externalIPs").items() {
        let error = ip::legacy_address(address.str());
        match error.filter(|_| !known.contains(address.str())) {
            Some(error) => errors.push(address.invalid(error)),
            None => errors.invalid_each(&address, ip::endpoint_address(address.str())),
        }
    }
}

fn validate_ports_differ(ports: &Field<'_>, errors: &mut Errors) {
    let key = |port: &Field<'_>, member| (port.get("protocol").str().to_owned(), port.get(member).int());
    let mut node_ports = HashSet::new();
    for port in ports.items().filter(|port| is_set(&port.get("nodePort"))) {
        let key = key(&port, "nodePort");
        errors.push_if(!node_ports.insert(key), || port.get("nodePort").duplicate());
    }
    let mut numbers = HashSet::new();
    for port in ports.items() {
        let key = key(&port, "port");
        if !numbers.insert(key.clone()) {
            let compared = json!({"protocol": key.0, "port": key.1.unwrap_or(0)});
            errors.push(printed::duplicate(
                &Field::at(Some(&compared), port.path().clone()),
                "core.ServicePort",
            ));
        }
    }
}

/// Validates the source ranges in the field, or in the annotation it replaced. Spaces around a
/// range are accepted.
fn validate_source_ranges(service: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let spec = service.get("spec");
    let balanced = spec.get("type").str() == "LoadBalancer";
    let ranges = spec.get("loadBalancerSourceRanges");
    let ranges = ranges.with_path(spec.path().child("LoadBalancerSourceRanges"));
    let annotation = service.walk("metadata.annotations").entry(SOURCE_RANGES);
    if !ranges.is_empty() {
        errors.push_if(!balanced, || ranges.forbidden(ONLY_BALANCED));
        let known = known(old, "loadBalancerSourceRanges");
        for range in ranges.items() {
            let text = range.str().trim();
            if !known.contains(text) {
                errors.extend(ip::legacy_cidr(text).map(|e| range.invalid_value(text, e)));
            }
        }
    } else if annotation.exists() {
        errors.push_if(!balanced, || annotation.forbidden(ONLY_BALANCED));
        let unchanged = old.is_some_and(|old| {
            old.walk("metadata.annotations").get(SOURCE_RANGES).value() == annotation.value()
        });
        let text = annotation.str().trim();
        if !unchanged && !text.is_empty() {
            for range in text.split(',').map(str::trim) {
                errors.extend(ip::legacy_cidr(range).map(|e| annotation.invalid_value(range, e)));
            }
        }
    }
}

fn validate_balancer_class(service: &Field<'_>, errors: &mut Errors) {
    let class = service.walk("spec.loadBalancerClass");
    if !class.exists() {
        return;
    }
    if service.walk("spec.type").str() == "LoadBalancer" {
        errors.invalid_each(&class, content::qualified_name(class.str()));
    } else {
        errors.push(class.forbidden(ONLY_BALANCED));
    }
}

fn validate_traffic(spec: &Field<'_>, errors: &mut Errors) {
    let kind = spec.get("type").str();
    let (external, health) = (spec.get("externalTrafficPolicy"), spec.get("healthCheckNodePort"));
    if is_externally_accessible(kind, !spec.get("externalIPs").is_empty()) {
        member::required_one_of(&external, &TRAFFIC_POLICIES, errors);
    } else {
        errors.push_if(!external.is_empty(), || {
            external.invalid("may only be set for externally-accessible services")
        });
    }
    if needs_health_check_node_port(spec) {
        match health.int().unwrap_or(0) {
            0 => errors.push(health.required("")),
            port => errors.invalid_each(&health, content::port_number(port)),
        }
    } else {
        errors.push_if(is_set(&health), || {
            health.invalid(
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
            )
        });
    }
    let internal = spec.get("internalTrafficPolicy");
    errors.push_if(!internal.exists() && matches!(kind, "ClusterIP" | "NodePort" | "LoadBalancer"), || {
        internal.required("")
    });
    member::one_of(&internal, &TRAFFIC_POLICIES, errors);
    member::one_of(&spec.get("trafficDistribution"), &DISTRIBUTIONS, errors);
}

/// Validates the addresses, which may be added to and released from the end of the list; the first
/// one is immutable.
fn validate_addresses_change(service: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    if is_headless(service) && is_headless(old) {
        return;
    }
    let addresses = service.walk("spec.clusterIPs");
    let at = |i| addresses.with_path(addresses.path().index(i));
    let is: Vec<&str> = addresses.items().map(|ip| ip.str()).collect();
    let was: Vec<&str> = old.walk("spec.clusterIPs").items().map(|ip| ip.str()).collect();
    if is.len() == was.len() {
        for (i, _) in is.iter().zip(&was).enumerate().filter(|(_, (is, was))| is != was) {
            errors.push(at(i).invalid_or_null(SET_ONCE));
        }
        return;
    }
    if is.is_empty() {
        errors.push(at(0).invalid_or_null("primary clusterIP can not be unset"));
    } else {
        errors.push_if(!was.is_empty() && is[0] != was[0], || at(0).invalid_or_null(SET_ONCE));
    }
    if was.len() > is.len() && is.len() == 1 {
        validate_release(service, "secondary clusterIP", errors);
    }
}

fn validate_families_change(service: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    if is_headless(service) || is_headless(old) {
        return;
    }
    let (families, addresses) = (service.walk("spec.ipFamilies"), service.walk("spec.clusterIPs"));
    let first = families.path().index(0);
    let is: Vec<&str> = families.items().map(|family| family.str()).collect();
    let was: Vec<&str> = old.walk("spec.ipFamilies").items().map(|family| family.str()).collect();
    if is.len() == was.len() {
        for _ in is.iter().zip(&was).filter(|(is, was)| is != was) {
            errors.push(families.with_path(first.clone()).invalid_or_null(SET_ONCE));
        }
        return;
    }
    errors.push_if(was.len() > is.len() && addresses.is_empty(), || {
        families.with_path(first.clone()).invalid_or_null("primary ipFamily can not be unset")
    });
    let moved = matches!((is.first(), was.first()), (Some(is), Some(was)) if is != was);
    errors.push_if(moved, || addresses.with_path(first.clone()).invalid_or_null(SET_ONCE));
    if was.len() > is.len() && is.len() == 1 {
        validate_release(service, "secondary ipFamily", errors);
    }
}

fn validate_release(service: &Field<'_>, what: &str, errors: &mut Errors) {
    let policy = service.walk("spec.ipFamilyPolicy");
    errors.push_if(policy.str() != "SingleStack", || {
        policy.invalid_or_null(format!("must be set to 'SingleStack' when releasing the {what}"))
    });
}

/// Validates the status of a Service.
pub fn validate_status(service: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    const POINTS: &str = "status.loadBalancer.ingress";
    const MODES: [&str; 2] = ["Proxy", "VIP"];
    let points = service.walk(POINTS);
    if service.walk("spec.type").str() != "LoadBalancer" && !points.is_empty() {
        errors.push(points.forbidden("may only be used when `spec.type` is 'LoadBalancer'"));
        return;
    }
    let known: HashSet<&str> = old.walk(POINTS).items().map(|point| point.get("ip").str()).collect();
    for point in points.items() {
        let (address, mode) = (point.get("ip"), point.get("ipMode"));
        validate_point_address(&address, &known, errors);
        match (mode.exists(), address.is_empty()) {
            (false, false) => errors.push(mode.required("must be specified when `ip` is set")),
            (true, true) => errors.push(mode.forbidden("may not be specified when `ip` is not set")),
            (true, false) => {
                errors.push_if(!MODES.contains(&mode.str()), || mode.not_supported(&MODES));
            }
            (false, true) => {}
        }
        validate_point_host(&point.get("hostname"), errors);
    }
}

/// Validates the IP of a load balancer's ingress point; existing ones are not validated again.
pub fn validate_point_address(address: &Field<'_>, known: &HashSet<&str>, errors: &mut Errors) {
    if !address.is_empty() && !known.contains(address.str()) {
        errors.extend(ip::legacy_address(address.str()).map(|e| address.invalid(e)));
    }
}

/// Validates the host name of a load balancer's ingress point.
pub fn validate_point_host(host: &Field<'_>, errors: &mut Errors) {
    if host.is_empty() {
        return;
    }
    errors.invalid_each(host, content::dns1123_subdomain(host.str()));
    errors.push_if(ip::parse(host.str()).is_some(), || host.invalid("must be a DNS name, not an IP address"));
}
