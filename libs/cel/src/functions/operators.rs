//! Operators and optional values.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::failure::{Result, error, no_overload};
use super::function::Line;
use super::printing::shown;
use crate::decl::ListSemantics;
use crate::error::EvalError;
use crate::meter::Meter;
use crate::value::{Key, List, Map, Value};

const ORDERED: &str = "(bool,bool)->bool (int,int)->bool (int,double)->bool (int,uint)->bool (uint,uint)->bool (uint,double)->bool (uint,int)->bool (double,double)->bool (double,int)->bool (double,uint)->bool (string,string)->bool (bytes,bytes)->bool (timestamp,timestamp)->bool (duration,duration)->bool";

pub const TABLE: &[Line] = &[
    ("_==_", "(A,A)->bool", |args, meter| {
        pair(args, |a, b| {
            // The values of Kubernetes' libraries are not compared with others, and those of the
            // caller not at all.
            if matches!(a, Value::Host(_)) && !matches!(b, Value::Null) {
                return no_overload();
            }
            if a.is_of_library() && !matches!(b, Value::Null) && a.go_type() != b.go_type() {
                return no_overload();
            }
            Ok(Value::Bool(a.equals(b, meter)?))
        })
    }),
    ("_!=_", "(A,A)->bool", |args, meter| pair(args, |a, b| Ok(Value::Bool(!a.equals(b, meter)?)))),
    ("_<_", ORDERED, |args, _| compare(args, |order| order == Ordering::Less)),
    ("_<=_", ORDERED, |args, _| compare(args, |order| order != Ordering::Greater)),
    ("_>_", ORDERED, |args, _| compare(args, |order| order == Ordering::Greater)),
    ("_>=_", ORDERED, |args, _| compare(args, |order| order != Ordering::Less)),
    (
        "_+_",
        "(bytes,bytes)->bytes (double,double)->double (duration,duration)->duration (duration,timestamp)->timestamp (timestamp,duration)->timestamp (int,int)->int (list<A>,list<A>)->list<A> (string,string)->string (uint,uint)->uint",
        add,
    ),
    (
        "_-_",
        "(double,double)->double (duration,duration)->duration (int,int)->int (timestamp,duration)->timestamp (timestamp,timestamp)->duration (uint,uint)->uint",
        subtract,
    ),
    ("_*_", "(double,double)->double (int,int)->int (uint,uint)->uint", multiply),
    ("_/_", "(double,double)->double (int,int)->int (uint,uint)->uint", divide),
    ("_%_", "(int,int)->int (uint,uint)->uint", modulo),
    ("-_", "(double)->double (int)->int", negate),
    ("!_", "(bool)->bool", not),
    ("_&&_", "(bool,bool)->bool", |_, _| no_overload()),
    ("_||_", "(bool,bool)->bool", |_, _| no_overload()),
    ("_?_:_", "(bool,A,A)->A", |_, _| no_overload()),
    ("@not_strictly_false", "(bool)->bool", |args, _| match args {
        [Value::Bool(value)] => Ok(Value::Bool(*value)),
        _ => Ok(Value::Bool(true)),
    }),
    ("@in", "(A,list<A>)->bool (A,map<A,B>)->bool", contains),
    // Selections are planned; they have signatures only.
    (
        "_[_]",
        "(list<A>,int)->A (map<A,B>,A)->B (optional<list<A>>,int)->optional<A> (optional<map<A,B>>,A)->optional<B>",
        |_, _| no_overload(),
    ),
    (
        "_[?_]",
        "(list<A>,int)->optional<A> (map<A,B>,A)->optional<B> (optional<list<A>>,int)->optional<A> (optional<map<A,B>>,A)->optional<B>",
        |_, _| no_overload(),
    ),
    ("_?._", "(dyn,string)->optional<dyn>", |_, _| no_overload()),
    ("optional.of", "(A)->optional<A>", |args, _| single(args, |value| present(value.clone()))),
    ("optional.none", "()->optional<A>", |_, _| Ok(Value::Optional(None))),
    ("optional.ofNonZeroValue", "(A)->optional<A>", |args, _| {
        single(args, |value| if is_zero(value) { Ok(Value::Optional(None)) } else { present(value.clone()) })
    }),
    ("hasValue", "optional<A>.()->bool", |args, _| match args {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => no_overload(),
    }),
    ("value", "optional<A>.()->A", |args, _| match args {
        [Value::Optional(Some(value))] => Ok((**value).clone()),
        [Value::Optional(None)] => error("optional.none() dereference"),
        _ => no_overload(),
    }),
    ("or", "optional<A>.(optional<A>)->optional<A>", |_, _| no_overload()),
    ("orValue", "optional<A>.(A)->A", |_, _| no_overload()),
    ("cel.@mapInsert", "(map<A,B>,A,B)->map<A,B> (map<A,B>,map<A,B>)->map<A,B>", insert),
];

