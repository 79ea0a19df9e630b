//! Sets of fields: a tree of path elements, each of which may itself be owned.
//!
//! A path element is kept as `FieldsV1` writes it: `f:name` a member, `k:{"name":"a"}` an item told apart by keys, `v:"a"`
//! an item of a set, `i:0` an item by its place. So equal elements are equal strings, and a set and its JSON are the same
//! tree: `{}` is an owned leaf, `.` says that a node with parts is owned itself.
//!
//! A node that is not owned and has no parts is never kept.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::codec::json::write_untyped;

/// One step of a path, in its written form.
pub type Element = String;

/// A set of fields; also any node of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    owned: bool,
    parts: BTreeMap<Element, Set>,
}

/// A document that is no set of fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a set of fields at {0}")]
pub struct Malformed(String);

impl Set {
    pub fn is_empty(&self) -> bool {
        !self.owned && self.parts.is_empty()
    }

    /// Makes the node itself a member.
    pub fn own(&mut self) {
        self.owned = true;
    }

    /// Puts a part in its place, unless it is empty.
    pub fn insert(&mut self, element: impl FnOnce() -> Element, part: Set) {
        if !part.is_empty() {
            self.parts.entry(element()).or_default().absorb(part);
        }
    }

    /// The set of one field.
    pub fn of(path: &[&str]) -> Set {
        path.iter().rev().fold(Set { owned: true, parts: BTreeMap::new() }, |inner, element| Set {
            owned: false,
            parts: BTreeMap::from([((*element).to_owned(), inner)]),
        })
    }

    pub fn contains(&self, path: &[&str]) -> bool {
        match path.split_first() {
            None => self.owned,
            Some((element, rest)) => self.parts.get(*element).is_some_and(|part| part.contains(rest)),
        }
    }

    /// Adds the members of another set.
    pub fn absorb(&mut self, other: Set) {
        self.owned |= other.owned;
        if self.parts.is_empty() {
            self.parts = other.parts;
            return;
        }
        for (element, part) in other.parts {
            self.parts.entry(element).or_default().absorb(part);
        }
    }

    /// Takes away the members of another set; what lies below them stays.
    pub fn subtract(&mut self, other: &Set) {
        self.owned &= !other.owned;
        // Whichever has fewer parts is gone through: one change is taken from the sets of many managers.
        if self.parts.len() < other.parts.len() {
            self.parts.retain(|element, ours| {
                if let Some(theirs) = other.parts.get(element) {
                    ours.subtract(theirs);
                }
                !ours.is_empty()
            });
            return;
        }
        for (element, theirs) in &other.parts {
            if let Some(ours) = self.parts.get_mut(element) {
                ours.subtract(theirs);
                if ours.is_empty() {
                    self.parts.remove(element);
                }
            }
        }
    }

    /// The members that both have.
    #[must_use]
    pub fn intersection(&self, other: &Set) -> Set {
        let mut common = Set { owned: self.owned && other.owned, parts: BTreeMap::new() };
        for (element, ours) in &self.parts {
            if let Some(theirs) = other.parts.get(element) {
                common.insert(|| element.clone(), ours.intersection(theirs));
            }
        }
        common
    }

    /// Takes away a field and all that lies below it.
    pub fn prune(&mut self, path: &[&str]) {
        match path {
            [] => *self = Set::default(),
            [element, rest @ ..] => {
                if let Some(part) = self.parts.get_mut(*element) {
                    part.prune(rest);
                    if part.is_empty() {
                        self.parts.remove(*element);
                    }
                }
            }
        }
    }

    /// Reads `FieldsV1`. Elements of kinds that later versions may bring are left out.
    ///
    /// # Errors
    /// A node that is no object, or an element that does not parse.
    pub fn parse(fields: &Value) -> Result<Set, Malformed> {
        let mut set = Set::parse_node(fields)?;
        // The object as a whole is nobody's.
        set.owned = false;
        Ok(set)
    }

