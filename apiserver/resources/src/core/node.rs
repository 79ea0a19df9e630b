//! Node.
//!
//! Errors in taints and swap are reported under `metadata`, as in kube-apiserver.

use std::collections::BTreeSet;

use coracle_apimachinery::field::{Errors, Field, FieldError, quote};
use coracle_apimachinery::selector::FieldSource::AtOr;
use coracle_apimachinery::selector::SelectableFields;
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::ip::{self, Cidr};
use coracle_apimachinery::validation::{content, printed, resource_list};
use serde_json::{Value, json};

use crate::pod_spec::annotations::json_in;
use crate::pod_spec::scheduling;

/// The fields that a field selector may name.
pub const SELECTABLE_FIELDS: SelectableFields =
    SelectableFields::of(&[("spec.unschedulable", AtOr("/spec/unschedulable", "false"))]).cluster_scoped();

const TAINTS: &str = "scheduler.alpha.kubernetes.io/taints";
const AVOIDED_PODS: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";

/// The strategy of Node.
pub struct NodeStrategy;

impl Strategy for NodeStrategy {
    fn default(&self, node: &mut Value) {
        default_pod_cidrs(node);
        let Some(status) = node.get_mut("status").and_then(Value::as_object_mut) else { return };
        if let Some(capacity) = status.get("capacity").cloned() {
            status.entry("allocatable").or_insert(capacity);
        }
        for list in ["capacity", "allocatable"] {
            resource_list::round_up(status.get_mut(list));
        }
    }

    fn prepare_for_create(&self, node: &mut Value, _: &Context<'_>) {
        remove(node, "/spec", "configSource");
        remove(node, "/status", "config");
    }

    fn prepare_for_update(&self, node: &mut Value, old: &Value, _: &Context<'_>) {
        if old.pointer("/spec/configSource").is_none() {
            remove(node, "/spec", "configSource");
        }
    }

    fn prepare_for_status_update(&self, node: &mut Value, old: &Value, _: &Context<'_>) {
        if old.pointer("/status/config").is_none() {
            remove(node, "/status", "config");
        }
    }

    fn validate(&self, node: &Field<'_>, errors: &mut Errors) {
        validate_annotations(node, errors);
        validate_taints(node, errors);
        validate_resources(&node.get("status"), errors);
        validate_swap(node, errors);
        validate_features(&node.walk("status.declaredFeatures"), errors);
        validate_pod_cidrs(&node.walk("spec.podCIDRs"), errors);
    }

    fn validate_update(&self, node: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        self.validate(node, errors);
        validate_change(node, old, errors);
    }

    fn validate_status_update(&self, node: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate_change(node, old, errors);
    }

