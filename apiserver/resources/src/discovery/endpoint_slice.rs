//! EndpointSlice.

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::{Context, Strategy, desired_state};
use coracle_apimachinery::validation::immutable::immutable_text;
use coracle_apimachinery::validation::{content, ip, member};
use serde_json::{Value, json};

use crate::core::service::PROTOCOLS;

const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const HOST_LABEL: &str = "kubernetes.io/hostname";
const MAX_PORTS: usize = 20000;
const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_HINTS: usize = 8;
const MANAGERS: [&str; 2] = ["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];

/// The strategy of EndpointSlice.
pub struct EndpointSliceStrategy;

impl Strategy for EndpointSliceStrategy {
    fn default(&self, slice: &mut Value) {
        for port in slice.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            for (member, value) in [("name", ""), ("protocol", "TCP")] {
                if port[member].is_null() {
                    port[member] = json!(value);
                }
            }
        }
    }

    fn prepare_for_create(&self, slice: &mut Value, _: &Context<'_>) {
        drop_topology(slice, None);
    }

    fn prepare_for_update(&self, slice: &mut Value, old: &Value, _: &Context<'_>) {
        if slice.get("endpoints") != old.get("endpoints") {
            drop_topology(slice, Some(old));
        }
    }

    /// Compares the desired state, including labels.
    fn is_new_generation(&self, slice: &Value, old: &Value) -> bool {
        let labels = |slice: &Value| slice.pointer("/metadata/labels").cloned();
        desired_state(slice).ne(desired_state(old)) || labels(slice) != labels(old)
    }

    fn validate(&self, slice: &Field<'_>, errors: &mut Errors) {
        validate_head(slice, errors);
        validate_endpoints(slice, errors);
    }

    /// Validates an update. Older servers accepted more, so unchanged endpoints are not validated.
    fn validate_update(&self, slice: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate_head(slice, errors);
        if slice.get("endpoints").value() != old.get("endpoints").value() {
            validate_endpoints(slice, errors);
        }
        immutable_text(&slice.get("addressType"), &old.get("addressType"), errors);
    }

    fn warnings(&self, slice: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
        let mut warnings = Vec::new();
        if old.is_none() && slice.get("addressType").str() == "FQDN" {
            warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        let manager = slice.walk("metadata.labels").get("endpointslice.kubernetes.io/managed-by");
        if !MANAGERS.contains(&manager.str()) {
            let addresses = slice.get("endpoints").items().flat_map(|e| e.get("addresses").items());
            warnings.extend(addresses.filter_map(|address| ip::address_warning(&address)));
        }
        warnings
    }
}

/// Drops the topology of v1beta1, except for the node of an endpoint.
fn drop_topology(slice: &mut Value, old: Option<&Value>) {
    let host = |endpoint: &Value| {
        endpoint.get("deprecatedTopology").and_then(|topology| topology.get(HOST_LABEL)).cloned()
    };
    let endpoints = old.and_then(|old| old.get("endpoints")).and_then(Value::as_array);
    let known: HashSet<Value> = endpoints.into_iter().flatten().filter_map(host).collect();
    for endpoint in slice.get_mut("endpoints").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(node) = host(endpoint).filter(|node| known.contains(node))
            && endpoint["nodeName"].is_null()
            && content::dns1123_subdomain(node.as_str().unwrap_or("")).is_empty()
        {
            endpoint["nodeName"] = node;
        }
        endpoint.as_object_mut().map(|members| members.remove("deprecatedTopology"));
    }
}

fn validate_head(slice: &Field<'_>, errors: &mut Errors) {
    member::required_one_of(&slice.get("addressType"), &ADDRESS_TYPES, errors);
    let ports = slice.get("ports");
    if ports.len() > MAX_PORTS {
        errors.push(ports.too_many(ports.len(), MAX_PORTS));
        return;
    }
    let mut names = HashSet::new();
    for port in ports.items() {
        let (name, protocol) = (port.get("name"), port.get("protocol"));
        member::if_any(&name, content::dns1123_label, errors);
        errors.push_if(!names.insert(name.str()), || name.duplicate());
        errors.push_if(!protocol.exists(), || protocol.required(""));
        member::one_of(&protocol, &PROTOCOLS, errors);
        member::if_set(&port.get("appProtocol"), content::qualified_name, errors);
    }
}

fn validate_endpoints(slice: &Field<'_>, errors: &mut Errors) {
    let (kind, endpoints) = (slice.get("addressType").str(), slice.get("endpoints"));
    if endpoints.len() > MAX_ENDPOINTS {
        errors.push(endpoints.too_many(endpoints.len(), MAX_ENDPOINTS));
        return;
    }
    for endpoint in endpoints.items() {
        let addresses = endpoint.get("addresses");
        errors.push_if(addresses.is_empty(), || addresses.required("must contain at least 1 address"));
        errors
            .push_if(addresses.len() > MAX_ADDRESSES, || addresses.too_many(addresses.len(), MAX_ADDRESSES));
        for address in addresses.items() {
            validate_address(&address, &addresses, kind, errors);
        }
        member::if_set(&endpoint.get("nodeName"), content::dns1123_subdomain, errors);
        member::if_set(&endpoint.get("hostname"), content::dns1123_label, errors);
        let hints = endpoint.get("hints");
        if validate_hints(&hints.get("forZones"), content::label_value, errors) {
            validate_hints(&hints.get("forNodes"), content::dns1123_subdomain, errors);
        }
    }
}

fn validate_address(address: &Field<'_>, addresses: &Field<'_>, kind: &str, errors: &mut Errors) {
    let text = address.str();
    let error = match kind {
        "IPv4" => ip::legacy_address(text).map(str::to_owned),
        "IPv6" => ip::address(text),
        "FQDN" => return member::fully_qualified_domain_name(address, errors),
        _ => return,
    };
    if let Some(error) = error {
        errors.push(address.invalid(error));
        return;
    }
    let fits = ip::parse(text).is_some_and(|parsed| parsed.is_ipv4() == (kind == "IPv4"));
    errors.push_if(!fits, || addresses.invalid_value(text, format!("must be an {kind} address")));
    errors.invalid_each(address, ip::endpoint_address(text));
}

/// Validates the names of hints. Returns `false` if there are too many hints, which are then not
/// validated.
fn validate_hints(hints: &Field<'_>, rule: member::StringRule, errors: &mut Errors) -> bool {
    if hints.len() > MAX_HINTS {
        errors.push(hints.too_many(hints.len(), MAX_HINTS));
        return false;
    }
    let mut names = HashSet::new();
    for name in hints.items().map(|hint| hint.get("name")) {
        errors.push_if(!names.insert(name.str()), || name.duplicate());
        errors.invalid_each(&name, rule(name.str()));
    }
    true
}
