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
use super::evaluation::{Budget, EvaluationError};
use super::variables::PolicyVariables;
use super::{BINDING_BUDGET, PolicyContext, RequestVariables, params};
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
    kind: FailureKind,
    message: String,
    /// The reason of the response; empty for the default.
    reason: String,
    /// The index of the failed validation; 0 for other failures.
    index: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    /// A validation is not true: the binding has the actions.
    Denied,
    /// An expression cannot be evaluated. It counts as a denial, unless the policy ignores
    /// failures.
    Error,
    /// An audit annotation cannot be made. It denies the request whatever the actions are.
    Annotation,
    /// The policy or the binding does not work. It denies the request whatever the actions are,
    /// unless the policy ignores failures.
    Configuration,
}

/// A failure that denies the request.
struct Denial<'p> {
    policy: &'p str,
    /// None if the policy itself is wrong.
    binding: Option<&'p str>,
    failure: Failure,
}

impl Failure {
    fn new(kind: FailureKind, message: impl ToString) -> Failure {
        Failure { kind, message: message.to_string(), reason: String::new(), index: 0 }
    }

    /// Returns `true` if the request is denied whatever the actions of the binding are.
    fn is_final(&self) -> bool {
        matches!(self.kind, FailureKind::Annotation | FailureKind::Configuration)
    }

    fn is_ignored_by(&self, policy: &Policy) -> bool {
        !policy.fails && matches!(self.kind, FailureKind::Error | FailureKind::Configuration)
    }

