//! Bodies of responses.

use serde_json::Value;

/// Decodes a body: JSON if it can be parsed, otherwise text; null if it is empty.
pub fn decode(body: &[u8]) -> Value {
    match body {
        [] => Value::Null,
        _ => serde_json::from_slice(body).unwrap_or_else(|_| String::from_utf8_lossy(body).into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bodies_are_decoded_as_json_or_text() {
        assert_eq!(decode(b""), Value::Null);
        assert_eq!(decode(b"{\"a\":1}"), json!({"a": 1}));
        assert_eq!(decode(b"ok"), json!("ok"));
    }
}
