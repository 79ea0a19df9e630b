//! Version 2 of the documents, converted from version 3: one document for everything.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::common_members::{info, security_schemes};
use super::custom::REQUIRED_OF_EMBEDDED;
use crate::aggregator::{DEFINITIONS, Definition, KINDS, SwaggerPart};

/// Collects parts into one document. Of several definitions of one name the first counts.
#[derive(Default)]
pub(super) struct Swagger<'a> {
    paths: BTreeMap<&'a str, Cow<'a, str>>,
    definitions: BTreeMap<Cow<'a, str>, Cow<'a, Definition>>,
    parameters: BTreeMap<&'a str, &'a str>,
}

/// Returns the contribution of a document of version 3.
pub(super) fn part_of(mut document: Value) -> SwaggerPart {
    let members = |value: Value| match value {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    let paths = members(document["paths"].take());
    let definitions = members(document["components"]["schemas"].take());
    SwaggerPart {
        paths: paths.into_iter().map(|(path, item)| (path, path_item(item).to_string())).collect(),
        definitions: definitions
            .into_iter()
            .map(|(name, mut definition)| {
                definition = free_form(definition);
                schema(&mut definition);
                (name, Definition::new(definition))
            })
            .collect(),
        parameters: BTreeMap::new(),
    }
}

fn write_definition(definition: &Definition, to: &mut String) {
    let Definition { text, kinds } = definition;
    to.push_str(text);
    // Kinds come last, in a definition that is an object.
    if kinds.is_empty() || !text.ends_with('}') {
        return;
    }
    to.pop();
    if text.len() > "{}".len() {
        to.push(',');
    }
    to.push_str(&format!("\"{KINDS}\":[{}]}}", kinds.join(",")));
}

impl<'a> Swagger<'a> {
    /// Adds a document of this server.
    pub(super) fn add(&mut self, part: &'a SwaggerPart) {
        self.paths
            .extend(part.paths.iter().map(|(path, item)| (path.as_str(), Cow::Borrowed(item.as_str()))));
        for (name, definition) in &part.definitions {
            match self.definitions.get_mut(name.as_str()) {
                None => {
                    self.definitions.insert(name.into(), Cow::Borrowed(definition));
                }
                Some(known) if definition.kinds.iter().all(|kind| known.kinds.contains(kind)) => {}
                Some(known) => known.to_mut().unite_kinds(&definition.kinds),
            }
        }
    }

    /// Adds a document of another server. Its definitions get another name where this one has
    /// others of their name.
    ///
    /// Source: kube-openapi's `MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters`.
    pub(super) fn add_remote(&mut self, part: &'a SwaggerPart) {
        let mut renamed: BTreeMap<&str, String> = BTreeMap::new();
        let mut added: Vec<Cow<'a, str>> = Vec::new();
        for (name, definition) in &part.definitions {
            let name = match self.definitions.get_mut(name.as_str()) {
                Some(known) if known.text == definition.text => {
                    known.to_mut().unite_kinds(&definition.kinds);
                    continue;
                }
                Some(_) => {
                    let mut numbers = (2..).map(|number| format!("{name}_v{number}"));
                    let free = numbers.find(|free| !self.definitions.contains_key(free.as_str()));
                    let free = free.unwrap_or_default();
                    renamed.insert(name, free.clone());
                    Cow::Owned(free)
                }
                None => Cow::Borrowed(name.as_str()),
            };
            self.definitions.insert(name.clone(), Cow::Borrowed(definition));
            added.push(name);
        }
        for (path, item) in &part.paths {
            self.paths.entry(path).or_insert_with(|| rename(item, &renamed));
        }
        for name in added {
            if let Some(definition) = self.definitions.get_mut(&name)
                && let Cow::Owned(text) = rename(&definition.text.clone(), &renamed)
            {
                definition.to_mut().text = text;
            }
        }
        for (name, parameter) in &part.parameters {
            self.parameters.entry(name).or_insert(parameter);
        }
    }

    /// Assembles the document.
    pub(super) fn finish(self) -> String {
        let mut text = String::from("{\"definitions\":{");
        for (index, (name, definition)) in self.definitions.iter().enumerate() {
            write_name(&mut text, index, name);
            write_definition(definition, &mut text);
        }
        text.push_str(&format!("}},\"info\":{}", info()));
        if !self.parameters.is_empty() {
            text.push_str(",\"parameters\":{");
            for (index, (name, parameter)) in self.parameters.iter().enumerate() {
                write_name(&mut text, index, name);
                text.push_str(parameter);
            }
            text.push('}');
        }
        text.push_str(",\"paths\":{");
        for (index, (path, item)) in self.paths.iter().enumerate() {
            write_name(&mut text, index, path);
            text.push_str(item);
        }
        text.push_str(&format!(
            "}},\"security\":{},\"securityDefinitions\":{},\"swagger\":\"2.0\"}}",
            json!([{"BearerToken": []}]),
            security_schemes()
        ));
        text
    }
}

/// Renames the references in a text.
fn rename<'a>(text: &'a str, renamed: &BTreeMap<&str, String>) -> Cow<'a, str> {
    if renamed.is_empty() {
        return text.into();
    }
    let mut pieces = text.split(DEFINITIONS);
    let mut changed = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_at(piece.find('"').unwrap_or(piece.len()));
        changed.push_str(DEFINITIONS);
        changed.push_str(renamed.get(name).map_or(name, String::as_str));
        changed.push_str(rest);
    }
    changed.into()
}

