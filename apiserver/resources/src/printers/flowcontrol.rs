//! API priority and fairness.

use coracle_apimachinery::field::Field;
use coracle_apimachinery::render::columns::Text::{Field as Described, Literal};
use coracle_apimachinery::render::columns::{AGE, Column, NAME, Row, string};
use serde_json::Value;

/// The columns of FlowSchema.
pub const FLOW_SCHEMA: &[Column] = &[
    NAME,
    string("PriorityLevel", Described("flowcontrol.v1.PriorityLevelConfigurationReference.name"), |row| {
        row.text("spec.priorityLevelConfiguration.name")
    }),
    string("MatchingPrecedence", Described("flowcontrol.v1.FlowSchemaSpec.matchingPrecedence"), |row| {
        row.integer("spec.matchingPrecedence")
    }),
    string("DistinguisherMethod", Described("flowcontrol.v1.FlowSchemaSpec.distinguisherMethod"), |row| {
        row.set_or("spec.distinguisherMethod.type", "<none>")
    }),
    AGE,
    string("MissingPL", Literal("references a broken or non-existent PriorityLevelConfiguration"), |row| {
        let mut conditions = row.get("status.conditions").items();
        let dangling = conditions.find(|c| c.get("type").str() == "Dangling");
        dangling.map_or("?", |c| c.get("status").str()).into()
    }),
];

/// Returns the sort key for the order in which schemas are matched.
pub fn matching_order(schema: &Value) -> (i64, String) {
    let schema = Field::root(schema);
    let precedence = schema.walk("spec.matchingPrecedence").int().unwrap_or(0);
    (precedence, schema.walk("metadata.name").str().to_owned())
}

/// The columns of PriorityLevelConfiguration.
pub const PRIORITY_LEVEL_CONFIGURATION: &[Column] = &[
    NAME,
    string("Type", Described("flowcontrol.v1.PriorityLevelConfigurationSpec.type"), |row| {
        row.text("spec.type")
    }),
    string(
        "NominalConcurrencyShares",
        Described("flowcontrol.v1.LimitedPriorityLevelConfiguration.nominalConcurrencyShares"),
        |row| within(row, "spec.limited", "nominalConcurrencyShares"),
    ),
    string("Queues", Described("flowcontrol.v1.QueuingConfiguration.queues"), |row| {
        within(row, QUEUING, "queues")
    }),
    string("HandSize", Described("flowcontrol.v1.QueuingConfiguration.handSize"), |row| {
        within(row, QUEUING, "handSize")
    }),
    string("QueueLengthLimit", Described("flowcontrol.v1.QueuingConfiguration.queueLengthLimit"), |row| {
        within(row, QUEUING, "queueLengthLimit")
    }),
    AGE,
];

const QUEUING: &str = "spec.limited.limitResponse.queuing";

/// Returns a number from a part that only some priority levels have.
fn within(row: &Row<'_>, part: &str, member: &str) -> Value {
    let part = row.get(part);
    if part.exists() { part.get(member).int().unwrap_or(0).into() } else { "<none>".into() }
}