fn pair<'a>(
    args: &[Value<'a>],
    meaning: impl Fn(&Value<'a>, &Value<'a>) -> Result<Value<'a>>,
) -> Result<Value<'a>> {
    match args {
        [a, b] => meaning(a, b),
        _ => no_overload(),
    }
}

fn single<'a>(args: &[Value<'a>], meaning: impl Fn(&Value<'a>) -> Result<Value<'a>>) -> Result<Value<'a>> {
    match args {
        [a] => meaning(a),
        _ => no_overload(),
    }
}

fn present<'a>(value: Value<'a>) -> Result<Value<'a>> {
    Ok(Value::Optional(Some(Arc::new(value))))
}

fn compare<'a>(args: &[Value<'a>], accepted: fn(Ordering) -> bool) -> Result<Value<'a>> {
    let [a, b] = args else { return no_overload() };
    match a.compare(b) {
        Some(order) => Ok(Value::Bool(accepted(order))),
        None if a.is_nan() || b.is_nan() && a.is_number() => error("NaN values cannot be ordered"),
        None => no_overload(),
    }
}

fn checked<'a, T>(value: Option<T>, made: fn(T) -> Value<'a>, text: &str) -> Result<Value<'a>> {
    value.map(made).ok_or_else(|| EvalError::Other(text.to_owned()))
}

const INT: &str = "integer overflow";
const UINT: &str = "unsigned integer overflow";
const DURATION: &str = INT;
const TIMESTAMP: &str = "timestamp overflow";

/// Evaluates `_+_`.
pub fn add<'a>(args: &[Value<'a>], meter: &Meter) -> Result<Value<'a>> {
    match args {
        [Value::Int(a), Value::Int(b)] => checked(a.checked_add(*b), Value::Int, INT),
        [Value::Uint(a), Value::Uint(b)] => checked(a.checked_add(*b), Value::Uint, UINT),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a + b)),
        [Value::String(a), Value::String(b)] => {
            meter.make(a.len().saturating_add(b.len()))?;
            Ok(Value::text(format!("{}{}", &**a, &**b)))
        }
        [Value::Bytes(a), Value::Bytes(b)] => {
            meter.make(a.len().saturating_add(b.len()))?;
            Ok(Value::Bytes([&**a, &**b].concat().into()))
        }
        [Value::List(a), Value::List(b)] => join(a, b, meter),
        [Value::Duration(a), Value::Duration(b)] => checked(a.checked_add(*b), Value::Duration, DURATION),
        [Value::Duration(d), Value::Timestamp(t)] | [Value::Timestamp(t), Value::Duration(d)] => {
            let sum = t.at.checked_add(jiff::SignedDuration::from_nanos(*d)).ok();
            checked(sum.and_then(|sum| t.moved(sum)), Value::Timestamp, TIMESTAMP)
        }
        _ => no_overload(),
    }
}

/// Joins two lists: sets are merged, lists by keys too, others are appended.
fn join<'a>(a: &List<'a>, b: &List<'a>, meter: &Meter) -> Result<Value<'a>> {
    meter.make_items(a.len().saturating_add(b.len()))?;
    let mut items: Vec<Value<'a>> = a.iter().collect();
    let Some(semantics) = a.semantics() else {
        items.extend(b.iter());
        return Ok(Value::list(items));
    };
    match semantics {
        ListSemantics::Set => {
            for item in b.iter() {
                if !has(&items, &item, meter)? {
                    items.push(item);
                }
            }
        }
        ListSemantics::Map(keys) => {
            for item in b.iter() {
                let mut found = None;
                for (at, other) in items.iter().enumerate() {
                    if have_same_keys(other, &item, keys, meter)? {
                        found = Some(at);
                        break;
                    }
                }
                match found.and_then(|at| items.get_mut(at)) {
                    Some(place) => *place = item,
                    None => items.push(item),
                }
            }
        }
        ListSemantics::Atomic => items.extend(b.iter()),
    }
    Ok(Value::union(items, semantics))
}

