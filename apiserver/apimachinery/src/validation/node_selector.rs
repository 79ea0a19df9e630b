//! Selectors over nodes: a pod's or a volume's required node affinity, the topologies of storage.
//!
//! Source: the Kubernetes documentation, "Assigning Pods to Nodes".

use super::{content, labels};
use crate::field::{Errors, Field};

/// Validates a NodeSelector. An object that was stored with invalid values may keep them.
pub fn validate_node_selector(selector: &Field<'_>, allow_invalid_values: bool, errors: &mut Errors) {
    let terms = selector.get("nodeSelectorTerms");
    errors.push_if(terms.is_empty(), || terms.required("must have at least one node selector term"));
    for term in terms.items() {
        validate_term(&term, allow_invalid_values, errors);
    }
}

/// Validates one term: requirements on a node's labels, and on its name.
pub fn validate_term(term: &Field<'_>, allow_invalid_values: bool, errors: &mut Errors) {
    for requirement in term.get("matchExpressions").items() {
        validate_requirement(&requirement, allow_invalid_values, errors);
    }
    for requirement in term.get("matchFields").items() {
        validate_field_requirement(&requirement, errors);
    }
}

fn validate_requirement(requirement: &Field<'_>, allow_invalid_values: bool, errors: &mut Errors) {
    let (operator, values) = (requirement.get("operator"), requirement.get("values"));
    match operator.str() {
        "In" | "NotIn" => errors.push_if(values.is_empty(), || {
            values.required("must be specified when `operator` is 'In' or 'NotIn'")
        }),
        "Exists" | "DoesNotExist" => errors.push_if(!values.is_empty(), || {
            values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        }),
        "Gt" | "Lt" => errors.push_if(values.len() != 1, || {
            values.required("must be specified single value when `operator` is 'Lt' or 'Gt'")
        }),
        _ => errors.push(operator.invalid("not a valid selector operator")),
    }
    labels::validate_label_name(&requirement.get("key"), errors);
    if !allow_invalid_values {
        for value in values.items() {
            errors.invalid_each(&value, content::label_value(value.str()));
        }
    }
}

fn validate_field_requirement(requirement: &Field<'_>, errors: &mut Errors) {
    let (operator, values) = (requirement.get("operator"), requirement.get("values"));
    match operator.str() {
        "In" | "NotIn" => errors.push_if(values.len() != 1, || {
            values
                .required("must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
        }),
        _ => errors.push(operator.invalid("not a valid selector operator")),
    }
    let key = requirement.get("key");
    if key.str() != "metadata.name" {
        errors.push(key.invalid("not a valid field selector key"));
        return;
    }
    for value in values.items() {
        errors.invalid_each(&value, content::dns1123_subdomain(value.str()));
    }
}

/// Returns `true` if a stored selector has values that a new one may not have.
pub fn has_invalid_values(selector: &Field<'_>) -> bool {
    selector.get("nodeSelectorTerms").items().any(|term| labels::has_invalid_values(&term))
}

/// Returns the warning for a deprecated node label; None for other labels.
pub fn deprecated_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => r#"deprecated since v1.14; use "kubernetes.io/arch" instead"#,
        "beta.kubernetes.io/os" => r#"deprecated since v1.14; use "kubernetes.io/os" instead"#,
        "failure-domain.beta.kubernetes.io/region" => {
            r#"deprecated since v1.17; use "topology.kubernetes.io/region" instead"#
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#
        }
        "beta.kubernetes.io/instance-type" => {
            r#"deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => {
            "deprecated since v1.22; use Taints and Tolerations instead"
        }
        "node-role.kubernetes.io/master" => r#"use "node-role.kubernetes.io/control-plane" instead"#,
        _ => return None,
    })
}

/// Returns warnings for deprecated labels in the expressions of a term or of a label selector.
pub fn expression_warnings(term: &Field<'_>) -> Vec<String> {
    let keys = term.get("matchExpressions").items().map(|expression| expression.get("key"));
    keys.filter_map(|key| {
        let message = deprecated_label(key.str())?;
        Some(format!("{}: {} is {message}", key.path(), key.str()))
    })
    .collect()
}
