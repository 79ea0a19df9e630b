//! The text of a patched object in errors, as kube-apiserver's JSON library prints it.
//!
//! That library decodes an object or a list only when a patch visits it. What was visited is
//! printed with its members sorted by name; everything else stands as it was written, in the object
//! or in the patch.
//!
//! Source: `gopkg.in/evanphx/json-patch.v4`, `patch.go` and `merge.go`.

use std::collections::BTreeMap;

use super::json::{index, unescape};
use crate::codec::json::{for_each_item, for_each_member, write_string};

/// Applies a JSON patch to `document` and returns the resulting text; None for texts that are not
/// documents.
pub(super) fn json_patched(document: &str, patch: &str) -> Option<String> {
    let mut root = Node::of(document);
    let mut operations = Vec::new();
    for_each_item(patch.as_bytes(), |text| operations.push(Node::of(&String::from_utf8_lossy(text)))).ok()?;
    if !operations.is_empty() {
        root.enter();
    }
    for mut operation in operations {
        root.apply(operation.object()?)?;
    }
    Some(root.printed())
}

/// Applies a merge patch to `document` and returns the resulting text.
pub(super) fn merge_patched(document: &str, patch: &str) -> Option<String> {
    let (mut root, mut patch) = (Node::of(document), Node::of(patch));
    merge_members(root.object()?, patch.object()?);
    Some(root.printed())
}

/// A value: its text, or its parts once it was visited.
#[derive(Clone)]
enum Node {
    Text(String),
    Object(BTreeMap<String, Node>),
    Array(Vec<Node>),
}

impl Node {
    fn of(text: &str) -> Node {
        Node::Text(text.trim().to_owned())
    }

    fn is_null(&self) -> bool {
        matches!(self, Node::Text(text) if text == "null")
    }