    fn warnings(&self, node: &Field<'_>, _: Option<&Field<'_>>) -> Vec<String> {
        let spec = node.get("spec");
        let mut warnings = Vec::new();
        if spec.get("configSource").exists() {
            warnings.push("spec.configSource: the feature is removed".to_owned());
        }
        if !spec.get("externalID").is_empty() {
            warnings
                .push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        warnings.extend(spec.get("podCIDRs").items().flat_map(|cidr| ip::cidr_warnings(&cidr)));
        warnings
    }
}

fn remove(node: &mut Value, owner: &str, member: &str) {
    if let Some(owner) = node.pointer_mut(owner).and_then(Value::as_object_mut) {
        owner.remove(member);
    }
}

/// Makes `podCIDR` and the first of `podCIDRs` equal; if they differ, `podCIDR` wins.
fn default_pod_cidrs(node: &mut Value) {
    let Some(spec) = node.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let first = spec.get("podCIDRs").and_then(|cidrs| cidrs.get(0)).cloned();
    match (spec.get("podCIDR").cloned(), first) {
        (Some(cidr), first) if first.as_ref() != Some(&cidr) => {
            spec.insert("podCIDRs".into(), json!([cidr]));
        }
        (None, Some(first)) => {
            spec.insert("podCIDR".into(), first);
        }
        _ => {}
    }
}

/// Validates the annotations that contain JSON: the taints, which preceded the field, and the pods
/// that a node should not get.
fn validate_annotations(node: &Field<'_>, errors: &mut Errors) {
    let annotations = node.walk("metadata.annotations");
    match json_in(&annotations, TAINTS, "[]v1.Taint", Value::is_array) {
        Some(Ok(taints)) => {
            let path = annotations.path().child(TAINTS);
            scheduling::validate_taints(&Field::at(Some(&taints), path), errors);
        }
        Some(Err(error)) => errors.push(annotations.invalid_value(TAINTS, error)),
        None => {}
    }
    match json_in(&annotations, AVOIDED_PODS, "v1.AvoidPods", Value::is_object) {
        Some(Ok(avoided)) => {
            let path = annotations.path().child(AVOIDED_PODS);
            validate_avoided_pods(&Field::at(avoided.get("preferAvoidPods"), path), errors);
        }
        Some(Err(error)) => {
            let annotation = annotations.with_path(annotations.path().child("AvoidPods"));
            errors.push(annotation.invalid_value(AVOIDED_PODS, error));
        }
        None => {}
    }
}

fn validate_avoided_pods(entries: &Field<'_>, errors: &mut Errors) {
    for entry in entries.items() {
        let controller = entry.walk("podSignature.podController");
        let path = entry.path().child("PodSignature");
        if !controller.exists() {
            errors.push(controller.with_path(path).required(""));
            continue;
        }
        let is_controller = controller.get("controller");
        errors.push_if(!is_controller.bool(), || {
            let path = path.child("PodController").child("Controller");
            is_controller.with_path(path).invalid_value(false, "must point to a controller")
        });
    }
}

fn validate_taints(node: &Field<'_>, errors: &mut Errors) {
    let path = node.get("metadata").path().child("taints");
    scheduling::validate_taints(&node.walk("spec.taints").with_path(path), errors);
}

fn validate_resources(status: &Field<'_>, errors: &mut Errors) {
    for list in ["capacity", "allocatable"] {
        for (name, amount) in status.get(list).entries() {
            let path = status.path().child(list).child(name);
            resource_list::validate_amount(name, &amount.with_path(path), errors);
        }
    }
}

fn validate_swap(node: &Field<'_>, errors: &mut Errors) {
    let capacity = node.walk("status.nodeInfo.swap.capacity");
    let path = node.get("metadata").path().child("nodeSwapStatus").child("capacity");
    errors.push_if(capacity.int().is_some_and(|bytes| bytes <= 0), || {
        capacity.with_path(path).invalid("must be greater than zero")
    });
}

fn validate_features(features: &Field<'_>, errors: &mut Errors) {
    const MAX: usize = 253;
    let mut rest = features.items().skip(1);
    for feature in features.items() {
        let name = feature.str();
        let error = if name.len() > MAX {
            Some(format!("must be no more than {MAX} characters"))
        } else {
            (!is_feature_name(name)).then(|| {
                "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes".to_owned()
            })
        };
        errors.extend(
            error.map(|error| feature.invalid(format!("invalid feature name {}: {error}", quote(name)))),
        );
        let Some(next) = rest.next() else { continue };
        if name == next.str() {
            errors.push(next.duplicate());
        } else {
            errors.push_if(name > next.str(), || next.invalid("list must be sorted alphabetically"));
        }
    }
}

fn is_feature_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.split('/').all(|segment| {
            segment.starts_with(|c: char| c.is_ascii_alphabetic())
                && segment.bytes().all(|b| b.is_ascii_alphanumeric())
        })
}