fn write_name(text: &mut String, index: usize, name: &str) {
    if index > 0 {
        text.push(',');
    }
    text.push_str(&Value::from(name).to_string());
    text.push(':');
}

fn path_item(item: Value) -> Value {
    let Value::Object(members) = item else { return item };
    let convert = |(name, value): (String, Value)| {
        let converted = if name == "parameters" { parameters(value) } else { operation(value) };
        (name, converted)
    };
    members.into_iter().map(convert).collect()
}

fn operation(mut operation: Value) -> Value {
    let mut converted = Map::new();
    for name in
        ["tags", "description", "operationId", "x-kubernetes-action", "x-kubernetes-group-version-kind"]
    {
        if let Some(value) = operation.get_mut(name) {
            converted.insert(name.to_owned(), value.take());
        }
    }
    converted.insert("schemes".into(), json!(["https"]));
    let mut all = match parameters(operation["parameters"].take()) {
        Value::Array(parameters) => parameters,
        _ => Vec::new(),
    };
    let body = operation["requestBody"].take();
    // Discovery lists the produced types as consumed ones, although it reads nothing.
    let consumed = match &body["content"] {
        Value::Object(content) => media_types(content),
        _ if converted.contains_key("x-kubernetes-action") => json!(["*/*"]),
        _ => produced(&operation["responses"]),
    };
    converted.insert("consumes".into(), consumed);
    if let Some(mut schema_of_body) = content_schema(&body) {
        schema(&mut schema_of_body);
        let mut parameter = json!({"name": "body", "in": "body", "schema": schema_of_body});
        if let Some(required) = body.get("required") {
            parameter["required"] = required.clone();
        }
        all.insert(0, parameter);
    }
    if !all.is_empty() {
        converted.insert("parameters".into(), all.into());
    }
    converted.insert("produces".into(), produced(&operation["responses"]));
    let mut responses = Map::new();
    for (code, response) in operation["responses"].as_object().into_iter().flatten() {
        let mut converted = json!({"description": response["description"]});
        if let Some(mut answer) = content_schema(response) {
            schema(&mut answer);
            converted["schema"] = answer;
        }
        responses.insert(code.clone(), converted);
    }
    converted.insert("responses".into(), responses.into());
    converted.into()
}

