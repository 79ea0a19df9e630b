//! Scalar: the meaning of a plain scalar in YAML 1.1.

use serde_json::{Number, Value};

/// The value of a scalar without a tag.
#[derive(Clone, Debug, PartialEq)]
pub enum ScalarValue {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(Number),
    /// Infinite or not a number, which JSON cannot represent.
    NonFinite(&'static str),
    /// A timestamp. JSON gets the string; the writer must quote it.
    Timestamp,
    /// A string.
    Text,
}

/// Resolves a plain scalar.
pub fn resolve(text: &str) -> ScalarValue {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return ScalarValue::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return ScalarValue::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return ScalarValue::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return ScalarValue::NonFinite("NaN"),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return ScalarValue::NonFinite("+Inf"),
        "-.inf" | "-.Inf" | "-.INF" => return ScalarValue::NonFinite("-Inf"),
        _ => {}
    }
    match text.as_bytes()[0] {
        b'.' => float(text),
        b'+' | b'-' | b'0'..=b'9' if is_timestamp(text) => Some(ScalarValue::Timestamp),
        b'+' | b'-' | b'0'..=b'9' => {
            let plain = text.replace('_', "");
            integer(&plain).map(ScalarValue::Number).or_else(|| float(&plain))
        }
        _ => None,
    }
    .unwrap_or(ScalarValue::Text)
}

/// Returns `true` if a text is a base-60 number of YAML 1.1 (`1:30`, `190:20:30.15`). Such a text
/// is read as a string, but must be quoted when it is written.
pub fn is_sexagesimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut parts = unsigned.split(':');
    let Some(first) = parts.next().filter(|first| first.starts_with(|c: char| c.is_ascii_digit())) else {
        return false;
    };
    let number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let rest: Vec<&str> = parts.collect();
    number(first)
        && !rest.is_empty()
        && rest.iter().enumerate().all(|(at, part)| {
            let last = at + 1 == rest.len();
            let (whole, fraction) = part.split_once('.').unwrap_or((part, ""));
            let sixty = match whole.as_bytes() {
                [digit] => digit.is_ascii_digit(),
                [b'0'..=b'5', digit] => digit.is_ascii_digit(),
                _ => false,
            };
            sixty && (last || whole.len() == part.len()) && number(fraction)
        })
}

/// Parses an integer in any of Go's bases: `12`, `0x1f`, `0b11`, `0o17`, `017`.
fn integer(text: &str) -> Option<Number> {
    let (negative, unsigned) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    let prefix = unsigned.get(..2).unwrap_or_default().to_ascii_lowercase();
    let (digits, radix) = match prefix.as_str() {
        "0x" => (&unsigned[2..], 16),
        "0b" => (&unsigned[2..], 2),
        "0o" => (&unsigned[2..], 8),
        _ if unsigned.len() > 1 && unsigned.starts_with('0') => (&unsigned[1..], 8),
        _ => (unsigned, 10),
    };
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative { 0i64.checked_sub_unsigned(magnitude).map(Number::from) } else { Some(magnitude.into()) }
}

fn float(text: &str) -> Option<ScalarValue> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) =
        unsigned.split_once(['e', 'E']).map_or((unsigned, None), |(m, e)| (m, Some(e)));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    if !digits(whole) || !digits(fraction) || (whole.is_empty() && fraction.is_empty()) || !exponent_fits {
        return None;
    }
    // A number that overflows is a string.
    Number::from_f64(text.parse().ok()?).map(ScalarValue::Number)
}

/// Returns `true` if a text is a timestamp: `2001-1-2`, `2001-01-02T15:04:05.6Z`, `2001-01-02
/// 15:04:05`.
fn is_timestamp(text: &str) -> bool {
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some((text.as_bytes()[at], &text[at + 1..]))),
        None => (text, None),
    };
    let mut parts = date.splitn(3, '-');
    let mut number = |longest: usize, exact: bool| -> Option<i16> {
        let part = parts.next()?;
        let fits = if exact { part.len() == longest } else { (1..=longest).contains(&part.len()) };
        if fits && part.bytes().all(|byte| byte.is_ascii_digit()) { part.parse().ok() } else { None }
    };
    let (Some(year), Some(month), Some(day)) = (number(4, true), number(2, false), number(2, false)) else {
        return false;
    };
    let (Ok(month), Ok(day)) = (i8::try_from(month), i8::try_from(day)) else { return false };
    jiff::civil::Date::new(year, month, day).is_ok()
        && time.is_none_or(|(separator, time)| is_clock(time, separator != b' '))
}

