//! The cost of a call that was evaluated.

use super::range::{CALL, CHECK, LIST, REGEX_LENGTH, Range, TRAVERSAL, of_selector, scaled};
use crate::functions::Overload;
use crate::types::Type;
use crate::value::Value;

/// Returns the cost of a call with these arguments and this result; None is an error.
///
/// - `overload`: the overload, if the types of the arguments fit only one.
pub fn of_call(
    name: &str,
    overload: Option<&Overload>,
    args: &[Value<'_>],
    result: Option<&Value<'_>>,
) -> u64 {
    overload
        .and_then(|overload| of_list(name, overload, args, result))
        .or_else(|| of_kubernetes(name, args, result))
        .or_else(|| of_equality(name, args))
        .or_else(|| of_overload(name, overload?, args))
        .unwrap_or(CALL)
}

fn size(args: &[Value<'_>], at: usize) -> u64 {
    args.get(at).map_or(1, Value::size)
}

fn matched(text: u64, pattern: u64) -> u64 {
    scaled(text + 1, TRAVERSAL).saturating_mul(scaled(pattern, REGEX_LENGTH))
}

/// Returns the cost of a function of lists and sets.
fn of_list(name: &str, overload: &Overload, args: &[Value<'_>], result: Option<&Value<'_>>) -> Option<u64> {
    let made = |factor: f64, size: u64| (size as f64 * factor) as u64 + CALL + LIST;
    let compared = |at: usize| {
        let Some(Value::List(list)) = args.get(at) else { return made(2.0, 0) };
        let texts = matches!(list.get(0), Some(Value::String(_) | Value::Bytes(_)));
        let size = list.len() as u64;
        made(if texts { 2.0 + TRAVERSAL } else { 2.0 }, size.saturating_mul(size))
    };
    let sets = |factor: u64| CALL + size(args, 0).saturating_mul(size(args, 1)).saturating_mul(factor);
    let cost = match name {
        "reverse" | "slice" | "lists.range" => made(1.0, result.map_or(1, Value::size)),
        "flatten" => match args.get(1) {
            Some(Value::Int(depth)) => made(*depth as f64, size(args, 0)),
            _ => made(1.0, size(args, 0)),
        },
        "distinct" | "sort" => compared(0),
        "@sortByAssociatedKeys" => compared(1),
        "sets.contains" | "sets.intersects" => sets(1),
        "sets.equivalent" => sets(2),
        _ => return None,
    };
    (!overload.params.is_empty()).then_some(cost)
}

/// Returns the cost of a function of Kubernetes' libraries, for all its overloads.
fn of_kubernetes(name: &str, args: &[Value<'_>], result: Option<&Value<'_>>) -> Option<u64> {
    let traversed = |at: usize, factor: f64| scaled(size(args, at), factor * TRAVERSAL);
    Some(match name {
        "check" => CHECK,
        "fieldSelector" | "labelSelector" => of_selector(Range::fixed(size(args, 1))).max,
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => args.first().map_or(0, traversal),
        "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "jsonpatch.escapeKey"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver" => traversed(0, 1.0),
        "replace" | "split" | "ip.isCanonical" => traversed(0, 2.0),
        "join" => scaled(result.map_or(1, Value::size), 2.0 * TRAVERSAL),
        "find" | "findAll" => matched(size(args, 0), size(args, 1)),
        "ip" if matches!(args.first(), Some(Value::String(_))) => traversed(0, 1.0),
        "containsIP" | "containsCIDR" => {
            let range = size(args, 0);
            let mut cost = scaled(range * 2, TRAVERSAL);
            if name == "containsCIDR" {
                cost += scaled(range, TRAVERSAL) + 1;
            }
            if matches!(args.get(1), Some(Value::String(_))) {
                cost += traversed(1, 1.0);
            }
            cost
        }
        "validate" => match args {
            [Value::Format(format), text] => matched(text.size(), format.pattern_size()),
            _ => return None,
        },
        _ => return None,
    })
}

/// Returns the cost of an equality: fixed for values of Kubernetes' libraries.
fn of_equality(name: &str, args: &[Value<'_>]) -> Option<u64> {
    let ("_==_" | "_!=_", [a, b]) = (name, args) else { return None };
    let is_fixed = name == "_==_" && a.is_of_library();
    Some(if is_fixed { CALL } else { scaled(a.lesser_size(b), TRAVERSAL) })
}

/// Returns the cost of an overload for texts and lists.
fn of_overload(name: &str, overload: &Overload, args: &[Value<'_>]) -> Option<u64> {
    let first = overload.params.first();
    let texts = matches!(first, Some(Type::String | Type::Bytes));
    Some(match (name, args) {
        ("startsWith" | "endsWith" | "strings.quote" | "format", _) => scaled(size(args, 0), TRAVERSAL),
        ("bytes", _) if first == Some(&Type::String) => scaled(size(args, 0), TRAVERSAL),
        ("string", _) if first == Some(&Type::Bytes) => scaled(size(args, 0), TRAVERSAL),
        ("@in", _) if matches!(overload.params.get(1), Some(Type::List(_))) => size(args, 1),
        ("_<_" | "_<=_" | "_>_" | "_>=_", [a, b]) if texts => scaled(a.lesser_size(b), TRAVERSAL),
        ("_+_", [a, b]) if texts => scaled(a.size().saturating_add(b.size()), TRAVERSAL),
        ("matches", _) if overload.member => matched(size(args, 0), size(args, 1)),
        ("contains", _) => scaled(size(args, 0), TRAVERSAL).saturating_mul(scaled(size(args, 1), TRAVERSAL)),
        _ => return None,
    })
}

/// Returns the cost of reading a value with all nested values.
fn traversal(value: &Value<'_>) -> u64 {
    let bytes = |length: usize| (length as f64 * TRAVERSAL) as u64;
    match value {
        Value::String(text) => bytes(text.len()),
        Value::Bytes(text) => bytes(text.len()),
        Value::List(list) => list.iter().fold(0, |sum: u64, item| sum.saturating_add(traversal(&item))),
        Value::Map(map) => map.keys().iter().fold(0, |sum: u64, key| {
            let value = map.at(key).map_or(0, |value| traversal(&value));
            sum.saturating_add(traversal(key)).saturating_add(value)
        }),
        _ => 1,
    }
}
