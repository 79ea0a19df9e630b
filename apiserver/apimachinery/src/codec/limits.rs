//! Limits of documents: the depth and size of a decoded value, whatever its format or the patch
//! that created it. One place for all, since values are built, compared, written and dropped
//! recursively.

use serde_json::Value;

/// The maximum depth of objects and arrays in a document of a client or the result of a patch.
/// `serde_json`, which controllers and many clients use, stops at 127 levels, and lists, tables and
/// watch events add up to four. (Go stops at 10,000.)
pub const MAX_DEPTH: usize = 120;

/// The maximum depth of a stored document. Above [`MAX_DEPTH`], so that objects that were stored
/// under a larger limit can still be read, listed and deleted.
pub const MAX_STORED_DEPTH: usize = 600;

/// The maximum number of objects and arrays in a document: each takes hundreds of bytes in memory,
/// defaults add to it, and the densest realistic objects have two thirds of this. (Go reads them
/// all, and kube-apiserver gives up on them after half a minute.)
pub const MAX_COLLECTIONS: usize = 30_000;

/// The limits of a document that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Levels of nested objects and arrays.
    pub depth: usize,
    /// Objects and arrays, each of which takes up to 650 bytes in memory.
    pub collections: usize,
    /// Elements of arrays and members of objects, each of which takes up to 120 bytes.
    pub values: usize,
}

impl Limits {
    /// The limits of a document that a client sends. Its bytes bound its values.
    pub const REQUEST: Limits = Limits { depth: MAX_DEPTH, collections: MAX_COLLECTIONS, values: usize::MAX };
    /// The limits of a stored document.
    pub const STORED: Limits =
        Limits { depth: MAX_STORED_DEPTH, collections: usize::MAX, values: usize::MAX };
    /// The limits of what is read of a response of another server, such as an admission webhook: in
    /// memory it takes less than 16 MiB. An object at [`MAX_DEPTH`] fits in it.
    pub const RESPONSE: Limits = Limits { depth: MAX_DEPTH + 7, collections: 12_000, values: 60_000 };

    /// Returns these limits, plus `times` the size of some documents.
    #[must_use]
    pub fn plus(self, times: usize, documents: Measure) -> Limits {
        let add = |limit: usize, size: usize| limit.saturating_add(size.saturating_mul(times));
        Limits {
            depth: self.depth,
            collections: add(self.collections, documents.collections),
            values: add(self.values, documents.nodes),
        }
    }
}

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

impl std::iter::Sum for Measure {
    fn sum<I: Iterator<Item = Measure>>(measures: I) -> Measure {
        measures.fold(Measure::default(), |sum, next| Measure {
            depth: sum.depth.max(next.depth),
            collections: sum.collections + next.collections,
            nodes: sum.nodes + next.nodes,
        })
    }
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
