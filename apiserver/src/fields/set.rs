//! Sets of fields: a tree of path elements, each of which may itself be a member.
//!
//! A path element is stored as in `FieldsV1`: `f:name` is a member, `k:{"name":"a"}` an item with
//! keys, `v:"a"` an item of a set, `i:0` an item by its index. So equal elements are equal strings,
//! and a set and its JSON are the same tree: `{}` is a member without children, `.` marks a node
//! with children that is itself a member.
//!
//! A node that is neither a member nor has children is never stored.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::codec::json::fields_v1::Element;
use crate::codec::json::{write_string, write_untyped};

/// One step of a path, in its written form.
pub type PathElement = String;

/// A set of fields; also any node of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPathSet {
    owned: bool,
    children: BTreeMap<PathElement, FieldPathSet>,
}

/// A document that is not a valid set of fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a set of fields at {0}")]
pub struct Malformed(String);

impl FieldPathSet {
    /// Returns whether the set has no members.
    pub fn is_empty(&self) -> bool {
        !self.owned && self.children.is_empty()
    }

    /// Makes the node itself a member.
    pub fn insert_self(&mut self) {
        self.owned = true;
    }

    /// Adds a child, unless it is empty.
    pub fn insert(&mut self, element: impl FnOnce() -> PathElement, part: FieldPathSet) {
        if !part.is_empty() {
            self.children.entry(element()).or_default().union_with(part);
        }
    }

    /// Returns the set of one field.
    pub fn of(path: &[&str]) -> FieldPathSet {
        path.iter().rev().fold(FieldPathSet { owned: true, children: BTreeMap::new() }, |inner, element| {
            FieldPathSet { owned: false, children: BTreeMap::from([((*element).to_owned(), inner)]) }
        })
    }

    /// Returns whether a field is a member.
    pub fn contains(&self, path: &[&str]) -> bool {
        match path.split_first() {
            None => self.owned,
            Some((element, rest)) => self.children.get(*element).is_some_and(|part| part.contains(rest)),
        }
    }

    /// Returns whether the root of the set is a member.
    pub fn is_member(&self) -> bool {
        self.owned
    }

    /// Returns the subset below an element.
    pub fn child(&self, element: &str) -> Option<&FieldPathSet> {
        self.children.get(element)
    }

    /// Iterates over the elements with their subsets.
    pub fn children(&self) -> impl Iterator<Item = (&str, &FieldPathSet)> {
        self.children.iter().map(|(element, part)| (element.as_str(), part))
    }

    /// Returns whether the set has members below its root.
    pub fn has_children(&self) -> bool {
        !self.children.is_empty()
    }

    /// Iterates over the elements with mutable access to their subsets. None may be emptied.
    pub fn children_mut(&mut self) -> impl Iterator<Item = (&str, &mut FieldPathSet)> {
        self.children.iter_mut().map(|(element, part)| (element.as_str(), part))
    }

    /// Makes the node a member and removes everything below it.
    pub fn collapse(&mut self) {
        *self = FieldPathSet { owned: true, children: BTreeMap::new() };
    }

    /// Adds the members of another set.
    pub fn union_with(&mut self, other: FieldPathSet) {
        self.owned |= other.owned;
        if self.children.is_empty() {
            self.children = other.children;
            return;
        }
        for (element, part) in other.children {
            self.children.entry(element).or_default().union_with(part);
        }
    }

    /// Removes the members of another set; their children are kept.
    pub fn difference_with(&mut self, other: &FieldPathSet) {
        self.owned &= !other.owned;
        // Iterates over the set with fewer children: one change is removed from the sets of many
        // managers.
        if self.children.len() < other.children.len() {
            self.children.retain(|element, ours| {
                if let Some(theirs) = other.children.get(element) {
                    ours.difference_with(theirs);
                }
                !ours.is_empty()
            });
            return;
        }
        for (element, theirs) in &other.children {
            if let Some(ours) = self.children.get_mut(element) {
                ours.difference_with(theirs);
                if ours.is_empty() {
                    self.children.remove(element);
                }
            }
        }
    }

