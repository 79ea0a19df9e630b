//! The empty `resourceVersion` in the metadata of stored bytes, which values in etcd do not have.

use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The member, as this server writes it.
const MEMBER: &str = "\"resourceVersion\":\"\"";

/// The members of `ObjectMeta` before it, in Go's order.
const BEFORE: [&str; 5] = ["name", "generateName", "namespace", "selfLink", "uid"];

/// The order of the members of the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The order of Go's type.
    Declared,
    /// By name, as in custom resources.
    Sorted,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

/// The relevant members of an object's metadata.
struct Members<'a> {
    /// The last value that the resourceVersion is inserted after.
    before: Option<&'a RawValue>,
    has_others: bool,
    resource_version: Option<&'a RawValue>,
}

/// Removes an empty resourceVersion; None if there is none in our format.
pub(super) fn remove(stored: &[u8]) -> Option<Vec<u8>> {
    let (metadata, members) = read(stored, Order::Declared)?;
    let value = members.resource_version.filter(|value| value.get() == "\"\"")?;
    let end = offset(stored, value)? + value.get().len();
    let start = end.checked_sub(MEMBER.len())?;
    if stored.get(start..end)? != MEMBER.as_bytes() || start < metadata {
        return None;
    }
    // With the comma after it, or otherwise the one before it.
    let (start, end) = match (stored.get(end)?, stored.get(start.checked_sub(1)?)?) {
        (b',', _) => (start, end + 1),
        (_, b',') => (start - 1, end),
        _ => (start, end),
    };
    Some([stored.get(..start)?, stored.get(end..)?].concat())
}

/// Inserts an empty resourceVersion at its place; the bytes themselves if they have one. None for
/// bytes of another form.
pub(super) fn insert(value: &Bytes, order: Order) -> Option<Bytes> {
    let (metadata, members) = read(value, order)?;
    if let Some(own) = members.resource_version {
        return (own.get() == "\"\"").then(|| value.clone());
    }
    let (at, text) = match members.before {
        Some(before) => (offset(value, before)? + before.get().len(), format!(",{MEMBER}")),
        None if members.has_others => (metadata + 1, format!("{MEMBER},")),
        None => (metadata + 1, MEMBER.to_owned()),
    };
    Some([value.get(..at)?, text.as_bytes(), value.get(at..)?].concat().into())
}

/// Returns the offset and the members of the metadata.
fn read(bytes: &[u8], order: Order) -> Option<(usize, Members<'_>)> {
    let object: Object<'_> = serde_json::from_slice(bytes).ok()?;
    let mut deserializer = serde_json::Deserializer::from_str(object.metadata.get());
    let members = deserializer.deserialize_map(MembersVisitor(order)).ok()?;
    Some((offset(bytes, object.metadata)?, members))
}

/// Returns the offset of a part of the bytes.
fn offset(bytes: &[u8], part: &RawValue) -> Option<usize> {
    (part.get().as_ptr() as usize).checked_sub(bytes.as_ptr() as usize)
}

struct MembersVisitor(Order);

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object's metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members = Members { before: None, has_others: false, resource_version: None };
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            let is_before = match self.0 {
                Order::Declared => BEFORE.contains(&&*name),
                Order::Sorted => *name < *"resourceVersion",
            };
            if *name == *"resourceVersion" {
                members.resource_version = Some(map.next_value()?);
            } else if is_before {
                members.before = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
            members.has_others |= *name != *"resourceVersion";
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_member_comes_and_goes_where_go_has_it() {
        for (order, value, stored) in [
            (
                Order::Declared,
                r#"{"kind":"A","apiVersion":"v1","metadata":{"name":"a","uid":"1","generation":2},"spec":{}}"#,
                r#"{"kind":"A","apiVersion":"v1","metadata":{"name":"a","uid":"1","resourceVersion":"","generation":2},"spec":{}}"#,
            ),
            (
                Order::Declared,
                r#"{"metadata":{"name":"a"}}"#,
                r#"{"metadata":{"name":"a","resourceVersion":""}}"#,
            ),
            (
                Order::Declared,
                r#"{"metadata":{"labels":{"name":"x"}}}"#,
                r#"{"metadata":{"resourceVersion":"","labels":{"name":"x"}}}"#,
            ),
            (Order::Declared, r#"{"metadata":{}}"#, r#"{"metadata":{"resourceVersion":""}}"#),
            (
                Order::Sorted,
                r#"{"a":{"metadata":{"resourceVersion":""}},"metadata":{"generation":1,"name":"a","uid":"1"},"z":1}"#,
                r#"{"a":{"metadata":{"resourceVersion":""}},"metadata":{"generation":1,"name":"a","resourceVersion":"","uid":"1"},"z":1}"#,
            ),
            (
                Order::Sorted,
                r#"{"metadata":{"annotations":{"a":"\"resourceVersion\":\"\""},"uid":"1"}}"#,
                r#"{"metadata":{"annotations":{"a":"\"resourceVersion\":\"\""},"resourceVersion":"","uid":"1"}}"#,
            ),
        ] {
            let inserted = insert(&Bytes::from_static(value.as_bytes()), order).expect(value);
            assert_eq!(inserted, stored, "{value}");
            assert_eq!(insert(&inserted, order).expect(stored), stored, "once");
            assert_eq!(remove(stored.as_bytes()).expect(stored), value.as_bytes(), "{stored}");
            assert_eq!(remove(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn other_forms_are_left_to_others() {
        for value in [r#"{"metadata":{"resourceVersion":"7"}}"#, r#"{"metadata":[]}"#, r#"{}"#, "", "{"] {
            assert_eq!(insert(&Bytes::from_static(value.as_bytes()), Order::Declared), None, "{value}");
            assert_eq!(remove(value.as_bytes()), None, "{value}");
        }
    }
}
