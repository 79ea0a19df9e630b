//! MutatingAdmissionPolicy: expressions that make patches, which are applied one after the other.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/policy/mutating`, `dispatcher.go`, and
//! `.../mutating/patch`.
#![expect(clippy::disallowed_methods, reason = "durations for metrics are those of the machine")]

use std::time::Instant;

use coracle_cel::{Meter, ObjectLiteral, Value as CelValue};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::definition::{Binding, Expressions, Mutation, Policy};
use super::evaluation::Budget;
use super::variables::PolicyVariables;
use super::{BINDING_BUDGET, PolicyContext, RequestVariables, params};
use crate::admission::generic::{Invocation, Source, VersionedObjects};
use crate::admission::metrics::{PolicyLabels, error_type};
use crate::admission::{AdmissionAttributes, AsyncAdmissionPlugin, Operation};
use crate::background;
use crate::cluster::Cluster;
use crate::field::quote;
use crate::fields::atomics::atomics;
use crate::fields::merge::merge;
use crate::fields::typed::{self, Duplicates};
use crate::object_meta::ObjectMeta;
use crate::patch::json as json_patch;
use crate::schema::TypeRef;
use crate::{Error, Result};

const NAME: &str = "MutatingAdmissionPolicy";
const GROUP: &str = "admissionregistration.k8s.io";

/// The plugin MutatingAdmissionPolicy.
pub struct MutatingAdmissionPolicy {
    context: PolicyContext,
    policies: Source<Policy>,
    bindings: Source<Binding>,
}

