//! JSON patch, RFC 6902, with kube-apiserver's deviations:
//!
//! - `replace` of a missing member adds it; `copy` of a missing member and `add` without `value`
//!   yield null; `test` treats a missing member as null;
//! - a negative index counts from the end of the list; in `add`, `-1` is the position after the
//!   last element;
//! - text before the first `/` of a pointer is dropped;
//! - the whole document (`""`) can be replaced and tested, nothing else.
//!
//! A failing operation is always the same 422, and then no operation is applied. Operations that
//! would nest the document too deep, and those with which `copy` would add too much, fail too.

use serde_json::{Map, Value};

use super::PatchType;
use crate::codec::limits::{MAX_COLLECTIONS, MAX_DEPTH, measure};
use crate::go_value::cannot_unmarshal;
use crate::{Error, Result};

/// Upstream's `maxJSONPatchOperations`.
const MAX_OPERATIONS: usize = 10_000;

/// The bytes of JSON that all `copy` operations of a patch may add, so that a short patch cannot
/// create a huge object: kube-apiserver's `JSONPatchMaxCopyBytes`.
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// The work that the operations of a patch may cause, in list elements moved and values visited: a
/// few hundred milliseconds at most. Eight thousand insertions at the front of an empty list are
/// within it.
const MAX_WORK: usize = 32_000_000;

/// The cost of visiting a value, relative to moving one.
const VISIT_COST: usize = 4;

/// The end of the text of [`apply_or_explain`] for a `test` that does not hold.
pub const TEST_FAILED: &str = "test failed";

const FIELDS: [&str; 4] = ["op", "path", "from", "value"];

/// Applies the operations of `patch` to `target`, one after the other.
///
/// # Errors
/// 400 if the document is not a list of operations; 413 if it has more than `MAX_OPERATIONS` or
/// exceeds `MAX_WORK`; 422 if an operation fails.
pub fn apply(target: Value, patch: &Value) -> Result<Value> {
    let operations = read(patch).map_err(|reason| PatchType::Json.malformed(&reason))?;
    if operations.len() > MAX_OPERATIONS {
        return Err(Error::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut document = Document { root: target, copied_bytes: 0, copied_collections: 0, work: 0 };
    for operation in operations {
        document.apply(operation).ok_or(Error::Unprocessable)?;
        if document.work > MAX_WORK {
            return Err(Error::TooLarge("the JSON patch inserts, removes or moves too much".to_owned()));
        }
    }
    Ok(document.root)
}

/// Applies the operations of a webhook's `patch` to `target`, one after the other.
///
/// # Errors
/// The text of what fails, as Go's `json-patch` has it.
pub fn apply_or_explain(target: Value, patch: &Value) -> Result<Value, String> {
    let operations = read(patch)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(format!("the JSON patch has more than {MAX_OPERATIONS} operations"));
    }
    let mut document = Document { root: target, copied_bytes: 0, copied_collections: 0, work: 0 };
    for operation in operations {
        if document.apply(operation).is_none() {
            return Err(document.explain(operation));
        }
        if document.work > MAX_WORK {
            return Err("the JSON patch inserts, removes or moves too much".to_owned());
        }
    }
    Ok(document.root)
}

/// Returns the unknown members of operations, as messages for `fieldValidation`.
pub fn unknown_fields(patch: &Value) -> Vec<String> {
    let operations = patch.as_array().into_iter().flatten().enumerate();
    operations
        .filter_map(|(i, operation)| Some((i, operation.as_object()?)))
        .flat_map(|(i, members)| members.keys().map(move |name| (i, name)))
        .filter(|(_, name)| !FIELDS.contains(&name.as_str()))
        .map(|(i, name)| format!("unknown field \"[{i}].{name}\""))
        .collect()
}

/// Returns the operations of a document; null is an empty patch. Checks only the shape.
fn read(patch: &Value) -> Result<&[Value], String> {
    let operations = match patch {
        Value::Null => &[],
        Value::Array(operations) => operations.as_slice(),
        other => return Err(cannot_unmarshal(other, "value of type []handlers.jsonPatchOp")),
    };
    for operation in operations {
        match operation {
            Value::Null => {}
            Value::Object(members) => read_members(members)?,
            other => return Err(cannot_unmarshal(other, "value of type handlers.jsonPatchOp")),
        }
    }
    Ok(operations)
}

fn read_members(members: &Map<String, Value>) -> Result<(), String> {
    for name in ["op", "path", "from"] {
        match members.get(name) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => {
                return Err(cannot_unmarshal(
                    other,
                    &format!("struct field jsonPatchOp.{name} of type string"),
                ));
            }
        }
    }
    Ok(())
}

