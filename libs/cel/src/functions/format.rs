//! `format`: texts made of a pattern and values; patterns with a list of values are checked when an
//! expression is compiled.
//!
//! Source: cel-go's `ext/formatting.go`.

use std::fmt::Write as _;

use super::failure::{Result, error, no_overload};
use super::printing::{show_within, shown};
use crate::error::EvalError;
use crate::meter::Meter;
use crate::types::Type;
use crate::value::Value;

/// The digits after the point, where a clause does not say how many.
const PRECISION: usize = 6;
/// The maximum number of digits that a clause may ask for.
const MAX_PRECISION: usize = 1000;

/// A part of a pattern.
pub enum Part {
    /// Text that stays.
    Text(String),
    /// A clause: its verb and its precision.
    Clause(char, Option<usize>),
}

/// Reads a pattern with so many values. Calls `part` for each part of it; a clause comes with the
/// index of its value.
///
/// # Errors
/// The text of the first error in the pattern, or the first error of `part`.
pub fn parse<E: From<String>>(
    pattern: &str,
    values: usize,
    mut part: impl FnMut(Part, usize) -> std::result::Result<(), E>,
) -> std::result::Result<usize, E> {
    let unparsed = |why: &str| E::from(format!("could not parse formatting clause: {why}"));
    let mut chars = pattern.chars().peekable();
    let (mut text, mut next) = (String::new(), 0);
    while let Some(c) = chars.next() {
        if c != '%' || chars.peek() == Some(&'%') {
            text.push(c);
            if c == '%' {
                chars.next();
            }
            continue;
        }
        part(Part::Text(std::mem::take(&mut text)), next)?;
        if chars.peek().is_none() {
            return Err(E::from("unexpected end of string".to_owned()));
        }
        if next >= values {
            return Err(E::from(format!("index {next} out of range")));
        }
        let mut verb = chars.next();
        let mut precision = None;
        if verb == Some('.') {
            let mut digits = String::new();
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            verb = chars.next();
            if verb.is_none() {
                return Err(unparsed(
                    "error while parsing precision: could not find end of precision specifier",
                ));
            }
            let read: std::result::Result<usize, _> = digits.parse();
            precision = Some(read.map_err(|_| {
                unparsed(&format!(
                    "error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing {digits:?}: invalid syntax"
                ))
            })?);
        }
        match verb {
            Some(verb @ ('s' | 'd' | 'f' | 'e' | 'b' | 'x' | 'X' | 'o')) => {
                part(Part::Clause(verb, precision), next)?;
            }
            verb => {
                let verb = verb.unwrap_or_default();
                return Err(unparsed(&format!("unrecognized formatting clause \"{verb}\"")));
            }
        }
        next += 1;
    }
    part(Part::Text(text), next)?;
    Ok(next)
}

/// Returns the error of a clause for a value of a type that it cannot print.
pub fn misfit(verb: char, ty: &str) -> String {
    let only = match verb {
        's' => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
        }
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'b' => "only integers and bools can be formatted as binary",
        'o' => "octal clause can only be used on integers",
        _ => "only integers, byte buffers, and strings can be formatted as hex",
    };
    format!("error during formatting: {only}, was given {ty}")
}

/// Returns `true` if a formatting clause can print values of a type, or if the type is not known.
pub fn fits(verb: char, ty: &Type) -> bool {
    match (verb, ty) {
        (_, Type::Dyn) => true,
        ('d' | 'o' | 'b' | 'x' | 'X', Type::Int | Type::Uint) | ('b', Type::Bool) => true,
        ('f' | 'e', Type::Double | Type::String) | ('x' | 'X', Type::String | Type::Bytes) => true,
        ('s', ty) => !matches!(ty, Type::Optional(_) | Type::Object(_) | Type::Opaque(_) | Type::Error),
        _ => false,
    }
}

/// Implements the function `format`.
pub fn format<'a>(args: &[Value<'a>], meter: &Meter) -> Result<Value<'a>> {
    let [Value::String(pattern), Value::List(values)] = args else { return no_overload() };
    let mut made = String::new();
    parse::<EvalError>(pattern, values.len(), |part, index| {
        match part {
            Part::Text(text) => {
                meter.make(text.len())?;
                made.push_str(&text);
            }
            Part::Clause(verb, precision) => {
                let value = values.get(index).unwrap_or(Value::Null);
                // Each clause is counted where it is made, and here where it is copied.
                let clause = clause(verb, precision, &value, meter)?;
                meter.make(clause.len())?;
                made.push_str(&clause);
            }
        }
        Ok(())
    })?;
    Ok(Value::text(made))
}

