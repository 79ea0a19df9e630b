//! NetworkPolicy.

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::ip::{self, Cidr};
use coracle_apimachinery::validation::labels::{SelectorOptions, validate_label_selector};
use coracle_apimachinery::validation::{content, member};
use serde_json::{Value, json};

const TYPES: [&str; 2] = ["Ingress", "Egress"];
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
/// A direction, and the list of its peers.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

/// The strategy of NetworkPolicy.
pub struct NetworkPolicyStrategy;

/// The invalid values that an existing policy may keep.
#[derive(Default)]
struct Grandfathered<'a> {
    selector: SelectorOptions,
    blocks: HashSet<&'a str>,
}

impl Strategy for NetworkPolicyStrategy {
    fn default(&self, policy: &mut Value) {
        let spec = &mut policy["spec"];
        for (direction, _) in DIRECTIONS {
            let rules = spec.get_mut(direction).and_then(Value::as_array_mut).into_iter().flatten();
            for port in rules.filter_map(|rule| rule.get_mut("ports")?.as_array_mut()).flatten() {
                if port["protocol"].is_null() {
                    port["protocol"] = json!("TCP");
                }
            }
        }
        let empty = |member: &Value| member.as_array().is_none_or(Vec::is_empty);
        if empty(&spec["policyTypes"]) {
            let types = if empty(&spec["egress"]) { &TYPES[..1] } else { &TYPES[..] };
            spec["policyTypes"] = json!(types);
        }
    }

    fn validate(&self, policy: &Field<'_>, errors: &mut Errors) {
        validate(policy, &Grandfathered::default(), errors);
    }

    fn validate_update(&self, policy: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let mut found = Errors::new();
        validate_label_selector(&old.walk("spec.podSelector"), SelectorOptions::default(), &mut found);
        let selector =
            SelectorOptions { allow_invalid_values: !found.is_empty(), ..SelectorOptions::default() };
        let blocks = ip_blocks(old).flat_map(|block| texts(&block)).map(|text| text.str()).collect();
        validate(policy, &Grandfathered { selector, blocks }, errors);
    }

    fn warnings(&self, policy: &Field<'_>, _: Option<&Field<'_>>) -> Vec<String> {
        ip_blocks(policy).flat_map(|block| texts(&block)).flat_map(|text| ip::cidr_warnings(&text)).collect()
    }
}

fn ip_blocks<'a>(policy: &Field<'a>) -> impl Iterator<Item = Field<'a>> + use<'a> {
    let spec = policy.get("spec");
    DIRECTIONS.into_iter().flat_map(move |(direction, peers)| {
        let peers = spec.get(direction).items().flat_map(move |rule| rule.get(peers).items());
        peers.map(|peer| peer.get("ipBlock")).filter(Field::exists)
    })
}

/// Iterates over the block and the excepted blocks.
fn texts<'a>(block: &Field<'a>) -> impl Iterator<Item = Field<'a>> + use<'a> {
    std::iter::once(block.get("cidr")).chain(block.get("except").items())
}

fn validate(policy: &Field<'_>, grandfathered: &Grandfathered<'_>, errors: &mut Errors) {
    let spec = policy.get("spec");
    validate_label_selector(&spec.get("podSelector"), grandfathered.selector, errors);
    for (direction, peers) in DIRECTIONS {
        for rule in spec.get(direction).items() {
            for port in rule.get("ports").items() {
                validate_port(&port, errors);
            }
            for peer in rule.get(peers).items() {
                validate_peer(&peer, grandfathered, errors);
            }
        }
    }
    let types = spec.get("policyTypes");
    if types.len() > TYPES.len() {
        errors.push(types.invalid("may not specify more than two policyTypes"));
        return;
    }
    for kind in types.items() {
        member::one_of(&kind, &TYPES, errors);
    }
}

fn validate_port(port: &Field<'_>, errors: &mut Errors) {
    let (number, end) = (port.get("port"), port.get("endPort"));
    member::one_of(&port.get("protocol"), &PROTOCOLS, errors);
    match number.value() {
        None => {
            errors.push_if(end.exists(), || end.invalid("may not be specified when `port` is not specified"))
        }
        Some(Value::String(name)) => {
            errors.push_if(end.exists(), || end.invalid("may not be specified when `port` is non-numeric"));
            errors.invalid_each(&number, content::port_name(name));
        }
        Some(_) => {
            let first = number.int().unwrap_or(0);
            errors.invalid_each(&number, content::port_number(first));
            if let Some(last) = end.int() {
                errors.push_if(last < first, || {
                    end.invalid_value(first, "must be greater than or equal to `port`")
                });
                errors.invalid_each(&end, content::port_number(last));
            }
        }
    }
}

fn validate_peer(peer: &Field<'_>, grandfathered: &Grandfathered<'_>, errors: &mut Errors) {
    let (pods, namespaces, block) =
        (peer.get("podSelector"), peer.get("namespaceSelector"), peer.get("ipBlock"));
    validate_label_selector(&pods, grandfathered.selector, errors);
    validate_label_selector(&namespaces, grandfathered.selector, errors);
    if block.exists() {
        validate_block(&block, grandfathered, errors);
    }
    let selects = pods.exists() || namespaces.exists();
    errors.push_if(!selects && !block.exists(), || peer.required("must specify a peer"));
    errors.push_if(selects && block.exists(), || {
        peer.forbidden("may not specify both ipBlock and another peer")
    });
}

fn validate_block(block: &Field<'_>, grandfathered: &Grandfathered<'_>, errors: &mut Errors) {
    let whole = block.get("cidr");
    if whole.is_empty() {
        errors.push(whole.required(""));
        return;
    }
    let check = |text: &Field<'_>, errors: &mut Errors| {
        if !grandfathered.blocks.contains(text.str()) {
            errors.extend(ip::legacy_cidr(text.str()).map(|e| text.invalid(e)));
        }
    };
    check(&whole, errors);
    let Some(network) = Cidr::parse(whole.str()).map(|cidr| cidr.network()) else { return };
    for except in block.get("except").items() {
        check(&except, errors);
        let Some(part) = Cidr::parse(except.str()).map(|cidr| cidr.network()) else { continue };
        let inside = network.contains(part.address) && network.prefix < part.prefix;
        errors.push_if(!inside, || except.invalid("must be a strict subset of `cidr`"));
    }
}