struct Document {
    root: Value,
    /// The bytes that `copy` has added so far.
    copied_bytes: usize,
    copied_collections: usize,
    work: usize,
}

impl Document {
    /// Applies one operation. Returns None if it fails.
    fn apply(&mut self, operation: &Value) -> Option<()> {
        let text = |name: &str| operation.get(name).and_then(Value::as_str);
        let value = || operation.get("value").cloned().unwrap_or(Value::Null);
        match text("op")? {
            "add" => self.add(text("path")?, value()),
            "remove" => self.remove(text("path")?).map(drop),
            "replace" => self.replace(text("path")?, value()),
            "move" => {
                let value = self.remove(text("from")?)?;
                self.add(text("path")?, value)
            }
            "copy" => {
                let value = self.copy(text("from")?)?;
                self.add(text("path")?, value)
            }
            "test" => {
                let expected = operation.get("value").unwrap_or(&Value::Null);
                let path = text("path")?;
                let found = if path.is_empty() { &self.root } else { self.get(path)? };
                (found == expected).then_some(())
            }
            _ => None,
        }
    }

    /// Returns the reason why an operation failed.
    fn explain(&mut self, operation: &Value) -> String {
        let text = |name: &str| operation.get(name).and_then(Value::as_str).unwrap_or_default();
        let op = text("op");
        let path = if matches!(op, "move" | "copy") { text("from") } else { text("path") };
        let key = unescape(path.rsplit('/').next().unwrap_or_default());
        let is_list = self.parent(path).map(|(parent, _)| parent.is_array());
        let at = format!("error in {op} for path: '{path}'");
        match (op, is_list) {
            ("add" | "remove", None) => {
                format!("{op} operation does not apply: doc is missing path: \"{path}\": missing value")
            }
            ("replace", None) => {
                format!("replace operation does not apply: doc is missing path: {path}: missing value")
            }
            ("test", None) => {
                format!("test operation does not apply: is missing path: {path}: missing value")
            }
            ("test", Some(true)) if self.get(path).is_none() => {
                format!("{at}: Unable to access invalid index: {key}: invalid index referenced")
            }
            ("move" | "copy", None) => {
                format!("{op} operation does not apply: doc is missing from path: {path}: missing value")
            }
            ("test", Some(_)) => format!("testing value {path} failed: {TEST_FAILED}"),
            ("replace", Some(_)) => {
                format!("replace operation does not apply: doc is missing key: {path}: missing value")
            }
            ("remove", Some(false)) => {
                format!("{at}: Unable to remove nonexistent key: {key}: missing value")
            }
            ("add" | "remove" | "move" | "copy", Some(_)) => {
                format!("{at}: Unable to access invalid index: {key}: invalid index referenced")
            }
            _ => format!("Unexpected kind: {op}"),
        }
    }

    /// Copies a value, within the limit of copies.
    fn copy(&mut self, pointer: &str) -> Option<Value> {
        let value = self.get(pointer)?;
        let size = measure(value);
        let bytes = serde_json::to_vec(value).map_or(usize::MAX, |json| json.len());
        let value = value.clone();
        self.work += size.nodes * VISIT_COST;
        self.copied_collections += size.collections;
        self.copied_bytes = self.copied_bytes.saturating_add(bytes);
        (self.copied_bytes <= MAX_COPIED && self.copied_collections <= MAX_COLLECTIONS).then_some(value)
    }

