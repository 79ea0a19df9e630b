//! Lists and sets.
//!
//! Source: cel-go's `ext/lists.go`, `ext/sets.go`; `k8s.io/apiserver/pkg/cel/library/lists.go`.

use std::cmp::Ordering;

use super::{Line, Result, error, no_overload};
use crate::interpreter::EvalError;
use crate::value::{List, Value};

/// How many items `lists.range` makes at most.
const MAX_RANGE: i64 = 100_000;

const SORTABLE: &str = "list<int>.()->bool list<uint>.()->bool list<double>.()->bool list<bool>.()->bool list<duration>.()->bool list<timestamp>.()->bool list<string>.()->bool list<bytes>.()->bool";
const LEAST: &str = "list<int>.()->int list<uint>.()->uint list<double>.()->double list<bool>.()->bool list<duration>.()->duration list<timestamp>.()->timestamp list<string>.()->string list<bytes>.()->bytes";
const SORTED: &str = "list<int>.()->list<int> list<uint>.()->list<uint> list<double>.()->list<double> list<bool>.()->list<bool> list<duration>.()->list<duration> list<timestamp>.()->list<timestamp> list<string>.()->list<string> list<bytes>.()->list<bytes>";

pub const TABLE: &[Line] = &[
    ("isSorted", SORTABLE, |args| {
        let list = only(args)?;
        let mut sorted = true;
        for at in 1..list.len() {
            if let (Some(a), Some(b)) = (list.get(at - 1), list.get(at)) {
                sorted &= a.compare(&b).ok_or(EvalError::NoSuchOverload)? != Ordering::Greater;
            }
        }
        Ok(Value::Bool(sorted))
    }),
    ("sum", "list<int>.()->int list<uint>.()->uint list<double>.()->double list<duration>.()->duration", sum),
    ("min", LEAST, |args| extreme(args, Ordering::Less, "min")),
    ("max", LEAST, |args| extreme(args, Ordering::Greater, "max")),
    ("sort", SORTED, |args| {
        let mut items: Vec<Value<'_>> = only(args)?.iter().collect();
        if items.windows(2).any(|pair| matches!(pair, [a, b] if a.compare(b).is_none())) {
            return error("list elements must have the same type");
        }
        items.sort_by(|a, b| a.compare(b).unwrap_or(Ordering::Equal));
        Ok(Value::list(items))
    }),
    ("distinct", "list<A>.()->list<A>", |args| {
        let mut found: Vec<Value<'_>> = Vec::new();
        for item in only(args)?.iter() {
            if !found.iter().any(|other| other.equals(&item)) {
                found.push(item);
            }
        }
        Ok(Value::list(found))
    }),
    ("reverse", "list<A>.()->list<A>", |args| Ok(Value::list(only(args)?.iter().rev().collect()))),
    ("flatten", "list<list<A>>.()->list<A> list<dyn>.(int)->list<dyn>", flatten),
    ("slice", "list<A>.(int,int)->list<A>", slice),
    ("first", "list<A>.()->optional<A>", |args| {
        Ok(Value::Optional(only(args)?.get(0).map(std::sync::Arc::new)))
    }),
    ("last", "list<A>.()->optional<A>", |args| {
        let list = only(args)?;
        Ok(Value::Optional(list.len().checked_sub(1).and_then(|at| list.get(at)).map(std::sync::Arc::new)))
    }),
    ("lists.range", "(int)->list<int>", |args| match args {
        [Value::Int(count)] if *count > MAX_RANGE => error("range size exceeds limit"),
        [Value::Int(count)] => Ok(Value::list((0..*count).map(Value::Int).collect())),
        _ => no_overload(),
    }),
    ("sets.contains", "(list<A>,list<A>)->bool", |args| {
        let (a, b) = two(args)?;
        Ok(Value::Bool(b.iter().all(|item| holds(a, &item))))
    }),
    ("sets.equivalent", "(list<A>,list<A>)->bool", |args| {
        let (a, b) = two(args)?;
        let equivalent = b.iter().all(|item| holds(a, &item)) && a.iter().all(|item| holds(b, &item));
        Ok(Value::Bool(equivalent))
    }),
    ("sets.intersects", "(list<A>,list<A>)->bool", |args| {
        let (a, b) = two(args)?;
        Ok(Value::Bool(a.iter().any(|item| holds(b, &item))))
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

fn holds(list: &List<'_>, item: &Value<'_>) -> bool {
    list.iter().any(|other| item.equals(&other))
}

fn sum<'a>(args: &[Value<'a>]) -> Result<Value<'a>> {
    let list = only(args)?;
    let add = super::function("_+_").ok_or(EvalError::NoSuchOverload)?.call;
    let mut total: Option<Value<'a>> = None;
    for item in list.iter() {
        total = Some(match total {
            None => item,
            Some(total) => add(&[total, item])?,
        });
    }
    Ok(total.unwrap_or(Value::Int(0)))
}

fn extreme<'a>(args: &[Value<'a>], wanted: Ordering, name: &str) -> Result<Value<'a>> {
    let mut best: Option<Value<'a>> = None;
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

fn flatten<'a>(args: &[Value<'a>]) -> Result<Value<'a>> {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(_), Value::Int(depth)] if *depth < 0 => return error("level must be non-negative"),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return no_overload(),
    };
    let mut items: Vec<Value<'a>> = list.iter().collect();
    for _ in 0..depth {
        if !items.iter().any(|item| matches!(item, Value::List(_))) {
            break;
        }
        let mut next = Vec::new();
        for item in items {
            match item {
                Value::List(inner) => next.extend(inner.iter()),
                other => next.push(other),
            }
        }
        items = next;
    }
    Ok(Value::list(items))
}

fn slice<'a>(args: &[Value<'a>]) -> Result<Value<'a>> {
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
    Ok(Value::list((start..end).filter_map(|at| list.get(at)).collect()))
}
