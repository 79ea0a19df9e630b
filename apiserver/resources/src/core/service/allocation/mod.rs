//! The cluster IPs, node ports and IP families of Services.
//!
//! [`allocate`] is called *before* the strategy's `prepare_*` hooks and the rules, which require
//! the allocated fields; its errors replace those of the rules.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use coracle_apimachinery::allocation::{Allocate, Allocators, Random, family_of};
use coracle_apimachinery::error::{Error, Result};
use coracle_apimachinery::field::{Errors, Field, FieldError, Path};
use coracle_apimachinery::names::GroupKind;
use coracle_apimachinery::validation::ip;
use serde_json::{Value, json};

use super::spec::{
    NONE, list, needs_cluster_ip, needs_health_check_node_port, node_ports, remove, same, text,
};
use super::validation;

/// The allocation of cluster IPs and node ports for Services.
pub struct ServiceAllocation;

impl Allocate for ServiceAllocation {
    fn allocate(
        &self,
        service: &mut Value,
        old: Option<&Value>,
        allocators: &mut Allocators<'_>,
        random: Random<'_>,
    ) -> Result<()> {
        allocate(service, old, allocators, random)
    }

    fn addresses(&self, service: &Value) -> Vec<IpAddr> {
        addresses(service).collect()
    }

    fn node_ports(&self, service: &Value) -> Vec<i64> {
        held_node_ports(service).collect()
    }
}

/// Iterates over the cluster IPs of a Service.
pub fn addresses(service: &Value) -> impl Iterator<Item = IpAddr> {
    let texts = list(service, "clusterIPs").iter().filter_map(Value::as_str);
    texts.filter(|_| needs_cluster_ip(service)).filter_map(ip::parse)
}

/// Iterates over the node ports of a Service, including that of health checks.
pub fn held_node_ports(service: &Value) -> impl Iterator<Item = i64> {
    let health = service.pointer("/spec/healthCheckNodePort").and_then(Value::as_i64);
    node_ports(service).chain(health.filter(|port| *port != 0))
}

/// Returns whether a Service may need a node port.
pub fn may_need_node_ports(service: &Value) -> bool {
    matches!(text(service, "type"), "NodePort" | "LoadBalancer")
}

/// Allocates the addresses and node ports of a new or changed Service.
///
/// # Errors
/// 422 for requested values that cannot be allocated, 500 where kube-apiserver returns it.
pub fn allocate(
    service: &mut Value,
    old: Option<&Value>,
    allocators: &mut Allocators,
    random: Random<'_>,
) -> Result<()> {
    if let Some(old) = old {
        patch_allocated_values(service, old);
    }
    normalize_cluster_ips(service, old);
    if needs_cluster_ip(service) && !old.is_some_and(|old| is_settled(service, old)) {
        init_ip_family_fields(service, old, allocators)?;
        allocate_cluster_ips(service, old, allocators, random)?;
    }
    if may_need_node_ports(service) {
        match old {
            None => allocate_node_ports(service, allocators, random)?,
            Some(old) => update_node_ports(service, old, allocators, random)?,
        }
    }
    if needs_health_check_node_port(service) && !old.is_some_and(needs_health_check_node_port) {
        allocate_health_check_node_port(service, allocators, random)?;
    }
    Ok(())
}

fn refused(service: &Value, error: FieldError) -> Error {
    let name = service.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("");
    let mut errors = Errors::new();
    errors.push(error);
    Error::invalid(&GroupKind::new("", "Service"), name, errors)
}

