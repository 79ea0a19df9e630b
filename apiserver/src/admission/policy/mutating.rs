//! MutatingAdmissionPolicy: expressions that make patches, which are applied one after the other.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/policy/mutating`, `dispatcher.go`, and `.../mutating/patch`.

use std::time::Instant;

use coracle_cel::{Meter, ObjectLiteral, Value as CelValue};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::definition::{Binding, Expressions, Mutation, Policy};
use super::validating::Budget;
use super::variables::PolicyVariables;
use super::{PolicyContext, RequestVariables, params};
use crate::admission::generic::{Source, VersionedObjects, is_exempt};
use crate::admission::metrics::{PolicyLabels, error_type};
use crate::admission::{AdmissionAttributes, AsyncAdmissionPlugin, Operation};
use crate::background;
use crate::cluster::Cluster;
use crate::error::{self, Cause};
use crate::fields::atomics::atomics;
use crate::fields::merge::merge;
use crate::fields::typed::{self, Duplicates};
use crate::patch::json as json_patch;
use crate::schema::TypeRef;
use crate::{Error, Result};

const NAME: &str = "MutatingAdmissionPolicy";
const GROUP: &str = "admissionregistration.k8s.io";

pub struct MutatingAdmissionPolicy {
    context: PolicyContext,
    policies: Source<Policy>,
    bindings: Source<Binding>,
}

impl MutatingAdmissionPolicy {
    pub fn new(context: PolicyContext) -> MutatingAdmissionPolicy {
        MutatingAdmissionPolicy {
            context,
            policies: Source::new(GROUP, "mutatingadmissionpolicies", Policy::read),
            bindings: Source::new(GROUP, "mutatingadmissionpolicybindings", Binding::read),
        }
    }

    async fn dispatch(&self, attributes: &mut AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let (policies, bindings) = (self.policies.load(cluster)?, self.bindings.load(cluster)?);
        let is_reinvoke = attributes.reinvocation.is_reinvoke();
        if is_reinvoke {
            attributes.reinvocation.of_plugin(NAME).resume(attributes.object);
        }
        let mut invoked = false;
        let mut denial = Denial::default();
        for policy in policies.iter() {
            let bound = |binding: &&Binding| binding.policy == policy.name;
            for binding in bindings.iter().filter(bound) {
                let key = format!("{}/{}", policy.name, binding.name);
                // What was not invoked in the first pass is not in the second.
                if is_reinvoke && !attributes.reinvocation.of_plugin(NAME).should_reinvoke(&key) {
                    continue;
                }
                let began = Instant::now();
                let outcome = self.invoke(policy, binding, attributes, cluster).await?;
                self.observe(policy, binding, began, &outcome);
                let changed = match outcome {
                    Outcome::NotMatched => continue,
                    Outcome::Misconfigured(message) => {
                        denial.misconfigured.extend(denied(policy, binding, &message));
                        continue;
                    }
                    Outcome::Done { changed, failures } => {
                        let denied = failures.iter().filter_map(|message| denied(policy, binding, message));
                        denial.failures.extend(denied);
                        changed
                    }
                };
                invoked = true;
                if changed {
                    attributes.reinvocation.of_plugin(NAME).require_all();
                    attributes.reinvocation.require();
                }
                if policy.reinvoke_if_needed {
                    attributes.reinvocation.of_plugin(NAME).add_invoked(&key);
                }
            }
        }
        if invoked {
            attributes.reinvocation.of_plugin(NAME).finish(attributes.object);
        }
        denial.into_result(attributes)
    }

    /// Counts an invocation.
    fn observe(&self, policy: &Policy, binding: &Binding, began: Instant, outcome: &Outcome) {
        let error_type = match outcome {
            Outcome::NotMatched => return,
            Outcome::Done { failures, .. } => failures.first().map_or("no_error", |text| error_type(text)),
            Outcome::Misconfigured(message) => error_type(message),
        };
        let labels = PolicyLabels { policy: &policy.name, binding: &binding.name, error_type };
        self.context.metrics.mutating_policy(labels, began.elapsed());
    }

