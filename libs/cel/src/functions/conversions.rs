//! Conversions between types.

use std::sync::Arc;

use super::{Line, Result, error, no_overload, quoted};
use crate::meter::Meter;
use crate::time::Time;
use crate::value::{List, Map, Value};

pub const TABLE: &[Line] = &[
    ("dyn", "(A)->dyn", |args, _| args.first().cloned().map_or_else(no_overload, Ok)),
    ("type", "(A)->type<A>", |args, _| match args {
        [value] => Ok(Value::Type(value.type_of())),
        _ => no_overload(),
    }),
    ("int", "(int)->int (double)->int (duration)->int (string)->int (timestamp)->int (uint)->int", to_int),
    ("uint", "(uint)->uint (double)->uint (int)->uint (string)->uint", to_uint),
    ("double", "(double)->double (int)->double (string)->double (uint)->double", to_double),
    (
        "string",
        "(string)->string (bool)->string (bytes)->string (double)->string (duration)->string (int)->string (timestamp)->string (uint)->string (ip)->string (cidr)->string",
        to_string,
    ),
    ("bytes", "(bytes)->bytes (string)->bytes", |args, meter| match args {
        [Value::Bytes(bytes)] => Ok(Value::Bytes(bytes.clone())),
        [Value::String(text)] => {
            meter.make(text.len())?;
            Ok(Value::Bytes(text.as_bytes().into()))
        }
        _ => inconvertible(args, "bytes"),
    }),
    ("bool", "(bool)->bool (string)->bool", to_bool),
    ("timestamp", "(timestamp)->timestamp (int)->timestamp (string)->timestamp", to_timestamp),
    ("duration", "(duration)->duration (int)->duration (string)->duration", to_duration),
    (
        "size",
        "(bytes)->int bytes.()->int (list<A>)->int list<A>.()->int (map<A,B>)->int map<A,B>.()->int (string)->int string.()->int",
        |args, _| match args {
            [value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))] => {
                Ok(Value::Int(i64::try_from(value.size()).unwrap_or(i64::MAX)))
            }
            _ => no_overload(),
        },
    ),
];

/// The result for a value that is not convertible.
fn inconvertible<'a>(args: &[Value<'a>], to: &str) -> Result<Value<'a>> {
    match args {
        [Value::String(_)] => error(format!("type conversion error from 'string' to '{to}'")),
        _ => no_overload(),
    }
}

fn to_int<'a>(args: &[Value<'a>], _: &Meter) -> Result<Value<'a>> {
    const RANGE: &str = "integer overflow";
    Ok(Value::Int(match args {
        [Value::Int(value) | Value::Duration(value)] => *value,
        [Value::Uint(value)] => i64::try_from(*value).or_else(|_| error(RANGE))?,
        [Value::Double(value)]
            if value.is_nan()
                || *value <= -9.223_372_036_854_775e18
                || *value >= 9.223_372_036_854_775e18 =>
        {
            return error(RANGE);
        }
        [Value::Double(value)] => *value as i64,
        [Value::String(text)] => match text.parse() {
            Ok(value) => value,
            Err(_) => return inconvertible(args, "int"),
        },
        [Value::Timestamp(time)] => time.at.as_second(),
        _ => return inconvertible(args, "int"),
    }))
}

fn to_uint<'a>(args: &[Value<'a>], _: &Meter) -> Result<Value<'a>> {
    const RANGE: &str = "unsigned integer overflow";
    Ok(Value::Uint(match args {
        [Value::Uint(value)] => *value,
        [Value::Int(value)] => u64::try_from(*value).or_else(|_| error(RANGE))?,
        [Value::Double(value)] if value.is_nan() || *value < 0.0 || *value >= 1.844_674_407_370_955e19 => {
            return error(RANGE);
        }
        [Value::Double(value)] => *value as u64,
        // A sign is none of an unsigned number.
        [Value::String(text)] => match text.parse() {
            Ok(value) if !text.starts_with('+') => value,
            _ => return inconvertible(args, "uint"),
        },
        _ => return inconvertible(args, "uint"),
    }))
}

fn to_double<'a>(args: &[Value<'a>], _: &Meter) -> Result<Value<'a>> {
    Ok(Value::Double(match args {
        [Value::Double(value)] => *value,
        [Value::Int(value)] => *value as f64,
        [Value::Uint(value)] => *value as f64,
        [Value::String(text)] => match text.parse::<f64>() {
            Ok(value) if value.is_finite() || !text.contains(|c: char| c.is_ascii_digit()) => value,
            _ => return inconvertible(args, "double"),
        },
        _ => return inconvertible(args, "double"),
    }))
}

