//! Texts: the standard functions, the extended ones, and regular expressions.
//!
//! Source: cel-go's `ext/strings.go`, `ext/formatting.go`;
//! `k8s.io/apiserver/pkg/cel/library/regex.go`.

use std::sync::Arc;

use super::failure::{Result, error, no_overload};
use super::format::format;
use super::function::Line;
use super::regex;
use crate::meter::Meter;
use crate::value::{Text, Value};

pub const TABLE: &[Line] = &[
    ("contains", "string.(string)->bool", |args, _| texts(args, |a, b| a.contains(b))),
    ("startsWith", "string.(string)->bool", |args, _| texts(args, |a, b| a.starts_with(b))),
    ("endsWith", "string.(string)->bool", |args, _| texts(args, |a, b| a.ends_with(b))),
    ("matches", "(string,string)->bool string.(string)->bool", |args, meter| match args {
        [Value::String(text), Value::String(pattern)] => {
            let regex = regex::compiled(pattern, meter)?;
            Ok(Value::Bool(regex.for_text(text, meter)?.is_match(text)))
        }
        _ => no_overload(),
    }),
    ("find", "string.(string)->string", |args, meter| match args {
        [Value::String(text), Value::String(pattern)] => {
            let regex = regex::compiled(pattern, meter)?;
            part(regex.for_text(text, meter)?.find(text).map_or("", |found| found.as_str()), meter)
        }
        _ => no_overload(),
    }),
    ("findAll", "string.(string)->list<string> string.(string,int)->list<string>", find_all),
    ("charAt", "string.(int)->string", char_at),
    ("indexOf", "string.(string)->int string.(string,int)->int list<A>.(A)->int", index_of),
    ("lastIndexOf", "string.(string)->int string.(string,int)->int list<A>.(A)->int", last_index_of),
    ("lowerAscii", "string.()->string", |args, meter| text(args, meter, str::to_ascii_lowercase)),
    ("upperAscii", "string.()->string", |args, meter| text(args, meter, str::to_ascii_uppercase)),
    ("trim", "string.()->string", |args, meter| text(args, meter, |text| text.trim().to_owned())),
    ("replace", "string.(string,string)->string string.(string,string,int)->string", replace),
    ("split", "string.(string)->list<string> string.(string,int)->list<string>", split),
    ("substring", "string.(int)->string string.(int,int)->string", substring),
    ("join", "list<string>.()->string list<string>.(string)->string", join),
    ("strings.quote", "(string)->string", |args, meter| text(args, meter, quote)),
    ("format", "string.(list<dyn>)->string", format),
    ("jsonpatch.escapeKey", "(string)->string", |args, meter| {
        text(args, meter, |text| text.replace('~', "~0").replace('/', "~1"))
    }),
];

fn texts<'a>(args: &[Value<'a>], meaning: fn(&str, &str) -> bool) -> Result<Value<'a>> {
    match args {
        [Value::String(a), Value::String(b)] => Ok(Value::Bool(meaning(a, b))),
        _ => no_overload(),
    }
}

/// Applies a function whose result is not much longer than its text.
fn text<'a>(args: &[Value<'a>], meter: &Meter, meaning: fn(&str) -> String) -> Result<Value<'a>> {
    match args {
        [Value::String(text)] => {
            meter.make(text.len())?;
            Ok(Value::text(meaning(text)))
        }
        _ => no_overload(),
    }
}

fn find_all<'a>(args: &[Value<'a>], meter: &Meter) -> Result<Value<'a>> {
    let (text, pattern, limit) = match args {
        [Value::String(text), Value::String(pattern)] => (text, pattern, usize::MAX),
        [Value::String(text), Value::String(pattern), Value::Int(limit)] => {
            (text, pattern, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        _ => return no_overload(),
    };
    let regex = regex::compiled(pattern, meter)?;
    let mut found = Vec::new();
    for part_of_text in regex.for_text(text, meter)?.find_iter(text).take(limit) {
        // The search for the next match may look at all the rest.
        meter.visit(1 + text.len() as u64 / 64)?;
        meter.make_items(1)?;
        found.push(part(part_of_text.as_str(), meter)?);
    }
    Ok(Value::list(found))
}

fn position(at: i64, length: usize) -> Result<usize> {
    match usize::try_from(at) {
        Ok(position) if position <= length => Ok(position),
        _ => error(format!("index out of range: {at}")),
    }
}

fn char_at<'a>(args: &[Value<'a>], _: &Meter) -> Result<Value<'a>> {
    let [Value::String(text), Value::Int(at)] = args else { return no_overload() };
    let position = position(*at, text.chars().count())?;
    Ok(Value::text(text.chars().nth(position).map(String::from).unwrap_or_default()))
}