    /// Returns the members of an object; None for other values.
    fn object(&mut self) -> Option<&mut BTreeMap<String, Node>> {
        if let Node::Text(text) = self
            && text.starts_with('{')
        {
            let mut members = BTreeMap::new();
            let mut add = |name: std::borrow::Cow<'_, str>, text: &[u8]| {
                members.insert(name.into_owned(), Node::of(&String::from_utf8_lossy(text)));
            };
            for_each_member(text.as_bytes(), &mut add).ok()?;
            *self = Node::Object(members);
        }
        if let Node::Object(members) = self { Some(members) } else { None }
    }

    /// Returns the items of a list; None for other values.
    fn array(&mut self) -> Option<&mut Vec<Node>> {
        if let Node::Text(text) = self
            && text.starts_with('[')
        {
            let mut items = Vec::new();
            for_each_item(text.as_bytes(), |text| items.push(Node::of(&String::from_utf8_lossy(text))))
                .ok()?;
            *self = Node::Array(items);
        }
        if let Node::Array(items) = self { Some(items) } else { None }
    }

    /// Visits the value itself.
    fn enter(&mut self) {
        if self.object().is_none() {
            self.array();
        }
    }

    /// Visits the value and everything inside.
    fn visit(&mut self) {
        if let Some(members) = self.object() {
            members.values_mut().for_each(Node::visit);
        } else if let Some(items) = self.array() {
            items.iter_mut().for_each(Node::visit);
        }
    }

    /// Visits everything inside, and drops members that are null.
    fn drop_nulls(&mut self) {
        if let Some(members) = self.object() {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(Node::drop_nulls);
        } else if let Some(items) = self.array() {
            items.iter_mut().for_each(Node::drop_nulls);
        }
    }

    fn apply(&mut self, operation: &mut BTreeMap<String, Node>) -> Option<()> {
        let op = text_of(operation, "op")?;
        let path = text_of(operation, "path")?;
        let value = operation.remove("value").unwrap_or_else(|| Node::of("null"));
        match op.as_str() {
            "add" => self.add(&path, value),
            "remove" => self.remove(&path).map(drop),
            "replace" if path.is_empty() => {
                *self = value;
                self.enter();
                Some(())
            }
            "replace" => self.replace(&path, value),
            "move" => {
                let moved = self.remove(&text_of(operation, "from")?)?;
                self.add(&path, moved)
            }
            "copy" => {
                let from = text_of(operation, "from")?;
                self.get(&from)?;
                // Go visits the way to the target before it copies, and prints what was visited sorted.
                self.parent(&path)?;
                let copied = self.get(&from)?.clone();
                self.add(&path, copied)
            }
            "test" => {
                let tested = if path.is_empty() { Some(self) } else { self.get(&path) };
                if let Some(tested) = tested {
                    tested.visit();
                }
                Some(())
            }
            _ => None,
        }
    }

    fn get(&mut self, pointer: &str) -> Option<&mut Node> {
        let (parent, key) = self.parent(pointer)?;
        match parent {
            Node::Object(members) => Some(members.entry(key).or_insert_with(|| Node::of("null"))),
            parent => {
                let items = parent.array()?;
                let at = index(&key, items.len())?;
                items.get_mut(at)
            }
        }
    }

    fn add(&mut self, pointer: &str, value: Node) -> Option<()> {
        let (parent, key) = self.parent(pointer)?;
        if let Node::Object(members) = parent {
            members.insert(key, value);
            return Some(());
        }
        let items = parent.array()?;
        let at = if key == "-" { items.len() } else { index(&key, items.len() + 1)? };
        items.insert(at, value);
        Some(())
    }

    fn remove(&mut self, pointer: &str) -> Option<Node> {
        let (parent, key) = self.parent(pointer)?;
        if let Node::Object(members) = parent {
            return members.remove(&key);
        }
        let items = parent.array()?;
        let at = index(&key, items.len())?;
        Some(items.remove(at))
    }

    fn replace(&mut self, pointer: &str, value: Node) -> Option<()> {
        *self.get(pointer)? = value;
        Some(())
    }

    /// Returns the visited object or list that contains the target of `pointer`, and the target's
    /// key.
    fn parent(&mut self, pointer: &str) -> Option<(&mut Node, String)> {
        let (parents, key) = pointer.rsplit_once('/')?;
        let mut parent = self;
        for name in parents.split('/').skip(1).map(unescape) {
            parent = match parent.object().is_some() {
                true => parent.object()?.get_mut(&name)?,
                false => {
                    let items = parent.array()?;
                    let at = index(&name, items.len())?;
                    items.get_mut(at)?
                }
            };
        }
        if parent.object().is_none() {
            parent.array()?;
        }
        Some((parent, unescape(key)))
    }

    fn printed(&self) -> String {
        let mut out = Vec::new();
        self.print(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn print(&self, out: &mut Vec<u8>) {
        match self {
            Node::Text(text) => compact(text, out),
            Node::Object(members) => {
                let mut separator = b'{';
                for (name, member) in members {
                    out.push(separator);
                    write_string(name, out);
                    out.push(b':');
                    member.print(out);
                    separator = b',';
                }
                if members.is_empty() {
                    out.push(b'{');
                }
                out.push(b'}');
            }
            Node::Array(items) => {
                out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    item.print(out);
                }
                out.push(b']');
            }
        }
    }
}

/// Returns the text of a member of an operation.
fn text_of(operation: &BTreeMap<String, Node>, name: &str) -> Option<String> {
    let Node::Text(text) = operation.get(name)? else { return None };
    serde_json::from_str(text).ok()
}

fn merge_members(target: &mut BTreeMap<String, Node>, patch: &mut BTreeMap<String, Node>) {
    for (name, mut value) in std::mem::take(patch) {
        match target.get_mut(&name) {
            _ if value.is_null() => _ = target.remove(&name),
            Some(current) if !current.is_null() => merge(current, value),
            _ => {
                value.drop_nulls();
                target.insert(name, value);
            }
        }
    }
}