    /// Rejects a value that would be nested too deep at a position.
    fn check_depth(&mut self, pointer: &str, value: &Value) -> Option<()> {
        let size = measure(value);
        self.work += size.nodes * VISIT_COST;
        (depth_of(pointer) + size.depth <= MAX_DEPTH).then_some(())
    }

    fn get(&mut self, pointer: &str) -> Option<&Value> {
        let (parent, key) = self.parent(pointer)?;
        match parent {
            Value::Object(members) => Some(members.get(&key).unwrap_or(&Value::Null)),
            Value::Array(elements) => elements.get(index(&key, elements.len())?),
            _ => None,
        }
    }

    fn add(&mut self, pointer: &str, value: Value) -> Option<()> {
        self.check_depth(pointer, &value)?;
        let (parent, key) = self.parent(pointer)?;
        let mut moved = 0;
        match parent {
            Value::Object(members) => {
                members.insert(key, value);
            }
            Value::Array(elements) if key == "-" => elements.push(value),
            Value::Array(elements) => {
                let at = index(&key, elements.len() + 1)?;
                moved = elements.len() - at;
                elements.insert(at, value);
            }
            _ => return None,
        }
        self.work += moved;
        Some(())
    }

    fn remove(&mut self, pointer: &str) -> Option<Value> {
        let (parent, key) = self.parent(pointer)?;
        match parent {
            Value::Object(members) => members.remove(&key),
            Value::Array(elements) => {
                let at = index(&key, elements.len())?;
                let moved = elements.len() - at;
                let removed = elements.remove(at);
                self.work += moved;
                Some(removed)
            }
            _ => None,
        }
    }

    fn replace(&mut self, pointer: &str, value: Value) -> Option<()> {
        if pointer.is_empty() {
            self.root = Some(value).filter(|v| v.is_object() || v.is_array())?;
            return Some(());
        }
        self.check_depth(pointer, &value)?;
        let (parent, key) = self.parent(pointer)?;
        match parent {
            Value::Object(members) => {
                members.insert(key, value);
            }
            Value::Array(elements) => {
                let at = index(&key, elements.len())?;
                *elements.get_mut(at)? = value;
            }
            _ => return None,
        }
        Some(())
    }

    /// Returns the value that contains the target of `pointer`, and the target's key.
    fn parent(&mut self, pointer: &str) -> Option<(&mut Value, String)> {
        let (parents, key) = pointer.rsplit_once('/')?;
        let mut parent = &mut self.root;
        for name in parents.split('/').skip(1).map(unescape) {
            parent = match parent {
                Value::Object(members) => members.get_mut(&name)?,
                Value::Array(elements) => {
                    let at = index(&name, elements.len())?;
                    elements.get_mut(at)?
                }
                _ => return None,
            };
        }
        Some((parent, unescape(key)))
    }
}

/// Returns the depth of a pointer's target: the number of objects and arrays around it.
fn depth_of(pointer: &str) -> usize {
    pointer.bytes().filter(|byte| *byte == b'/').count()
}

pub(super) fn unescape(segment: &str) -> String {
    segment.replace("~1", "/").replace("~0", "~")
}

