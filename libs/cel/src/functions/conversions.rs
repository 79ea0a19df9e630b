//! Conversions between types.

use super::failure::{Result, error, no_overload};
use super::function::Line;
use super::printing::shown;
use crate::meter::Meter;
use crate::time::{Time, parse_duration};
use crate::value::Value;

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

/// Returns the error for a value that is not convertible.
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
        // An unsigned number has no sign.
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