    /// Returns the members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &FieldPathSet) -> FieldPathSet {
        let mut common = FieldPathSet { owned: self.owned && other.owned, children: BTreeMap::new() };
        for (element, ours) in &self.children {
            if let Some(theirs) = other.children.get(element) {
                common.insert(|| element.clone(), ours.intersection(theirs));
            }
        }
        common
    }

    /// Returns whether all members of another set are members.
    pub fn is_superset(&self, other: &FieldPathSet) -> bool {
        (self.owned || !other.owned)
            && other.children.iter().all(|(element, theirs)| {
                self.children.get(element).is_some_and(|ours| ours.is_superset(theirs))
            })
    }

    /// Removes a field and all its children.
    pub fn prune(&mut self, path: &[&str]) {
        match path {
            [] => *self = FieldPathSet::default(),
            [element, rest @ ..] => {
                if let Some(part) = self.children.get_mut(*element) {
                    part.prune(rest);
                    if part.is_empty() {
                        self.children.remove(*element);
                    }
                }
            }
        }
    }

    /// Returns the members as errors print them: `.spec.ports[port=80].name`. A member comes before
    /// the members inside of it.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths("", &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &str, paths: &mut Vec<String>) {
        let mut children: Vec<_> = self.children().collect();
        children.sort_by_cached_key(|(element, _)| Element::of(element));
        let path = |element: &str| [prefix, &print(element)].concat();
        paths.extend(children.iter().filter(|(_, part)| part.owned).map(|(element, _)| path(element)));
        for (element, part) in children.iter().filter(|(_, part)| !part.children.is_empty()) {
            part.collect_paths(&path(element), paths);
        }
    }

    /// Parses `FieldsV1`. Elements of unknown kinds, which later versions may add, are left out.
    ///
    /// # Errors
    /// A node that is not an object, or an element that does not parse.
    pub fn parse(fields: &Value) -> Result<FieldPathSet, Malformed> {
        let mut set = FieldPathSet::parse_node(fields)?;
        // The object as a whole has no owner.
        set.owned = false;
        Ok(set)
    }

    fn parse_node(node: &Value) -> Result<FieldPathSet, Malformed> {
        let mut set = FieldPathSet::default();
        let none = Map::new();
        let children = match node {
            Value::Object(children) => children,
            Value::Null => &none,
            other => return Err(Malformed(other.to_string())),
        };
        for (text, node) in children {
            if text == "." {
                set.owned = true;
            } else if let Some(element) = canonical(text)? {
                let part = FieldPathSet::parse_node(node)?;
                set.insert(|| element.into_owned(), part);
            }
        }
        set.owned |= set.children.is_empty();
        Ok(set)
    }

    /// Returns the set as `FieldsV1`.
    pub fn into_value(self) -> Value {
        let mut node = Map::new();
        if self.owned && !self.children.is_empty() {
            node.insert(".".to_owned(), Value::Object(Map::new()));
        }
        node.extend(self.children.into_iter().map(|(element, part)| (element, part.into_value())));
        Value::Object(node)
    }
}