/// Validates that there is one block, or one of each IP family.
fn validate_pod_cidrs(cidrs: &Field<'_>, errors: &mut Errors) {
    for cidr in cidrs.items() {
        errors.extend(ip::legacy_cidr(cidr.str()).map(|error| cidr.invalid(error)));
    }
    if cidrs.len() < 2 {
        return;
    }
    let wrong = cidrs.items().enumerate().find(|(_, cidr)| Cidr::parse(cidr.str()).is_none());
    errors.extend(wrong.map(|(i, cidr)| {
        let text = cidr.str();
        cidrs.internal(format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{i}]: <nil> (invalid CIDR address: {text})"
        ))
    }));
    let parsed: Vec<_> = cidrs.items().filter_map(|cidr| Cidr::parse(cidr.str())).collect();
    let dual =
        parsed.iter().any(|cidr| cidr.address.is_ipv4()) && parsed.iter().any(|cidr| cidr.address.is_ipv6());
    errors.push_if(!dual || cidrs.len() > 2, || {
        cidrs.invalid("may specify no more than one CIDR for each IP family")
    });
}

fn validate_change(node: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    validate_annotations(node, errors);
    validate_resources(&node.get("status"), errors);
    validate_features(&node.walk("status.declaredFeatures"), errors);
    let mut seen = BTreeSet::new();
    for address in node.walk("status.addresses").items() {
        if !seen.insert((address.get("type").str(), address.get("address").str())) {
            errors.push(printed_address(&address));
        }
    }
    let (spec, old_spec) = (node.get("spec"), old.get("spec"));
    validate_pod_cidrs_kept(&spec.get("podCIDRs"), &old_spec.get("podCIDRs"), errors);
    let (provider, old_provider) = (spec.get("providerID"), old_spec.get("providerID"));
    errors.push_if(!old_provider.is_empty() && provider.str() != old_provider.str(), || {
        provider.forbidden("node updates may not change providerID except from \"\" to valid")
    });
    let (config, status) = (spec.get("configSource"), node.walk("status.config"));
    if config.exists() {
        validate_config_source(&config, true, errors);
    }
    for source in ["assigned", "active", "lastKnownGood"].map(|member| status.get(member)) {
        if source.exists() {
            validate_config_source(&source, false, errors);
        }
    }
    validate_taints(node, errors);
    let id = spec.get("externalID");
    errors.push_if(id.str() != old_spec.get("externalID").str(), || id.forbidden("may not be updated"));
}

