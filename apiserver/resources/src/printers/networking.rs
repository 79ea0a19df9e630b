//! Services, endpoints, ingresses, network policies and addresses.

use std::collections::BTreeSet;

use coracle_apimachinery::field::Field;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::render::columns::Text::{Field as Described, Literal};
use coracle_apimachinery::render::columns::{AGE, Column, NAME, NAME_TEXT, Row, string};
use serde_json::Value;

use super::first_few;
use super::template::{labels, selector};

/// The number of endpoints, ports or hosts that are shown.
const SHOWN: usize = 3;

/// The columns of Service.
pub const SERVICE: &[Column] = &[
    NAME,
    string("Type", Described("core.v1.ServiceSpec.type"), |row| row.text("spec.type")),
    string("Cluster-IP", Described("core.v1.ServiceSpec.clusterIP"), |row| {
        row.get("spec.clusterIPs").items().next().map_or("<none>", |ip| ip.str()).into()
    }),
    string("External-IP", Described("core.v1.ServiceSpec.externalIPs"), external_ip),
    string("Port(s)", Described("core.v1.ServiceSpec.ports"), service_ports),
    AGE,
    string("Selector", Described("core.v1.ServiceSpec.selector"), |row| {
        labels(&row.get("spec.selector")).into()
    })
    .wide(),
];

/// The columns of Endpoints.
pub const ENDPOINTS: &[Column] =
    &[NAME, string("Endpoints", Described("core.v1.Endpoints.subsets"), endpoints), AGE];

/// The columns of EndpointSlice.
pub const ENDPOINT_SLICE: &[Column] = &[
    NAME,
    string("AddressType", Described("discovery.v1.EndpointSlice.addressType"), |row| row.text("addressType")),
    string("Ports", Described("discovery.v1.EndpointSlice.ports"), |row| {
        let port = |port: Field<'_>| match port.get("port").int() {
            Some(number) => number.to_string(),
            None if port.get("name").exists() => port.get("name").str().to_owned(),
            None => "*".into(),
        };
        some(row.get("ports").items().map(port).collect())
    }),
    string("Endpoints", Described("discovery.v1.EndpointSlice.endpoints"), |row| {
        let endpoints = row.get("endpoints").items();
        some(endpoints.flat_map(|e| e.get("addresses").items()).map(|a| a.str().to_owned()).collect())
    }),
    AGE,
];

/// The columns of Ingress.
pub const INGRESS: &[Column] = &[
    NAME,
    string(
        "Class",
        Literal("The name of the IngressClass resource that should be used for additional configuration"),
        |row| row.set_or("spec.ingressClassName", "<none>"),
    ),
    string(
        "Hosts",
        Literal("Hosts that incoming requests are matched against before the ingress rule"),
        hosts,
    ),
    string("Address", Literal("Address is a list containing ingress points for the load-balancer"), |row| {
        load_balancer(row).join(",").into()
    }),
    string("Ports", Literal("Ports of TLS configurations that open"), |row| {
        if row.get("spec.tls").is_empty() { "80".into() } else { "80, 443".into() }
    }),
    AGE,
];

/// The columns of IngressClass.
pub const INGRESS_CLASS: &[Column] = &[
    string("Name", NAME_TEXT, |row| default_marked(row, &["ingressclass.kubernetes.io/is-default-class"]))
        .naming(),
    string("Controller", Literal("Controller that is responsible for handling this class"), |row| {
        row.text("spec.controller")
    }),
    string("Parameters", Literal("A reference to a resource with additional parameters"), |row| {
        let parameters = row.get("spec.parameters");
        if !parameters.exists() {
            return "<none>".into();
        }
        let (kind, group) = (parameters.get("kind").str(), parameters.get("apiGroup"));
        let group = if group.exists() { format!(".{}", group.str()) } else { String::new() };
        format!("{kind}{group}/{}", parameters.get("name").str()).into()
    }),
    AGE,
];

/// The columns of NetworkPolicy.
pub const NETWORK_POLICY: &[Column] = &[
    NAME,
    string("Pod-Selector", Described("networking.v1.NetworkPolicySpec.podSelector"), |row| {
        selector(&row.get("spec.podSelector")).into()
    }),
    AGE,
];

