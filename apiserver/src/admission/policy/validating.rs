//! ValidatingAdmissionPolicy: expressions that the final object must satisfy.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/policy/validating`, `dispatcher.go` and
//! `validator.go`.
#![expect(clippy::disallowed_methods, reason = "durations for metrics are those of the machine")]

use std::collections::BTreeMap;
use std::time::Instant;

use coracle_cel::{Meter, Value as CelValue};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::definition::{Binding, Expressions, Policy, Validation};
use super::expression::Expression;
use super::variables::PolicyVariables;
use super::{BINDING_BUDGET, CALL_LIMIT, PolicyContext, RequestVariables, params};
use crate::admission::generic::{Source, VersionedObjects};
use crate::admission::metrics::{PolicyLabels, error_type};
use crate::admission::{AdmissionAttributes, AsyncAdmissionPlugin};
use crate::background;
use crate::cluster::Cluster;
use crate::error::{Cause, Error};
use crate::{Result, error};

const GROUP: &str = "admissionregistration.k8s.io";
const AUDIT_FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";
/// The largest length of a message or an annotation from an expression, in bytes.
const MAX_TEXT: usize = 5 * 1024;

/// The plugin ValidatingAdmissionPolicy.
pub struct ValidatingAdmissionPolicy {
    context: PolicyContext,
    policies: Source<Policy>,
    bindings: Source<Binding>,
}

/// The reason for which a request is not valid for a policy and a binding.
struct Failure {
    message: String,
    reason: String,
    /// The index of the failed validation; None if the policy could not be evaluated.
    index: usize,
    /// Whether the failure denies the request independent of the binding's actions.
    is_error: bool,
}

/// A failure that denies the request.
struct Denial<'p> {
    policy: &'p str,
    /// None if the policy itself is wrong.
    binding: Option<&'p str>,
    failure: Failure,
}

impl Failure {
    fn labels<'a>(&self, policy: &'a Policy, binding: &'a Binding) -> PolicyLabels<'a> {
        let error_type = if self.is_error { error_type(&self.message) } else { "no_error" };
        PolicyLabels { policy: &policy.name, binding: &binding.name, error_type }
    }
}

impl ValidatingAdmissionPolicy {
    /// Creates the plugin, which uses these parts of the server.
    pub fn new(context: PolicyContext) -> ValidatingAdmissionPolicy {
        ValidatingAdmissionPolicy {
            context,
            policies: Source::new(GROUP, "validatingadmissionpolicies", Policy::read),
            bindings: Source::new(GROUP, "validatingadmissionpolicybindings", Binding::read),
        }
    }

