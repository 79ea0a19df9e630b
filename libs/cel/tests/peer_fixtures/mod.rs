//! The environments in which expressions are compared, and their answers.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use coracle_cel::{
    Activation, DYN, DeclType, Env, EvalError, Host, Key, Limits, Map, Meter, Program, Value, environments,
};
use serde_json::{Value as Json, json};

const CALL_LIMIT: u64 = 1_000_000;

/// An environment with the values of its variables.
pub struct Fixture {
    env: Env,
    environment: Environment,
    variables: Vec<(String, Program)>,
    bindings: Json,
}

enum Environment {
    Rule {
        decl: Arc<DeclType>,
        optional: bool,
    },
    Admission,
    /// Selectors are compiled only.
    Device,
}

impl Fixture {
    /// Reads a fixture; None if its environment is unknown.
    pub fn read(json: &Json) -> Option<Fixture> {
        let bindings = json["bindings"].clone();
        let kind = json["environment"].as_str()?;
        let mut variables = Vec::new();
        let (env, environment) = match kind {
            "rule" | "optional-rule" => {
                let decl = Arc::new(DeclType::of_schema(&json["schema"], "selfType", json["root"] == true)?);
                let optional = kind == "optional-rule";
                (environments::rule(&decl, optional), Environment::Rule { decl, optional })
            }
            "device" => (environments::device(), Environment::Device),
            "condition" => (environments::admission(false), Environment::Admission),
            "policy" | "params-policy" | "mutation" => {
                let mut env = environments::with_variables(environments::admission(kind != "policy"));
                if kind == "mutation" {
                    env = environments::with_patch_types(env);
                }
                for variable in json["variables"].as_array().into_iter().flatten() {
                    let name = variable["name"].as_str()?;
                    let program = env.compile(variable["expression"].as_str()?).ok()?;
                    environments::add_variable(&mut env, name, program.output_type().clone());
                    variables.push((name.to_owned(), program));
                }
                (env, Environment::Admission)
            }
            _ => return None,
        };
        Some(Fixture { env, environment, variables, bindings })
    }

    fn compile(&self, expression: &str) -> Result<Program, String> {
        if matches!(self.environment, Environment::Device) {
            return environments::compile_selector(&self.env, expression);
        }
        let compiled = self.env.compile(expression).map_err(|error| error.to_string());
        compiled.map_err(|error| error.trim_start_matches("compilation failed: ").to_owned())
    }

    /// Evaluates an expression and returns the answer in the format of the recorded ones.
    pub fn answer(&self, expression: &str) -> Json {
        let mut answer = json!({"expression": expression});
        let program = match self.compile(expression) {
            Ok(program) => program,
            Err(issues) => {
                answer["issues"] = issues.into();
                return answer;
            }
        };
        answer["type"] = program.output_type().full_name().into();
        if matches!(self.environment, Environment::Rule { .. }) {
            answer["estimate"] = json!([program.min_cost(), program.max_cost()]);
        }
        if matches!(self.environment, Environment::Device) {
            answer["estimate"] = json!([0, program.max_cost()]);
            return answer;
        }
        let meter = Meter::new(Limits::REQUEST);
        let outcome = program.evaluate(&Variables { fixture: self, meter: &meter }, CALL_LIMIT, &meter);
        answer["cost"] = outcome.cost.into();
        match outcome.value {
            Ok(value) => answer["value"] = printed(&value),
            Err(error) => answer["error"] = error.to_string().into(),
        }
        answer
    }
}

struct Variables<'f> {
    fixture: &'f Fixture,
    meter: &'f Meter,
}

impl<'f> Activation<'f> for Variables<'f> {
    fn resolve(&self, name: &str) -> Option<Result<Value<'f>, EvalError>> {
        let bound = self.fixture.bindings.get(name);
        match &self.fixture.environment {
            Environment::Rule { decl, optional, .. } => {
                let value = bound.map(|json| Value::of_json(json, decl));
                match (name, *optional) {
                    ("self", _) | ("oldSelf", false) => value.map(Ok),
                    ("oldSelf", true) => Some(Ok(Value::Optional(value.map(Arc::new)))),
                    _ => None,
                }
            }
            Environment::Device => None,
            Environment::Admission => match name {
                "object" | "oldObject" | "params" | "namespaceObject" => {
                    Some(Ok(bound.map_or(Value::Null, |json| Value::of_json(json, &DYN))))
                }
                "request" => bound.map(|json| Ok(Value::of_json(json, &DYN))),
                "authorizer" => Some(Ok(Value::Host(Arc::new(Check::default())))),
                _ => None,
            },
        }
    }

    fn resolve_member(&self, name: &str, member: &str) -> Option<Result<Value<'f>, EvalError>> {
        match name {
            "authorizer" if member == "requestResource" => {
                let texts = ["apps", "deployments", "", "default", "web", ""].map(str::to_owned);
                Some(Ok(Value::Host(Arc::new(Check { kind: 3, texts, ..Check::default() }))))
            }
            "variables" => {
                let (_, program) = self.fixture.variables.iter().find(|(known, _)| known == member)?;
                Some(program.evaluate(self, CALL_LIMIT, self.meter).value.map_err(|error| {
                    EvalError::Other(format!("composited variable {member:?} fails to evaluate: {error}"))
                }))
            }
            _ => None,
        }
    }
}

