//! `x-kubernetes-validations`: the rules of a schema, compiled, and evaluated against custom
//! resources.
//!
//! Source: apiextensions-apiserver's `pkg/apiserver/schema/cel`, `compilation.go` and
//! `validation.go`.

mod evaluate;
mod field_path;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_cel::{CompileError, DeclType, Env, Program, Type, environments};
use serde_json::Value;

pub use evaluate::validate;
pub use field_path::{FieldPath, Notation};

/// The rules of a schema and of all within it that have some.
#[derive(Debug, Default)]
pub struct RuleSet {
    root: Option<RuleNode>,
}

impl RuleSet {
    /// Compiles the rules of the OpenAPI v3 schema of a custom resource. What does not compile is
    /// reported when it is evaluated; a definition with such a rule is refused.
    pub fn read(schema: &Value) -> RuleSet {
        RuleSet::of_value(schema, true)
    }

    /// Compiles the rules of the schema of any value. `is_object`: of a whole object, with a type
    /// and metadata.
    pub fn of_value(schema: &Value, is_object: bool) -> RuleSet {
        RuleSet { root: RuleNode::read(schema, is_object, 0) }
    }

    /// Returns `true` if there are no rules.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }
}

/// Schemas are read so deep.
const MAX_DEPTH: usize = 100;

#[derive(Debug, Default)]
struct RuleNode {
    ty: String,
    decl: Option<Arc<DeclType>>,
    rules: Vec<CompiledRule>,
    properties: BTreeMap<String, RuleNode>,
    entries: Option<Box<RuleNode>>,
    items: Option<Box<RuleNode>>,
    /// The keys of the items of a list of type map; None for other lists: their items are
    /// not correlated.
    keys: Option<Vec<String>>,
}

impl RuleNode {
    fn read(schema: &Value, is_resource_root: bool, depth: usize) -> Option<RuleNode> {
        if depth > MAX_DEPTH {
            return None;
        }
        let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
        let inner = |schema: &Value| {
            let embedded = schema.get("x-kubernetes-embedded-resource").is_some_and(|flag| flag == true);
            RuleNode::read(schema, embedded, depth + 1)
        };
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
        let rules = rules.filter(|rules| !rules.is_empty());
        let decl =
            rules.and_then(|_| DeclType::of_schema(schema, "selfType", is_resource_root)).map(Arc::new);
        let environments = decl.as_ref().map(Environments::new);
        let compiled = rules
            .into_iter()
            .flatten()
            .filter_map(|rule| CompiledRule::read(rule, schema, environments.as_ref()?));
        let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
        let node = RuleNode {
            ty: text("type").to_owned(),
            rules: compiled.collect(),
            properties: properties
                .filter_map(|(name, schema)| Some((name.clone(), inner(schema)?)))
                .collect(),
            entries: schema.get("additionalProperties").and_then(inner).map(Box::new),
            items: schema.get("items").and_then(inner).map(Box::new),
            keys: (text("x-kubernetes-list-type") == "map").then(|| {
                keys.into_iter().flatten().filter_map(|key| key.as_str().map(str::to_owned)).collect()
            }),
            decl,
        };
        let has_rules = !node.rules.is_empty()
            || !node.properties.is_empty()
            || node.entries.is_some()
            || node.items.is_some();
        has_rules.then_some(node)
    }
}

/// A rule that can be evaluated.
#[derive(Debug)]
struct CompiledRule {
    rule: String,
    message: String,
    reason: String,
    field_path: Option<FieldPath>,
    optional_old_self: bool,
    uses_old_self: bool,
    program: Result<Program, String>,
    message_expression: String,
    message_program: Option<Program>,
}

impl CompiledRule {
    fn read(rule: &Value, schema: &Value, environments: &Environments) -> Option<CompiledRule> {
        let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("rule").trim().is_empty() {
            return None;
        }
        let optional_old_self = rule.get("optionalOldSelf").is_some_and(|flag| flag == true);
        let env = environments.get(optional_old_self);
        let program = compile(env, text("rule"));
        let uses_old_self = program.as_ref().is_ok_and(|program| program.names("oldSelf"));
        let message = text("messageExpression");
        Some(CompiledRule {
            rule: text("rule").trim().to_owned(),
            message: text("message").trim().to_owned(),
            reason: text("reason").to_owned(),
            field_path: FieldPath::read(text("fieldPath"), schema).ok(),
            optional_old_self,
            uses_old_self,
            program,
            message_expression: message.to_owned(),
            message_program: (!message.trim().is_empty())
                .then(|| compile_message(env, message).ok())
                .flatten(),
        })
    }

    /// Returns the message of the rule; without one, the rule.
    fn text(&self) -> &str {
        if self.message.is_empty() { &self.rule } else { &self.message }
    }
}

/// The variables of the rules of one schema. They have all its types, so that they are not made for
/// each rule.
pub struct Environments {
    decl: Arc<DeclType>,
    plain: OnceCell<Env>,
    optional: OnceCell<Env>,
}

impl Environments {
    /// Creates the environments for the rules of a type.
    pub fn new(decl: &Arc<DeclType>) -> Environments {
        Environments { decl: decl.clone(), plain: OnceCell::new(), optional: OnceCell::new() }
    }

    /// Returns the environment of a rule whose `oldSelf` may be absent, or that of other rules.
    pub fn get(&self, optional_old_self: bool) -> &Env {
        let env = if optional_old_self { &self.optional } else { &self.plain };
        env.get_or_init(|| environments::rule(&self.decl, optional_old_self))
    }
}

/// Compiles a rule.
///
/// # Errors
/// The detail of the error that the definition is refused with.
pub fn compile(env: &Env, rule: &str) -> Result<Program, String> {
    let program = env.compile(rule).map_err(|error| error.to_string())?;
    if *program.output_type() != Type::Bool {
        return Err("cel expression must evaluate to a bool".to_owned());
    }
    Ok(program)
}

/// Compiles the expression of a message.
///
/// # Errors
/// The detail of the error that the definition is refused with.
pub fn compile_message(env: &Env, expression: &str) -> Result<Program, String> {
    let program = env.compile(expression).map_err(|error| match error {
        CompileError::Issues(issues) => format!("messageExpression compilation failed: {issues}"),
        CompileError::Program(error) => format!("messageExpression instantiation failed: {error}"),
    })?;
    if *program.output_type() != Type::String {
        return Err("messageExpression must evaluate to a string".to_owned());
    }
    Ok(program)
}