impl MutatingAdmissionPolicy {
    /// Creates the plugin.
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
        let mut failures = Failures::default();
        // Matches are determined before any policy changes the object.
        let due = self.due(&policies, &bindings, attributes, cluster, &mut failures).await?;
        let mut invoked = false;
        let mut patched = false;
        for invocation in &due {
            let key = invocation.key();
            // The reinvocation only repeats invocations of the first pass.
            if is_reinvoke && !attributes.reinvocation.of_plugin(NAME).should_reinvoke(&key) {
                continue;
            }
            let Some(effect) = self.invoke(invocation, attributes, cluster, &mut failures).await? else {
                continue;
            };
            invoked = true;
            patched |= effect != Effect::None;
            if effect == Effect::Changed {
                attributes.reinvocation.of_plugin(NAME).require_all();
                attributes.reinvocation.require();
            }
            if invocation.policy.reinvoke_if_needed {
                attributes.reinvocation.of_plugin(NAME).add_invoked(&key);
            }
        }
        if patched {
            // As in kube-apiserver, a patched object counts as changed, even if it is equal: the last
            // policy is invoked again, too.
            attributes.reinvocation.of_plugin(NAME).require_all();
            attributes.reinvocation.require();
        }
        if invoked {
            attributes.reinvocation.of_plugin(NAME).finish(attributes.object);
        }
        failures.refuse(attributes)
    }

    /// Returns the matching policies, once for each of their bindings and parameters.
    async fn due<'p>(
        &self,
        policies: &'p [Policy],
        bindings: &'p [Binding],
        attributes: &AdmissionAttributes<'_>,
        cluster: &dyn Cluster,
        failures: &mut Failures,
    ) -> Result<Vec<Due<'p>>> {
        let resources = self.context.resources.load_full();
        let mut due = Vec::new();
        for policy in policies {
            let Some(matched) = policy.criteria.matches(attributes, &resources, cluster)? else { continue };
            let is_bound = |binding: &Binding| binding.policy == policy.name;
            let kind = match params::resource(policy, &resources) {
                Ok(kind) => kind,
                Err(message) => {
                    if bindings.iter().any(is_bound) {
                        failures.of_policy(policy, &message);
                    }
                    continue;
                }
            };
            for binding in bindings.iter().filter(|binding| is_bound(binding)) {
                if binding.criteria.matches(attributes, &resources, cluster)?.is_none() {
                    continue;
                }
                match params::collect(kind.as_deref(), binding, attributes, cluster).await {
                    Ok(params) => due.extend(params.into_iter().map(|params| {
                        let matched = matched.clone();
                        Due { policy, binding, matched, params }
                    })),
                    Err(message) => failures.of_binding(policy, binding, &message, "Forbidden"),
                }
            }
        }
        Ok(due)
    }

    /// Counts a mutation.
    fn observe(&self, due: &Due<'_>, began: Instant, error_type: &'static str) {
        let labels = PolicyLabels { policy: &due.policy.name, binding: &due.binding.name, error_type };
        self.context.metrics.mutating_policy(labels, began.elapsed());
    }

    /// Applies the mutations of a policy, and returns their effect; None if the policy's conditions
    /// do not hold.
    async fn invoke(
        &self,
        due: &Due<'_>,
        attributes: &mut AdmissionAttributes<'_>,
        cluster: &dyn Cluster,
        failures: &mut Failures,
    ) -> Result<Option<Effect>> {
        let resources = self.context.resources.load_full();
        let resource = attributes.resource;
        let requested = resources.find(&resource.group, attributes.version, &resource.resource);
        let requested = requested.ok_or(Error::UnknownResource)?;
        let expressions = due.policy.expressions.get().await?;
        let mut objects = VersionedObjects::new(&due.matched, attributes).await?;
        let request = RequestVariables::new(attributes, &objects, &self.context.authorizer, cluster)?;
        let matches = |meter: &Meter| {
            let variables = PolicyVariables::new(&request, &due.params, &expressions.variables, meter);
            expressions.conditions.match_request(&variables, meter)
        };
        match background::evaluate(matches).await? {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(message) => {
                failures.of_binding(due.policy, due.binding, &message, "Invalid");
                return Ok(None);
            }
        }
        let mut effect = Effect::None;
        for mutation in &expressions.mutations {
            let began = Instant::now();
            let request = RequestVariables::new(attributes, &objects, &self.context.authorizer, cluster)?;
            let mutate =
                |meter: &Meter| mutate(expressions, mutation, &request, &due.params, &objects, meter);
            match background::evaluate(mutate).await? {
                Ok(mutated) => {
                    self.observe(due, began, "no_error");
                    if objects.object.is_some() {
                        effect = effect.max(Effect::Patched);
                    }
                    if let Some(object) = mutated.filter(|mutated| Some(mutated) != objects.object.as_ref()) {
                        attributes.replace_object(objects.to_internal(requested, object).await?);
                        objects.update(attributes).await?;
                        effect = Effect::Changed;
                    }
                }
                Err(Failed::Request(error)) => {
                    self.observe(due, began, error_type(&error.to_string()));
                    return Err(error);
                }
                Err(Failed::Policy(message)) => {
                    self.observe(due, began, error_type(&message));
                    failures.of_binding(due.policy, due.binding, &message, "Invalid");
                }
            }
        }
        Ok(Some(effect))
    }
}

/// The effect of an invocation on the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    /// No mutation was evaluated without an error, or there is no object.
    None,
    /// The patches leave the object as it is.
    Patched,
    Changed,
}

/// A policy that is to be invoked.
struct Due<'p> {
    policy: &'p Policy,
    binding: &'p Binding,
    matched: Invocation,
    params: Value,
}

impl Due<'_> {
    /// Returns a name that is unique among the invocations for a request.
    fn key(&self) -> String {
        let (policy, binding) = (&self.policy.name, &self.binding.name);
        format!("{policy}/{binding}/{}/{}", self.params.namespace(), self.params.name())
    }
}

