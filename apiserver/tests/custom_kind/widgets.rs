//! Widgets: the custom kind of these tests.

use serde_json::{Value, json};

pub const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

pub fn message(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["message"].as_str().unwrap_or(""))
}

/// Builds a widget in v1.
pub fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}