    fn labels<'a>(&self, policy: &'a Policy, binding: &'a Binding) -> PolicyLabels<'a> {
        let error_type = match self.kind {
            FailureKind::Denied => "no_error",
            _ => error_type(&self.message),
        };
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
                        let failure = Failure::new(FailureKind::Configuration, message);
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
                    Err(message) => vec![Failure::new(FailureKind::Configuration, message)],
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
                    if failure.is_ignored_by(policy) {
                        observe("allow");
                        continue;
                    }
                    match failure.kind {
                        FailureKind::Annotation => observe("deny"),
                        FailureKind::Configuration => {}
                        _ => binding.observed_actions().for_each(observe),
                    }
                    report(policy, binding, &failure, attributes, &mut audited);
                    let denies = binding.has_action("Deny") || failure.is_final();
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

/// Adds the warning and the audit annotation that the binding's actions request. A failure that
/// denies the request whatever they are adds neither.
fn report(
    policy: &Policy,
    binding: &Binding,
    failure: &Failure,
    attributes: &AdmissionAttributes<'_>,
    audited: &mut Vec<Value>,
) {
    if failure.is_final() {
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

impl Evaluated {
    /// Creates the decision of a policy that cannot be evaluated.
    fn failed(error: impl ToString) -> Evaluated {
        Evaluated { failures: vec![Failure::new(FailureKind::Error, error)], ..Evaluated::default() }
    }
}

fn evaluate(
    policy: &Policy,
    expressions: &Expressions,
    request: &RequestVariables,
    params: &Value,
    meter: &Meter,
) -> Evaluated {
    let variables = PolicyVariables::new(request, params, &expressions.variables, meter);
    match expressions.conditions.match_request(&variables, meter) {
        Ok(true) => {}
        Ok(false) => return Evaluated::default(),
        Err(message) => return Evaluated::failed(message),
    }
    validations(expressions, &variables, meter)
        .and_then(|mut failures| {
            let annotations = audit_annotations(policy, expressions, &variables, meter, &mut failures)?;
            Ok(Evaluated { failures, annotations })
        })
        .unwrap_or_else(Evaluated::failed)
}

/// Evaluates the validations, and the messages of those that fail.
///
/// # Errors
/// The budget is spent: nothing else about the request counts.
fn validations(
    expressions: &Expressions,
    variables: &PolicyVariables<'_>,
    meter: &Meter,
) -> Result<Vec<Failure>, EvaluationError> {
    let mut budget = Budget::new(BINDING_BUDGET, meter);
    let mut outcomes = Vec::new();
    for validation in &expressions.validations {
        outcomes.push(match budget.evaluate(&validation.expression, variables) {
            Err(EvaluationError::OutOfBudget) => return Err(EvaluationError::OutOfBudget),
            Ok(value) => Ok(matches!(value, CelValue::Bool(true))),
            Err(error) => Err(error),
        });
    }
    let messages = messages(&expressions.validations, &outcomes, variables, &mut budget);
    let mut failures = Vec::new();
    for (index, (validation, outcome)) in expressions.validations.iter().zip(outcomes).enumerate() {
        let failure = match (outcome, &messages) {
            (Err(error), _) => Failure::new(FailureKind::Error, error),
            // Also if the validation holds.
            (Ok(_), Err(error)) => {
                Failure::new(FailureKind::Error, format!("failed messageExpression: {error}"))
            }
            (Ok(true), Ok(_)) => continue,
            (Ok(false), Ok(messages)) => {
                let made = messages.get(index).cloned().flatten();
                let message = made.unwrap_or_else(|| default_message(validation));
                Failure { reason: validation.reason.clone(), ..Failure::new(FailureKind::Denied, message) }
            }
        };
        failures.push(Failure { index, ..failure });
    }
    Ok(failures)
}

/// Returns the results of message expressions that are messages. As in kube-apiserver also those of
/// validations that hold count, if all of them together may cost more than is left.
///
/// # Errors
/// The budget is spent.
fn messages(
    validations: &[Validation],
    outcomes: &[Result<bool, EvaluationError>],
    variables: &PolicyVariables<'_>,
    budget: &mut Budget<'_>,
) -> Result<Vec<Option<String>>, EvaluationError> {
    let count = validations.iter().filter(|validation| validation.message_expression.is_some()).count();
    let evaluates_all = !budget.covers(count);
    let message = |(validation, outcome): (&Validation, &Result<bool, EvaluationError>)| {
        let is_asked_for = evaluates_all || *outcome == Ok(false);
        let Some(expression) = validation.message_expression.as_ref().filter(|_| is_asked_for) else {
            return Ok(None);
        };
        match budget.evaluate(expression, variables) {
            Err(EvaluationError::OutOfBudget) => Err(EvaluationError::OutOfBudget),
            Ok(CelValue::String(text)) => {
                let text = text.trim();
                let is_message = !text.is_empty() && text.len() <= MAX_TEXT && !text.contains(['\n', '\r']);
                Ok(is_message.then(|| text.to_owned()))
            }
            _ => Ok(None),
        }
    };
    validations.iter().zip(outcomes).map(message).collect()
}

/// Returns the message of a validation without a result of its message expression: its message, or
/// a text with the expression.
fn default_message(validation: &Validation) -> String {
    match validation.message.as_str() {
        "" => format!("failed expression: {}", validation.expression.text.trim()),
        message => message.to_owned(),
    }
}

/// Evaluates the audit annotations; those that cannot be are failures.
///
/// # Errors
/// Their budget is spent: nothing else about the request counts.
fn audit_annotations(
    policy: &Policy,
    expressions: &Expressions,
    variables: &PolicyVariables<'_>,
    meter: &Meter,
    failures: &mut Vec<Failure>,
) -> Result<Vec<(String, String)>, EvaluationError> {
    let mut budget = Budget::new(BINDING_BUDGET, meter);
    let mut annotations = Vec::new();
    for (key, expression) in &expressions.audit_annotations {
        match budget.evaluate(expression, variables) {
            Ok(CelValue::String(text)) if !text.trim().is_empty() => {
                let end = (0..=text.len().min(MAX_TEXT * 2)).rev().find(|end| text.is_char_boundary(*end));
                let text = text.get(..end.unwrap_or(0)).unwrap_or("").trim().to_owned();
                annotations.push((format!("{}/{key}", policy.name), text));
            }
            Ok(CelValue::String(_) | CelValue::Null) => {}
            Ok(other) => {
                let (text, found) = (&expression.text, other.type_of());
                let message = format!(
                    "valueExpression '{text}' resulted in unsupported return type: {found}. Return type must be either string or null."
                );
                failures.push(Failure::new(FailureKind::Annotation, message));
            }
            Err(EvaluationError::OutOfBudget) => return Err(EvaluationError::OutOfBudget),
            Err(error) if policy.fails => failures.push(Failure::new(FailureKind::Annotation, error)),
            Err(_) => {}
        }
    }
    Ok(annotations)
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
