//! The `fieldPath` of a rule: a path relative to the value that the rule is about.
//!
//! Source: `ValidFieldPath` of apiextensions-apiserver's `schema/cel/validation.go`.

use serde_json::Value;

use crate::field::Path;

/// A path of members, which exist in the schema.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldPath(Vec<(String, bool)>);

/// The notations that a path may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    /// `.a.b`.
    Dots,
    /// `.a.b` and `['a'].b`.
    Any,
}

impl FieldPath {
    /// Reads a path such as `.a['b c'].d`.
    ///
    /// # Errors
    /// The path is malformed, or the schema has no such member.
    pub fn read(text: &str, schema: &Value) -> Result<FieldPath, String> {
        FieldPath::resolve(text, schema, Notation::Any).map(|(path, _)| path)
    }

    /// Reads a path, and finds the schema of its value; None if any value is permitted.
    ///
    /// # Errors
    /// The path is malformed, or the schema has no such member.
    pub fn resolve<'s>(
        text: &str,
        schema: &'s Value,
        notation: Notation,
    ) -> Result<(FieldPath, Option<&'s Value>), String> {
        let end = || "unexpected end of JSON path".to_owned();
        let (mut rest, mut schema, mut steps) = (text, Some(schema), Vec::new());
        while let Some(token) = next_token(&mut rest) {
            match token {
                "." => {
                    let name = next_token(&mut rest).ok_or_else(end)?;
                    schema = step(schema, name, &mut steps)?;
                }
                "[" if notation == Notation::Dots => return Err("array notation is not allowed".to_owned()),
                "[" => {
                    let quoted = next_token(&mut rest).ok_or_else(end)?;
                    let name = quoted.strip_prefix('\'').and_then(|name| name.strip_suffix('\''));
                    let name =
                        name.ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                    schema = step(schema, &unescape(name)?, &mut steps)?;
                    let bracket = next_token(&mut rest).ok_or_else(end)?;
                    if bracket != "]" {
                        return Err(format!("expected ] but got {bracket}"));
                    }
                }
                other => return Err(format!("expected [ or . but got: {other}")),
            }
        }
        Ok((FieldPath(steps), schema))
    }

    /// Returns the name of the first member; None if the path has none.
    pub fn root(&self) -> Option<&str> {
        self.0.first().map(|(name, _)| name.as_str())
    }

    /// Returns this path as a path below another.
    pub fn below(&self, path: &Path) -> Path {
        let step = |path: Path, (name, is_entry): &(String, bool)| {
            if *is_entry { path.key(name) } else { path.child(name) }
        };
        self.0.iter().fold(path.clone(), step)
    }
}

/// Cuts the next token off: one of `.`, `[` and `]`, a quoted text, or a text up to one of those.
fn next_token<'t>(rest: &mut &'t str) -> Option<&'t str> {
    let bytes = rest.as_bytes();
    let end = match bytes.first()? {
        b'.' | b'[' | b']' => 1,
        b'\'' => (1..bytes.len())
            .find(|at| bytes[*at] == b'\'' && bytes[at - 1] != b'\\')
            .map_or(bytes.len(), |at| at + 1),
        _ => rest.find(['.', '[', ']']).unwrap_or(bytes.len()),
    };
    let token;
    (token, *rest) = rest.split_at(end);
    Some(token)
}

/// Adds a member to the path, and returns its schema.
fn step<'s>(
    schema: Option<&'s Value>,
    name: &str,
    steps: &mut Vec<(String, bool)>,
) -> Result<Option<&'s Value>, String> {
    let unknown = || "does not refer to a valid field".to_owned();
    let schema = schema.ok_or_else(unknown)?;
    let properties = schema.get("properties").and_then(Value::as_object);
    let (member, is_entry) = match properties.filter(|properties| !properties.is_empty()) {
        Some(properties) => (Some(properties.get(name).ok_or_else(unknown)?), false),
        None => (schema.get("additionalProperties").ok_or_else(unknown)?.into(), true),
    };
    steps.push((name.to_owned(), is_entry));
    Ok(member.filter(|member| member.is_object()))
}

/// Resolves the escapes in a quoted name.
fn unescape(name: &str) -> Result<String, String> {
    let mut unescaped = String::with_capacity(name.len());
    let mut chars = name.chars();
    while let Some(char) = chars.next() {
        // A backslash at the end stands for itself.
        let escaped = if char == '\\' { chars.next() } else { None };
        unescaped.push(match escaped {
            None => char,
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some(same @ ('\'' | '\\')) => same,
            Some(other) => return Err(format!("invalid string literal: invalid escape char \\{other}")),
        });
    }
    Ok(unescaped)
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
            ("", Some("spec")),
            (".a[0]", None),
            (" .a", None),
            (".a ", None),
            (".m['']", Some("spec.m[]")),
            (".m['it\\'s']", Some("spec.m[it's]")),
        ] {
            let path = FieldPath::read(text, &schema).map(|path| path.below(&Path::of("spec")).to_string());
            assert_eq!(path.as_deref().ok(), want, "{text}");
        }
    }

    #[test]
    fn errors_say_where_a_path_is_wrong() {
        let schema = json!({"properties": {"a": {"type": "string"}, "m": {"additionalProperties": true}}});
        for (text, notation, want) in [
            ("a", Notation::Any, "expected [ or . but got: a"),
            (".a.", Notation::Any, "unexpected end of JSON path"),
            (".", Notation::Any, "unexpected end of JSON path"),
            ("['a'", Notation::Any, "unexpected end of JSON path"),
            ("['a'x", Notation::Any, "expected ] but got x"),
            ("[0]", Notation::Any, "expected single quoted string but got 0"),
            (r"['\x']", Notation::Any, r"invalid string literal: invalid escape char \x"),
            ("['a']", Notation::Dots, "array notation is not allowed"),
            (".b", Notation::Dots, "does not refer to a valid field"),
            (".a.b", Notation::Dots, "does not refer to a valid field"),
            (".m.a.b", Notation::Dots, "does not refer to a valid field"),
        ] {
            let error = FieldPath::resolve(text, &schema, notation).unwrap_err();
            assert_eq!(error, want, "{text}");
        }
    }
}
