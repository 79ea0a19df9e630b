//! Dotted paths into JSON: `spec.replicas`, `items[0].metadata.name`, `items[].status`,
//! `labels."a.b/c"`.

use serde_json::Value;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct Path(Vec<Part>);

#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// A member of an object.
    Member(String),
    /// One element of a list.
    Element(usize),
    /// All elements of a list.
    Each,
}

impl Path {
    /// Parses a path. Unknown parts are skipped, as in `replay.py`.
    pub fn parse(text: &str) -> Path {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if let Some((name, after)) = quoted(rest) {
                parts.push(Part::Member(name.to_owned()));
                rest = after;
            } else if let Some((digits, after)) = bracketed(rest) {
                parts.push(digits.parse().map_or(Part::Each, Part::Element));
                rest = after;
            } else if ['.', '[', ']', '"'].contains(&first) {
                rest = &rest[first.len_utf8()..];
            } else {
                let (name, after) = rest.split_at(rest.find(['.', '[', ']', '"']).unwrap_or(rest.len()));
                parts.push(Part::Member(name.to_owned()));
                rest = after;
            }
        }
        Path(parts)
    }

    /// Returns the values at the path: none, one, or, if it maps over lists, many.
    pub fn values<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        self.0
            .iter()
            .fold(vec![root], |values, part| values.into_iter().flat_map(|value| part.of(value)).collect())
    }

    /// Returns the first of the values.
    pub fn first<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        self.values(root).first().copied()
    }

    /// Removes the members at the path.
    pub fn remove(&self, root: &mut Value) {
        remove(root, &self.0);
    }
}

impl Part {
    fn of<'a>(&self, value: &'a Value) -> &'a [Value] {
        match (self, value) {
            (Part::Member(name), Value::Object(members)) => {
                members.get(name).map(std::slice::from_ref).unwrap_or_default()
            }
            (Part::Element(index), Value::Array(elements)) => {
                elements.get(*index).map(std::slice::from_ref).unwrap_or_default()
            }
            (Part::Each, Value::Array(elements)) => elements,
            _ => &[],
        }
    }
}

fn remove(value: &mut Value, parts: &[Part]) {
    let Some((part, rest)) = parts.split_first() else { return };
    match (part, value) {
        (Part::Member(name), Value::Object(members)) if rest.is_empty() => {
            members.remove(name);
        }
        (Part::Member(name), Value::Object(members)) => {
            if let Some(member) = members.get_mut(name) {
                remove(member, rest);
            }
        }
        (Part::Element(index), Value::Array(elements)) => {
            if let Some(element) = elements.get_mut(*index) {
                remove(element, rest);
            }
        }
        (Part::Each, Value::Array(elements)) => elements.iter_mut().for_each(|e| remove(e, rest)),
        _ => {}
    }
}

/// Parses `"name"` and returns the rest of the text.
fn quoted(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('"')?.split_once('"').filter(|(name, _)| !name.is_empty())
}

/// Parses `[]` or `[12]`: returns the digits, and the rest of the text.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('[')?.split_once(']').filter(|(digits, _)| digits.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values() {
        let root = json!({"a": {"b.c/d": 1}, "items": [{"n": "x"}, {"m": 0}, {"n": "y"}]});
        for (path, want) in [
            ("a.\"b.c/d\"", json!([1])),
            ("items[].n", json!(["x", "y"])),
            ("items[2].n", json!(["y"])),
            ("items[7].n", json!([])),
            ("items.n", json!([])),
            ("a[]", json!([])),
            ("nothing", json!([])),
        ] {
            assert_eq!(json!(Path::parse(path).values(&root)), want, "{path}");
        }
    }

    #[test]
    fn removals() {
        for (path, want) in [
            ("a.b", json!({"a": {}, "l": [{"k": 1}, {"k": 2}]})),
            ("l[].k", json!({"a": {"b": 0}, "l": [{}, {}]})),
            ("l[1].k", json!({"a": {"b": 0}, "l": [{"k": 1}, {}]})),
            ("l[1]", json!({"a": {"b": 0}, "l": [{"k": 1}, {"k": 2}]})),
            ("a.x.y", json!({"a": {"b": 0}, "l": [{"k": 1}, {"k": 2}]})),
        ] {
            let mut root = json!({"a": {"b": 0}, "l": [{"k": 1}, {"k": 2}]});
            Path::parse(path).remove(&mut root);
            assert_eq!(root, want, "{path}");
        }
    }
}
