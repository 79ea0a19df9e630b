//! Service: a union by `type`.
//!
//! [`allocation`] allocates addresses and ports; the registry calls it before the strategy, because
//! the rules require the allocated fields. `validation` contains the rules; this file the defaults,
//! the fields that a change of type clears, and the warnings.

pub mod allocation;
mod spec;
mod validation;

pub use validation::{PROTOCOLS, validate_point_address, validate_point_host};

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field, quote};
use coracle_apimachinery::selector::FieldSource::At;
use coracle_apimachinery::selector::SelectableFields;
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::ip;
use serde_json::{Value, json};

use self::spec::{
    NONE, TOPOLOGY_HINTS, TOPOLOGY_MODE, is_external, is_externally_accessible, needs_cluster_ip,
    needs_health_check_node_port, node_ports, remove, same, set_if_absent, text,
};

/// The fields that a field selector may name.
pub const SELECTABLE_FIELDS: SelectableFields =
    SelectableFields::of(&[("spec.clusterIP", At("/spec/clusterIP")), ("spec.type", At("/spec/type"))]);

/// The strategy of Service.
pub struct ServiceStrategy;

impl Strategy for ServiceStrategy {
    fn default(&self, service: &mut Value) {
        default_spec(&mut service["spec"]);
        if text(service, "type") == "LoadBalancer" {
            let points = service.pointer_mut("/status/loadBalancer/ingress").and_then(Value::as_array_mut);
            for point in points.into_iter().flatten().filter(|point| point.get("ip").is_some()) {
                set_if_absent(point, "ipMode", json!("VIP"));
            }
        }
    }

    fn prepare_for_create(&self, service: &mut Value, _: &Context<'_>) {
        service["status"] = json!({"loadBalancer": {}});
        drop_stray_policy(service);
    }

    fn prepare_for_update(&self, service: &mut Value, old: &Value, _: &Context<'_>) {
        drop_type_dependent_fields(service, old);
        drop_stray_policy(service);
    }

    fn validate(&self, service: &Field<'_>, errors: &mut Errors) {
        validation::validate(service, None, errors);
    }

    fn validate_update(&self, service: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validation::validate_update(service, old, errors);
    }

    fn validate_status_update(&self, service: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validation::validate_status(service, old, errors);
    }

    fn warnings(&self, service: &Field<'_>, _: Option<&Field<'_>>) -> Vec<String> {
        warnings(service)
    }

    fn status_warnings(&self, service: &Field<'_>) -> Vec<String> {
        point_warnings(service)
    }
}

/// Returns warnings for non-canonical addresses in the ingress points of a load balancer, for
/// Services and Ingresses.
pub fn point_warnings(object: &Field<'_>) -> Vec<String> {
    let points = object.walk("status.loadBalancer.ingress");
    // kube-apiserver reports the point, not its address.
    let addresses = points.items().map(|point| point.get("ip").with_path(point.path().clone()));
    addresses.filter_map(|address| ip::address_warning(&address)).collect()
}

fn default_spec(spec: &mut Value) {
    set_if_absent(spec, "sessionAffinity", json!("None"));
    match spec["sessionAffinity"].as_str() {
        Some("None") => {
            spec.as_object_mut().map(|members| members.remove("sessionAffinityConfig"));
        }
        Some("ClientIP") if spec.pointer("/sessionAffinityConfig/clientIP/timeoutSeconds").is_none() => {
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10800}});
        }
        _ => {}
    }
    set_if_absent(spec, "type", json!("ClusterIP"));
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        set_if_absent(port, "protocol", json!("TCP"));
        if port["targetPort"].is_null() || port["targetPort"] == 0 || port["targetPort"] == "" {
            port["targetPort"] = port.get("port").cloned().unwrap_or_else(|| json!(0));
        }
    }
    let has_external_ips = spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty());
    let kind = spec["type"].as_str().unwrap_or("").to_owned();
    if is_externally_accessible(&kind, has_external_ips) {
        set_if_absent(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer")
        && spec["internalTrafficPolicy"].is_null()
    {
        spec["internalTrafficPolicy"] = json!("Cluster");
    }
    if kind == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"].is_null() {
        spec["allocateLoadBalancerNodePorts"] = json!(true);
    }
}