/// An authorizer that decides by the verb: get is allowed, delete is denied with a reason, fail is
/// an error.
#[derive(Clone, Debug, Default)]
struct Check {
    kind: usize,
    user: String,
    /// The group, resource, subresource, namespace, name and path.
    texts: [String; 6],
    verb: String,
}

const CHECKS: [&str; 5] = ["Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision"];

impl Host for Check {
    fn type_name(&self) -> &'static str {
        match self.kind {
            0 => "kubernetes.authorization.Authorizer",
            1 => "kubernetes.authorization.PathCheck",
            2 => "kubernetes.authorization.GroupCheck",
            3 => "kubernetes.authorization.ResourceCheck",
            _ => "kubernetes.authorization.Decision",
        }
    }

    fn size(&self) -> usize {
        CHECKS.len()
    }

    fn call(&self, function: &str, args: &[Value<'_>]) -> Result<Value<'static>, EvalError> {
        let text = |at: usize| match args.get(at) {
            Some(Value::String(text)) => text.to_string(),
            _ => String::new(),
        };
        let mut next = self.clone();
        let user = if self.user.is_empty() { "alice" } else { &self.user };
        match function {
            "path" => (next.kind, next.texts[5]) = (1, text(0)),
            "group" => (next.kind, next.texts[0]) = (2, text(0)),
            "resource" => (next.kind, next.texts[1]) = (3, text(0)),
            "subresource" => next.texts[2] = text(0),
            "namespace" => next.texts[3] = text(0),
            "name" => next.texts[4] = text(0),
            "serviceAccount" => next.user = format!("system:serviceaccount:{}:{}", text(0), text(1)),
            "check" => (next.kind, next.verb) = (4, text(0)),
            "allowed" => return Ok(Value::Bool(self.verb == "get")),
            "errored" => return Ok(Value::Bool(self.verb == "fail")),
            "error" => return Ok(Value::text(if self.verb == "fail" { "out of order" } else { "" })),
            "reason" => {
                return Ok(Value::text(match self.verb.as_str() {
                    "get" => String::new(),
                    "delete" => format!("not by {user}"),
                    "fail" => "no answer".to_owned(),
                    _ => self.texts.join("|"),
                }));
            }
            _ => {}
        }
        Ok(Value::Host(Arc::new(next)))
    }
}

/// Formats a value like the recorded ones.
fn printed(value: &Value<'_>) -> Json {
    let shown = |value: &dyn fmt::Display| value.to_string();
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => (*value).into(),
        Value::String(text) => (**text).into(),
        Value::Uint(value) => json!({"uint": value.to_string()}),
        Value::Double(value) if value.is_nan() => json!({"double": "NaN"}),
        Value::Double(value) => json!({"double": value.to_string()}),
        Value::Bytes(bytes) => json!({"bytes": base64::engine::general_purpose::STANDARD.encode(bytes)}),
        Value::Duration(nanos) => json!({"duration": nanos}),
        Value::Timestamp(time) => json!({"timestamp": shown(&time.at)}),
        Value::Optional(None) => json!({"optional": []}),
        Value::Optional(Some(value)) => json!({"optional": [printed(value)]}),
        Value::Type(ty) => json!({"type": ty.name()}),
        Value::Quantity(quantity) => json!({"quantity": shown(quantity)}),
        Value::Semver(version) => json!({"semver": shown(&**version)}),
        Value::Ip(address) => json!({"ip": shown(address)}),
        Value::Cidr(cidr) => json!({"cidr": shown(cidr)}),
        Value::Url(url) => json!({"url": url.text}),
        Value::List(list) => list.iter().map(|item| printed(&item)).collect(),
        Value::Map(map) => json!({"map": entries(map)}),
        Value::Object(object) => {
            if !object.name.starts_with("Object") {
                return json!({"other": &*object.name});
            }
            let fields = value.to_json(&Meter::new(Limits::REQUEST)).ok().flatten();
            json!({"object": [&*object.name, fields]})
        }
        Value::Format(format) => json!({"format": format.name()}),
        Value::Host(host) => json!({"other": host.type_name()}),
    }
}

fn entries(map: &Map<'_>) -> Vec<[Json; 2]> {
    let text = |key: &Value<'_>| match Key::of(key) {
        Some(Key::String(text)) => text.to_string(),
        Some(Key::Bool(value)) => value.to_string(),
        Some(Key::Int(value)) => value.to_string(),
        Some(Key::Uint(value)) => value.to_string(),
        Some(Key::Double(_) | Key::Null) | None => String::new(),
    };
    let mut keys = map.keys();
    keys.sort_by_key(text);
    let value = |key: &Value<'_>| map.at(key).as_ref().map_or(Json::Null, printed);
    keys.iter().map(|key| [printed(key), value(key)]).collect()
}
