//! The variables of the expressions of one request.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use coracle_cel::{Activation, DYN, EvalError, Meter, Value as CelValue};
use serde_json::{Value, json};

use super::CALL_LIMIT;
use super::authorizer::{self, ResourceCheck};
use super::expression::Expression;
use crate::access::UserInfo;
use crate::access::authorize::Authorizer;
use crate::admission::AdmissionAttributes;
use crate::admission::generic::{VersionedObjects, operation_name, operation_options};
use crate::cluster::Cluster;
use crate::names::GroupResource;
use crate::{Error, Result};

/// The variables that a request provides to expressions.
pub struct RequestVariables {
    object: Value,
    old_object: Value,
    request: Value,
    namespace: Value,
    authorizer: Arc<Authorizer>,
    user: Arc<UserInfo>,
    resource: ResourceCheck,
}

impl RequestVariables {
    /// Creates the variables of a request, with its objects in the version of a match.
    ///
    /// # Errors
    /// The errors of reading the namespace.
    pub fn new(
        attributes: &AdmissionAttributes<'_>,
        objects: &VersionedObjects,
        authorizer: &Arc<Authorizer>,
        cluster: &dyn Cluster,
    ) -> Result<RequestVariables> {
        let shown = |object: &Option<Value>| match object {
            None => Ok(Value::Null),
            Some(object) => serde_json::from_slice(&objects.to_json(object))
                .map_err(|error| Error::Internal(error.to_string())),
        };
        let resource = attributes.resource;
        Ok(RequestVariables {
            object: shown(&objects.object)?,
            old_object: shown(&objects.old_object)?,
            request: request(attributes, objects),
            namespace: namespace(attributes, cluster)?,
            authorizer: authorizer.clone(),
            user: Arc::new(attributes.user.clone()),
            resource: ResourceCheck {
                group: resource.group.clone(),
                resource: resource.resource.clone(),
                subresource: attributes.subresource.to_owned(),
                namespace: attributes.namespace.to_owned(),
                name: attributes.name.to_owned(),
            },
        })
    }
}

impl<'a> Activation<'a> for &'a RequestVariables {
    fn resolve(&self, name: &str) -> Option<Result<CelValue<'a>, EvalError>> {
        let json = |value: &'a Value| Some(Ok(CelValue::of_json(value, &DYN)));
        match name {
            "object" => json(&self.object),
            "oldObject" => json(&self.old_object),
            "request" => json(&self.request),
            "namespaceObject" => json(&self.namespace),
            "authorizer" => Some(Ok(authorizer::authorizer(&self.authorizer, &self.user))),
            _ => None,
        }
    }

    fn resolve_member(&self, name: &str, member: &str) -> Option<Result<CelValue<'a>, EvalError>> {
        let is_resource = name == "authorizer" && member == "requestResource";
        let resource = || authorizer::request_resource(&self.authorizer, &self.user, self.resource.clone());
        is_resource.then(|| Ok(resource()))
    }
}

/// The variables of a policy: those of the request, a parameter, and composed ones, which are
/// evaluated when they are read.
pub struct PolicyVariables<'a> {
    request: &'a RequestVariables,
    params: &'a Value,
    composed: &'a [(String, Expression)],
    meter: &'a Meter,
    evaluated: RefCell<HashMap<&'a str, Result<CelValue<'a>, EvalError>>>,
    /// The cost of composed variables so far.
    pub cost: Cell<u64>,
}

impl<'a> PolicyVariables<'a> {
    /// Creates the variables of a policy.
    ///
    /// - `meter`: counts the work of all evaluations with these variables.
    pub fn new(
        request: &'a RequestVariables,
        params: &'a Value,
        composed: &'a [(String, Expression)],
        meter: &'a Meter,
    ) -> PolicyVariables<'a> {
        let (evaluated, cost) = (RefCell::default(), Cell::new(0));
        PolicyVariables { request, params, composed, meter, evaluated, cost }
    }

    fn composed(&self, name: &str) -> Option<Result<CelValue<'a>, EvalError>> {
        let known = |(known, _): &&(String, Expression)| known == name;
        // Of several variables with one name the last one counts.
        let (name, expression) = self.composed.iter().rfind(known)?;
        if let Some(value) = self.evaluated.borrow().get(name.as_str()) {
            return Some(value.clone());
        }
        // Such a variable can refer to the name, and so to itself.
        let circle = EvalError::Other(format!("composited variable {name:?} refers to itself"));
        self.evaluated.borrow_mut().insert(name, Err(circle));
        let value = match &expression.program {
            Ok(program) => {
                let outcome = program.evaluate(self, CALL_LIMIT, self.meter);
                self.cost.set(self.cost.get().saturating_add(outcome.cost));
                outcome.value.map_err(|error| error.to_string())
            }
            Err(error) => Err(error.clone()),
        };
        let value = value.map_err(|error| {
            EvalError::Other(format!("composited variable {name:?} fails to evaluate: {error}"))
        });
        self.evaluated.borrow_mut().insert(name, value.clone());
        Some(value)
    }
}

impl<'a> Activation<'a> for PolicyVariables<'a> {
    fn resolve(&self, name: &str) -> Option<Result<CelValue<'a>, EvalError>> {
        match name {
            "params" => Some(Ok(CelValue::of_json(self.params, &DYN))),
            _ => self.request.resolve(name),
        }
    }

    fn resolve_member(&self, name: &str, member: &str) -> Option<Result<CelValue<'a>, EvalError>> {
        if name == "variables" { self.composed(member) } else { self.request.resolve_member(name, member) }
    }
}

fn namespace(attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<Value> {
    let name = attributes.request_namespace();
    // A namespace is not in itself.
    if name.is_empty() || attributes.is_any("", "namespaces") {
        return Ok(Value::Null);
    }
    Ok(cluster.get(&GroupResource::new("", "namespaces"), "", name)?.unwrap_or(Value::Null))
}

fn request(attributes: &AdmissionAttributes<'_>, objects: &VersionedObjects) -> Value {
    let resource = attributes.resource;
    let user = attributes.user;
    let requested = attributes.kind;
    let mut user_info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        user_info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        user_info["extra"] = json!(user.extra);
    }
    let mut request = json!({
        "kind": {"group": &*objects.group, "version": &*objects.version, "kind": &*objects.kind},
        "resource": {
            "group": &*objects.info.group, "version": &*objects.info.version, "resource": &*objects.info.plural,
        },
        "requestKind": {"group": requested.group, "version": requested.version, "kind": requested.kind},
        "requestResource": {
            "group": resource.group, "version": attributes.version, "resource": resource.resource,
        },
        "operation": operation_name(attributes.operation),
        "userInfo": user_info,
        "dryRun": attributes.options.dry_run(),
        "options": operation_options(attributes),
    });
    // Go leaves out empty texts.
    for (name, text) in [
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
        ("name", attributes.name),
        ("namespace", attributes.request_namespace()),
    ] {
        if !text.is_empty() {
            request[name] = text.into();
        }
    }
    request
}
