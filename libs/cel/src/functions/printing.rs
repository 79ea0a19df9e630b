//! Values as text.

use super::failure::{Result, error};
use crate::meter::Meter;
use crate::time::duration_text;
use crate::value::{List, Map, Value};

/// Formats a number as Go's `%g` does.
pub fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let exponent = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let number: i32 = exponent.parse().unwrap_or(0);
            format!("{digits}e{}{:02}", if number < 0 { '-' } else { '+' }, number.abs())
        }
        None => text,
    }
}

/// Formats a value as errors and `format` print it.
///
/// # Errors
/// [`EvalError::WorkLimit`](crate::EvalError::WorkLimit) if it has more values or text than
/// allowed.
pub fn shown(value: &Value<'_>, meter: &Meter) -> Result<String> {
    let mut text = String::new();
    show(value, &mut text, meter)?;
    Ok(text)
}

fn show(value: &Value<'_>, text: &mut String, meter: &Meter) -> Result<()> {
    meter.visit(1)?;
    let mut push = |part: &str| {
        meter.make(part.len())?;
        text.push_str(part);
        Ok(())
    };
    match value {
        Value::Null => push("null"),
        Value::Bool(value) => push(&value.to_string()),
        Value::Int(value) => push(&value.to_string()),
        Value::Uint(value) => push(&value.to_string()),
        Value::Double(value) => push(&double_text(*value)),
        Value::String(value) => push(value),
        Value::Bytes(bytes) => push(&String::from_utf8_lossy(bytes)),
        Value::Duration(nanos) => push(&duration_text(*nanos)),
        Value::Timestamp(time) => push(&time.to_string()),
        Value::List(list) => show_list(list, text, meter),
        Value::Map(map) => show_map(map, text, meter),
        Value::Type(ty) => push(ty.name()),
        Value::Quantity(quantity) => push(&quantity.to_string()),
        Value::Ip(address) => push(&address.to_string()),
        Value::Cidr(cidr) => push(&cidr.to_string()),
        Value::Url(url) => push(&url.text),
        Value::Semver(version) => push(&version.to_string()),
        other => push(other.type_of().name()),
    }
}

fn show_list(list: &List<'_>, text: &mut String, meter: &Meter) -> Result<()> {
    text.push('[');
    for (at, item) in list.iter().enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        show(&item, text, meter)?;
    }
    text.push(']');
    meter.make(2 * list.len())
}

fn show_map(map: &Map<'_>, text: &mut String, meter: &Meter) -> Result<()> {
    text.push('{');
    let mut separator = "";
    for key in map.keys() {
        let Some(value) = map.at(&key) else { continue };
        text.push_str(separator);
        separator = ", ";
        show(&key, text, meter)?;
        text.push_str(": ");
        show(&value, text, meter)?;
    }
    text.push('}');
    meter.make(4 * map.len())
}

/// Formats a list or map as `format` prints it: its parts as literals of the language.
///
/// # Errors
/// The error for a part that cannot be printed.
pub fn show_within(value: &Value<'_>, meter: &Meter) -> Result<String> {
    let mut text = String::new();
    literal(value, &mut text, meter)?;
    Ok(text)
}

fn literal(value: &Value<'_>, text: &mut String, meter: &Meter) -> Result<()> {
    match value {
        Value::List(list) => {
            text.push('[');
            for (at, item) in list.iter().enumerate() {
                text.push_str(if at > 0 { ", " } else { "" });
                literal(&item, text, meter)?;
            }
            text.push(']');
            meter.make(2 * list.len())
        }
        Value::Map(map) => literal_map(map, text, meter),
        Value::String(string) => {
            let quoted = quoted(string);
            meter.make(quoted.len())?;
            text.push_str(&quoted);
            Ok(())
        }
        Value::Bytes(bytes) => {
            let quoted = quoted(&String::from_utf8_lossy(bytes));
            meter.make(quoted.len() + 1)?;
            text.push('b');
            text.push_str(&quoted);
            Ok(())
        }
        Value::Double(value) => {
            let made = match value {
                value if value.is_nan() => "\"NaN\"".to_owned(),
                value if value.is_infinite() => format!("\"{}Inf\"", if *value > 0.0 { '+' } else { '-' }),
                value => format!("{value:.6}"),
            };
            meter.make(made.len())?;
            text.push_str(&made);
            Ok(())
        }
        Value::Duration(_) | Value::Timestamp(_) => {
            let name = if matches!(value, Value::Duration(_)) { "duration" } else { "timestamp" };
            text.push_str(&format!("{name}({})", quoted(&shown(value, meter)?)));
            Ok(())
        }
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Type(_) => {
            text.push_str(&shown(value, meter)?);
            Ok(())
        }
        other => error(format!("no formatting function for {}", other.type_of().name())),
    }
}

/// Formats a map, in the order of its printed keys.
fn literal_map(map: &Map<'_>, text: &mut String, meter: &Meter) -> Result<()> {
    let mut entries = Vec::with_capacity(map.len());
    for key in map.keys() {
        if !matches!(key, Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_)) {
            return error(format!("no formatting function for map key of type {}", key.type_of().name()));
        }
        let mut made = String::new();
        literal(&key, &mut made, meter)?;
        let mut value = String::new();
        literal(&map.at(&key).unwrap_or(Value::Null), &mut value, meter)?;
        entries.push((made, value));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let entries: Vec<String> = entries.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
    let made = format!("{{{}}}", entries.join(", "));
    meter.make(made.len())?;
    text.push_str(&made);
    Ok(())
}

/// Quotes a text as Go does.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
