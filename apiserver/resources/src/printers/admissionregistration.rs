//! Webhook configurations and admission policies.

use coracle_apimachinery::field::Field;
use coracle_apimachinery::render::columns::Text::Literal;
use coracle_apimachinery::render::columns::{AGE, Column, NAME, Row, integer, string};
use serde_json::Value;

/// The columns of MutatingWebhookConfiguration and ValidatingWebhookConfiguration.
pub const WEBHOOKS: &[Column] = &[
    NAME,
    integer(
        "Webhooks",
        Literal("Webhooks indicates the number of webhooks registered in this configuration"),
        |row| row.count("webhooks"),
    ),
    AGE,
];

/// The columns of ValidatingAdmissionPolicy.
pub const VALIDATING_POLICY: &[Column] = &[
    NAME,
    integer(
        "Validations",
        Literal("Validations indicates the number of validation rules defined in this configuration"),
        |row| row.count("spec.validations"),
    ),
    PARAM_KIND,
    AGE,
];

/// The columns of MutatingAdmissionPolicy.
pub const MUTATING_POLICY: &[Column] = &[
    NAME,
    integer(
        "Mutations",
        Literal("Mutation indicates the number of mutations rules defined in this configuration"),
        |row| row.count("spec.mutations"),
    ),
    PARAM_KIND,
    AGE,
];

/// The columns of MutatingAdmissionPolicyBinding.
pub const POLICY_BINDING: &[Column] = &[
    NAME,
    string(
        "PolicyName",
        Literal("PolicyName indicates the policy definition which the policy binding binded to"),
        |row| row.text("spec.policyName"),
    ),
    string(
        "ParamRef",
        Literal("ParamRef indicates the param resource which sets the configuration param"),
        param_ref,
    ),
    AGE,
];

const PARAM_KIND: Column = string(
    "ParamKind",
    Literal("ParamKind specifies the kind of resources used to parameterize this policy"),
    |row| {
        let kind = row.get("spec.paramKind");
        if !kind.exists() {
            return "<unset>".into();
        }
        format!("{}/{}", kind.get("apiVersion").str(), kind.get("kind").str()).into()
    },
);

fn param_ref(row: &Row<'_>) -> Value {
    let reference = row.get("spec.paramRef");
    let selector = reference.get("selector");
    match (reference.get("namespace").str(), reference.get("name").str()) {
        (_, "") if selector.exists() => go_selector(&selector).into(),
        (_, "") => "<unset>".into(),
        ("", name) => format!("*/{name}").into(),
        (namespace, name) => format!("{namespace}/{name}").into(),
    }
}

/// Formats a label selector as Go prints the struct.
fn go_selector(selector: &Field<'_>) -> String {
    let labels = selector.get("matchLabels");
    let labels: Vec<String> =
        labels.entries().map(|(key, value)| format!("{key}: {},", value.str())).collect();
    let expression = |e: Field<'_>| {
        let values: Vec<&str> = e.get("values").items().map(|v| v.str()).collect();
        format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
            e.get("key").str(),
            e.get("operator").str(),
            values.join(" ")
        )
    };
    let expressions: String = selector.get("matchExpressions").items().map(expression).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}",
        labels.concat()
    )
}
