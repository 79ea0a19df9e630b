//! The members of a Service's spec, and what its type implies.

use serde_json::Value;

/// The deprecated annotation for topology aware routing.
pub const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
/// The annotation for topology aware routing.
pub const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
/// The `clusterIP` of a headless Service.
pub const NONE: &str = "None";

/// Returns a string member of the spec; "" if it is missing.
pub fn text<'a>(service: &'a Value, member: &str) -> &'a str {
    service.get("spec").and_then(|spec| spec.get(member)).and_then(Value::as_str).unwrap_or("")
}

/// Returns a list member of the spec.
pub fn list<'a>(service: &'a Value, member: &str) -> &'a [Value] {
    let list = service.get("spec").and_then(|spec| spec.get(member)).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// Returns `true` if a member of the spec is the same in both Services.
pub fn same(a: &Value, b: &Value, member: &str) -> bool {
    let member = |service: &'_ Value| service.get("spec").and_then(|spec| spec.get(member)).cloned();
    member(a) == member(b)
}

/// Removes a member of the spec.
pub fn remove(service: &mut Value, member: &str) {
    if let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove(member);
    }
}

/// Sets a member that is missing, null or "".
pub fn set_if_absent(object: &mut Value, member: &str, value: Value) {
    if object[member].is_null() || object[member] == "" {
        object[member] = value;
    }
}

/// Returns `true` if a Service of this type can be reached from outside of the cluster.
pub fn is_externally_accessible(kind: &str, has_external_ips: bool) -> bool {
    matches!(kind, "LoadBalancer" | "NodePort") || (kind == "ClusterIP" && has_external_ips)
}

/// Applies [`is_externally_accessible`] to the type and the external IPs of a spec.
pub fn is_external(service: &Value) -> bool {
    is_externally_accessible(text(service, "type"), !list(service, "externalIPs").is_empty())
}

/// Returns `true` if a Service with this spec has a `healthCheckNodePort`.
pub fn needs_health_check_node_port(service: &Value) -> bool {
    text(service, "type") == "LoadBalancer" && text(service, "externalTrafficPolicy") == "Local"
}

/// Returns `true` if a Service with this spec has a `clusterIP`, which is every type except
/// ExternalName. A headless Service counts.
pub fn needs_cluster_ip(service: &Value) -> bool {
    text(service, "type") != "ExternalName"
}

/// Iterates over the allocated node ports of the ports of the Service. Skips ports without one.
pub fn node_ports(service: &Value) -> impl Iterator<Item = i64> {
    let ports = list(service, "ports").iter();
    ports.filter_map(|port| port.get("nodePort").and_then(Value::as_i64)).filter(|port| *port != 0)
}
