//! Limits of documents: how deep and how large a decoded value may be, whatever format it came in and whatever patch made
//! it. One place for all, since values are built, compared, written and dropped recursively.

use serde_json::Value;

/// How deep objects and arrays may be nested in a document that a client sends or a patch makes. `serde_json`, with which
/// controllers and many clients read, stops at 127 levels, and lists, tables and watch events add up to four. (Go stops
/// at 10,000.)
pub const MAX_DEPTH: usize = 120;

/// How deep a document may be that is read back from the store. Above [`MAX_DEPTH`], so that whatever was stored under a
/// larger limit can still be read and deleted, and lists of it written.
pub const MAX_STORED_DEPTH: usize = 600;

/// How many objects and arrays a document may have: each takes hundreds of bytes in memory, defaults add to it, and the
/// densest of honest objects hold two thirds of this. (Go reads them all, and the real server gives up on them after half a
/// minute.)
pub const MAX_COLLECTIONS: usize = 30_000;

/// The size of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// Levels of nested objects and arrays; 0 for a scalar.
    pub depth: usize,
    /// Objects and arrays.
    pub collections: usize,
    /// Values of any type.
    pub nodes: usize,
}

/// Measures a value. Takes time linear in its size, and a stack linear in its depth.
pub fn measure(value: &Value) -> Measure {
    let mut whole = Measure { nodes: 1, ..Measure::default() };
    let mut add = |inner: &Value| {
        let inner = measure(inner);
        whole.depth = whole.depth.max(inner.depth);
        whole.collections += inner.collections;
        whole.nodes += inner.nodes;
    };
    match value {
        Value::Array(items) => items.iter().for_each(&mut add),
        Value::Object(members) => members.values().for_each(&mut add),
        _ => return whole,
    }
    Measure { depth: whole.depth + 1, collections: whole.collections + 1, ..whole }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_measured() {
        for (value, depth, collections, nodes) in [
            (json!(1), 0, 0, 1),
            (json!({}), 1, 1, 1),
            (json!([1, "a", null]), 1, 1, 4),
            (json!({"a": [[], {"b": {}}], "c": 1}), 4, 5, 6),
        ] {
            assert_eq!(measure(&value), Measure { depth, collections, nodes }, "{value}");
        }
    }

    #[test]
    fn lists_and_tables_of_the_deepest_object_are_read_by_serde_json() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(serde_json::from_str::<Value>(&nested(MAX_DEPTH + 4)).is_ok());
        assert!(serde_json::from_str::<Value>(&nested(128)).is_err());
    }
}
