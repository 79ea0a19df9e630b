//! Endpoints.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::{content, ip, member};
use serde_json::{Value, json};

use super::service::PROTOCOLS;

/// The strategy of Endpoints.
pub struct EndpointsStrategy;

impl Strategy for EndpointsStrategy {
    fn default(&self, endpoints: &mut Value) {
        let subsets = endpoints.get_mut("subsets").and_then(Value::as_array_mut).into_iter().flatten();
        for port in subsets.filter_map(|subset| subset.get_mut("ports")?.as_array_mut()).flatten() {
            if port["protocol"].as_str().unwrap_or("").is_empty() {
                port["protocol"] = json!("TCP");
            }
        }
    }

    fn validate(&self, endpoints: &Field<'_>, errors: &mut Errors) {
        for subset in endpoints.get("subsets").items() {
            validate_subset(&subset, errors);
        }
    }

    /// Validates an update. Older servers accepted more, so unchanged subsets are not validated.
    fn validate_update(&self, endpoints: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        if endpoints.get("subsets").value() != old.get("subsets").value() {
            self.validate(endpoints, errors);
        }
    }

    fn warnings(&self, endpoints: &Field<'_>, _: Option<&Field<'_>>) -> Vec<String> {
        let manager = endpoints.walk("metadata.labels").get("endpoints.kubernetes.io/managed-by");
        if manager.str() == "endpoint-controller" {
            return Vec::new();
        }
        let addresses = endpoints.get("subsets").items().flat_map(|subset| {
            ["addresses", "notReadyAddresses"]
                .map(|list| subset.get(list))
                .into_iter()
                .flat_map(|l| l.items())
        });
        addresses.filter_map(|address| ip::address_warning(&address.get("ip"))).collect()
    }
}

fn validate_subset(subset: &Field<'_>, errors: &mut Errors) {
    let (ready, not_ready, ports) =
        (subset.get("addresses"), subset.get("notReadyAddresses"), subset.get("ports"));
    errors.push_if(ready.is_empty() && not_ready.is_empty(), || {
        subset.required("must specify `addresses` or `notReadyAddresses`")
    });
    for address in ready.items().chain(not_ready.items()) {
        let text = address.get("ip");
        errors.extend(ip::legacy_address(text.str()).map(|e| text.invalid(e)));
        member::if_any(&address.get("hostname"), content::dns1123_label, errors);
        member::if_set(&address.get("nodeName"), content::dns1123_subdomain, errors);
        errors.invalid_each(&text, ip::endpoint_address(text.str()));
    }
    for port in ports.items() {
        let name = port.get("name");
        errors.push_if(ports.len() > 1 && name.is_empty(), || name.required(""));
        member::if_any(&name, content::dns1123_label, errors);
        member::port_number(&port.get("port"), errors);
        member::required_one_of(&port.get("protocol"), &PROTOCOLS, errors);
        member::if_set(&port.get("appProtocol"), content::qualified_name, errors);
    }
}
