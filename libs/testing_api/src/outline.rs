//! Objects without the members that states do not depend on, which are skipped while they are read.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

/// The members of an object that are left out.
const DATA: [&str; 3] = ["data", "binaryData", "stringData"];
/// The members of its metadata that are left out.
const METADATA: [&str; 1] = ["managedFields"];

/// Reads an object; null if it cannot be read.
pub fn read(bytes: &[u8]) -> Value {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = Members { left_out: &DATA, metadata: Some(&METADATA) }.deserialize(&mut reader);
    read.unwrap_or_default()
}

/// The members of an object, except some.
struct Members {
    /// The members to omit.
    left_out: &'static [&'static str],
    /// The members of its metadata to omit.
    metadata: Option<&'static [&'static str]>,
}

impl<'de> DeserializeSeed<'de> for Members {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut read = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if self.left_out.contains(&name.as_str()) {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = match self.metadata.filter(|_| name == "metadata") {
                Some(left_out) => members.next_value_seed(Members { left_out, metadata: None })?,
                None => members.next_value()?,
            };
            read.insert(name, value);
        }
        Ok(Value::Object(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn data_and_managed_fields_are_skipped() {
        for (object, want) in [
            (
                r#"{"kind":"Secret","metadata":{"name":"a","managedFields":[{"time":1}],"labels":{"data":"x"}},"data":{"k":"v"},"stringData":{}}"#,
                json!({"kind": "Secret", "metadata": {"name": "a", "labels": {"data": "x"}}}),
            ),
            (
                r#"{"spec":{"data":{"a":1},"metadata":{"managedFields":1}}}"#,
                json!({"spec": {"data": {"a": 1}, "metadata": {"managedFields": 1}}}),
            ),
            (r#"{"metadata":"text"}"#, Value::Null),
            ("[]", Value::Null),
            ("{", Value::Null),
        ] {
            assert_eq!(read(object.as_bytes()), want, "{object}");
        }
    }
}