    async fn invoke(
        &self,
        policy: &Policy,
        binding: &Binding,
        attributes: &mut AdmissionAttributes<'_>,
        cluster: &dyn Cluster,
    ) -> Result<Outcome> {
        let resources = self.context.resources.load_full();
        let Some(invocation) = policy.criteria.matches(attributes, &resources, cluster)? else {
            return Ok(Outcome::NotMatched);
        };
        if binding.criteria.matches(attributes, &resources, cluster)?.is_none() {
            return Ok(Outcome::NotMatched);
        }
        let params = match params::collect(policy, binding, attributes, &resources, cluster).await {
            Ok(params) => params,
            Err(message) => return Ok(Outcome::Misconfigured(message)),
        };
        let resource = attributes.resource;
        let requested = resources.find(&resource.group, attributes.version, &resource.resource);
        let requested = requested.ok_or(Error::UnknownResource)?;
        let (mut changed, mut failures) = (false, Vec::new());
        let expressions = policy.expressions.get().await?;
        for params in &params {
            let mut objects = VersionedObjects::new(&invocation, attributes).await?;
            for mutation in &expressions.mutations {
                let request = RequestVariables::new(attributes, &objects, &self.context.authorizer, cluster)?;
                let mutate = |meter: &Meter| mutate(expressions, mutation, &request, params, &objects, meter);
                let mutated = background::evaluate(mutate).await?;
                match mutated {
                    Ok(Some(object)) if Some(&object) != objects.object.as_ref() => {
                        attributes.replace_object(objects.to_internal(requested, object).await?);
                        objects.update(attributes).await?;
                        changed = true;
                    }
                    Ok(_) => {}
                    Err(Refusal::Conditions(message)) => {
                        failures.push(message);
                        break;
                    }
                    Err(Refusal::Mutation(message)) => failures.push(message),
                }
            }
        }
        Ok(Outcome::Done { changed, failures })
    }
}

enum Outcome {
    NotMatched,
    /// The parameters cannot be found.
    Misconfigured(String),
    Done {
        changed: bool,
        /// The texts of what could not be evaluated.
        failures: Vec<String>,
    },
}

/// What could not be evaluated.
enum Refusal {
    /// The conditions, without which there are no mutations.
    Conditions(String),
    /// One mutation. The next ones are tried.
    Mutation(String),
}

impl From<String> for Refusal {
    fn from(message: String) -> Refusal {
        Refusal::Mutation(message)
    }
}

impl From<&str> for Refusal {
    fn from(message: &str) -> Refusal {
        Refusal::Mutation(message.to_owned())
    }
}

/// The texts of the policies that deny a request.
#[derive(Default)]
struct Denial {
    misconfigured: Vec<String>,
    failures: Vec<String>,
}

impl Denial {
    fn into_result(self, attributes: &AdmissionAttributes<'_>) -> Result<()> {
        // The message is that of the first text, in which wrong configurations come before failures.
        let reason = if self.misconfigured.is_empty() { "Invalid" } else { "Forbidden" };
        let messages: Vec<String> = self.misconfigured.into_iter().chain(self.failures).collect();
        let Some(first) = messages.first().cloned() else { return Ok(()) };
        let forbidden = match attributes.forbidden(first.as_str()) {
            Error::Forbidden { resource, name, detail, .. } => {
                let cause = |message| Cause { message, ..Cause::default() };
                Error::Forbidden { resource, name, detail, causes: messages.into_iter().map(cause).collect() }
            }
            other => other,
        };
        let status = error::Status { reason: reason.into(), message: first, ..forbidden.status() };
        Err(Error::Status(Box::new(status)))
    }
}

/// The text of a denial, if the policy denies what it cannot evaluate.
fn denied(policy: &Policy, binding: &Binding, message: &str) -> Option<String> {
    let (policy_name, binding_name) = (&policy.name, &binding.name);
    policy
        .fails
        .then(|| format!("policy '{policy_name}' with binding '{binding_name}' denied request: {message}"))
}