fn to_bool<'a>(args: &[Value<'a>], _: &Meter) -> Result<Value<'a>> {
    match args {
        [Value::Bool(value)] => Ok(Value::Bool(*value)),
        [Value::String(text)] => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => inconvertible(args, "bool"),
        },
        _ => inconvertible(args, "bool"),
    }
}

fn to_string<'a>(args: &[Value<'a>], meter: &Meter) -> Result<Value<'a>> {
    match args {
        [Value::String(text)] => Ok(Value::String(text.clone())),
        [Value::Bytes(bytes)] => match std::str::from_utf8(bytes) {
            Ok(text) => meter.text(text.to_owned()),
            Err(_) => error("invalid UTF-8 in bytes, cannot convert to string"),
        },
        [
            value @ (Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::Duration(_)
            | Value::Timestamp(_)
            | Value::Ip(_)
            | Value::Cidr(_)),
        ] => Ok(Value::text(shown(value, meter)?)),
        _ => inconvertible(args, "string"),
    }
}

fn to_timestamp<'a>(args: &[Value<'a>], _: &Meter) -> Result<Value<'a>> {
    let in_range = |time: Option<Time>| {
        time.map_or_else(|| error("timestamp overflow"), |time| Ok(Value::Timestamp(time)))
    };
    match args {
        [Value::Timestamp(time)] => Ok(Value::Timestamp(*time)),
        [Value::Int(seconds)] => in_range(jiff::Timestamp::from_second(*seconds).ok().and_then(Time::utc)),
        [Value::String(text)] => match Time::parse(text) {
            Some(time) => in_range(time.checked()),
            None => inconvertible(args, "google.protobuf.Timestamp"),
        },
        _ => inconvertible(args, "google.protobuf.Timestamp"),
    }
}

fn to_duration<'a>(args: &[Value<'a>], _: &Meter) -> Result<Value<'a>> {
    match args {
        [Value::Duration(nanos) | Value::Int(nanos)] => Ok(Value::Duration(*nanos)),
        [Value::String(text)] => match parse_duration(text) {
            Some(nanos) => Ok(Value::Duration(nanos)),
            None => inconvertible(args, "google.protobuf.Duration"),
        },
        _ => inconvertible(args, "google.protobuf.Duration"),
    }
}

/// A duration as Go writes it, in nanoseconds.
pub fn parse_duration(text: &str) -> Option<i64> {
    i64::try_from(coracle_duration::parse(text).ok()?.as_nanos()).ok()
}

/// A time of RFC 3339, or a date.
pub fn parse_time(text: &str) -> Option<Time> {
    if text.len() == 10 { Time::parse(&format!("{text}T00:00:00Z")) } else { Time::parse(text) }
}

/// Whether a text is a time that may be.
pub fn is_timestamp(text: &str) -> bool {
    Time::parse(text).and_then(Time::checked).is_some()
}

/// Whether a number of seconds is a time that may be.
pub fn is_second(seconds: i64) -> bool {
    jiff::Timestamp::from_second(seconds).ok().and_then(Time::utc).is_some()
}

/// Seconds with the suffix `s`, as CEL prints durations.
pub fn duration_text(nanos: i64) -> String {
    let text = format!("{:.9}", nanos.unsigned_abs() as f64 / 1e9);
    let exact =
        format!("{}.{:09}", nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
    let text = if text == exact { text } else { exact };
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}{text}s", if nanos < 0 { "-" } else { "" })
}

/// A number as Go's `%g` prints it.
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

/// A value as errors and `format` print it.
///
/// # Errors
/// [`EvalError::WorkLimit`](crate::EvalError::WorkLimit) if it has more values, or makes more text, than may be.
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

/// A list or map as `format` prints it: its parts as literals of the language.
///
/// # Errors
/// The text of the error for a part that cannot be printed.
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

/// A map, in the order of its keys as they are printed.
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

/// A text that is a part of another one.
pub fn part<'a>(text: &str, meter: &Meter) -> Result<Value<'a>> {
    meter.make(text.len())?;
    Ok(Value::String(crate::value::Text::Shared(Arc::from(text))))
}
