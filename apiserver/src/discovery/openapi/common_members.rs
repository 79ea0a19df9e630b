//! The members that all documents have.

use serde_json::{Value, json};

/// Returns the title and version of the API.
pub(super) fn info() -> Value {
    json!({"title": "Kubernetes", "version": "1.36"})
}

/// Returns the ways to authenticate.
pub(super) fn security_schemes() -> Value {
    json!({"BearerToken": {
        "type": "apiKey",
        "description": "Bearer Token authentication",
        "name": "authorization",
        "in": "header",
    }})
}