    async fn dispatch(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let (policies, bindings) = (self.policies.load(cluster)?, self.bindings.load(cluster)?);
        let resources = self.context.resources.load_full();
        let mut denial: Option<Denial<'_>> = None;
        let mut audited: Vec<Value> = Vec::new();
        let mut annotations: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for policy in policies.iter() {
            let bound = |binding: &&Binding| binding.policy == policy.name;
            if !bindings.iter().any(|binding| bound(&binding)) {
                continue;
            }
            let Some(invocation) = policy.criteria.matches(attributes, &resources, cluster)? else {
                continue;
            };
            let kind = match params::resource(policy, &resources) {
                Ok(kind) => kind,
                Err(message) => {
                    if policy.fails && denial.is_none() {
                        let failure = Failure { message, reason: String::new(), index: 0, is_error: true };
                        denial = Some(Denial { policy: &policy.name, binding: None, failure });
                    }
                    continue;
                }
            };
            let mut variables = None;
            for binding in bindings.iter().filter(bound) {
                if binding.criteria.matches(attributes, &resources, cluster)?.is_none() {
                    continue;
                }
                let began = Instant::now();
                let failures = match params::collect(kind.as_deref(), binding, attributes, cluster).await {
                    Err(message) => {
                        vec![Failure { message, reason: String::new(), index: 0, is_error: true }]
                    }
                    Ok(params) => {
                        if variables.is_none() {
                            let objects = VersionedObjects::new(&invocation, attributes).await?;
                            let authorizer = &self.context.authorizer;
                            variables =
                                Some(RequestVariables::new(attributes, &objects, authorizer, cluster)?);
                        }
                        let Some(request) = &variables else { continue };
                        let expressions = policy.expressions.get().await?;
                        let mut failures = Vec::new();
                        for params in &params {
                            let evaluate =
                                |meter: &Meter| evaluate(policy, expressions, request, params, meter);
                            let evaluated = background::evaluate(evaluate).await?;
                            failures.extend(evaluated.failures);
                            for (key, text) in evaluated.annotations {
                                let values = annotations.entry(key).or_default();
                                if !values.contains(&text) {
                                    values.push(text);
                                }
                            }
                        }
                        failures
                    }
                };
                let took = began.elapsed();
                for failure in failures {
                    let observe = |action: &str| {
                        self.context.metrics.validating_policy(failure.labels(policy, binding), took, action);
                    };
                    if failure.is_error && !policy.fails {
                        observe("allow");
                        continue;
                    }
                    binding.observed_actions().for_each(observe);
                    report(policy, binding, &failure, attributes, &mut audited);
                    let denies = binding.has_action("Deny") || is_configuration(&failure);
                    if denies && denial.is_none() {
                        denial = Some(Denial { policy: &policy.name, binding: Some(&binding.name), failure });
                    }
                }
            }
        }
        if !audited.is_empty() {
            attributes.audit.add_annotation(AUDIT_FAILURE, Value::from(audited).to_string());
        }
        for (key, values) in annotations {
            attributes.audit.add_annotation(key, values.join(", "));
        }
        denial.map_or(Ok(()), |denial| Err(denied(attributes, &denial)))
    }
}

/// Returns whether a failure is an error of the configuration, which denies the request independent
/// of the binding's actions.
fn is_configuration(failure: &Failure) -> bool {
    failure.is_error && failure.message.starts_with("failed to configure")
}

/// Adds the warning and the audit annotation that the binding's actions request. A configuration
/// error adds neither.
fn report(
    policy: &Policy,
    binding: &Binding,
    failure: &Failure,
    attributes: &AdmissionAttributes<'_>,
    audited: &mut Vec<Value>,
) {
    if is_configuration(failure) {
        return;
    }
    if binding.has_action("Warn") {
        attributes.warn(format!(
            "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
            policy.name, binding.name, failure.message
        ));
    }
    if binding.has_action("Audit") {
        audited.push(json!({
            "message": failure.message,
            "policy": policy.name,
            "binding": binding.name,
            "expressionIndex": failure.index,
            "validationActions": binding.actions,
        }));
    }
}

/// The decision of a policy about one parameter.
#[derive(Default)]
struct Evaluated {
    failures: Vec<Failure>,
    /// The keys and values of audit annotations.
    annotations: Vec<(String, String)>,
}

fn evaluate(
    policy: &Policy,
    expressions: &Expressions,
    request: &RequestVariables,
    params: &Value,
    meter: &Meter,
) -> Evaluated {
    let variables = PolicyVariables::new(request, params, &expressions.variables, meter);
    let failed = |message: String, index| Failure { message, reason: String::new(), index, is_error: true };
    let mut evaluated = Evaluated::default();
    let Evaluated { failures, annotations } = &mut evaluated;
    match expressions.conditions.match_request(&variables, meter) {
        Ok(true) => {}
        Ok(false) => return evaluated,
        Err(message) => {
            failures.push(failed(message, 0));
            return evaluated;
        }
    }
    let mut budget = Budget { spent: 0, meter };
    for (index, validation) in expressions.validations.iter().enumerate() {
        match budget.evaluate(&validation.expression, &variables) {
            Ok(CelValue::Bool(true)) => {}
            Ok(_) => failures.push(Failure {
                message: budget.message(validation, &variables),
                reason: validation.reason.clone(),
                index,
                is_error: false,
            }),
            Err(error) => {
                let text = &validation.expression.text;
                failures.push(failed(format!("expression '{text}' resulted in error: {error}"), index));
            }
        }
    }
    for (key, expression) in &expressions.audit_annotations {
        match budget.evaluate(expression, &variables) {
            Ok(CelValue::String(text)) if !text.trim().is_empty() => {
                let end = (0..=text.len().min(MAX_TEXT * 2)).rev().find(|end| text.is_char_boundary(*end));
                let text = text.get(..end.unwrap_or(0)).unwrap_or("").trim().to_owned();
                annotations.push((format!("{}/{key}", policy.name), text));
            }
            Ok(_) => {}
            Err(error) => {
                failures
                    .push(failed(format!("expression '{}' resulted in error: {error}", expression.text), 0));
            }
        }
    }
    evaluated
}