/// Returns `true` if a value equals one of these values.
pub(super) fn has(values: &[Value<'_>], wanted: &Value<'_>, meter: &Meter) -> Result<bool> {
    for value in values {
        if value.equals(wanted, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn have_same_keys(a: &Value<'_>, b: &Value<'_>, keys: &[Arc<str>], meter: &Meter) -> Result<bool> {
    let (Value::Map(a), Value::Map(b)) = (a, b) else { return Ok(false) };
    meter.visit(1)?;
    for key in keys {
        let same = match (a.get(key), b.get(key)) {
            (Some(a), Some(b)) => a.equals(&b, meter)?,
            (a, b) => a.is_none() && b.is_none(),
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

fn subtract<'a>(args: &[Value<'a>], _: &Meter) -> Result<Value<'a>> {
    match args {
        [Value::Int(a), Value::Int(b)] => checked(a.checked_sub(*b), Value::Int, INT),
        [Value::Uint(a), Value::Uint(b)] => checked(a.checked_sub(*b), Value::Uint, UINT),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a - b)),
        [Value::Duration(a), Value::Duration(b)] => checked(a.checked_sub(*b), Value::Duration, DURATION),
        [Value::Timestamp(t), Value::Duration(d)] => {
            let difference = t.at.checked_sub(jiff::SignedDuration::from_nanos(*d)).ok();
            checked(difference.and_then(|difference| t.moved(difference)), Value::Timestamp, TIMESTAMP)
        }
        [Value::Timestamp(a), Value::Timestamp(b)] => {
            let nanos = i64::try_from(a.at.as_nanosecond() - b.at.as_nanosecond()).ok();
            checked(nanos, Value::Duration, DURATION)
        }
        _ => no_overload(),
    }
}

fn multiply<'a>(args: &[Value<'a>], _: &Meter) -> Result<Value<'a>> {
    match args {
        [Value::Int(a), Value::Int(b)] => checked(a.checked_mul(*b), Value::Int, INT),
        [Value::Uint(a), Value::Uint(b)] => checked(a.checked_mul(*b), Value::Uint, UINT),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a * b)),
        _ => no_overload(),
    }
}

fn divide<'a>(args: &[Value<'a>], _: &Meter) -> Result<Value<'a>> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => error("division by zero"),
        [Value::Int(a), Value::Int(b)] => checked(a.checked_div(*b), Value::Int, INT),
        [Value::Uint(a), Value::Uint(b)] => checked(a.checked_div(*b), Value::Uint, UINT),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a / b)),
        _ => no_overload(),
    }
}

fn modulo<'a>(args: &[Value<'a>], _: &Meter) -> Result<Value<'a>> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => error("modulus by zero"),
        [Value::Int(a), Value::Int(b)] => checked(a.checked_rem(*b), Value::Int, INT),
        [Value::Uint(a), Value::Uint(b)] => checked(a.checked_rem(*b), Value::Uint, UINT),
        _ => no_overload(),
    }
}

fn negate<'a>(args: &[Value<'a>], _: &Meter) -> Result<Value<'a>> {
    match args {
        [Value::Int(a)] => checked(a.checked_neg(), Value::Int, INT),
        [Value::Double(a)] => Ok(Value::Double(-a)),
        [Value::Duration(a)] => checked(a.checked_neg(), Value::Duration, DURATION),
        _ => no_overload(),
    }
}

fn not<'a>(args: &[Value<'a>], _: &Meter) -> Result<Value<'a>> {
    match args {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => no_overload(),
    }
}

fn contains<'a>(args: &[Value<'a>], meter: &Meter) -> Result<Value<'a>> {
    match args {
        [item, Value::List(list)] => Ok(Value::Bool(list.position(item, meter)?.is_some())),
        [key, Value::Map(map)] => Ok(Value::Bool(map.at(key).is_some())),
        _ => no_overload(),
    }
}

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Int(value) | Value::Duration(value) => *value == 0,
        Value::Uint(value) => *value == 0,
        Value::Double(value) => *value == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Optional(value) => value.is_none(),
        _ => false,
    }
}

fn insert<'a>(args: &[Value<'a>], meter: &Meter) -> Result<Value<'a>> {
    let (map, added) = match args {
        [Value::Map(map), key, value] => (map, vec![(key.clone(), value.clone())]),
        [Value::Map(map), Value::Map(added)] => {
            (map, added.keys().into_iter().filter_map(|key| Some((key.clone(), added.at(&key)?))).collect())
        }
        _ => return no_overload(),
    };
    meter.make_items(map.len().saturating_add(added.len()))?;
    let mut entries: BTreeMap<Key, Value<'a>> = match map {
        Map::Values(entries) => BTreeMap::clone(entries),
        map => map.keys().into_iter().filter_map(|key| Some((Key::of(&key)?, map.at(&key)?))).collect(),
    };
    for (key, value) in added {
        let found = Key::of(&key).ok_or(EvalError::NoSuchOverload)?;
        if entries.insert(found, value).is_some() {
            return error(format!("insert failed: key {} already exists", shown(&key, meter)?));
        }
    }
    Ok(Value::map(entries))
}
