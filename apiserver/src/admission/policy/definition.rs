//! Policies and bindings as they are stored, with their expressions compiled.

use std::sync::Arc;

use coracle_apimachinery::validation::expressions::PolicyEnv;
use coracle_cel::Type;
use serde_json::Value;

use super::expression::Expression;
use super::{Compiled, MatchConditions};
use crate::admission::generic::MatchCriteria;
use crate::admission::json::{items, text};

/// The common parts of both kinds of policies.
pub struct Policy {
    pub name: String,
    pub criteria: MatchCriteria,
    /// `failurePolicy` is Fail.
    pub fails: bool,
    /// `apiVersion` and `kind` of the parameters.
    pub param_kind: Option<(String, String)>,
    /// `reinvocationPolicy` is IfNeeded.
    pub reinvoke_if_needed: bool,
    pub expressions: Compiled<Expressions>,
}

/// The expressions of a policy.
pub struct Expressions {
    pub conditions: MatchConditions,
    /// The variables, in the order of their declaration.
    pub variables: Vec<(String, Expression)>,
    pub validations: Vec<Validation>,
    pub audit_annotations: Vec<(String, Expression)>,
    pub mutations: Vec<Mutation>,
}

/// One entry of `validations`.
pub struct Validation {
    pub expression: Expression,
    pub message: String,
    pub message_expression: Option<Expression>,
    pub reason: String,
}

/// One entry of `mutations`.
pub struct Mutation {
    pub is_json_patch: bool,
    pub expression: Expression,
}

impl Policy {
    pub fn read(object: &Value) -> Vec<Policy> {
        let spec = &object["spec"];
        let params = &spec["paramKind"];
        let param_kind = params
            .is_object()
            .then(|| (text(&params["apiVersion"]).to_owned(), text(&params["kind"]).to_owned()));
        vec![Policy {
            name: text(&object["metadata"]["name"]).to_owned(),
            criteria: MatchCriteria::of_match_resources(&spec["matchConstraints"]),
            fails: spec["failurePolicy"] != "Ignore",
            param_kind,
            reinvoke_if_needed: spec["reinvocationPolicy"] == "IfNeeded",
            expressions: Compiled::new(spec, Expressions::compile),
        }]
    }
}

/// Returns the type of a variable that has the value of an expression: what has no declaration is
/// known at runtime only.
fn declared(ty: &Type) -> Type {
    match ty {
        Type::List(item) => Type::List(Arc::new(declared(item))),
        Type::Map(entry) => Type::Map(Arc::new((declared(&entry.0), declared(&entry.1)))),
        Type::Any
        | Type::Null
        | Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String
        | Type::Bytes
        | Type::Duration
        | Type::Timestamp => ty.clone(),
        _ => Type::Dyn,
    }
}

impl Expressions {
    fn compile(spec: &Value) -> Expressions {
        let base = PolicyEnv::new(spec["paramKind"].is_object());
        let conditions = MatchConditions::read(&spec["matchConditions"], &base);
        let mut env = base.with_variables();
        if spec["mutations"].is_array() {
            env = env.with_patch_types();
        }
        let mut variables = Vec::new();
        for variable in items(&spec["variables"]) {
            let Some(expression) = Expression::read(&variable["expression"], &env) else { continue };
            let ty = expression.program.as_ref().map_or(Type::Dyn, |program| declared(program.output_type()));
            env.add_variable(text(&variable["name"]), ty);
            variables.push((text(&variable["name"]).to_owned(), expression));
        }
        let message_env = env.without_authorizer();
        let validation = |validation: &Value| {
            Some(Validation {
                expression: Expression::read(&validation["expression"], &env)?,
                message: text(&validation["message"]).trim().to_owned(),
                message_expression: Expression::read(&validation["messageExpression"], &message_env),
                reason: text(&validation["reason"]).to_owned(),
            })
        };
        let annotation = |annotation: &Value| {
            let expression = Expression::read(&annotation["valueExpression"], &env)?;
            Some((text(&annotation["key"]).to_owned(), expression))
        };
        let mutation = |mutation: &Value| {
            let is_json_patch = mutation["patchType"] == "JSONPatch";
            let member = if is_json_patch { "jsonPatch" } else { "applyConfiguration" };
            let expression = Expression::read(&mutation[member]["expression"], &env)?;
            Some(Mutation { is_json_patch, expression })
        };
        Expressions {
            conditions,
            validations: items(&spec["validations"]).iter().filter_map(validation).collect(),
            audit_annotations: items(&spec["auditAnnotations"]).iter().filter_map(annotation).collect(),
            mutations: items(&spec["mutations"]).iter().filter_map(mutation).collect(),
            variables,
        }
    }
}

/// A binding of a policy.
pub struct Binding {
    pub name: String,
    pub policy: String,
    pub criteria: MatchCriteria,
    pub param_ref: Option<Value>,
    /// `validationActions`.
    pub actions: Vec<String>,
}

impl Binding {
    pub fn read(object: &Value) -> Vec<Binding> {
        let spec = &object["spec"];
        vec![Binding {
            name: text(&object["metadata"]["name"]).to_owned(),
            policy: text(&spec["policyName"]).to_owned(),
            criteria: MatchCriteria::of_match_resources(&spec["matchResources"]),
            param_ref: spec.get("paramRef").filter(|param| param.is_object()).cloned(),
            actions: items(&spec["validationActions"]).iter().map(|action| text(action).to_owned()).collect(),
        }]
    }

    /// Iterates over the actions, as metrics name them.
    pub fn observed_actions(&self) -> impl Iterator<Item = &'static str> {
        let names = [("Deny", "deny"), ("Audit", "audit"), ("Warn", "warn")];
        names.into_iter().filter(move |(action, _)| self.has_action(action)).map(|(_, name)| name)
    }

    pub fn has_action(&self, action: &str) -> bool {
        self.actions.iter().any(|known| known == action)
    }
}