/// The columns of ServiceCIDR.
pub const SERVICE_CIDR: &[Column] = &[
    NAME,
    string("CIDRs", Described("networking.v1.ServiceCIDRSpec.cidrs"), |row| {
        strings(&row.get("spec.cidrs")).join(",").into()
    }),
    AGE,
];

/// The columns of IPAddress.
pub const IP_ADDRESS: &[Column] = &[
    NAME,
    string("ParentRef", Described("networking.v1.IPAddressSpec.parentRef"), |row| {
        let parent = row.get("spec.parentRef");
        if !parent.exists() {
            return "<none>".into();
        }
        let resource = GroupResource::new(parent.get("group").str(), parent.get("resource").str());
        let mut path = vec![resource.to_string().to_lowercase()];
        path.extend(Some(parent.get("namespace").str().to_owned()).filter(|namespace| !namespace.is_empty()));
        path.push(parent.get("name").str().to_owned());
        path.join("/").into()
    }),
    AGE.without_header(),
];

/// Returns the name, marked if one of the annotations makes the class the default.
pub fn default_marked(row: &Row<'_>, annotations: &[&str]) -> Value {
    let name = row.get("metadata.name").str();
    let all = row.get("metadata.annotations");
    let is_default = annotations.iter().any(|annotation| all.get(annotation).str() == "true");
    if is_default { format!("{name} (default)").into() } else { name.into() }
}

fn external_ip(row: &Row<'_>) -> Value {
    let mut external = strings(&row.get("spec.externalIPs"));
    let none = match row.get("spec.type").str() {
        "ClusterIP" | "NodePort" => "<none>",
        "LoadBalancer" => {
            external.splice(0..0, load_balancer(row));
            "<pending>"
        }
        "ExternalName" => return row.text("spec.externalName"),
        _ => return "<unknown>".into(),
    };
    if external.is_empty() { none.into() } else { external.join(",").into() }
}

/// Returns the addresses of the load balancer, sorted.
fn load_balancer(row: &Row<'_>) -> Vec<String> {
    let ingress = row.get("status.loadBalancer.ingress").items();
    let address = |point: Field<'_>| {
        let of = |member| Some(point.get(member).str().to_owned()).filter(|address| !address.is_empty());
        of("ip").or_else(|| of("hostname"))
    };
    ingress.filter_map(address).collect::<BTreeSet<_>>().into_iter().collect()
}

fn service_ports(row: &Row<'_>) -> Value {
    let ports = row.get("spec.ports");
    if ports.is_empty() {
        return "<none>".into();
    }
    let port = |port: Field<'_>| {
        let number = port.get("port").int().unwrap_or(0);
        let protocol = port.get("protocol").str();
        match port.get("nodePort").int() {
            Some(node_port) if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    };
    ports.items().map(port).collect::<Vec<_>>().join(",").into()
}

/// Lists every ready address with every port.
fn endpoints(row: &Row<'_>) -> Value {
    let subsets = row.get("subsets");
    if subsets.is_empty() {
        return "<none>".into();
    }
    let mut all = Vec::new();
    for subset in subsets.items() {
        let addresses: Vec<&str> =
            subset.get("addresses").items().map(|address| address.get("ip").str()).collect();
        if subset.get("ports").is_empty() {
            all.extend(addresses.iter().map(|ip| (*ip).to_owned()));
        }
        for port in subset.get("ports").items() {
            let port = port.get("port").int().unwrap_or(0);
            all.extend(addresses.iter().map(|ip| host_port(ip, port)));
        }
    }
    first_few(&all, SHOWN).into()
}

fn host_port(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

fn hosts(row: &Row<'_>) -> Value {
    let rules = row.get("spec.rules");
    let mut hosts = Vec::new();
    let mut more = false;
    for rule in rules.items() {
        more |= hosts.len() == SHOWN;
        let host = rule.get("host").str();
        if !more && !host.is_empty() {
            hosts.push(host);
        }
    }
    if hosts.is_empty() {
        "*".into()
    } else if more {
        format!("{} + {} more...", hosts.join(","), rules.len() - SHOWN).into()
    } else {
        hosts.join(",").into()
    }
}

fn some(all: Vec<String>) -> Value {
    Some(first_few(&all, SHOWN)).filter(|shown| !shown.is_empty()).unwrap_or_else(|| "<unset>".into()).into()
}

fn strings(list: &Field<'_>) -> Vec<String> {
    list.items().map(|item| item.str().to_owned()).collect()
}