/// The object with one mutation; None if the conditions do not hold.
fn mutate(
    expressions: &Expressions,
    mutation: &Mutation,
    request: &RequestVariables,
    params: &Value,
    objects: &VersionedObjects,
    meter: &Meter,
) -> Result<Option<Value>, Refusal> {
    let variables = PolicyVariables::new(request, params, &expressions.variables, meter);
    if !expressions.conditions.match_request(&variables, meter).map_err(Refusal::Conditions)? {
        return Ok(None);
    }
    let Some(object) = &objects.object else { return Ok(None) };
    let text = &mutation.expression.text;
    let value = Budget { spent: 0, meter }
        .evaluate(&mutation.expression, &variables)
        .map_err(|error| format!("expression '{text}' resulted in error: {error}"))?;
    let current: Value =
        serde_json::from_slice(&objects.to_json(object)).map_err(|error| error.to_string())?;
    let patched = if mutation.is_json_patch {
        let patch = operations(&value, meter)?;
        json_patch::apply(current, &patch).map_err(|error| format!("JSON Patch: {error}"))?
    } else {
        let CelValue::Object(literal) = &value else {
            return Err("ApplyConfiguration expression must evaluate to an Object".into());
        };
        // What JSON has room for is visited soon, too.
        let configuration = value.to_json(meter).map_err(|error| error.to_string())?;
        check_names(literal, "Object").map_err(|error| format!("type mismatch: {error}"))?;
        let mut configuration = configuration.ok_or("ApplyConfiguration has a value that JSON has not")?;
        for name in ["apiVersion", "kind"] {
            configuration[name] = current[name].clone();
        }
        for name in ["apiVersion", "kind", "metadata"] {
            let given = matches!(&value, CelValue::Object(literal) if literal.fields.contains_key(name));
            if name != "metadata" && given {
                return Err(format!("ApplyConfiguration may not set {name}").into());
            }
        }
        apply(&current, &configuration, &objects.type_ref)
            .map_err(|error| format!("error applying patch: {error}"))?
    };
    objects.decode(patched).map(Some).map_err(Refusal::from)
}

/// Merges an apply configuration into an object, if it has the types of its kind and replaces nothing as a whole.
fn apply(current: &Value, configuration: &Value, type_ref: &TypeRef) -> Result<Value, String> {
    typed::check(configuration, type_ref, Duplicates::Refused)
        .map_err(|error| format!("failed to convert patch object to typed object: {error}"))?;
    let atomics = atomics(configuration, type_ref);
    if !atomics.is_empty() {
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomics.join(", ")
        ));
    }
    typed::check(current, type_ref, Duplicates::Allowed)
        .map_err(|error| format!("failed to convert original object to typed object: {error}"))?;
    Ok(merge(current, configuration, type_ref))
}

/// The types of objects are named by their paths.
fn check_names(literal: &ObjectLiteral<'_>, wanted: &str) -> Result<(), String> {
    if &*literal.name != wanted {
        return Err(format!(
            "unexpected type name {:?}, expected {wanted:?}, which matches field name path from root Object type",
            &*literal.name
        ));
    }
    literal.fields.iter().try_for_each(|(name, value)| check_value(value, &format!("{wanted}.{name}")))
}

fn check_value(value: &CelValue<'_>, wanted: &str) -> Result<(), String> {
    match value {
        CelValue::Object(literal) => check_names(literal, wanted),
        CelValue::List(list) => list.iter().try_for_each(|item| check_value(&item, wanted)),
        _ => Ok(()),
    }
}

/// The JSON patch that a list of `JSONPatch` values is.
fn operations(value: &CelValue<'_>, meter: &Meter) -> Result<Value, String> {
    let CelValue::List(list) = value else {
        return Err("JSONPatch expression must evaluate to a list".to_owned());
    };
    let mut operations = Vec::with_capacity(list.len());
    for item in list.iter() {
        let CelValue::Object(literal) = &item else {
            return Err("type conversion error: expected JSONPatch".to_owned());
        };
        let mut operation = Map::new();
        for (name, value) in &literal.fields {
            let value = value.to_json(meter).map_err(|error| error.to_string())?;
            let value = value.ok_or_else(|| format!("JSONPatch.{name} has no value in JSON"))?;
            operation.insert(name.to_string(), value);
        }
        // A null that is added is no value that was left out.
        if matches!(operation.get("op").and_then(Value::as_str), Some("add" | "replace" | "test")) {
            operation.entry("value").or_insert(json!(null));
        }
        operations.push(Value::Object(operation));
    }
    Ok(Value::Array(operations))
}

impl AsyncAdmissionPlugin for MutatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn handles(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> bool {
        let mutable =
            matches!(attributes.operation, Operation::Create | Operation::Update | Operation::Connect);
        // What cannot be read is an error of the dispatch.
        let Ok(bindings) = self.bindings.load(cluster) else { return mutable };
        if bindings.is_empty() || !mutable || is_exempt(attributes) {
            return false;
        }
        let Ok(policies) = self.policies.load(cluster) else { return true };
        let resources = self.context.resources.load();
        let mut criteria = policies.iter().map(|policy| &policy.criteria);
        criteria.any(|criteria| !matches!(criteria.matches(attributes, &resources, cluster), Ok(None)))
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a mut AdmissionAttributes<'_>,
        cluster: &'a dyn Cluster,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.dispatch(attributes, cluster))
    }
}
