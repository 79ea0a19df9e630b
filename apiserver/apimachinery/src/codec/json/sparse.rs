//! Decoding of selected members of a document: the others are skipped without being built.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

/// Reads an object with only the values at some JSON pointers.
pub(super) struct Sparse<'a> {
    /// Without escapes, and none is empty.
    pub pointers: Vec<&'a str>,
}

impl<'a> Sparse<'a> {
    /// Returns the remainders of the pointers through a member; empty for a pointer to the member
    /// itself.
    fn pointers_below(&self, member: &str) -> Vec<&'a str> {
        let rest = |pointer: &&'a str| pointer.strip_prefix('/')?.strip_prefix(member);
        let rests = self.pointers.iter().filter_map(rest);
        rests.filter(|rest| rest.is_empty() || rest.starts_with('/')).collect()
    }
}

impl<'de> DeserializeSeed<'de> for Sparse<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Sparse<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(Name(name)) = members.next_key()? {
            let pointers = self.pointers_below(&name);
            let value = match &pointers[..] {
                [] => {
                    members.next_value::<IgnoredAny>()?;
                    continue;
                }
                all if all.iter().any(|rest| rest.is_empty()) => members.next_value()?,
                _ => members.next_value_seed(Sparse { pointers })?,
            };
            object.insert(name.into_owned(), value);
        }
        Ok(Value::Object(object))
    }
}

/// The name of a member, borrowed where it has no escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
