//! The `x-kubernetes-validations` of a definition: errors in its rules, and their cost limits.
//!
//! Source: apiextensions-apiserver's `pkg/apis/apiextensions/validation`, `validation.go` and
//! `cel_validation.go`.

use std::sync::Arc;

use coracle_apimachinery::field::{Errors, Field, Path, escape_html, quote};
use coracle_apimachinery::validation::rules::{self, Environments, FieldPath};
use coracle_cel::{DeclType, Program};
use serde_json::Value;

/// The estimated cost that one rule may have.
const RULE_LIMIT: u64 = 10_000_000;
/// The estimated cost that all rules of a schema may have together.
const SCHEMA_LIMIT: u64 = 100_000_000;
/// The number of the most expensive rules that are reported.
const MAX_REPORTED: usize = 4;
/// The minimum cost of a reported rule.
const MIN_REPORTED_COST: u64 = SCHEMA_LIMIT / 100;
/// Schemas are read so deep.
const MAX_DEPTH: usize = 100;

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Validates the rules of a schema and of all within it. Rules of schemas in which there are errors
/// are not compiled.
///
/// - `known`: the other errors of the schema.
pub fn validate_rules(schema: &Field<'_>, known: &Errors, errors: &mut Errors) {
    let mut wrong: Vec<&str> = known.iter().map(|error| error.field.as_str()).collect();
    wrong.sort_unstable();
    let mut found = Found { wrong, of_texts: 0, of_rules: Errors::new() };
    let mut total = Total::default();
    let place = Place { cardinality: Some(1), ..Place::default() };
    validate_schema(schema, &place, true, 0, &mut total, &mut found, errors);
    errors.extend(found.of_rules);
    if total.cost > SCHEMA_LIMIT {
        for (_, path) in &total.expensive {
            let rule = Field::at(None, path.clone());
            errors.push(rule.forbidden(
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
            ));
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(schema.forbidden(exceeds(name, total.cost, SCHEMA_LIMIT)));
    }
}

/// The errors of a schema.
struct Found<'e> {
    /// The paths of known errors, sorted.
    wrong: Vec<&'e str>,
    /// The number of errors in the texts of rules.
    of_texts: usize,
    /// The errors of compiled rules, which are reported last.
    of_rules: Errors,
}

impl Found<'_> {
    /// Returns `true` if there are known errors at a path or below.
    fn is_known_wrong(&self, path: &Path) -> bool {
        let path = path.to_string();
        let has_below = |separator: char| {
            let begin = format!("{path}{separator}");
            let at = self.wrong.partition_point(|wrong| **wrong < *begin);
            self.wrong.get(at).is_some_and(|wrong| wrong.starts_with(&begin))
        };
        self.wrong.binary_search(&path.as_str()).is_ok() || has_below('.') || has_below('[')
    }
}

/// The context of a schema.
#[derive(Clone, Default)]
struct Place {
    /// The largest number of the schema's values in an object; None if it is not bounded.
    cardinality: Option<u64>,
    /// The schema within which new values are not correlated to old ones.
    uncorrelated: Option<Path>,
}

/// The estimated costs of all rules.
#[derive(Default)]
struct Total {
    cost: u64,
    expensive: Vec<(u64, Path)>,
}

impl Total {
    fn add(&mut self, cost: u64, path: Path) {
        self.cost = self.cost.saturating_add(cost);
        if cost < MIN_REPORTED_COST {
            return;
        }
        let at = self.expensive.partition_point(|(other, _)| *other >= cost);
        self.expensive.insert(at, (cost, path));
        self.expensive.truncate(MAX_REPORTED);
    }
}

fn validate_schema(
    schema: &Field<'_>,
    place: &Place,
    is_resource_root: bool,
    depth: usize,
    total: &mut Total,
    found: &mut Found<'_>,
    errors: &mut Errors,
) {
    if depth > MAX_DEPTH || errors.is_full() || found.of_rules.is_full() {
        return;
    }
    let before = found.of_texts;
    let number = |name: &str| schema.get(name).int().map(|number| number.max(0).unsigned_abs());
    let times = |max: Option<u64>| Some(place.cardinality?.saturating_mul(max?));
    let embedded = |schema: &Field<'_>| schema.get("x-kubernetes-embedded-resource").bool();
    let entry = schema.get("additionalProperties");
    if entry.value().is_some_and(Value::is_object) {
        let place =
            Place { cardinality: times(number("maxProperties")), uncorrelated: place.uncorrelated.clone() };
        validate_schema(&entry, &place, embedded(&entry), depth + 1, total, found, errors);
    }
    for (_, property) in schema.get("properties").entries() {
        validate_schema(&property, place, embedded(&property), depth + 1, total, found, errors);
    }
    let items = schema.get("items");
    if items.value().is_some_and(Value::is_object) {
        let uncorrelated = match &place.uncorrelated {
            None if schema.get("x-kubernetes-list-type").str() != "map" => Some(schema.path().clone()),
            known => known.clone(),
        };
        let place = Place { cardinality: times(number("maxItems")), uncorrelated };
        validate_schema(&items, &place, embedded(&items), depth + 1, total, found, errors);
    }
    let rules = schema.get("x-kubernetes-validations");
    if rules.is_empty() {
        return;
    }
    let others = errors.len();
    for rule in rules.items() {
        validate_texts(&rule, schema.value().unwrap_or(&Value::Null), errors);
    }
    found.of_texts += errors.len() - others;
    if found.of_texts > before || found.is_known_wrong(schema.path()) {
        return;
    }
    let Some(decl) =
        schema.value().and_then(|schema| DeclType::of_schema(schema, "selfType", is_resource_root))
    else {
        return found.of_rules.push(rules.internal("internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations"));
    };
    let cardinality = place.cardinality.unwrap_or_else(|| decl.max_cardinality());
    let environments = Environments::new(&Arc::new(decl));
    for rule in rules.items() {
        validate_rule(&rule, &environments, cardinality, place, total, &mut found.of_rules);
    }
}