/// Restores allocated values that an update without them would remove (`patchAllocatedValues`).
fn patch_allocated_values(service: &mut Value, old: &Value) {
    if needs_cluster_ip(old) && needs_cluster_ip(service) {
        if text(service, "clusterIP").is_empty() {
            copy(service, old, "clusterIP");
        }
        if list(service, "clusterIPs").is_empty() {
            copy(service, old, "clusterIPs");
        }
    }
    let has_node_ports = |service: &Value| match text(service, "type") {
        "NodePort" => true,
        "LoadBalancer" => allocates_node_ports(service),
        _ => false,
    };
    if has_node_ports(old) && has_node_ports(service) {
        let kept: HashSet<i64> = node_ports(service).collect();
        let name = |port: &Value| port.get("name").and_then(Value::as_str).unwrap_or("").to_owned();
        // The last one of several with a name counts.
        let by_name: HashMap<String, i64> =
            list(old, "ports").iter().map(|had| (name(had), node_port(had))).collect();
        for port in service.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let had = by_name.get(&name(port)).copied().unwrap_or(0);
            if node_port(port) == 0 && had != 0 && !kept.contains(&had) {
                port["nodePort"] = had.into();
            }
        }
    }
    if needs_health_check_node_port(old)
        && needs_health_check_node_port(service)
        && service.pointer("/spec/healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0) == 0
    {
        copy(service, old, "healthCheckNodePort");
    }
}

fn node_port(port: &Value) -> i64 {
    port.get("nodePort").and_then(Value::as_i64).unwrap_or(0)
}

fn copy(service: &mut Value, old: &Value, member: &str) {
    match old.get("spec").and_then(|spec| spec.get(member)) {
        Some(value) => service["spec"][member] = value.clone(),
        None => remove(service, member),
    }
}

/// Aligns `clusterIP` with the first of `clusterIPs`, for clients that only know the former.
fn normalize_cluster_ips(service: &mut Value, old: Option<&Value>) {
    let only = |service: &Value| json!([text(service, "clusterIP")]);
    let Some(old) = old else {
        if !text(service, "clusterIP").is_empty() && list(service, "clusterIPs").is_empty() {
            service["spec"]["clusterIPs"] = only(service);
        }
        return;
    };
    let (is, was) = (text(service, "clusterIP"), text(old, "clusterIP"));
    if is == was {
        if list(service, "clusterIPs").is_empty() && !list(old, "clusterIPs").is_empty() {
            copy(service, old, "clusterIPs");
        }
    } else if list(service, "clusterIPs") == list(old, "clusterIPs") {
        if is.is_empty() {
            remove(service, "clusterIPs");
        } else {
            service["spec"]["clusterIPs"] = only(service);
        }
    }
}

/// Returns whether a Service that prefers two families keeps its families, because only other
/// fields change.
fn is_settled(service: &Value, old: &Value) -> bool {
    let prefers = |service: &Value| text(service, "ipFamilyPolicy") == "PreferDualStack";
    prefers(service)
        && (prefers(old) || text(old, "ipFamilyPolicy").is_empty())
        && ["type", "clusterIPs", "ipFamilies"].iter().all(|member| same(service, old, member))
}

/// Infers `ipFamilyPolicy` and `ipFamilies`, and rejects families that this cluster does not have.
fn init_ip_family_fields(service: &mut Value, old: Option<&Value>, allocators: &Allocators) -> Result<()> {
    let headless = text(service, "clusterIP") == NONE;
    let selects = service.pointer("/spec/selector").and_then(Value::as_object).is_some_and(|s| !s.is_empty());
    let unmanaged = headless && !selects;
    if service["spec"]["ipFamilyPolicy"].is_null() {
        let inherited = old.map(|old| text(old, "ipFamilyPolicy")).filter(|policy| !policy.is_empty());
        let usual = if unmanaged { "RequireDualStack" } else { "SingleStack" };
        service["spec"]["ipFamilyPolicy"] = inherited.unwrap_or(usual).into();
    }
    let mut errors = Errors::new();
    let old_field = old.map(Field::root);
    validation::validate_addresses(&Field::root(service), old_field.as_ref(), &mut errors);
    if errors.is_empty() {
        reduce_to_policy(service, old, &mut errors);
        infer_families(service, allocators, &mut errors);
    }
    if errors.is_empty() && !unmanaged {
        refuse_foreign_families(service, allocators, &mut errors);
    }
    if !errors.is_empty() {
        let name = service.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("");
        return Err(Error::invalid(&GroupKind::new("", "Service"), name, errors));
    }
    let mut families = list(service, "ipFamilies").to_vec();
    if families.is_empty() {
        families.push(allocators.family().into());
    }
    if unmanaged && families.len() < 2 && text(service, "ipFamilyPolicy") != "SingleStack" {
        families.push(if families[0] == "IPv4" { "IPv6" } else { "IPv4" }.into());
    }
    service["spec"]["ipFamilies"] = families.into();
    Ok(())
}