/// Returns an element as paths print it: `.name`, `[name="a",port=80]`, `[="a"]`, `[0]`.
pub fn print(element: &str) -> String {
    match Element::of(element) {
        Element::Field(name) => format!(".{name}"),
        Element::Keys(keys) => {
            let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        Element::Value(value) => format!("[={value}]"),
        Element::Index(index) => format!("[{index}]"),
    }
}

/// Returns the path element of a struct's or map's member.
pub fn field(name: &str) -> PathElement {
    ["f:", name].concat()
}

/// Returns the path element of an item of a list with type `set`.
pub fn value(item: &Value) -> PathElement {
    let mut text = b"v:".to_vec();
    write_untyped(item, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Returns the path element of an item of a list with type `map`, by its keys, which must be sorted
/// by name.
pub fn keys<'a>(keys: impl Iterator<Item = (&'a str, Cow<'a, Value>)>) -> PathElement {
    let mut text = b"k:{".to_vec();
    for (i, (name, value)) in keys.enumerate() {
        if i > 0 {
            text.push(b',');
        }
        write_string(name, &mut text);
        text.push(b':');
        write_untyped(&value, &mut text);
    }
    text.push(b'}');
    String::from_utf8(text).unwrap_or_default()
}

/// Returns a path element in canonical form; None if its kind is unknown.
fn canonical(text: &str) -> Result<Option<Cow<'_, str>>, Malformed> {
    let malformed = || Malformed(text.to_owned());
    let (kind, content) = match text.as_bytes() {
        [kind, b':', ..] => (*kind, &text[2..]),
        _ => return Err(malformed()),
    };
    let json = || serde_json::from_str::<Value>(content).map_err(|_| malformed());
    Ok(match kind {
        b'f' => Some(text.into()),
        b'v' => Some(value(&json()?).into()),
        b'k' => match json()? {
            Value::Object(members) => {
                let members = members.iter().map(|(name, value)| (name.as_str(), Cow::Borrowed(value)));
                Some(keys(members).into())
            }
            _ => return Err(malformed()),
        },
        b'i' => {
            let place: i64 = content.parse().map_err(|_| malformed())?;
            Some(format!("i:{place}").into())
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn set(fields: Value) -> FieldPathSet {
        FieldPathSet::parse(&fields).unwrap()
    }

    #[test]
    fn sets_of_real_servers_and_clients_are_read() {
        for (case, written, want) in [
            ("a leaf", json!({"f:data": {}}), json!({"f:data": {}})),
            (
                "an owned node with parts",
                json!({"f:data": {".": {}, "f:a": {}}}),
                json!({"f:data": {".": {}, "f:a": {}}}),
            ),
            ("a dot alone is a leaf", json!({"f:data": {".": {}}}), json!({"f:data": {}})),
            ("null is a leaf", json!({"f:data": null}), json!({"f:data": {}})),
            (
                "keys are sorted and packed",
                json!({"k:{\"b\": 1, \"a\" : \"<\"}": {}}),
                json!({"k:{\"a\":\"\\u003c\",\"b\":1}": {}}),
            ),
            ("names of keys are quoted", json!({r#"k:{"a\"b":1}"#: {}}), json!({r#"k:{"a\"b":1}"#: {}})),
            ("an item without keys", json!({"k:{ }": {}}), json!({"k:{}": {}})),
            ("values are packed", json!({"v: \"x\" ": {}, "i:01": {}}), json!({"v:\"x\"": {}, "i:1": {}})),
            ("unknown kinds are dropped", json!({"z:what": {}, "f:a": {}}), json!({"f:a": {}})),
            ("the whole object is nobody's", json!({".": {}}), json!({})),
        ] {
            assert_eq!(set(written).into_value(), want, "{case}");
        }
    }

    #[test]
    fn malformed_sets_are_refused() {
        for wrong in [
            json!(5),
            json!({"f:a": 5}),
            json!({"f": {}}),
            json!({"data": {}}),
            json!({"k:[]": {}}),
            json!({"k:{": {}}),
            json!({"v:": {}}),
            json!({"i:x": {}}),
        ] {
            assert!(FieldPathSet::parse(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pruning_removes_a_field_and_its_children() {
        let mut pruned = set(
            json!({"f:spec": {".": {}, "f:a": {"f:x": {}}, "f:b": {"f:x": {}}}, "f:status": {"f:y": {}}}),
        );
        pruned.prune(&["f:spec", "f:a"]);
        pruned.prune(&["f:status"]);
        assert_eq!(pruned, set(json!({"f:spec": {".": {}, "f:b": {"f:x": {}}}})));
    }

    fn sets() -> impl Strategy<Value = FieldPathSet> {
        let element = prop::sample::select(vec!["f:a", "f:b", "k:{\"n\":1}", "v:\"x\"", "i:0"]);
        let leaf = Just(FieldPathSet { owned: true, children: BTreeMap::new() });
        let node = leaf.prop_recursive(3, 24, 4, move |inner| {
            (any::<bool>(), prop::collection::btree_map(element.clone().prop_map(str::to_owned), inner, 1..4))
                .prop_map(|(owned, children)| FieldPathSet { owned, children })
        });
        prop::collection::btree_map(
            prop::sample::select(vec!["f:a", "f:b", "f:c"]).prop_map(str::to_owned),
            node,
            0..4,
        )
        .prop_map(|children| FieldPathSet { owned: false, children })
    }

    fn union(a: &FieldPathSet, b: &FieldPathSet) -> FieldPathSet {
        let mut all = a.clone();
        all.union_with(b.clone());
        all
    }

    fn difference(a: &FieldPathSet, b: &FieldPathSet) -> FieldPathSet {
        let mut rest = a.clone();
        rest.difference_with(b);
        rest
    }

    proptest! {
        #[test]
        fn json_round_trips(a in sets()) {
            prop_assert_eq!(FieldPathSet::parse(&a.clone().into_value()).unwrap(), a);
        }

        #[test]
        fn algebra_holds(a in sets(), b in sets(), c in sets()) {
            prop_assert_eq!(union(&a, &b), union(&b, &a));
            prop_assert_eq!(a.intersection(&b), b.intersection(&a));
            prop_assert_eq!(union(&a, &a), a.clone());
            prop_assert_eq!(union(&union(&a, &b), &c), union(&a, &union(&b, &c)));
            prop_assert!(difference(&a, &b).intersection(&b).is_empty());
            prop_assert_eq!(union(&difference(&a, &b), &a.intersection(&b)), a.clone());
            prop_assert_eq!(difference(&a, &union(&b, &c)), difference(&difference(&a, &b), &c));
            prop_assert!(difference(&a, &a).is_empty());
            prop_assert_eq!(a.is_superset(&b), difference(&b, &a).is_empty());
            prop_assert!(union(&a, &b).is_superset(&b));
            prop_assert_eq!(union(&a, &b).intersection(&c), union(&a.intersection(&c), &b.intersection(&c)));
        }
    }
}