/// Validates the texts of a rule, without compiling it.
fn validate_texts(rule: &Field<'_>, schema: &Value, errors: &mut Errors) {
    let (expression, message) = (rule.get("rule"), rule.get("message"));
    let message_expression = rule.get("messageExpression");
    let has_breaks = |field: &Field<'_>| field.str().trim().contains(['\n', '\r']);
    let blank = |field: &Field<'_>| field.str().trim().is_empty();
    if blank(&expression) {
        errors.push(expression.required("rule is not specified"));
    } else if !message.is_empty() && blank(&message) {
        errors.push(message.invalid("must be non-empty if specified"));
    } else if has_breaks(&message) {
        errors.push(message.invalid("must not contain line breaks"));
    } else if has_breaks(&expression) && blank(&message) {
        errors.push(message.required("message must be specified if rule contains line breaks"));
    }
    errors.push_if(!message_expression.is_empty() && blank(&message_expression), || {
        message_expression.required("messageExpression must be non-empty if specified")
    });
    let reason = rule.get("reason");
    errors.push_if(reason.exists() && !REASONS.contains(&reason.str()), || reason.not_supported(&REASONS));
    let path = rule.get("fieldPath");
    if path.is_empty() {
        return;
    }
    errors.push_if(blank(&path), || path.invalid("must be non-empty if specified"));
    errors.push_if(path.str().contains(['\n', '\r']), || path.invalid("must not contain line breaks"));
    errors.push_if(FieldPath::read(path.str(), schema).is_err(), || path.invalid("must be a valid path"));
}

fn validate_rule(
    rule: &Field<'_>,
    environments: &Environments,
    cardinality: u64,
    place: &Place,
    total: &mut Total,
    errors: &mut Errors,
) {
    let (expression, message) = (rule.get("rule"), rule.get("messageExpression"));
    let optional = rule.get("optionalOldSelf");
    let env = environments.get(optional.bool());
    let compiled = rules::compile(env, expression.str());
    let mut observe = |field: &Field<'_>, program: &Program, name: &str, errors: &mut Errors| {
        let cost = program.max_cost().saturating_mul(cardinality);
        errors.push_if(cost > RULE_LIMIT, || field.forbidden(exceeds(name, cost, RULE_LIMIT)));
        total.add(cost, field.path().clone());
    };
    let mut uses_old_self = false;
    match compiled {
        Ok(program) => {
            uses_old_self = program.names("oldSelf");
            observe(&expression, &program, "estimated rule cost", errors);
        }
        Err(detail) => {
            errors.push(expression.invalid(detail).with_bad_value_text(printed(rule)));
        }
    }
    if !message.is_empty() {
        match rules::compile_message(env, message.str()) {
            Ok(program) => observe(&message, &program, "estimated messageExpression cost", errors),
            Err(detail) => errors.push(message.invalid(detail).with_bad_value_text(printed(rule))),
        }
    }
    if uses_old_self {
        if let Some(path) = &place.uncorrelated {
            errors.push(expression.invalid(format!(
                "oldSelf cannot be used on the uncorrelatable portion of the schema within {path}"
            )));
        }
    } else if optional.exists() {
        errors.push(optional.invalid("may not be set if oldSelf is not used in rule"));
    }
}

/// Returns the message for a cost above its limit, in upstream's words.
fn exceeds(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// Returns a rule as Go prints its internal representation.
fn printed(rule: &Field<'_>) -> String {
    let text = |name: &str| Value::from(rule.get(name).str()).to_string();
    let reason = rule.get("reason");
    let reason = if reason.exists() { quote(reason.str()) } else { "null".to_owned() };
    let optional = rule.get("optionalOldSelf");
    let optional = if optional.exists() { optional.bool().to_string() } else { "null".to_owned() };
    escape_html(&format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{reason},\"FieldPath\":{},\"OptionalOldSelf\":{optional}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        text("fieldPath"),
    ))
}
