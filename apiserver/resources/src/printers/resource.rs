//! Dynamic resource allocation.

use coracle_apimachinery::render::columns::Text::{Field as Described, Literal};
use coracle_apimachinery::render::columns::{AGE, Column, NAME, Row, string};
use serde_json::Value;

/// The columns of ResourceClaim.
pub const RESOURCE_CLAIM: &[Column] = &[
    NAME,
    string(
        "State",
        Literal("A summary of the current state (allocated, pending, reserved, etc.)."),
        claim_state,
    ),
    AGE,
];

/// The columns of ResourceSlice.
pub const RESOURCE_SLICE: &[Column] = &[
    NAME,
    string("Node", Described("resource.v1.ResourceSliceSpec.nodeName"), |row| row.text("spec.nodeName")),
    string("Driver", Described("resource.v1.ResourceSliceSpec.driver"), |row| row.text("spec.driver")),
    string("Pool", Described("resource.v1.ResourcePool.name"), |row| row.text("spec.pool.name")),
    AGE,
];

fn claim_state(row: &Row<'_>) -> Value {
    let deleted = row.get("metadata.deletionTimestamp").exists();
    let allocated = row.get("status.allocation").exists();
    let reserved = allocated && !row.get("status.reservedFor").is_empty();
    let states = [
        (deleted, "deleted"),
        (!deleted && !allocated, "pending"),
        (allocated, "allocated"),
        (reserved, "reserved"),
    ];
    states
        .into_iter()
        .filter(|(holds, _)| *holds)
        .map(|(_, state)| state)
        .collect::<Vec<_>>()
        .join(",")
        .into()
}