/// Drops the policy of an ExternalName that was stored with a wrong default by older servers.
fn drop_stray_policy(service: &mut Value) {
    if !needs_cluster_ip(service) && ["Cluster", "Local"].contains(&text(service, "internalTrafficPolicy")) {
        remove(service, "internalTrafficPolicy");
    }
}

/// Clears the fields that a new type does not have, if the client did not change them. Changed
/// fields are kept, for the rules to reject them.
fn drop_type_dependent_fields(service: &mut Value, old: &Value) {
    let kind = |service: &Value| text(service, "type").to_owned();
    let (was, is) = (kind(old), kind(service));
    if needs_cluster_ip(old) && !needs_cluster_ip(service) {
        if same(service, old, "clusterIP") && same(service, old, "clusterIPs") {
            remove(service, "clusterIP");
            remove(service, "clusterIPs");
        }
        for member in ["ipFamilies", "ipFamilyPolicy"] {
            if same(service, old, member) {
                remove(service, member);
            }
        }
    }
    let has_node_ports = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    let had: HashSet<i64> = node_ports(old).collect();
    let added_no_node_port = node_ports(service).all(|port| had.contains(&port));
    if has_node_ports(&was) && !has_node_ports(&is) && added_no_node_port {
        for port in service.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port.as_object_mut().map(|members| members.remove("nodePort"));
        }
    }
    if needs_health_check_node_port(old)
        && !needs_health_check_node_port(service)
        && same(service, old, "healthCheckNodePort")
    {
        remove(service, "healthCheckNodePort");
    }
    if was == "LoadBalancer" && is != "LoadBalancer" {
        for member in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if same(service, old, member) {
                remove(service, member);
            }
        }
    }
    if is_external(old) && !is_external(service) && same(service, old, "externalTrafficPolicy") {
        remove(service, "externalTrafficPolicy");
    }
    if is != "LoadBalancer" {
        service["status"]["loadBalancer"] = json!({});
    }
}

fn warnings(service: &Field<'_>) -> Vec<String> {
    let spec = service.get("spec");
    let (kind, cluster_ip) = (spec.get("type").str(), spec.get("clusterIP").str());
    let headless = kind == "ClusterIP" && cluster_ip == NONE;
    let external_name = kind == "ExternalName";
    let (external_ips, balancer_ip) = (spec.get("externalIPs"), spec.get("loadBalancerIP"));
    let mut warnings = Vec::new();
    let mut warn_if = |wrong: bool, text: String| {
        if wrong {
            warnings.push(text);
        }
    };
    warn_if(
        service.walk("metadata.annotations").get(TOPOLOGY_HINTS).exists(),
        format!("annotation {TOPOLOGY_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead"),
    );
    if !matches!(cluster_ip, "" | NONE) {
        for warning in spec.get("clusterIPs").items().filter_map(|ip| ip::address_warning(&ip)) {
            warn_if(true, warning);
        }
    }
    for (wrong, member) in [
        (!balancer_ip.is_empty(), "loadBalancerIP"),
        (!external_ips.is_empty(), "externalIPs"),
        (spec.get("sessionAffinity").str() != "None", "SessionAffinity"),
    ] {
        warn_if(headless && wrong, format!("spec.{member} is ignored for headless services"));
    }
    for warning in external_ips.items().filter_map(|ip| ip::address_warning(&ip)) {
        warn_if(true, warning);
    }
    warn_if(
        !external_ips.is_empty() && !headless && !external_name,
        "spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned(),
    );
    for warning in ip::address_warning(&balancer_ip)
        .into_iter()
        .chain(spec.get("loadBalancerSourceRanges").items().flat_map(|range| ip::cidr_warnings(&range)))
    {
        warn_if(true, warning);
    }
    warn_if(
        external_name && !external_ips.is_empty(),
        "spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned(),
    );
    warn_if(
        !external_name && !spec.get("externalName").is_empty(),
        "spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned(),
    );
    warn_if(
        spec.get("trafficDistribution").str() == "PreferClose",
        format!(
            "spec.trafficDistribution: {} is deprecated; use {}",
            quote("PreferClose"),
            quote("PreferSameZone")
        ),
    );
    warnings
}