fn printed_address(address: &Field<'_>) -> FieldError {
    let shown = ["type", "address"].map(|member| Value::from(address.get(member).str()).to_string());
    address.duplicate().with_bad_value_text(format!(r#"{{"Type":{},"Address":{}}}"#, shown[0], shown[1]))
}

fn validate_pod_cidrs_kept(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let detail = "node updates may not change podCIDR except from \"\" to valid";
    if old.is_empty() {
        return;
    }
    if new.len() != old.len() {
        errors.push(new.forbidden(detail));
        return;
    }
    let changed = new.items().zip(old.items()).filter(|(new, old)| new.str() != old.str()).count();
    errors.extend(std::iter::repeat_n(new.forbidden(detail), changed));
}

/// Validates the former dynamic kubelet configuration. New nodes cannot have it; existing ones may
/// keep it.
fn validate_config_source(source: &Field<'_>, in_spec: bool, errors: &mut Errors) {
    let map = source.get("configMap");
    if !map.exists() {
        let detail = "exactly one reference subfield must be non-nil";
        errors.push(printed::invalid(source, "core.NodeConfigSource", detail));
        return;
    }
    for name in ["uid", "resourceVersion"] {
        let member = map.get(name);
        if in_spec {
            errors
                .push_if(!member.is_empty(), || member.forbidden(format!("{name} must not be set in spec")));
        } else {
            errors.push_if(member.is_empty(), || member.required(""));
        }
    }
    for (member, rule) in [
        ("namespace", content::dns1123_label as fn(&str) -> Vec<String>),
        ("name", content::dns1123_subdomain),
        ("kubeletConfigKey", content::config_map_key),
    ] {
        let member = map.get(member);
        if member.is_empty() {
            errors.push(member.required(""));
        } else {
            errors.invalid_each(&member, rule(member.str()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(errors: &Errors) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn new_nodes_are_validated() {
        for (case, node, want) in [
            ("plain", json!({}), vec![]),
            (
                "two taints alike",
                json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule", "value": "x"}]}}),
                vec![
                    r#"metadata.taints[1]: Duplicate value: {"Key":"a","Value":"x","Effect":"NoSchedule","TimeAdded":null}: taints must be unique by key and effect pair"#,
                ],
            ),
            (
                "pods to avoid",
                json!({"metadata": {"annotations": {"scheduler.alpha.kubernetes.io/preferAvoidPods": r#"{"preferAvoidPods": [{"podSignature": {"podController": {"kind": "A", "controller": true}}}, {"podSignature": {"podController": {"kind": "A"}}}, {}]}"#}}}),
                vec![
                    "metadata.annotations.scheduler.alpha.kubernetes.io/preferAvoidPods[1].PodSignature.PodController.Controller: Invalid value: false: must point to a controller",
                    "metadata.annotations.scheduler.alpha.kubernetes.io/preferAvoidPods[2].PodSignature: Required value",
                ],
            ),
            (
                "annotations that are no JSON",
                json!({"metadata": {"annotations": {"scheduler.alpha.kubernetes.io/preferAvoidPods": "x", "scheduler.alpha.kubernetes.io/taints": "["}}}),
                vec![
                    r#"metadata.annotations: Invalid value: "scheduler.alpha.kubernetes.io/taints": unexpected end of JSON input"#,
                    r#"metadata.annotations.AvoidPods: Invalid value: "scheduler.alpha.kubernetes.io/preferAvoidPods": invalid character 'x' looking for beginning of value"#,
                ],
            ),
            (
                "an unknown effect",
                json!({"spec": {"taints": [{"key": "a", "effect": "Never"}]}}),
                vec![
                    r#"metadata.taints[0].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#,
                ],
            ),
            (
                "less than nothing",
                json!({"status": {"capacity": {"cpu": "-1"}}}),
                vec![r#"status.capacity.cpu: Invalid value: "-1": must be greater than or equal to 0"#],
            ),
            (
                "two blocks of one family",
                json!({"spec": {"podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"]}}),
                vec![
                    r#"spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: may specify no more than one CIDR for each IP family"#,
                ],
            ),
        ] {
            let mut errors = Errors::new();
            NodeStrategy.validate(&Field::root(&node), &mut errors);
            assert_eq!(texts(&errors), want, "{case}");
        }
    }

    #[test]
    fn only_some_fields_of_a_node_may_change() {
        let old =
            json!({"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "providerID": "a://b"}});
        for (case, new, want) in [
            ("nothing changed", old.clone(), vec![]),
            (
                "all gone",
                json!({"spec": {}}),
                vec![
                    r#"spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid"#,
                    r#"spec.providerID: Forbidden: node updates may not change providerID except from "" to valid"#,
                ],
            ),
            (
                "an address twice",
                json!({"spec": old["spec"], "status": {"addresses": [{"type": "A", "address": "1"}, {"type": "A", "address": "1"}]}}),
                vec![r#"status.addresses[1]: Duplicate value: {"Type":"A","Address":"1"}"#],
            ),
        ] {
            let mut errors = Errors::new();
            NodeStrategy.validate_status_update(&Field::root(&new), &Field::root(&old), &mut errors);
            assert_eq!(texts(&errors), want, "{case}");
        }
    }

    #[test]
    fn nodes_are_defaulted() {
        let mut node =
            json!({"spec": {"podCIDRs": ["10.0.0.0/24"]}, "status": {"capacity": {"cpu": "100u"}}});
        NodeStrategy.default(&mut node);
        assert_eq!(
            node,
            json!({"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]},
                "status": {"capacity": {"cpu": "1m"}, "allocatable": {"cpu": "1m"}}})
        );
    }
}