/// Adapts the families to the policy: one of a single family releases the second one; with any
/// other policy it must be kept.
fn reduce_to_policy(service: &mut Value, old: Option<&Value>, errors: &mut Errors) {
    let single = text(service, "ipFamilyPolicy") == "SingleStack";
    for (member, what, several) in
        [("clusterIPs", "cluster IP", "cluster IPs"), ("ipFamilies", "IP family", "IP families")]
    {
        let count = list(service, member).len();
        let policy = Field::root(service).walk("spec.ipFamilyPolicy");
        match old {
            Some(old) if single && same(service, old, member) && count > 1 => {
                service["spec"][member] = json!([list(service, member)[0]]);
            }
            Some(old) if !single && count > 0 && count < list(old, member).len() => {
                errors.push(policy.invalid(format!("must be 'SingleStack' to release the secondary {what}")));
            }
            _ => errors.push_if(single && count == 2, || {
                policy.invalid(format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {several} are specified"
                ))
            }),
        }
    }
}

/// Sets the families from the given addresses, if the client did not set them.
fn infer_families(service: &mut Value, allocators: &Allocators, errors: &mut Errors) {
    let mut families = list(service, "ipFamilies").to_vec();
    let known = families.len();
    for (i, address) in addresses(service).enumerate().skip(known) {
        let family = family_of(address);
        if family == allocators.family() {
            families.push(family.into());
        } else {
            let addresses = Field::root(service).walk("spec.clusterIPs");
            let at = addresses.with_path(addresses.path().index(i));
            errors.push(at.invalid(format!("{family} is not configured on this cluster")));
        }
    }
    if families.len() > known {
        service["spec"]["ipFamilies"] = families.into();
    }
}

fn refuse_foreign_families(service: &Value, allocators: &Allocators, errors: &mut Errors) {
    let spec = Field::root(service).get("spec");
    let policy = spec.get("ipFamilyPolicy");
    errors.push_if(policy.str() == "RequireDualStack", || {
        policy.invalid("this cluster is not configured for dual-stack services")
    });
    for family in spec.get("ipFamilies").items().filter(|family| family.str() != allocators.family()) {
        errors.push(family.invalid("not configured on this cluster"));
    }
}

/// Allocates the requested address, or any. A Service with an address keeps it regardless of the
/// update: the rules reject a change.
fn allocate_cluster_ips(
    service: &mut Value,
    old: Option<&Value>,
    allocators: &mut Allocators,
    random: Random<'_>,
) -> Result<()> {
    let requested = list(service, "clusterIPs").first().and_then(Value::as_str).unwrap_or("").to_owned();
    if requested == NONE || old.is_some_and(needs_cluster_ip) {
        return Ok(());
    }
    let address = if requested.is_empty() {
        let address = allocators.allocate_next_address(random).ok_or_else(|| {
            let name = service.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("");
            Error::Internal(format!("failed to allocate a serviceIP for Service {name:?}: range is full"))
        })?;
        address.to_string()
    } else {
        let taken = ip::parse(&requested).map_or(Ok(()), |address| allocators.allocate_address(address));
        taken.map_err(|why| {
            let addresses = Field::root(service).walk("spec.clusterIPs");
            refused(service, addresses.invalid(format!("failed to allocate IP {requested}: {why}")))
        })?;
        requested
    };
    service["spec"]["clusterIPs"] = json!([address]);
    service["spec"]["clusterIP"] = address.into();
    Ok(())
}

/// Returns whether the ports without a node port get one. A requested node port is always
/// allocated.
fn allocates_node_ports(service: &Value) -> bool {
    text(service, "type") == "NodePort"
        || service.pointer("/spec/allocateLoadBalancerNodePorts").and_then(Value::as_bool).unwrap_or(true)
}

