//! Disruption budgets and quotas.

use coracle_apimachinery::field::Field;
use coracle_apimachinery::render::columns::Text::Literal;
use coracle_apimachinery::render::columns::{AGE, Column, NAME, Row, integer, string};
use serde_json::Value;

/// The columns of PodDisruptionBudget.
pub const POD_DISRUPTION_BUDGET: &[Column] = &[
    NAME,
    string("Min Available", Literal("The minimum number of pods that must be available."), |row| {
        int_or_string(&row.get("spec.minAvailable"))
    }),
    string("Max Unavailable", Literal("The maximum number of pods that may be unavailable."), |row| {
        int_or_string(&row.get("spec.maxUnavailable"))
    }),
    integer(
        "Allowed Disruptions",
        Literal("Calculated number of pods that may be disrupted at this time."),
        |row| row.integer("status.disruptionsAllowed"),
    ),
    AGE,
];

/// The columns of ResourceQuota.
pub const RESOURCE_QUOTA: &[Column] = &[
    NAME,
    string(
        "Request",
        Literal("Request represents a minimum amount of cpu/memory that a container may consume."),
        |row| usage(row, false),
    ),
    string(
        "Limit",
        Literal(
            "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
        ),
        |row| usage(row, true),
    ),
    AGE,
];

fn int_or_string(field: &Field<'_>) -> Value {
    match field.value() {
        None => "N/A".into(),
        Some(Value::String(text)) => text.as_str().into(),
        Some(number) => number.to_string().into(),
    }
}

/// Returns `RESOURCE: used/hard` of the limits, or of all other resources.
fn usage(row: &Row<'_>, limits: bool) -> Value {
    let used = row.get("status.used");
    let quantity = |field: Field<'_>| if field.exists() { field.str().to_owned() } else { "0".into() };
    let of_resource = |(resource, hard): (&str, Field<'_>)| {
        format!("{resource}: {}/{}", quantity(used.get(resource)), quantity(hard))
    };
    let wanted = |(resource, _): &(&str, Field<'_>)| resource.starts_with("limits.") == limits;
    row.get("status.hard").entries().filter(wanted).map(of_resource).collect::<Vec<_>>().join(", ").into()
}