/// Resolves `key` to an index in a list of `len` elements; a negative one counts from the end.
pub(super) fn index(key: &str, len: usize) -> Option<usize> {
    let number: i64 = key.parse().ok()?;
    let at = if number < 0 { i64::try_from(len).ok()? + number } else { number };
    usize::try_from(at).ok().filter(|at| *at < len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::patch::arbitrary;

    fn patched(target: Value, operations: Value) -> Option<Value> {
        apply(target, &operations).ok()
    }

    #[test]
    fn operations_are_applied_in_order() {
        let list = || json!({"l": ["a", "b", "c"]});
        for (case, target, operation, want) in [
            ("add", json!({}), json!({"op": "add", "path": "/a", "value": 1}), Some(json!({"a": 1}))),
            (
                "add overwrites",
                json!({"a": 1}),
                json!({"op": "add", "path": "/a", "value": 2}),
                Some(json!({"a": 2})),
            ),
            ("add nothing", json!({}), json!({"op": "add", "path": "/a"}), Some(json!({"a": null}))),
            ("add below nothing", json!({}), json!({"op": "add", "path": "/a/b", "value": 1}), None),
            ("add below null", json!({"a": null}), json!({"op": "add", "path": "/a/b", "value": 1}), None),
            ("add below a scalar", json!({"a": "x"}), json!({"op": "add", "path": "/a/b", "value": 1}), None),
            (
                "insert",
                list(),
                json!({"op": "add", "path": "/l/1", "value": 1}),
                Some(json!({"l": ["a", 1, "b", "c"]})),
            ),
            (
                "append",
                list(),
                json!({"op": "add", "path": "/l/-", "value": 1}),
                Some(json!({"l": ["a", "b", "c", 1]})),
            ),
            (
                "behind the end",
                list(),
                json!({"op": "add", "path": "/l/3", "value": 1}),
                Some(json!({"l": ["a", "b", "c", 1]})),
            ),
            ("too far", list(), json!({"op": "add", "path": "/l/4", "value": 1}), None),
            (
                "from the end",
                list(),
                json!({"op": "add", "path": "/l/-1", "value": 1}),
                Some(json!({"l": ["a", "b", "c", 1]})),
            ),
            (
                "the very front",
                list(),
                json!({"op": "add", "path": "/l/-4", "value": 1}),
                Some(json!({"l": [1, "a", "b", "c"]})),
            ),
            ("before the front", list(), json!({"op": "add", "path": "/l/-5", "value": 1}), None),
            ("remove", json!({"a": 1}), json!({"op": "remove", "path": "/a"}), Some(json!({}))),
            ("remove nothing", json!({}), json!({"op": "remove", "path": "/a"}), None),
            (
                "remove the last",
                list(),
                json!({"op": "remove", "path": "/l/-1"}),
                Some(json!({"l": ["a", "b"]})),
            ),
            ("remove no element", list(), json!({"op": "remove", "path": "/l/-"}), None),
            (
                "replace",
                json!({"a": 1}),
                json!({"op": "replace", "path": "/a", "value": 2}),
                Some(json!({"a": 2})),
            ),
            (
                "replace adds",
                json!({}),
                json!({"op": "replace", "path": "/a", "value": 2}),
                Some(json!({"a": 2})),
            ),
            (
                "replace an element",
                list(),
                json!({"op": "replace", "path": "/l/-1", "value": 1}),
                Some(json!({"l": ["a", "b", 1]})),
            ),
            ("replace no element", list(), json!({"op": "replace", "path": "/l/3", "value": 1}), None),
            (
                "replace all",
                list(),
                json!({"op": "replace", "path": "", "value": {"a": 1}}),
                Some(json!({"a": 1})),
            ),
            ("replace all with null", list(), json!({"op": "replace", "path": "", "value": null}), None),
            (
                "move",
                json!({"a": 1}),
                json!({"op": "move", "from": "/a", "path": "/b"}),
                Some(json!({"b": 1})),
            ),
            ("move nothing", json!({}), json!({"op": "move", "from": "/a", "path": "/b"}), None),
            ("move into itself", json!({"a": {}}), json!({"op": "move", "from": "/a", "path": "/a/b"}), None),
            ("move without from", json!({"a": 1}), json!({"op": "move", "path": "/b"}), None),
            (
                "copy",
                json!({"a": 1}),
                json!({"op": "copy", "from": "/a", "path": "/b"}),
                Some(json!({"a": 1, "b": 1})),
            ),
            (
                "copy nothing",
                json!({}),
                json!({"op": "copy", "from": "/a", "path": "/b"}),
                Some(json!({"b": null})),
            ),
            ("copy no element", list(), json!({"op": "copy", "from": "/l/7", "path": "/b"}), None),
            (
                "test",
                json!({"a": [1]}),
                json!({"op": "test", "path": "/a", "value": [1]}),
                Some(json!({"a": [1]})),
            ),
            ("test fails", json!({"a": 1}), json!({"op": "test", "path": "/a", "value": 2}), None),
            (
                "integers are no floats",
                json!({"a": 1}),
                json!({"op": "test", "path": "/a", "value": 1.0}),
                None,
            ),
            (
                "test of nothing",
                json!({}),
                json!({"op": "test", "path": "/a", "value": null}),
                Some(json!({})),
            ),
            ("test without value", json!({"a": 1}), json!({"op": "test", "path": "/a"}), None),
            ("test below nothing", json!({}), json!({"op": "test", "path": "/a/b", "value": null}), None),
            (
                "test of all",
                json!({"a": 1}),
                json!({"op": "test", "path": "", "value": {"a": 1}}),
                Some(json!({"a": 1})),
            ),
            (
                "escapes",
                json!({"a/b": {"c~d": 1}}),
                json!({"op": "remove", "path": "/a~1b/c~0d"}),
                Some(json!({"a/b": {}})),
            ),
            ("escapes once", json!({"~1": 1}), json!({"op": "remove", "path": "/~01"}), Some(json!({}))),
            (
                "no leading slash",
                json!({}),
                json!({"op": "add", "path": "data/x", "value": 1}),
                Some(json!({"x": 1})),
            ),
            ("no slash at all", json!({}), json!({"op": "add", "path": "x", "value": 1}), None),
            ("the empty key", json!({}), json!({"op": "add", "path": "/", "value": 1}), Some(json!({"": 1}))),
            ("the whole", json!({}), json!({"op": "add", "path": "", "value": {}}), None),
            ("unknown", json!({}), json!({"op": "frobnicate", "path": "/a"}), None),
            ("no op", json!({}), json!({"path": "/a"}), None),
            ("no path", json!({}), json!({"op": "add", "path": null}), None),
            ("null", json!({}), json!(null), None),
        ] {
            assert_eq!(patched(target, json!([operation])), want, "{case}");
        }
    }

    #[test]
    fn documents_that_are_no_patch_are_rejected() {
        for (patch, code, want) in [
            (
                json!({}),
                400,
                "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            ),
            (
                json!("x"),
                400,
                "error decoding patch: json: cannot unmarshal string into Go value of type []handlers.jsonPatchOp",
            ),
            (
                json!([5]),
                400,
                "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
            ),
            (
                json!([{"op": 5}]),
                400,
                "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
            ),
            (json!([{"op": "x"}]), 422, "the server rejected our request due to an error in our request"),
            (
                json!(vec![json!({}); 10_001]),
                413,
                "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
            ),
        ] {
            let error = apply(json!({}), &patch).expect_err(want);
            assert_eq!((error.code(), error.to_string().as_str()), (code, want));
        }
        assert_eq!(patched(json!({"a": 1}), json!(null)), Some(json!({"a": 1})));
    }

    #[test]
    fn unknown_members_of_operations_are_reported() {
        let patch = json!([{"op": "add", "path": "/a", "value": 1}, {"op": "add", "Op": "x", "foo": 1}]);
        let want = ["unknown field \"[1].Op\"", "unknown field \"[1].foo\""];
        assert_eq!(unknown_fields(&patch), want);
    }

    /// Checks the limit on depth: a deep value that is copied into itself grows by doubling.
    #[test]
    fn the_depth_of_documents_is_bounded() {
        let nested = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({ "a": inner }));
        let deepest = |levels: usize| "/a".repeat(levels);
        for (levels, fits) in [(MAX_DEPTH - 1, true), (MAX_DEPTH, false)] {
            let add = json!([{"op": "add", "path": "/a", "value": nested(levels - 1)}]);
            assert_eq!(patched(json!({}), add).is_some(), fits, "{levels} added");
            let replace = json!([{"op": "replace", "path": "/a", "value": nested(levels - 1)}]);
            assert_eq!(patched(json!({"a": 1}), replace).is_some(), fits, "{levels} in place of another");
        }
        for op in ["copy", "move"] {
            let doubled = json!([{"op": op, "from": "/b", "path": deepest(80)}]);
            assert_eq!(patched(json!({"a": nested(80), "b": nested(80)}), doubled), None, "{op}");
        }
        let doubling: Vec<Value> = (0..20)
            .map(|i| json!({"op": "copy", "from": "/a", "path": deepest(30 << i.min(6)) + "/b"}))
            .collect();
        assert_eq!(patched(json!({"a": nested(60)}), json!(doubling)), None);
    }

    #[test]
    fn work_is_bounded() {
        let inserts = |count: usize| vec![json!({"op": "add", "path": "/l/0", "value": 1}); count];
        let (many, few) = (json!({"l": vec![0; 500_000]}), json!({"l": vec![0; 1000]}));
        assert!(patched(few, json!(inserts(5000))).is_some());
        let refused =
            apply(many.clone(), &json!(inserts(1000))).expect_err("half a billion elements to move");
        assert_eq!(refused.code(), 413, "{refused}");
        let back_and_forth: Vec<Value> = (0..1000)
            .flat_map(|_| [("/l", "/m"), ("/m", "/l")])
            .map(|(from, to)| json!({"op": "move", "from": from, "path": to}))
            .collect();
        assert_eq!(apply(many, &json!(back_and_forth)).expect_err("each move looks at all").code(), 413);
    }

    #[test]
    fn copies_are_bounded() {
        let double = json!({"op": "copy", "from": "/a", "path": "/a/-"});
        let target = json!({"a": ["x".repeat(1000)]});
        assert!(apply(target.clone(), &json!(vec![&double; 10])).is_ok());
        assert!(apply(target, &json!(vec![&double; 15])).is_err());
    }

    /// Generates JSON patches with operations that often apply.
    fn operations() -> impl Strategy<Value = Value> {
        let pointer = || {
            prop::collection::vec(prop_oneof![arbitrary::word(), "-?[0-3]"], 0..4)
                .prop_map(|p| format!("/{}", p.join("/")))
        };
        let name = prop::sample::select(&["add", "remove", "replace", "move", "copy", "test", "x"][..]);
        let operation = (name, pointer(), pointer(), arbitrary::json()).prop_map(
            |(op, from, path, value)| json!({"op": op, "from": from, "path": path, "value": value}),
        );
        prop::collection::vec(prop_oneof![8 => operation, 1 => arbitrary::json()], 0..5).prop_map(Value::from)
    }

    proptest! {
        #[test]
        fn removing_undoes_adding(target in arbitrary::object(), key in "[a-z~/]{1,5}", value in arbitrary::json()) {
            prop_assume!(target.get(&key).is_none());
            let path = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
            let both = json!([{"op": "add", "path": &path, "value": value}, {"op": "remove", "path": &path}]);
            prop_assert_eq!(patched(target.clone(), both), Some(target));
        }

        #[test]
        fn adding_undoes_removing(list in prop::collection::vec(arbitrary::json(), 1..5), at in 0..5usize) {
            prop_assume!(at < list.len());
            let (path, value) = (format!("/l/{at}"), list[at].clone());
            let both = json!([{"op": "remove", "path": &path}, {"op": "add", "path": &path, "value": value}]);
            prop_assert_eq!(patched(json!({"l": &list}), both), Some(json!({"l": &list})));
        }

        #[test]
        fn no_patch_panics(target in arbitrary::json(), patch in operations()) {
            if let Ok(patched) = apply(target, &patch) {
                prop_assert!(measure(&patched).depth <= MAX_DEPTH);
            }
        }
    }
}