fn is_clock(text: &str, zoned: bool) -> bool {
    let zone_at = text.find(['Z', '+', '-']).unwrap_or(text.len());
    let (clock, zone) = text.split_at(zone_at);
    let zone_fits = match zone.as_bytes() {
        [] => !zoned,
        [b'Z'] => zoned,
        [b'+' | b'-', a, b, b':', c, d] => zoned && [a, b, c, d].iter().all(|byte| byte.is_ascii_digit()),
        _ => false,
    };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let parts: Vec<&str> = clock.split(':').collect();
    let below =
        |text: &str, limit: u8| (1..=2).contains(&text.len()) && text.parse().is_ok_and(|n: u8| n < limit);
    let fraction_fits = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    zone_fits
        && fraction_fits
        && matches!(parts[..], [hour, minute, second] if below(hour, 24) && below(minute, 60) && below(second, 60))
}

/// Converts a scalar with a core tag, such as `!!int "5"`.
///
/// # Errors
/// With kube-apiserver's messages, if the text is not of the tag's type.
pub fn tagged(tag: &str, text: &str) -> Result<Value, String> {
    let found = resolve(text);
    let of = match (&found, tag) {
        (_, "str") => return Ok(text.into()),
        (ScalarValue::Null, "null") => return Ok(Value::Null),
        (ScalarValue::Bool(set), "bool") => return Ok(Value::Bool(*set)),
        (ScalarValue::Number(number), "int") if !number.is_f64() => return Ok(Value::Number(number.clone())),
        (ScalarValue::Number(number), "float") => {
            let float = number.as_f64().and_then(Number::from_f64);
            return Ok(float.map_or(Value::Null, Value::Number));
        }
        (ScalarValue::Timestamp, "timestamp") => return Ok(text.into()),
        (ScalarValue::Null, _) => "null",
        (ScalarValue::Bool(_), _) => "bool",
        (ScalarValue::Number(number), _) if !number.is_f64() => "int",
        (ScalarValue::Number(_) | ScalarValue::NonFinite(_), _) => "float",
        (ScalarValue::Timestamp, _) => "timestamp",
        (ScalarValue::Text, _) => "str",
    };
    Err(format!("cannot decode !!{of} `{text}` as a !!{tag}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scalars_have_their_yaml_1_1_values() {
        for (text, want) in [
            ("", json!(null)),
            ("~", json!(null)),
            ("y", json!(true)),
            ("On", json!(true)),
            ("off", json!(false)),
            ("yEs", json!("yEs")),
            ("12", json!(12)),
            ("+1", json!(1)),
            ("-0x1F", json!(-31)),
            ("0b11", json!(3)),
            ("0o14", json!(12)),
            ("017", json!(15)),
            ("08", json!(8.0)),
            ("1_000", json!(1000)),
            ("18446744073709551615", json!(18446744073709551615u64)),
            ("99999999999999999999", json!(1e20)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("1e3", json!(1000.0)),
            (".5", json!(0.5)),
            ("5.", json!(5.0)),
            ("1e400", json!("1e400")),
            ("1:30", json!("1:30")),
            ("1.2.3", json!("1.2.3")),
            ("-", json!("-")),
            (".", json!(".")),
            ("0x", json!("0x")),
            ("2001-01-02x", json!("2001-01-02x")),
        ] {
            let found = match resolve(text) {
                ScalarValue::Null => Value::Null,
                ScalarValue::Bool(set) => Value::Bool(set),
                ScalarValue::Number(number) => Value::Number(number),
                other => {
                    assert_eq!(other, ScalarValue::Text, "{text}");
                    text.into()
                }
            };
            assert_eq!(found, want, "{text}");
        }
        for text in
            ["2001-01-02", "2001-1-2", "2001-01-02T03:04:05Z", "2001-01-02t3:4:5.6+01:00", "2001-01-02 3:4:5"]
        {
            assert_eq!(resolve(text), ScalarValue::Timestamp, "{text}");
        }
        assert!(is_sexagesimal("1:30") && is_sexagesimal("-190:20:30.15") && !is_sexagesimal("1:60"));
    }
}
