//! Kinds of `metrics.k8s.io`, with the columns of metrics-server.

use coracle_apimachinery::render::columns::Text::Literal;
use coracle_apimachinery::render::columns::{Column, NAME, Row, string};
use coracle_quantity::Quantity;
use serde_json::Value;

const NO_TEXT: coracle_apimachinery::render::columns::Text = Literal("");

/// The columns of NodeMetrics.
pub const NODE_METRICS: &[Column] = &[
    NAME,
    string("cpu", NO_TEXT, |row| row.text("usage.cpu")),
    string("memory", NO_TEXT, |row| row.text("usage.memory")),
    string("Window", NO_TEXT, |row| row.text("window")),
];

/// The columns of PodMetrics: the usage of all containers together.
pub const POD_METRICS: &[Column] = &[
    NAME,
    string("cpu", NO_TEXT, |row| sum(row, "cpu")),
    string("memory", NO_TEXT, |row| sum(row, "memory")),
    string("Window", NO_TEXT, |row| row.text("window")),
];

fn sum(row: &Row<'_>, resource: &str) -> Value {
    let containers = row.get("containers").items();
    let amounts = containers
        .filter_map(|container| container.get("usage").get(resource).str().parse::<Quantity>().ok());
    amounts.reduce(|sum, amount| sum.plus(&amount)).map_or_else(String::new, |sum| sum.to_string()).into()
}
