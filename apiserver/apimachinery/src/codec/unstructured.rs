//! Converts an untyped object to its Go type in place, as upstream's `FromUnstructured` does for
//! merged and applied objects.
//!
//! It is more lenient with numbers than decoding JSON (`1.0` is an integer, and too large an
//! integer is truncated), and has messages of its own. Texts with a grammar (times, durations) are
//! left to the codec.
//!
//! Source: `k8s.io/apimachinery/pkg/runtime`, `converter.go`.

use coracle_quantity::Quantity;
use serde_json::Value;

use super::base64;
use crate::go_value::{cannot_unmarshal, go_type};
use crate::schema::{FieldSchema, StructId, Type, schema};

/// Converts an object to a struct of the table.
///
/// # Errors
/// The message of the first mismatch, members in Go's order.
pub fn restore_object(object: &mut Value, id: StructId) -> Result<(), String> {
    restore(object, &Type::Struct(id), None)
}

/// Converts a value to its type.
///
/// - `field`: the field that contains the value, or the list or map around it; none for a whole
///   object.
fn restore(value: &mut Value, ty: &Type, field: Option<&FieldSchema>) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    match ty {
        Type::Struct(id) => {
            let Value::Object(members) = value else {
                return Err(format!("cannot restore struct from: {}", kind(value)));
            };
            for field in schema().get(*id).members() {
                if let Some(member) = members.get_mut(field.name) {
                    restore(member, &field.ty, Some(field))?;
                }
            }
            Ok(())
        }
        Type::Map(item) => match value {
            Value::Object(members) => {
                members.values_mut().try_for_each(|member| restore(member, item, field))
            }
            other => Err(format!("cannot restore map from {}", kind(other))),
        },
        Type::List(item) | Type::ListMessage(item) => match value {
            Value::Array(elements) => {
                elements.iter_mut().try_for_each(|element| restore(element, item, field))
            }
            other => Err(format!("cannot restore slice from {}", kind(other))),
        },
        Type::Bytes => match &*value {
            Value::String(text) => base64::canonical(text)
                .map(drop)
                .map_err(|error| format!("error decoding from json: {error}")),
            Value::Array(_) => listed_bytes(value),
            other => Err(format!("cannot restore slice from {}", kind(other))),
        },
        Type::String => match value {
            Value::String(_) => Ok(()),
            Value::Number(n) if n.is_i64() => {
                let name = field.map_or_else(|| "string".to_owned(), FieldSchema::go_type);
                Err(format!("cannot convert int64 to {name}"))
            }
            _ => Err("unrecognized type: string".into()),
        },
        Type::Bool if !value.is_boolean() => Err("unrecognized type: bool".into()),
        Type::Int32 => integer(value, "int32", |wide| i64::from(wide as i32)),
        Type::Int64 => integer(value, "int64", |wide| wide),
        Type::Double if !value.is_number() => Err("unrecognized type: float64".into()),
        Type::Quantity => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text.parse::<Quantity>().map(drop).map_err(|error| error.to_string())
        }
        Type::IntOrString => int_or_string(value),
        Type::Time | Type::MicroTime | Type::Duration if !value.is_string() => {
            Err(cannot_unmarshal(value, "value of type string"))
        }
        _ => Ok(()),
    }
}

/// Converts bytes that are given as a list of numbers, of which null is zero.
fn listed_bytes(value: &mut Value) -> Result<(), String> {
    let mut bytes = Vec::new();
    for byte in value.as_array_mut().into_iter().flatten() {
        if !byte.is_null() {
            integer(byte, "uint8", |wide| i64::from(wide as u8))?;
        }
        bytes.push(byte.as_u64().and_then(|byte| u8::try_from(byte).ok()).unwrap_or_default());
    }
    *value = base64::encode(&bytes).into();
    Ok(())
}

fn integer(value: &mut Value, name: &str, cut: fn(i64) -> i64) -> Result<(), String> {
    let Value::Number(number) = value else { return Err(format!("unrecognized type: {name}")) };
    let wide = match (number.as_i64(), number.as_f64()) {
        (Some(integer), _) => integer,
        (None, Some(float)) if float.trunc() == float => whole(float),
        _ => return Err(format!("cannot convert float64 to {name}")),
    };
    *value = cut(wide).into();
    Ok(())
}

/// Converts a float to an integer. A float beyond the range of integers becomes the smallest one,
/// as on amd64.
fn whole(float: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&float) { float as i64 } else { i64::MIN }
}

fn int_or_string(value: &mut Value) -> Result<(), String> {
    let Value::Number(number) = &*value else {
        return if value.is_string() { Ok(()) } else { Err(cannot_unmarshal(value, "value of type int32")) };
    };
    let float = number.as_f64().unwrap_or(f64::NAN);
    if float.trunc() != float || i32::try_from(whole(float)).is_err() {
        return Err(format!("json: cannot unmarshal number {number} into Go value of type int32"));
    }
    *value = whole(float).into();
    Ok(())
}

/// Returns the kind of a decoded JSON value, as Go names it.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
        other => go_type(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_convert_as_from_a_map() {
        let deployment = schema().kind("apps", "v1", "Deployment").expect("a kind");
        let secret = schema().kind("", "v1", "Secret").expect("a kind");
        for (id, object, want) in [
            (
                deployment,
                json!({"spec": {"replicas": 2147483648_i64}}),
                Ok(json!({"spec": {"replicas": -2147483648_i64}})),
            ),
            (deployment, json!({"spec": {"replicas": i64::MAX}}), Ok(json!({"spec": {"replicas": -1}}))),
            (deployment, json!({"spec": {"replicas": 3.0}}), Ok(json!({"spec": {"replicas": 3}}))),
            (deployment, json!({"spec": {"replicas": 1.5}}), Err("cannot convert float64 to int32")),
            (deployment, json!({"spec": []}), Err("cannot restore struct from: slice")),
            (secret, json!({"data": {"a": "YQ=="}}), Ok(json!({"data": {"a": "YQ=="}}))),
            (
                secret,
                json!({"data": {"a": "-"}}),
                Err("error decoding from json: illegal base64 data at input byte 0"),
            ),
        ] {
            let mut got = object.clone();
            let restored = restore_object(&mut got, id).map(|()| got);
            assert_eq!(restored, want.map_err(str::to_owned), "{object}");
        }
    }
}
