//! The packages of `facts.txt`.

use std::collections::HashMap;
use std::sync::OnceLock;

/// Returns the OpenAPI name of the package with the short name `short` in the table; empty if there
/// is none.
pub(super) fn package(short: &str) -> &'static str {
    static PACKAGES: OnceLock<HashMap<&'static str, &'static str>> = OnceLock::new();
    let packages = PACKAGES.get_or_init(|| {
        let lines = include_str!("facts.txt").lines();
        lines.filter_map(|line| line.strip_prefix("package ")?.split_once(' ')).collect()
    });
    packages.get(short).copied().unwrap_or_default()
}
