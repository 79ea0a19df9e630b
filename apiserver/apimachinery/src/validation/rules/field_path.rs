//! The `fieldPath` of a rule: a path relative to the value that the rule is about.
//!
//! Source: `ValidFieldPath` of apiextensions-apiserver's `schema/cel/validation.go`.

use serde_json::Value;

use crate::field::Path;

/// A path of members, which exist in the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(Vec<(String, bool)>);

impl FieldPath {
    /// Reads a path such as `.a['b c'].d`; None if it is malformed, or the schema has no such
    /// member.
    pub fn read(text: &str, schema: &Value) -> Option<FieldPath> {
        let (mut rest, mut schema) = (text.trim(), schema);
        if rest.is_empty() {
            return None;
        }
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (name, after) = if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                after.split_at_checked(end)?
            } else {
                let after = rest.strip_prefix("['")?;
                after.split_once("']")?
            };
            if name.is_empty() {
                return None;
            }
            let property = schema.get("properties").and_then(|properties| properties.get(name));
            let is_entry = property.is_none();
            schema =
                property.or_else(|| schema.get("additionalProperties").filter(|entry| entry.is_object()))?;
            steps.push((name.to_owned(), is_entry));
            rest = after;
        }
        Some(FieldPath(steps))
    }

    /// Returns this path as a path below another.
    pub fn below(&self, path: &Path) -> Path {
        let step = |path: Path, (name, is_entry): &(String, bool)| {
            if *is_entry { path.key(name) } else { path.child(name) }
        };
        self.0.iter().fold(path.clone(), step)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_exist_in_the_schema() {
        let schema = json!({"properties": {
            "a": {"properties": {"b.c": {}}}, "m": {"additionalProperties": {"type": "string"}},
        }});
        for (text, want) in [
            (".a", Some("spec.a")),
            (".a['b.c']", Some("spec.a.b.c")),
            ("['a']", Some("spec.a")),
            (".m.key", Some("spec.m[key]")),
            ("a", None),
            (".nope", None),
            (".a.", None),
            ("", None),
            (".a[0]", None),
        ] {
            let path = FieldPath::read(text, &schema).map(|path| path.below(&Path::of("spec")).to_string());
            assert_eq!(path.as_deref(), want, "{text}");
        }
    }
}