impl From<String> for EvalError {
    fn from(text: String) -> EvalError {
        EvalError::Other(text)
    }
}

fn clause(verb: char, precision: Option<usize>, value: &Value<'_>, meter: &Meter) -> Result<String> {
    let digits = precision.unwrap_or(PRECISION).min(MAX_PRECISION);
    Ok(match (verb, value) {
        ('s', Value::List(_) | Value::Map(_)) => {
            show_within(value, meter).map_err(|failed| match failed {
                EvalError::Other(text) => EvalError::Other(format!("error during formatting: {text}")),
                other => other,
            })?
        }
        ('s', value) if fits('s', &value.type_of()) => shown(value, meter)?,
        ('d', Value::Int(value)) => value.to_string(),
        ('d', Value::Uint(value)) => value.to_string(),
        ('f', value) if as_double(value).is_some() => fixed(as_double(value).unwrap_or(0.0), digits),
        ('e', value) if as_double(value).is_some() => scientific(as_double(value).unwrap_or(0.0)),
        ('b', Value::Bool(value)) => u8::from(*value).to_string(),
        ('b', Value::Int(value)) => signed(*value, |value| format!("{value:b}")),
        ('b', Value::Uint(value)) => format!("{value:b}"),
        ('o', Value::Int(value)) => signed(*value, |value| format!("{value:o}")),
        ('o', Value::Uint(value)) => format!("{value:o}"),
        ('x', Value::Int(value)) => signed(*value, |value| format!("{value:x}")),
        ('X', Value::Int(value)) => signed(*value, |value| format!("{value:X}")),
        ('x', Value::Uint(value)) => format!("{value:x}"),
        ('X', Value::Uint(value)) => format!("{value:X}"),
        ('x' | 'X', Value::String(text)) => hex(text.as_bytes(), verb == 'X', meter)?,
        ('x' | 'X', Value::Bytes(bytes)) => hex(bytes, verb == 'X', meter)?,
        (verb, value) => return error(misfit(verb, value.type_of().name())),
    })
}

/// Converts a value to a number with a fraction; some texts represent one.
fn as_double(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(value) => Some(*value),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn special(value: f64) -> Option<String> {
    if value.is_nan() {
        return Some("NaN".into());
    }
    value.is_infinite().then(|| if value > 0.0 { "∞".into() } else { "-∞".into() })
}

/// Formats a number as in English, with commas between thousands.
fn fixed(value: f64, digits: usize) -> String {
    if let Some(text) = special(value) {
        return text;
    }
    let text = format!("{:.digits$}", value.abs());
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), ""), |(whole, rest)| (whole, rest));
    let mut made = String::from(if value.is_sign_negative() { "-" } else { "" });
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            made.push(',');
        }
        made.push(digit);
    }
    if !fraction.is_empty() {
        made.push('.');
        made.push_str(fraction);
    }
    made
}

/// Formats a number as in English. Upstream treats the precision of a clause as a width, which has
/// no effect.
fn scientific(value: f64) -> String {
    if let Some(text) = special(value) {
        return text;
    }
    let text = format!("{value:.PRECISION$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let raised: String = format!("{:02}", exponent.abs())
        .chars()
        .filter_map(|digit| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(digit.to_digit(10)? as usize))
        .collect();
    format!("{digits}×10{}{raised}", if exponent < 0 { "⁻" } else { "" })
}

fn signed(value: i64, print: fn(u64) -> String) -> String {
    format!("{}{}", if value < 0 { "-" } else { "" }, print(value.unsigned_abs()))
}

fn hex(bytes: &[u8], upper: bool, meter: &Meter) -> Result<String> {
    meter.make(bytes.len().saturating_mul(2))?;
    meter.visit(bytes.len() as u64)?;
    let mut text = String::new();
    for byte in bytes {
        let _ = if upper { write!(text, "{byte:02X}") } else { write!(text, "{byte:02x}") };
    }
    Ok(text)
}
