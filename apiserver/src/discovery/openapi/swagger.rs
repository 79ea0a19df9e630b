//! Version 2 of the documents, converted from version 3: one document for everything.

use serde_json::{Map, Value, json};

/// Collects documents of version 3 into one of version 2.
pub(super) struct Swagger {
    paths: Map<String, Value>,
    definitions: Map<String, Value>,
}

impl Swagger {
    pub(super) fn new() -> Swagger {
        Swagger { paths: Map::new(), definitions: Map::new() }
    }

    pub(super) fn add(&mut self, mut document: Value) {
        if let Value::Object(paths) = document["paths"].take() {
            self.paths.extend(paths.into_iter().map(|(path, item)| (path, path_item(item))));
        }
        if let Value::Object(schemas) = document["components"]["schemas"].take() {
            for (name, mut converted) in schemas {
                schema(&mut converted);
                match self.definitions.get_mut(&name) {
                    None => {
                        self.definitions.insert(name, converted);
                    }
                    Some(known) => unite_kinds(known, &converted),
                }
            }
        }
    }

    pub(super) fn finish(self) -> Value {
        json!({
            "swagger": "2.0",
            "info": super::info(),
            "paths": self.paths,
            "definitions": self.definitions,
            "securityDefinitions": super::security_schemes(),
            "security": [{"BearerToken": []}],
        })
    }
}

/// A type of several group versions lists those of each document.
fn unite_kinds(known: &mut Value, more: &Value) {
    const KINDS: &str = "x-kubernetes-group-version-kind";
    if let (Some(Value::Array(known)), Some(Value::Array(more))) = (known.get_mut(KINDS), more.get(KINDS)) {
        let new: Vec<Value> = more.iter().filter(|kind| !known.contains(kind)).cloned().collect();
        known.extend(new);
    }
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

/// The media types of an operation's responses.
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

/// Parameters have their type beside their name.
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

/// Converts a schema: what version 2 cannot express is dropped, with the type if that would be wrong alone.
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
    if members.remove("oneOf").is_some() && !members.contains_key("type") {
        members.insert("type".into(), "string".into());
    }
    let mark = |members: &Map<String, Value>, name: &str| members.get(name) == Some(&Value::Bool(true));
    let untyped = mark(members, "nullable")
        || mark(members, "x-kubernetes-int-or-string")
        || mark(members, "x-kubernetes-preserve-unknown-fields");
    if untyped {
        for name in ["type", "nullable", "properties", "items"] {
            members.remove(name);
        }
    }
    for name in ["anyOf", "not"] {
        members.remove(name);
    }
    for name in ["items", "additionalProperties"] {
        members.get_mut(name).into_iter().for_each(schema);
    }
    if let Some(Value::Object(properties)) = members.get_mut("properties") {
        properties.values_mut().for_each(schema);
    }
}