fn merge(current: &mut Node, mut value: Node) {
    match (current.object(), value.object()) {
        (Some(members), Some(changes)) => merge_members(members, changes),
        (Some(_), None) => *current = value,
        (None, _) => {
            value.drop_nulls();
            *current = value;
        }
    }
}

/// Writes JSON text without white space between its tokens, and with the escapes that make it safe
/// inside of HTML.
fn compact(text: &str, out: &mut Vec<u8>) {
    let mut is_in_string = false;
    let mut is_escaped = false;
    let mut buffer = [0; 4];
    for character in text.chars() {
        match character {
            ' ' | '\t' | '\r' | '\n' if !is_in_string => {}
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(character)).as_bytes());
            }
            other => out.extend_from_slice(other.encode_utf8(&mut buffer).as_bytes()),
        }
        is_in_string ^= character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &str =
        r#"{"kind":"K","apiVersion":"v1","spec":{"z":{"y":1,"x":null},"a":[{"q":1,"p":2},{"n":"<"}]}}"#;

    #[test]
    fn what_a_json_patch_visits_is_sorted() {
        for (patch, want) in [
            (
                r#"[{"op":"add","path":"/metadata","value":{"z": 1, "a":2}}]"#,
                r#"{"apiVersion":"v1","kind":"K","metadata":{"z":1,"a":2},"spec":{"z":{"y":1,"x":null},"a":[{"q":1,"p":2},{"n":"\u003c"}]}}"#,
            ),
            (
                r#"[{"op":"replace","path":"/spec/a/0/q","value":2}]"#,
                r#"{"apiVersion":"v1","kind":"K","spec":{"a":[{"p":2,"q":2},{"n":"\u003c"}],"z":{"y":1,"x":null}}}"#,
            ),
            (
                r#"[{"op":"test","path":"/spec/z","value":{"x":null,"y":1}},{"op":"remove","path":"/kind"}]"#,
                r#"{"apiVersion":"v1","spec":{"a":[{"q":1,"p":2},{"n":"\u003c"}],"z":{"x":null,"y":1}}}"#,
            ),
            (
                r#"[{"op":"copy","from":"/spec/z","path":"/spec/a/-"},{"op":"move","from":"/spec/a/0","path":"/spec/z/b"}]"#,
                r#"{"apiVersion":"v1","kind":"K","spec":{"a":[{"n":"\u003c"},{"y":1,"x":null}],"z":{"b":{"q":1,"p":2},"x":null,"y":1}}}"#,
            ),
            // The target is inside of what is copied.
            (
                r#"[{"op":"copy","from":"/spec","path":"/spec/z/c"}]"#,
                r#"{"apiVersion":"v1","kind":"K","spec":{"a":[{"q":1,"p":2},{"n":"\u003c"}],"z":{"c":{"a":[{"q":1,"p":2},{"n":"\u003c"}],"z":{"x":null,"y":1}},"x":null,"y":1}}}"#,
            ),
        ] {
            assert_eq!(json_patched(OBJECT, patch).as_deref(), Some(want), "{patch}");
        }
    }

    #[test]
    fn what_a_merge_patch_visits_is_sorted() {
        for (patch, want) in [
            (
                r#"{"spec":{"z":{"w":0}},"kind":null}"#,
                r#"{"apiVersion":"v1","spec":{"a":[{"q":1,"p":2},{"n":"\u003c"}],"z":{"w":0,"x":null,"y":1}}}"#,
            ),
            (
                r#"{"spec":{"z":[ {"d":1,"c":null} ],"a":[{"d":1,"c":null}],"n":{"d":1,"c":null,"b":2}}}"#,
                r#"{"apiVersion":"v1","kind":"K","spec":{"a":[{"d":1}],"n":{"b":2,"d":1},"z":[{"d":1,"c":null}]}}"#,
            ),
        ] {
            assert_eq!(merge_patched(OBJECT, patch).as_deref(), Some(want), "{patch}");
        }
    }
}