/// Returns the media types of an operation's responses.
fn produced(responses: &Value) -> Value {
    let contents = responses.as_object().into_iter().flatten().map(|(_, response)| &response["content"]);
    contents.filter_map(Value::as_object).map(media_types).next().unwrap_or_else(|| json!([]))
}

fn media_types(content: &Map<String, Value>) -> Value {
    content.keys().map(String::as_str).collect()
}

fn content_schema(holder: &Value) -> Option<Value> {
    let content = holder.get("content")?.as_object()?;
    content.values().next().map(|media_type| media_type["schema"].clone())
}

/// Converts parameters: their type moves beside their name.
fn parameters(mut parameters: Value) -> Value {
    for parameter in parameters.as_array_mut().into_iter().flatten() {
        if let Value::Object(schema) = parameter["schema"].take()
            && let Some(parameter) = parameter.as_object_mut()
        {
            parameter.remove("schema");
            parameter.extend(schema);
        }
    }
    parameters
}

/// Reduces the definition of a kind that allows any member: clients would take the described
/// members for the only ones.
fn free_form(mut definition: Value) -> Value {
    match definition.get(PRESERVES) {
        Some(Value::Bool(true)) => json!({"type": "object", KINDS: definition[KINDS].take()}),
        _ => definition,
    }
}

const PRESERVES: &str = "x-kubernetes-preserve-unknown-fields";

/// Leaves out of what is required the members that may be null, and those that only version 3
/// requires.
fn drop_required(members: &mut Map<String, Value>) {
    let is_nullable = |schema: Option<&Value>| schema.is_some_and(|schema| schema["nullable"] == true);
    if is_nullable(members.get("additionalProperties")) {
        members.remove("required");
    }
    let preserves_embedded = members.get(PRESERVES).is_some_and(|flag| flag == true)
        && members.get("x-kubernetes-embedded-resource").is_some_and(|flag| flag == true);
    let properties = members.get("properties").cloned().unwrap_or_default();
    let Some(Value::Array(required)) = members.get_mut("required") else { return };
    if preserves_embedded && required.ends_with(&REQUIRED_OF_EMBEDDED.map(Value::from)) {
        required.truncate(required.len() - REQUIRED_OF_EMBEDDED.len());
    }
    required.retain(|name| !is_nullable(name.as_str().and_then(|name| properties.get(name))));
    if required.is_empty() {
        members.remove("required");
    }
}

/// Converts a schema: what version 2 cannot express is dropped, with the type if that would be
/// wrong alone.
fn schema(value: &mut Value) {
    let Some(members) = value.as_object_mut() else { return };
    if let Some(Value::String(target)) = members.get_mut("$ref") {
        *target = target.replace("#/components/schemas/", "#/definitions/");
    }
    members.remove("default");
    if let Some(Value::Array(all)) = members.get_mut("allOf")
        && let [Value::Object(one)] = all.as_mut_slice()
        && one.contains_key("$ref")
    {
        let one = std::mem::take(one);
        members.remove("allOf");
        members.extend(one);
        schema(value);
        return;
    }
    drop_required(members);
    if members.remove("oneOf").is_some() && !members.contains_key("type") {
        members.insert("type".into(), "string".into());
    }
    let mark = |members: &Map<String, Value>, name: &str| members.get(name) == Some(&Value::Bool(true));
    let untyped =
        mark(members, "nullable") || mark(members, "x-kubernetes-int-or-string") || mark(members, PRESERVES);
    if untyped {
        for name in ["type", "nullable", "properties", "items"] {
            members.remove(name);
        }
    }
    for name in ["allOf", "anyOf", "not"] {
        members.remove(name);
    }
    for name in ["items", "additionalProperties"] {
        members.get_mut(name).into_iter().for_each(schema);
    }
    if let Some(Value::Object(properties)) = members.get_mut("properties") {
        properties.values_mut().for_each(schema);
    }
}
