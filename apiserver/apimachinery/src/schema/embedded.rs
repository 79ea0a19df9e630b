//! The table that is part of the program.

use std::sync::OnceLock;

use super::table::Schema;
use super::{facts, resources};

/// Returns the table, which is read at the first call.
pub fn schema() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let mut schema = facts::read(include_str!("facts.txt"));
        (schema.groups, schema.resources) = resources::read(include_str!("resources.txt"), &schema);
        schema
    })
}