/// The failures of policies with the `failurePolicy` Fail: full messages, and their reasons.
#[derive(Default)]
struct Failures(Vec<(String, &'static str)>);

impl Failures {
    fn of_policy(&mut self, policy: &Policy, message: &str) {
        if policy.fails {
            self.0.push((format!("policy {} denied request: {message}", quote(&policy.name)), "Forbidden"));
        }
    }

    fn of_binding(&mut self, policy: &Policy, binding: &Binding, message: &str, reason: &'static str) {
        if policy.fails {
            let (policy, binding) = (&policy.name, &binding.name);
            let text = format!("policy '{policy}' with binding '{binding}' denied request: {message}");
            self.0.push((text, reason));
        }
    }

    /// Rejects the request with the first message, and with all of them as causes.
    fn refuse(self, attributes: &AdmissionAttributes<'_>) -> Result<()> {
        let Some((message, reason)) = self.0.first() else { return Ok(()) };
        let mut status = attributes.forbidden("").status();
        (status.message, status.reason) = (message.clone(), (*reason).into());
        let causes: Value = self.0.iter().map(|(message, _)| json!({"message": message})).collect();
        if let Some(details) = &mut status.details {
            details["causes"] = causes;
        }
        Err(Error::Status(Box::new(status)))
    }
}

/// The reason why a mutation is not done.
enum Failed {
    /// An error of the request, whatever the failure policy says.
    Request(Error),
    /// A matter of the failure policy.
    Policy(String),
}

impl From<String> for Failed {
    fn from(message: String) -> Failed {
        Failed::Policy(message)
    }
}

/// Applies one mutation and returns the object; None if there is no object, or if a test of a JSON
/// patch does not hold.
fn mutate(
    expressions: &Expressions,
    mutation: &Mutation,
    request: &RequestVariables,
    params: &Value,
    objects: &VersionedObjects,
    meter: &Meter,
) -> Result<Option<Value>, Failed> {
    let variables = PolicyVariables::new(request, params, &expressions.variables, meter);
    let Some(object) = &objects.object else { return Ok(None) };
    let value = Budget::new(BINDING_BUDGET, meter)
        .evaluate(&mutation.expression, &variables)
        .map_err(|error| error.to_string())?;
    let current: Value =
        serde_json::from_slice(&objects.to_json(object)).map_err(|error| error.to_string())?;
    if mutation.is_json_patch {
        return match json_patch::apply_or_explain(current, &operations(&value, meter)?) {
            Ok(patched) => objects.decode_strictly(patched).map(Some).map_err(not_decoded),
            Err(error) if error.ends_with(json_patch::TEST_FAILED) => Ok(None),
            Err(error) => Err(Failed::Policy(format!("JSON Patch: {error}"))),
        };
    }
    let configuration = configuration(&value, &current, meter)?;
    let applied = apply(&current, &configuration, &objects.type_ref)
        .map_err(|error| format!("error applying patch: {error}"))?;
    objects.decode(applied).map(Some).map_err(not_decoded)
}

/// Converts the error for an object that is no longer valid for its kind.
fn not_decoded(error: Error) -> Failed {
    Failed::Request(match error {
        Error::Unclassified(text) => Error::Internal(format!("failed to convert object: {text}")),
        other => other,
    })
}

/// Converts the value of an expression to a configuration, with the kind of the object.
fn configuration(value: &CelValue<'_>, current: &Value, meter: &Meter) -> Result<Value, String> {
    let CelValue::Object(literal) = value else {
        return Err("ApplyConfiguration expression must evaluate to an Object".to_owned());
    };
    // The limits of JSON also bound the check of names.
    let configuration = value.to_json(meter).map_err(|error| error.to_string())?;
    check_names(literal, "Object").map_err(|error| format!("type mismatch: {error}"))?;
    let mut configuration =
        configuration.ok_or("ApplyConfiguration has a value that cannot be represented in JSON")?;
    // The expression cannot change the apiVersion or the kind.
    for name in ["apiVersion", "kind"] {
        configuration[name] = current[name].clone();
    }
    Ok(configuration)
}

/// Merges an apply configuration into an object, if it has the types of its kind and replaces
/// nothing as a whole.
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

/// Checks that the types of objects are named by their paths.
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

/// Converts a list of `JSONPatch` values to a JSON patch.
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
        // An explicit null is a value, unlike a missing one.
        if matches!(operation.get("op").and_then(Value::as_str), Some("add" | "replace" | "test")) {
            operation.entry("value").or_insert(json!(null));
        }
        operations.push(Value::Object(operation));
    }
    Ok(Value::Array(operations))
}

impl AsyncAdmissionPlugin for MutatingAdmissionPolicy {
    fn handles(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> bool {
        let mutable =
            matches!(attributes.operation, Operation::Create | Operation::Update | Operation::Connect);
        // `dispatch` reports load errors.
        let Ok(bindings) = self.bindings.load(cluster) else { return mutable };
        if bindings.is_empty() || !mutable || self.context.is_excluded(attributes) {
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
