//! Lists and sets.
//!
//! Source: cel-go's `ext/lists.go`, `ext/sets.go`; `k8s.io/apiserver/pkg/cel/library/lists.go`.

use std::cmp::Ordering;

use super::failure::{Result, error, no_overload};
use super::function::Line;
use super::operators::{add, has};
use crate::error::EvalError;
use crate::meter::Meter;
use crate::value::{List, Value};

/// The largest number of items that `lists.range` makes.
const MAX_RANGE: i64 = 100_000;

const SORTABLE: &str = "list<int>.()->bool list<uint>.()->bool list<double>.()->bool list<bool>.()->bool list<duration>.()->bool list<timestamp>.()->bool list<string>.()->bool list<bytes>.()->bool";
const LEAST: &str = "list<int>.()->int list<uint>.()->uint list<double>.()->double list<bool>.()->bool list<duration>.()->duration list<timestamp>.()->timestamp list<string>.()->string list<bytes>.()->bytes";
const SORTED: &str = "list<int>.()->list<int> list<uint>.()->list<uint> list<double>.()->list<double> list<bool>.()->list<bool> list<duration>.()->list<duration> list<timestamp>.()->list<timestamp> list<string>.()->list<string> list<bytes>.()->list<bytes>";

const SORTED_BY: &str = "list<A>.(list<int>)->list<A> list<A>.(list<uint>)->list<A> list<A>.(list<double>)->list<A> list<A>.(list<bool>)->list<A> list<A>.(list<duration>)->list<A> list<A>.(list<timestamp>)->list<A> list<A>.(list<string>)->list<A> list<A>.(list<bytes>)->list<A>";

pub const TABLE: &[Line] = &[
    ("isSorted", SORTABLE, |args, meter| {
        let list = only(args)?;
        let mut sorted = true;
        read(list, meter)?;
        for at in 1..list.len() {
            if let (Some(a), Some(b)) = (list.get(at - 1), list.get(at)) {
                sorted &= a.compare(&b).ok_or(EvalError::NoSuchOverload)? != Ordering::Greater;
            }
        }
        Ok(Value::Bool(sorted))
    }),
    ("sum", "list<int>.()->int list<uint>.()->uint list<double>.()->double list<duration>.()->duration", sum),
    ("min", LEAST, |args, meter| extreme(args, Ordering::Less, "min", meter)),
    ("max", LEAST, |args, meter| extreme(args, Ordering::Greater, "max", meter)),
    ("sort", SORTED, |args, meter| {
        let list = only(args)?;
        sort(list, list, meter)
    }),
    ("@sortByAssociatedKeys", SORTED_BY, |args, meter| {
        let (list, keys) = two(args)?;
        read(list, meter)?;
        sort(list, keys, meter)
    }),
    ("distinct", "list<A>.()->list<A>", |args, meter| {
        let mut found: Vec<Value<'_>> = Vec::new();
        for item in only(args)?.iter() {
            if !has(&found, &item, meter)? {
                found.push(item);
            }
        }
        meter.list(found)
    }),
    ("reverse", "list<A>.()->list<A>", |args, meter| {
        let list = only(args)?;
        meter.make_items(list.len())?;
        Ok(Value::list(list.iter().rev().collect()))
    }),
    ("flatten", "list<list<A>>.()->list<A> list<dyn>.(int)->list<dyn>", flatten),
    ("slice", "list<A>.(int,int)->list<A>", slice),
    ("first", "list<A>.()->optional<A>", |args, _| {
        Ok(Value::Optional(only(args)?.get(0).map(std::sync::Arc::new)))
    }),
    ("last", "list<A>.()->optional<A>", |args, _| {
        let list = only(args)?;
        Ok(Value::Optional(list.len().checked_sub(1).and_then(|at| list.get(at)).map(std::sync::Arc::new)))
    }),
    ("lists.range", "(int)->list<int>", |args, meter| match args {
        [Value::Int(count)] if *count > MAX_RANGE => error("range size exceeds limit"),
        [Value::Int(count)] => {
            meter.make_items(usize::try_from(*count).unwrap_or(0))?;
            Ok(Value::list((0..*count).map(Value::Int).collect()))
        }
        _ => no_overload(),
    }),
    ("sets.contains", "(list<A>,list<A>)->bool", |args, meter| {
        let (a, b) = two(args)?;
        Ok(Value::Bool(a.has_all(b, meter)?))
    }),
    ("sets.equivalent", "(list<A>,list<A>)->bool", |args, meter| {
        let (a, b) = two(args)?;
        Ok(Value::Bool(a.has_all(b, meter)? && b.has_all(a, meter)?))
    }),
    ("sets.intersects", "(list<A>,list<A>)->bool", |args, meter| {
        let (a, b) = two(args)?;
        for item in a.iter() {
            if b.position(&item, meter)?.is_some() {
                return Ok(Value::Bool(true));
            }
        }
        Ok(Value::Bool(false))
    }),
];

