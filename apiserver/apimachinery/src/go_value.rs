//! JSON values as Go's `fmt` prints them: `map[a:1 b:[x y]]`. Errors of strategic merge patches and
//! cells of custom columns print values in this format.

use std::fmt::{self, Display, Formatter};

use serde_json::{Number, Value};

/// Prints with the verb `%v`.
pub struct GoValue<'a>(pub &'a Value);

/// Prints with the verb `%s`, which is for strings and marks everything else: `%!s(int64=5)`.
pub struct GoString<'a>(pub &'a Value);

impl Display for GoValue<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::Bool(b) => write!(f, "{b}"),
            Value::Number(n) => number(f, n),
            Value::String(s) => f.write_str(s),
            Value::Array(items) => list(f, items, GoValue),
            Value::Object(members) => map(f, members, GoValue),
        }
    }
}

impl Display for GoString<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::String(s) => f.write_str(s),
            Value::Array(items) => list(f, items, GoString),
            Value::Object(members) => map(f, members, GoString),
            other => write!(f, "%!s({}={})", go_type(other), GoValue(other)),
        }
    }
}

fn list<'a, D: Display>(f: &mut Formatter<'_>, items: &'a [Value], print: fn(&'a Value) -> D) -> fmt::Result {
    f.write_str("[")?;
    for (i, item) in items.iter().enumerate() {
        write!(f, "{}{}", if i == 0 { "" } else { " " }, print(item))?;
    }
    f.write_str("]")
}

fn map<'a, D: Display>(
    f: &mut Formatter<'_>,
    members: &'a serde_json::Map<String, Value>,
    print: fn(&'a Value) -> D,
) -> fmt::Result {
    f.write_str("map[")?;
    for (i, (key, value)) in members.iter().enumerate() {
        write!(f, "{}{key}:{}", if i == 0 { "" } else { " " }, print(value))?;
    }
    f.write_str("]")
}

/// Prints integers as they are, and floats in the shortest form, with an exponent below 1e-4 and
/// from 1e6.
fn number(f: &mut Formatter<'_>, number: &Number) -> fmt::Result {
    if let Some(integer) = number.as_i64() {
        return write!(f, "{integer}");
    }
    let float = number.as_f64().unwrap_or(f64::NAN);
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse().unwrap_or(0) {
        -4..6 => write!(f, "{float}"),
        exponent => write!(f, "{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, i32::abs(exponent)),
    }
}

/// Returns the type of a decoded JSON value as Go's `%T` prints it through `%s`; null has no type
/// and prints `%!s(<nil>)`.
pub fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// The type with the kind and version of an object, as errors of Go's JSON decoder name it.
pub const TYPE_META: &str = r#"value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// Formats the error for a document of the wrong shape, with the message of Go's JSON decoder.
pub fn cannot_unmarshal(value: &Value, into: &str) -> String {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {kind} into Go {into}")
}

/// Formats a value as Go's `%#v` prints it.
pub fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => crate::field::quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .map(|(name, value)| format!("{}:{}", crate::field::quote(name), go_syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", members.join(", "))
        }
        other => GoValue(other).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_print_as_in_go() {
        for (value, want) in [
            (json!({"b": {"k": 5}, "a": [1, "x y", null, true]}), "map[a:[1 x y <nil> true] b:map[k:5]]"),
            (json!([[], {}]), "[[] map[]]"),
            (json!(1.5), "1.5"),
            (json!(1e3), "1000"),
            (json!(123456789.5), "1.234567895e+08"),
            (json!(100000.0), "100000"),
            (json!(1e6), "1e+06"),
            (json!(1e21), "1e+21"),
            (json!(-1.5e-30), "-1.5e-30"),
            (json!(0.0001), "0.0001"),
            (json!(0.00001), "1e-05"),
            (json!(18446744073709551615u64), "1.8446744073709552e+19"),
        ] {
            assert_eq!(GoValue(&value).to_string(), want, "{value}");
        }
    }

    #[test]
    fn strings_mark_what_is_none() {
        let value = json!({"a": [1, "x", null, true, 1.5]});
        let want = "map[a:[%!s(int64=1) x <nil> %!s(bool=true) %!s(float64=1.5)]]";
        assert_eq!(GoString(&value).to_string(), want);
    }
}