/// The cost of a policy's expressions so far, and the meter of their work.
pub(super) struct Budget<'m> {
    pub spent: u64,
    pub meter: &'m Meter,
}

impl Budget<'_> {
    /// Evaluates an expression within the remaining budget.
    pub fn evaluate<'a>(
        &mut self,
        expression: &Expression,
        variables: &PolicyVariables<'a>,
    ) -> Result<CelValue<'a>, String> {
        let program = expression.program.as_ref().map_err(|error| format!("compilation error: {error}"))?;
        let outcome = program.evaluate(variables, CALL_LIMIT, self.meter);
        self.spent = self.spent.saturating_add(outcome.cost).saturating_add(variables.cost.take());
        if self.spent > BINDING_BUDGET {
            return Err("validation failed due to running out of cost budget, no further validation rules will be run".to_owned());
        }
        outcome.value.map_err(|error| error.to_string())
    }

    /// Returns the message of a validation that failed: the result of its message expression,
    /// otherwise its message, otherwise a default text with the expression.
    fn message(&mut self, validation: &Validation, variables: &PolicyVariables<'_>) -> String {
        if let Some(expression) = &validation.message_expression
            && let Ok(CelValue::String(text)) = self.evaluate(expression, variables)
        {
            let text = text.trim();
            if !text.is_empty() && text.len() <= MAX_TEXT && !text.contains(['\n', '\r']) {
                return text.to_owned();
            }
        }
        match validation.message.as_str() {
            "" => format!("failed expression: {}", validation.expression.text.trim()),
            message => message.to_owned(),
        }
    }
}

fn denied(attributes: &AdmissionAttributes<'_>, denial: &Denial<'_>) -> Error {
    let binding = denial.binding.map(|binding| format!(" with binding '{binding}'")).unwrap_or_default();
    let message = format!(
        "ValidatingAdmissionPolicy '{}'{binding} denied request: {}",
        denial.policy, denial.failure.message
    );
    let cause = Cause { message: message.clone(), ..Cause::default() };
    let forbidden = match attributes.forbidden(message) {
        Error::Forbidden { resource, name, detail, .. } => {
            Error::Forbidden { resource, name, detail, causes: vec![cause] }
        }
        other => other,
    };
    let (code, reason) = match denial.failure.reason.as_str() {
        "Forbidden" => (403, "Forbidden"),
        "Unauthorized" => (401, "Unauthorized"),
        "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
        _ => (422, "Invalid"),
    };
    Error::Status(Box::new(error::Status { code, reason: reason.into(), ..forbidden.status() }))
}

impl AsyncAdmissionPlugin for ValidatingAdmissionPolicy {
    fn handles(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> bool {
        // The dispatch reports bindings that cannot be read as errors.
        let Ok(bindings) = self.bindings.load(cluster) else { return true };
        if bindings.is_empty() || self.context.is_excluded(attributes) {
            return false;
        }
        let Ok(policies) = self.policies.load(cluster) else { return true };
        let resources = self.context.resources.load();
        let mut criteria = policies.iter().map(|policy| &policy.criteria);
        criteria.any(|criteria| !matches!(criteria.matches(attributes, &resources, cluster), Ok(None)))
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'_>,
        cluster: &'a dyn Cluster,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.dispatch(attributes, cluster))
    }
}
