//! The values that may differ between two runs: the variables that a recording saves, uids, times
//! and revisions. They are expanded in requests and replaced by placeholders in responses.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;
use serde_json::value::RawValue;

static VARIABLE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\$\{(\w+)\}").expect("a pattern"));
static UID: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b").expect("a pattern")
});
static TIME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)").expect("a pattern")
});

/// A shorter saved value is not replaced, since it could be part of any word.
const MIN_VARIABLE_CHARACTERS: usize = 6;

/// The variables and uids of one run of a recording.
#[derive(Debug)]
pub struct Names {
    /// In the order in which they were saved: a value that is part of a later one is replaced
    /// first.
    variables: Vec<(String, Value)>,
    /// The numbers of the uids, by their first appearance.
    uids: HashMap<String, usize>,
}

impl Names {
    /// Creates the names of a run: `$NS` is the namespace, `${RAND}` a random text.
    pub fn new(namespace: &str, random: &str) -> Names {
        let variables = [("NS", namespace), ("RAND", random)];
        Names {
            variables: variables.map(|(name, value)| (name.to_owned(), value.into())).into(),
            uids: HashMap::new(),
        }
    }

    /// Returns the namespace of the run.
    pub fn namespace(&self) -> &str {
        self.get("NS").and_then(Value::as_str).unwrap_or_default()
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.variables.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// Saves a variable; a later value of the same name replaces it.
    pub fn save(&mut self, name: &str, value: Option<&Value>) {
        let value = value.cloned().unwrap_or_default();
        match self.variables.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => *old = value,
            None => self.variables.push((name.to_owned(), value)),
        }
    }

    /// Expands `$NS` and `${name}`.
    pub fn expand(&self, text: &str) -> String {
        self.fill(text, plain)
    }

    /// Expands variables in JSON, in its original order, with the spacing of `replay.py`: some
    /// responses quote the request.
    pub fn expand_json(&self, text: &RawValue) -> String {
        let text = self.fill(text.get(), |value| {
            let quoted = Value::from(plain(value)).to_string();
            quoted[1..quoted.len() - 1].to_owned()
        });
        spaced(&text)
    }

    fn fill(&self, text: &str, form: impl Fn(&Value) -> String) -> String {
        let text = text.replace("$NS", self.namespace());
        let value = |found: &Captures| match self.get(&found[1]) {
            Some(value) => form(value),
            None => found[0].to_owned(),
        };
        VARIABLE.replace_all(&text, value).into_owned()
    }

    /// Expands variables in all strings of a value.
    pub fn expand_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.expand(text).into(),
            Value::Array(elements) => elements.iter().map(|e| self.expand_value(e)).collect(),
            Value::Object(members) => {
                members.iter().map(|(k, v)| (self.expand(k), self.expand_value(v))).collect()
            }
            other => other.clone(),
        }
    }

    /// Replaces values that differ between runs by placeholders.
    pub fn normalize_text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.variables {
            if let Value::String(value) = value
                && value.chars().count() >= MIN_VARIABLE_CHARACTERS
                && UID.find(value).is_none_or(|uid| uid.as_str() != value)
            {
                text = text.replace(value, &format!("${{{name}}}"));
            }
        }
        let uids = &mut self.uids;
        let text = UID.replace_all(&text, |uid: &Captures| {
            let next = uids.len() + 1;
            format!("<uid-{}>", uids.entry(uid[0].to_owned()).or_insert(next))
        });
        TIME.replace_all(&text, "<time>").into_owned()
    }

    /// Replaces values that differ between runs everywhere in a value, visiting members in the
    /// order of their names.
    pub fn normalize(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.normalize_text(text).into(),
            Value::Array(elements) => elements.iter().map(|e| self.normalize(e)).collect(),
            Value::Object(members) => members
                .iter()
                .map(|(key, member)| (self.normalize_text(key), self.normalize_member(key, member)))
                .collect(),
            other => other.clone(),
        }
    }

    fn normalize_member(&mut self, key: &str, value: &Value) -> Value {
        let placeholder = match key {
            "resourceVersion" => "<rv>",
            "continue" => "<continue>",
            "remainingItemCount" => "<volatile>",
            _ => return self.normalize(value),
        };
        match value {
            Value::Null => Value::Null,
            Value::String(text) if text.is_empty() || text == "0" => value.clone(),
            _ => placeholder.into(),
        }
    }
}

/// Returns a saved value as text, in the format of `replay.py`.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        other => other.to_string(),
    }
}

/// Formats JSON with one space after each comma and colon and no others, in ASCII.
fn spaced(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut quoted, mut escaped) = (false, false);
    for c in json.chars() {
        match c {
            _ if !c.is_ascii() => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
            }
            ' ' | '\n' | '\r' | '\t' if !quoted => {}
            ',' | ':' if !quoted => out.extend([c, ' ']),
            _ => out.push(c),
        }
        quoted ^= c == '"' && !escaped;
        escaped = quoted && c == '\\' && !escaped;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_expanded_and_normalized() {
        let mut names = Names::new("replay-0a1b2c3d", "ffee0011");
        names.save("rv", Some(&json!("12")));
        names.save("pod", Some(&json!("web-abcde")));
        names.save("n", Some(&json!(3)));
        assert_eq!(
            names.expand("/$NS/${pod}?x=${n}&${unknown}"),
            "/replay-0a1b2c3d/web-abcde?x=3&${unknown}"
        );
        let uid = |last| format!("00000000-0000-0000-0000-00000000000{last}");
        let response = json!({
            "metadata": {"name": "web-abcde", "uid": uid(1), "resourceVersion": "12", "continue": ""},
            "at": "2026-01-02T03:04:05.000006Z",
            "list": [uid(2), uid(1), "12"],
        });
        let want = json!({
            "metadata": {"name": "${pod}", "uid": "<uid-2>", "resourceVersion": "<rv>", "continue": ""},
            "at": "<time>",
            "list": ["<uid-1>", "<uid-2>", "12"],
        });
        // Members are visited by name: `list` comes before `metadata`.
        assert_eq!(names.normalize(&response)["list"], json!(["<uid-1>", "<uid-2>", "12"]));
        assert_eq!(names.normalize(&response), want);
    }
    #[test]
    fn json_is_spaced_as_in_the_recordings() {
        for (written, want) in [
            ("{\n \"a\": [1,\n 2],\n \"b\":{}\n}", r#"{"a": [1, 2], "b": {}}"#),
            (r#"{"a, b" : "\"x\\"}"#, r#"{"a, b": "\"x\\"}"#),
            (r#"["é", "😀"]"#, r#"["\u00e9", "\ud83d\ude00"]"#),
        ] {
            assert_eq!(spaced(written), want);
        }
    }
}