fn index_of<'a>(args: &[Value<'a>], meter: &Meter) -> Result<Value<'a>> {
    let (text, wanted, from) = match args {
        [Value::List(list), item] => {
            return Ok(number(list.position(item, meter)?));
        }
        [Value::String(text), Value::String(wanted)] => (text, wanted, 0),
        [Value::String(text), Value::String(wanted), Value::Int(from)] => (text, wanted, *from),
        _ => return no_overload(),
    };
    if wanted.is_empty() {
        return Ok(Value::Int(from));
    }
    let Some(from) = offset(from, text)? else { return Ok(number(None)) };
    let start = text.char_indices().nth(from).map_or(text.len(), |(byte, _)| byte);
    let rest = text.get(start..).unwrap_or("");
    let found = rest.find(&**wanted).map(|byte| from + rest.get(..byte).unwrap_or("").chars().count());
    Ok(number(found))
}

fn last_index_of<'a>(args: &[Value<'a>], meter: &Meter) -> Result<Value<'a>> {
    let (text, wanted, from) = match args {
        [Value::List(list), item] => {
            let mut found = None;
            for (at, other) in list.iter().enumerate() {
                if item.equals(&other, meter)? {
                    found = Some(at);
                }
            }
            return Ok(number(found));
        }
        [Value::String(text), Value::String(wanted)] => (text, wanted, None),
        [Value::String(text), Value::String(wanted), Value::Int(from)] => (text, wanted, Some(*from)),
        _ => return no_overload(),
    };
    if wanted.is_empty() {
        return Ok(from.map_or_else(|| number(Some(text.chars().count())), Value::Int));
    }
    let last = match from {
        None => usize::MAX,
        Some(from) => match offset(from, text)? {
            Some(from) => from,
            None => return Ok(number(None)),
        },
    };
    let end = text.char_indices().nth(last).map_or(text.len(), |(byte, _)| byte);
    let end = (end + wanted.len()).min(text.len());
    let end = (end..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
    let head = text.get(..end).unwrap_or("");
    let found = head.rfind(&**wanted).map(|byte| head.get(..byte).unwrap_or("").chars().count());
    Ok(number(found.filter(|found| *found <= last)))
}

/// Converts an argument to the index of the first character; None if it is at or beyond the end of
/// the text.
fn offset(from: i64, text: &str) -> Result<Option<usize>> {
    match usize::try_from(from) {
        Ok(from) => Ok((from < text.chars().count()).then_some(from)),
        Err(_) => error(format!("index out of range: {from}")),
    }
}

/// Quotes a text as a literal of the language.
fn quote(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn number<'a>(found: Option<usize>) -> Value<'a> {
    Value::Int(found.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1))
}

fn replace<'a>(args: &[Value<'a>], meter: &Meter) -> Result<Value<'a>> {
    let (text, old, new, limit) = match args {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(limit)] => {
            (text, old, new, *limit)
        }
        _ => return no_overload(),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    // The result may be much longer than the arguments.
    let found = text.matches(&**old).take(limit).count();
    meter.make(text.len().saturating_add(found.saturating_mul(new.len())))?;
    Ok(Value::text(text.replacen(&**old, new, limit)))
}

fn split<'a>(args: &[Value<'a>], meter: &Meter) -> Result<Value<'a>> {
    let (text, separator, limit) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(limit)] => (text, separator, *limit),
        _ => return no_overload(),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(Value::list(Vec::new()));
    }
    if separator.is_empty() {
        meter.make_items(text.chars().count().min(limit))?;
        meter.make(text.len())?;
        let mut parts: Vec<String> = text.chars().take(limit.saturating_sub(1)).map(String::from).collect();
        let rest: String = text.chars().skip(parts.len()).collect();
        if !rest.is_empty() {
            parts.push(rest);
        }
        return Ok(Value::list(parts.into_iter().map(Value::text).collect()));
    }
    let mut parts = Vec::new();
    for part_of_text in text.splitn(limit, &**separator) {
        meter.make_items(1)?;
        parts.push(part(part_of_text, meter)?);
    }
    Ok(Value::list(parts))
}

fn substring<'a>(args: &[Value<'a>], meter: &Meter) -> Result<Value<'a>> {
    let (text, from, to) = match args {
        [Value::String(text), Value::Int(from)] => (text, *from, None),
        [Value::String(text), Value::Int(from), Value::Int(to)] => (text, *from, Some(*to)),
        _ => return no_overload(),
    };
    if let Some(to) = to
        && from > to
    {
        return error(format!("invalid substring range. start: {from}, end: {to}"));
    }
    let length = text.chars().count();
    let from_position = position(from, length)?;
    let to = to.map_or(Ok(length), |to| position(to, length))?;
    meter.text(text.chars().skip(from_position).take(to - from_position).collect::<String>())
}

fn join<'a>(args: &[Value<'a>], meter: &Meter) -> Result<Value<'a>> {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return no_overload(),
    };
    let mut joined = String::new();
    for (at, item) in list.iter().enumerate() {
        let Value::String(text) = item else { return no_overload() };
        meter.visit(1)?;
        meter.make(text.len().saturating_add(separator.len()))?;
        if at > 0 {
            joined.push_str(separator);
        }
        joined.push_str(&text);
    }
    Ok(Value::text(joined))
}

/// Returns a part of a text as a new value.
fn part<'a>(text: &str, meter: &Meter) -> Result<Value<'a>> {
    meter.make(text.len())?;
    Ok(Value::String(Text::Shared(Arc::from(text))))
}
