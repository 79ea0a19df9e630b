//! ValidatingAdmissionPolicy.

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::defaulting::{fill, keep_metadata, object_at};
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::conditions::validate_conditions;
use coracle_apimachinery::validation::expressions::PolicyEnv;
use coracle_apimachinery::validation::{content, printed};
use coracle_cel::Type;
use serde_json::{Value, json};

use super::policies::{is_blank, validate_policy, validate_variables};
use super::rules::{default_match_resources, validate_enum};
use super::webhooks::name_warnings;

const MAX_AUDIT_ANNOTATIONS: usize = 20;
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];

/// The strategy of ValidatingAdmissionPolicy.
pub struct ValidatingAdmissionPolicyStrategy;

impl Strategy for ValidatingAdmissionPolicyStrategy {
    fn default(&self, object: &mut Value) {
        default_policy(object);
    }

    fn prepare_for_status_update(&self, object: &mut Value, old: &Value, _: &Context<'_>) {
        keep_metadata(object, old);
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        validate(object, None, errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate(object, Some(old), errors);
    }

    fn validate_status_update(&self, object: &Field<'_>, _: &Field<'_>, errors: &mut Errors) {
        let status = object.get("status");
        for warning in status.walk("typeChecking.expressionWarnings").items() {
            for member in [warning.get("warning"), warning.get("fieldRef")] {
                errors.push_if(is_blank(&member), || member.required(""));
            }
        }
        validate_conditions(&status.get("conditions"), errors);
    }

    fn warnings(&self, object: &Field<'_>, _: Option<&Field<'_>>) -> Vec<String> {
        name_warnings(object)
    }
}

/// Sets the defaults of both kinds of policy.
pub fn default_policy(object: &mut Value) {
    let Some(spec) = object_at(object, "spec") else { return };
    fill(spec, [("failurePolicy", json!("Fail"))]);
    if let Some(constraints) = spec.get_mut("matchConstraints").and_then(Value::as_object_mut) {
        default_match_resources(constraints);
    }
}

fn validate(object: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    validate_policy(object, old, errors);
    let spec = object.get("spec");
    let env = validate_variables(&spec, PolicyEnv::new(spec.get("paramKind").exists()), errors);
    let (validations, annotations) = (spec.get("validations"), spec.get("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        for list in [validations, annotations] {
            errors.push(list.required("validations or auditAnnotations must contain at least one item"));
        }
        return;
    }
    let message_env = env.without_authorizer();
    for validation in validations.items() {
        validate_validation(&validation, &env, &message_env, errors);
    }
    validate_audit_annotations(&annotations, &env, object.walk("metadata.name").str(), errors);
}

fn validate_validation(
    validation: &Field<'_>,
    env: &PolicyEnv,
    message_env: &PolicyEnv,
    errors: &mut Errors,
) {
    let (expression, message) = (validation.get("expression"), validation.get("message"));
    errors.push_if(is_blank(&expression), || expression.required("expression is not specified"));
    env.check(&expression, &[Type::Bool], errors);
    let message_expression = validation.get("messageExpression");
    for text in [&message_expression, &message] {
        errors.push_if(!text.is_empty() && is_blank(text), || text.invalid("must be non-empty if specified"));
    }
    errors.push_if(message.str().trim().contains(['\n', '\r']), || {
        message.invalid("must not contain line breaks")
    });
    message_env.check(&message_expression, &[Type::String], errors);
    validate_enum(&validation.get("reason"), &REASONS, errors);
}

fn validate_audit_annotations(annotations: &Field<'_>, env: &PolicyEnv, policy: &str, errors: &mut Errors) {
    errors.push_if(annotations.len() > MAX_AUDIT_ANNOTATIONS, || {
        let detail = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        printed::invalid(annotations, "[admissionregistration.AuditAnnotation", &detail)
    });
    let mut seen = HashSet::new();
    for annotation in annotations.items() {
        let (key, expression) = (annotation.get("key"), annotation.get("valueExpression"));
        let full = format!("{policy}/{}", key.str());
        if policy.is_empty() {
            errors.push(key.invalid("requires metadata.name be non-empty"));
        } else {
            errors.extend(
                content::qualified_name(&full).into_iter().map(|e| key.invalid_value(full.as_str(), e)),
            );
        }
        if is_blank(&expression) {
            errors.push(expression.required("valueExpression is not specified"));
        } else if expression.str().trim().len() > MAX_VALUE_EXPRESSION {
            let detail = format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length");
            errors.push(expression.required(detail));
        } else {
            env.check(&expression, &[Type::String, Type::Null], errors);
        }
        errors.push_if(!seen.insert(key.str()), || key.duplicate());
    }
}