fn only<'v, 'a>(args: &'v [Value<'a>]) -> Result<&'v List<'a>> {
    match args {
        [Value::List(list)] => Ok(list),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn two<'v, 'a>(args: &'v [Value<'a>]) -> Result<(&'v List<'a>, &'v List<'a>)> {
    match args {
        [Value::List(a), Value::List(b)] => Ok((a, b)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// Counts the reading of all items.
fn read(list: &List<'_>, meter: &Meter) -> Result<()> {
    meter.visit(list.len() as u64)?;
    list.iter().try_for_each(|item| match item {
        Value::String(text) => meter.read(text.len()),
        Value::Bytes(bytes) => meter.read(bytes.len() * 8),
        _ => Ok(()),
    })
}

/// Sorts the items of a list by their keys.
fn sort<'a>(list: &List<'a>, keys: &List<'a>, meter: &Meter) -> Result<Value<'a>> {
    // Each item is compared about as often as its position has binary digits.
    (0..=list.len().checked_ilog2().unwrap_or(0)).try_for_each(|_| read(keys, meter))?;
    meter.make_items(list.len())?;
    let mut items: Vec<(Value<'a>, Value<'a>)> = keys.iter().zip(list.iter()).collect();
    if let Some((first, _)) = items.first() {
        if first.compare(first).is_none() && !first.is_nan() {
            return error("list elements must be comparable");
        }
        let ty = first.type_of();
        if items.iter().any(|(key, _)| key.type_of() != ty) {
            return error("list elements must have the same type");
        }
    }
    items.sort_by(|(a, _), (b, _)| a.compare(b).unwrap_or(Ordering::Equal));
    Ok(Value::list(items.into_iter().map(|(_, item)| item).collect()))
}

fn sum<'a>(args: &[Value<'a>], meter: &Meter) -> Result<Value<'a>> {
    let list = only(args)?;
    read(list, meter)?;
    let mut total: Option<Value<'a>> = None;
    for item in list.iter() {
        total = Some(match total {
            None => item,
            Some(total) => add(&[total, item], meter)?,
        });
    }
    Ok(total.unwrap_or(Value::Int(0)))
}

fn extreme<'a>(args: &[Value<'a>], wanted: Ordering, name: &str, meter: &Meter) -> Result<Value<'a>> {
    let mut best: Option<Value<'a>> = None;
    read(only(args)?, meter)?;
    for item in only(args)?.iter() {
        best = Some(match best {
            None => item,
            Some(best) => {
                if item.compare(&best).ok_or(EvalError::NoSuchOverload)? == wanted {
                    item
                } else {
                    best
                }
            }
        });
    }
    best.map_or_else(|| error(format!("{name} called on empty list")), Ok)
}

fn flatten<'a>(args: &[Value<'a>], meter: &Meter) -> Result<Value<'a>> {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(_), Value::Int(depth)] if *depth < 0 => return error("level must be non-negative"),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return no_overload(),
    };
    meter.make_items(list.len())?;
    let mut items: Vec<Value<'a>> = list.iter().collect();
    for _ in 0..depth {
        if !items.iter().any(|item| matches!(item, Value::List(_))) {
            break;
        }
        let mut next = Vec::new();
        for item in items {
            match item {
                Value::List(inner) => {
                    meter.make_items(inner.len())?;
                    next.extend(inner.iter());
                }
                other => {
                    meter.make_items(1)?;
                    next.push(other);
                }
            }
        }
        items = next;
    }
    Ok(Value::list(items))
}

fn slice<'a>(args: &[Value<'a>], meter: &Meter) -> Result<Value<'a>> {
    let [Value::List(list), Value::Int(from), Value::Int(to)] = args else { return no_overload() };
    let (Ok(start), Ok(end)) = (usize::try_from(*from), usize::try_from(*to)) else {
        return error(format!("cannot slice({from}, {to}), negative indexes not supported"));
    };
    if start > end {
        return error(format!(
            "cannot slice({from}, {to}), start index must be less than or equal to end index"
        ));
    }
    if end > list.len() {
        return error(format!("cannot slice({from}, {to}), list is length {}", list.len()));
    }
    meter.make_items(end - start)?;
    Ok(Value::list((start..end).filter_map(|at| list.get(at)).collect()))
}