fn port_refused(service: &Value, index: usize, port: i64, why: String) -> Error {
    let path = Path::of("spec.ports").index(index).child("nodePort");
    refused(service, Field::at(None, path).invalid_value(port, why))
}

fn no_port_left() -> Error {
    Error::Internal("failed to allocate a nodePort: range is full".to_owned())
}

/// Allocates the node ports of a new Service; the same port with several protocols gets the same
/// one.
fn allocate_node_ports(service: &mut Value, allocators: &mut Allocators, random: Random<'_>) -> Result<()> {
    let mut ports = list(service, "ports").to_vec();
    let number = |port: &Value| port.get("port").and_then(Value::as_i64).unwrap_or(0);
    let mut given: HashMap<i64, i64> = HashMap::new();
    // The node ports that are requested for a port, with any protocol: the first one counts.
    let mut requested_ports: HashMap<i64, i64> = HashMap::new();
    for port in ports.iter().filter(|port| node_port(port) != 0) {
        requested_ports.entry(number(port)).or_insert(node_port(port));
    }
    for (i, entry) in ports.iter_mut().enumerate() {
        let (port, requested) = (number(entry), node_port(entry));
        if requested == 0 && !allocates_node_ports(service) {
            continue;
        }
        let shared = given.get(&port).copied();
        let wanted = match shared {
            Some(shared) if requested == 0 || requested == shared => {
                entry["nodePort"] = shared.into();
                continue;
            }
            Some(_) => requested,
            None => requested_ports.get(&port).copied().unwrap_or(0),
        };
        let got = if wanted == 0 {
            allocators.allocate_next_node_port(&mut *random).ok_or_else(no_port_left)?
        } else {
            allocators.allocate_node_port(wanted).map_err(|why| port_refused(service, i, wanted, why))?;
            wanted
        };
        entry["nodePort"] = got.into();
        given.entry(port).or_insert(got);
    }
    service["spec"]["ports"] = ports.into();
    Ok(())
}

/// Allocates the node ports that a changed Service adds.
fn update_node_ports(
    service: &mut Value,
    old: &Value,
    allocators: &mut Allocators,
    random: Random<'_>,
) -> Result<()> {
    let mut ports = list(service, "ports").to_vec();
    let mut taken: HashSet<i64> = node_ports(old).collect();
    let mut seen: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
    for (i, port) in ports.iter_mut().enumerate() {
        let mut requested = node_port(port);
        if requested == 0 {
            if !allocates_node_ports(service) {
                continue;
            }
            requested = allocators.allocate_next_node_port(&mut *random).ok_or_else(no_port_left)?;
            port["nodePort"] = requested.into();
        } else if !taken.contains(&requested) {
            allocators
                .allocate_node_port(requested)
                .map_err(|why| port_refused(service, i, requested, why))?;
            taken.insert(requested);
        }
        let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or("");
        if !seen.entry(requested).or_default().insert(protocol.to_owned()) {
            return Err(Error::Unclassified(format!("duplicate nodePort: {{{protocol} {requested}}}")));
        }
    }
    if !ports.is_empty() {
        service["spec"]["ports"] = ports.into();
    }
    Ok(())
}

fn allocate_health_check_node_port(
    service: &mut Value,
    allocators: &mut Allocators,
    random: Random<'_>,
) -> Result<()> {
    let requested = service.pointer("/spec/healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0);
    let port = if requested == 0 {
        allocators.allocate_next_node_port(random).ok_or_else(|| {
            Error::Internal("failed to allocate a HealthCheck NodePort 0: range is full".to_owned())
        })?
    } else {
        allocators.allocate_node_port(requested).map_err(|why| {
            Error::Internal(format!("failed to allocate requested HealthCheck NodePort {requested}: {why}"))
        })?;
        requested
    };
    service["spec"]["healthCheckNodePort"] = port.into();
    Ok(())
}

#[cfg(test)]
mod tests;