    fn parse_node(node: &Value) -> Result<Set, Malformed> {
        let mut set = Set::default();
        let none = Map::new();
        let parts = match node {
            Value::Object(parts) => parts,
            Value::Null => &none,
            other => return Err(Malformed(other.to_string())),
        };
        for (text, node) in parts {
            if text == "." {
                set.owned = true;
            } else if let Some(element) = canonical(text)? {
                let part = Set::parse_node(node)?;
                set.insert(|| element.into_owned(), part);
            }
        }
        set.owned |= set.parts.is_empty();
        Ok(set)
    }

    /// The set as `FieldsV1`.
    pub fn into_value(self) -> Value {
        let mut node = Map::new();
        if self.owned && !self.parts.is_empty() {
            node.insert(".".to_owned(), Value::Object(Map::new()));
        }
        node.extend(self.parts.into_iter().map(|(element, part)| (element, part.into_value())));
        Value::Object(node)
    }
}

/// The element of a member.
pub fn field(name: &str) -> Element {
    ["f:", name].concat()
}

/// The element of an item of a set.
pub fn value(item: &Value) -> Element {
    let mut text = b"v:".to_vec();
    write_untyped(item, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// The element of an item with keys, which come in the order of their names.
pub fn keys<'a>(keys: impl Iterator<Item = (&'a str, Cow<'a, Value>)>) -> Element {
    let mut text = b"k:".to_vec();
    let mut separator = b'{';
    for (name, value) in keys {
        text.extend_from_slice(&[separator, b'"']);
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b"\":");
        write_untyped(&value, &mut text);
        separator = b',';
    }
    text.push(b'}');
    String::from_utf8(text).unwrap_or_default()
}

/// An element as we would write it; None if its kind is not known.
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

    fn set(fields: Value) -> Set {
        Set::parse(&fields).unwrap()
    }

    #[test]
    fn reads_what_real_servers_and_clients_write() {
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
            ("values are packed", json!({"v: \"x\" ": {}, "i:01": {}}), json!({"v:\"x\"": {}, "i:1": {}})),
            ("unknown kinds are dropped", json!({"z:what": {}, "f:a": {}}), json!({"f:a": {}})),
            ("the whole object is nobody's", json!({".": {}}), json!({})),
        ] {
            assert_eq!(set(written).into_value(), want, "{case}");
        }
    }

    #[test]
    fn refuses_what_is_no_set() {
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
            assert!(Set::parse(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn prunes_whole_branches() {
        let mut pruned = set(
            json!({"f:spec": {".": {}, "f:a": {"f:x": {}}, "f:b": {"f:x": {}}}, "f:status": {"f:y": {}}}),
        );
        pruned.prune(&["f:spec", "f:a"]);
        pruned.prune(&["f:status"]);
        assert_eq!(pruned, set(json!({"f:spec": {".": {}, "f:b": {"f:x": {}}}})));
    }

    fn sets() -> impl Strategy<Value = Set> {
        let element = prop::sample::select(vec!["f:a", "f:b", "k:{\"n\":1}", "v:\"x\"", "i:0"]);
        let leaf = Just(Set { owned: true, parts: BTreeMap::new() });
        let node = leaf.prop_recursive(3, 24, 4, move |inner| {
            (any::<bool>(), prop::collection::btree_map(element.clone().prop_map(str::to_owned), inner, 1..4))
                .prop_map(|(owned, parts)| Set { owned, parts })
        });
        prop::collection::btree_map(
            prop::sample::select(vec!["f:a", "f:b", "f:c"]).prop_map(str::to_owned),
            node,
            0..4,
        )
        .prop_map(|parts| Set { owned: false, parts })
    }

    fn union(a: &Set, b: &Set) -> Set {
        let mut all = a.clone();
        all.absorb(b.clone());
        all
    }

    fn difference(a: &Set, b: &Set) -> Set {
        let mut rest = a.clone();
        rest.subtract(b);
        rest
    }

    proptest! {
        #[test]
        fn json_round_trips(a in sets()) {
            prop_assert_eq!(Set::parse(&a.clone().into_value()).unwrap(), a);
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
            prop_assert_eq!(union(&a, &b).intersection(&c), union(&a.intersection(&c), &b.intersection(&c)));
        }
    }
}
