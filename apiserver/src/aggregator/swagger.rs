//! The part of the document of version 2 that one OpenAPI document contributes, and how that is
//! read from another server's document.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::codec::DecodeError;
use crate::codec::json::{decode_value_within, for_each_member};
use crate::codec::limits::Limits;

/// The member of a definition with the kinds that it has.
pub const KINDS: &str = "x-kubernetes-group-version-kind";
/// The beginning of references to definitions.
pub const DEFINITIONS: &str = "#/definitions/";
/// The beginning of references to parameters.
const PARAMETERS: &str = "#/parameters/";
/// The paths, definitions and parameters of another server's document that count, each.
const MAX_MEMBERS: usize = 20_000;
/// The kinds that a definition may have in one document; others do not count.
const MAX_KINDS: usize = 256;

/// The part of the document of version 2 that one document contributes, as text: it is kept while
/// the others change.
#[derive(Debug, Default, PartialEq)]
pub struct SwaggerPart {
    /// The path items, by path.
    pub paths: BTreeMap<String, String>,
    /// The definitions, by name.
    pub definitions: BTreeMap<String, Definition>,
    /// The parameters to which path items refer, by name.
    pub parameters: BTreeMap<String, String>,
}

/// A definition, without the kinds that it has, which differ where it is the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// The definition.
    pub text: String,
    /// The kinds, each as text.
    pub kinds: Vec<String>,
}

impl SwaggerPart {
    /// Reads another server's document of version 2: the paths below `/apis/GROUP/VERSION/`, and
    /// what they refer to. Nothing else of it is decoded. A path item or definition beyond the
    /// limits of responses is left out.
    ///
    /// # Errors
    /// It is not JSON.
    pub fn read(document: &[u8], path: &str) -> Result<SwaggerPart, DecodeError> {
        let mut sections: HashMap<&str, &[u8]> = HashMap::new();
        for_each_member(document, |name, text| {
            let known = ["paths", "definitions", "parameters"].into_iter().find(|known| *known == name);
            sections.extend(known.map(|known| (known, text)));
        })?;
        let section = |name: &str| sections.get(name).copied().unwrap_or(b"{}");
        let below = format!("/{path}/");
        let mut part = SwaggerPart::default();
        for_each_member(section("paths"), |path, item| {
            if path.starts_with(&below)
                && part.paths.len() < MAX_MEMBERS
                && let Some(item) = decoded(item)
            {
                part.paths.insert(path.into_owned(), item.to_string());
            }
        })?;
        let (definitions, parameters) = (members(section("definitions"))?, members(section("parameters"))?);
        let mut unread: Vec<String> =
            part.paths.values().flat_map(|text| references(text)).map(str::to_owned).collect();
        while let Some(reference) = unread.pop() {
            let text = if let Some(name) = reference.strip_prefix(DEFINITIONS)
                && !part.definitions.contains_key(name)
                && let Some(definition) = definitions.get(name).and_then(|text| decoded(text))
            {
                &part.definitions.entry(name.to_owned()).or_insert(Definition::new(definition)).text
            } else if let Some(name) = reference.strip_prefix(PARAMETERS)
                && !part.parameters.contains_key(name)
                && let Some(parameter) = parameters.get(name).and_then(|text| decoded(text))
            {
                part.parameters.entry(name.to_owned()).or_insert(parameter.to_string())
            } else {
                continue;
            };
            unread.extend(references(text).map(str::to_owned));
        }
        Ok(part)
    }
}

impl Definition {
    /// Creates the definition of a schema.
    pub fn new(mut definition: Value) -> Definition {
        let listed = match definition.as_object_mut().and_then(|members| members.remove(KINDS)) {
            Some(Value::Array(kinds)) => kinds,
            _ => Vec::new(),
        };
        let kinds: Vec<String> = listed.iter().take(MAX_KINDS).map(Value::to_string).collect();
        let mut definition = Definition { text: definition.to_string(), kinds: Vec::new() };
        definition.unite_kinds(&kinds);
        definition
    }

    /// Merges the kinds of a type that several group versions have: it lists those of each
    /// document.
    pub fn unite_kinds(&mut self, more: &[String]) {
        for kind in more {
            if !self.kinds.contains(kind) {
                self.kinds.push(kind.clone());
            }
        }
    }
}

/// Returns the members of an object by name, at most the first [`MAX_MEMBERS`].
fn members(text: &[u8]) -> Result<HashMap<Cow<'_, str>, &[u8]>, DecodeError> {
    let mut members = HashMap::new();
    for_each_member(text, |name, text| {
        if members.len() < MAX_MEMBERS {
            members.insert(name, text);
        }
    })?;
    Ok(members)
}

fn decoded(text: &[u8]) -> Option<Value> {
    decode_value_within(text, Limits::RESPONSE).ok()
}

/// Finds the references in a text.
fn references(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.match_indices("\"#/").map(|(at, _)| at + 1);
    starts.filter_map(|start| text[start..].split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PATH: &str = "apis/g.example.com/v1";

    #[test]
    fn a_part_has_the_paths_of_a_version_and_what_they_refer_to() {
        let operation = |reference: &str| json!({"get": {"schema": {"$ref": reference}}});
        let document = json!({
            "swagger": "2.0",
            "paths": {
                "/apis/g.example.com/v1/things": operation("#/definitions/A"),
                "/apis/g.example.com/v1/others": operation("#/parameters/P"),
                "/apis/g.example.com/v2/things": operation("#/definitions/unused"),
            },
            "definitions": {
                "A": {"items": {"$ref": "#/definitions/B"}, KINDS: [{"kind": "A"}, {"kind": "A"}, {"kind": "B"}]},
                "B": {"items": {"$ref": "#/definitions/A"}, "allOf": [{"$ref": "#/definitions/missing"}]},
                "unused": {},
            },
            "parameters": {"P": {"in": "query"}, "unused": {}},
        });
        let part = SwaggerPart::read(document.to_string().as_bytes(), PATH).expect("JSON");
        let names = |names: Vec<&String>| names.into_iter().cloned().collect::<Vec<_>>();
        assert_eq!(
            names(part.paths.keys().collect()),
            ["/apis/g.example.com/v1/others", "/apis/g.example.com/v1/things"]
        );
        assert_eq!(names(part.definitions.keys().collect()), ["A", "B"]);
        assert_eq!(part.definitions["A"].kinds, [r#"{"kind":"A"}"#, r#"{"kind":"B"}"#]);
        assert_eq!(part.definitions["A"].text, r##"{"items":{"$ref":"#/definitions/B"}}"##);
        assert_eq!(names(part.parameters.keys().collect()), ["P"]);
        assert!(SwaggerPart::read(b"{\"paths\":", PATH).is_err());
        assert_eq!(SwaggerPart::read(b"[]", PATH), Ok(SwaggerPart::default()));
    }

    #[test]
    fn what_is_beyond_the_limits_is_left_out() {
        let many = vec![json!({"": 0}); Limits::RESPONSE.collections];
        let document = json!({
            "paths": {"/apis/g.example.com/v1/things": {"get": "#/definitions/A"}, "/apis/g.example.com/v1/many": many},
            "definitions": {"A": many},
        });
        let part = SwaggerPart::read(document.to_string().as_bytes(), PATH).expect("JSON");
        assert_eq!((part.paths.len(), part.definitions.len()), (1, 0));
    }
}
