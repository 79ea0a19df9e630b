//! Limits of documents: the depth and size of a decoded value, whatever its format or the patch that created it. One
//! place for all, since values are built, compared, written and dropped recursively.

use serde_json::Value;

/// The maximum depth of objects and arrays in a document of a client or the result of a patch. `serde_json`, which
/// controllers and many clients use, stops at 127 levels, and lists, tables and watch events add up to four. (Go stops
/// at 10,000.)
pub const MAX_DEPTH: usize = 120;

/// The maximum depth of a stored document. Above [`MAX_DEPTH`], so that objects that were stored under a larger limit
/// can still be read, listed and deleted.
pub const MAX_STORED_DEPTH: usize = 600;

/// The maximum number of objects and arrays in a document: each takes hundreds of bytes in memory, defaults add to it,
/// and the densest realistic objects have two thirds of this. (Go reads them all, and the real server gives up on them
/// after half a minute.)
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

/// Measures a value, in time linear in its size and a stack linear in its depth.
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
