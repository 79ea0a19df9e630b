//! Quantities, versions, named formats and the authorizer.
//!
//! Source: `k8s.io/apiserver/pkg/cel/library`: `quantity.go`, `semverlib.go`, `format.go`, `authz.go`.

use std::cmp::Ordering;
use std::sync::Arc;

use coracle_quantity::Quantity;

use super::{Line, Result, error, no_overload};
use crate::library::{NamedFormat, parse_semver};
use crate::value::Value;

pub const TABLE: &[Line] = &[
    ("quantity", "(string)->quantity", |args| match args {
        [Value::String(text)] => match text.parse::<Quantity>() {
            Ok(quantity) => Ok(Value::Quantity(quantity)),
            Err(wrong) => error(wrong.to_string()),
        },
        _ => no_overload(),
    }),
    ("isQuantity", "(string)->bool", |args| match args {
        [Value::String(text)] => Ok(Value::Bool(text.parse::<Quantity>().is_ok())),
        _ => no_overload(),
    }),
    ("sign", "quantity.()->int", |args| match args {
        [Value::Quantity(quantity)] => {
            Ok(Value::Int(i64::from(quantity.is_positive()) - i64::from(quantity.is_negative())))
        }
        _ => no_overload(),
    }),
    ("isInteger", "quantity.()->bool", |args| match args {
        [Value::Quantity(quantity)] => Ok(Value::Bool(quantity.is_whole())),
        _ => no_overload(),
    }),
    ("asInteger", "quantity.()->int", |args| match args {
        [Value::Quantity(quantity)] if quantity.is_whole() => Ok(Value::Int(quantity.value())),
        [Value::Quantity(_)] => error("cannot convert value to integer"),
        _ => no_overload(),
    }),
    ("asApproximateFloat", "quantity.()->double", |args| match args {
        [Value::Quantity(quantity)] => {
            let whole = if quantity.is_whole() {
                quantity.value() as f64
            } else {
                quantity.milli_value() as f64 / 1e3
            };
            Ok(Value::Double(whole))
        }
        _ => no_overload(),
    }),
    ("add", "quantity.(quantity)->quantity quantity.(int)->quantity", |args| {
        arithmetic(args, |a, b| a.plus(b))
    }),
    ("sub", "quantity.(quantity)->quantity quantity.(int)->quantity", |args| {
        arithmetic(args, |a, b| a.minus(b))
    }),
    ("isGreaterThan", "quantity.(quantity)->bool semver.(semver)->bool", |args| {
        order(args, |order| Value::Bool(order == Ordering::Greater))
    }),
    ("isLessThan", "quantity.(quantity)->bool semver.(semver)->bool", |args| {
        order(args, |order| Value::Bool(order == Ordering::Less))
    }),
    ("compareTo", "quantity.(quantity)->int semver.(semver)->int", |args| {
        order(args, |order| Value::Int(order as i64))
    }),
    ("semver", "(string)->semver (string,bool)->semver", |args| {
        let (text, lenient) = version(args)?;
        match parse_semver(text, lenient) {
            Ok(version) => Ok(Value::Semver(Arc::new(version))),
            Err(wrong) => error(wrong),
        }
    }),
    ("isSemver", "(string)->bool (string,bool)->bool", |args| {
        let (text, lenient) = version(args)?;
        Ok(Value::Bool(parse_semver(text, lenient).is_ok()))
    }),
    ("major", "semver.()->int", |args| number(args, |version| version.major)),
    ("minor", "semver.()->int", |args| number(args, |version| version.minor)),
    ("patch", "semver.()->int", |args| number(args, |version| version.patch)),
    ("format.named", "(string)->optional<format>", |args| match args {
        [Value::String(name)] => {
            Ok(Value::Optional(NamedFormat::named(name).map(|format| Arc::new(Value::Format(format)))))
        }
        _ => no_overload(),
    }),
    ("format.dns1123Label", "()->format", |_| Ok(Value::Format(NamedFormat::Dns1123Label))),
    ("format.dns1123Subdomain", "()->format", |_| Ok(Value::Format(NamedFormat::Dns1123Subdomain))),
    ("format.dns1035Label", "()->format", |_| Ok(Value::Format(NamedFormat::Dns1035Label))),
    ("format.qualifiedName", "()->format", |_| Ok(Value::Format(NamedFormat::QualifiedName))),
    ("format.dns1123LabelPrefix", "()->format", |_| Ok(Value::Format(NamedFormat::Dns1123LabelPrefix))),
    ("format.dns1123SubdomainPrefix", "()->format", |_| {
        Ok(Value::Format(NamedFormat::Dns1123SubdomainPrefix))
    }),
    ("format.dns1035LabelPrefix", "()->format", |_| Ok(Value::Format(NamedFormat::Dns1035LabelPrefix))),
    ("format.labelValue", "()->format", |_| Ok(Value::Format(NamedFormat::LabelValue))),
    ("format.uri", "()->format", |_| Ok(Value::Format(NamedFormat::Uri))),
    ("format.uuid", "()->format", |_| Ok(Value::Format(NamedFormat::Uuid))),
    ("format.byte", "()->format", |_| Ok(Value::Format(NamedFormat::Byte))),
    ("format.date", "()->format", |_| Ok(Value::Format(NamedFormat::Date))),
    ("format.datetime", "()->format", |_| Ok(Value::Format(NamedFormat::DateTime))),
    ("validate", "format.(string)->optional<list<string>>", |args| match args {
        [Value::Format(format), Value::String(text)] => {
            let wrong = format
                .validate(text)
                .map(|errors| Arc::new(Value::list(errors.into_iter().map(Value::text).collect())));
            Ok(Value::Optional(wrong))
        }
        _ => no_overload(),
    }),
    ("path", "authorizer.(string)->pathcheck", |args| host("path", args)),
    ("group", "authorizer.(string)->groupcheck", |args| host("group", args)),
    ("serviceAccount", "authorizer.(string,string)->authorizer", |args| host("serviceAccount", args)),
    ("resource", "groupcheck.(string)->resourcecheck", |args| host("resource", args)),
    ("subresource", "resourcecheck.(string)->resourcecheck", |args| host("subresource", args)),
    ("namespace", "resourcecheck.(string)->resourcecheck", |args| host("namespace", args)),
    ("name", "resourcecheck.(string)->resourcecheck", |args| host("name", args)),
    ("fieldSelector", "resourcecheck.(string)->resourcecheck", |args| host("fieldSelector", args)),
    ("labelSelector", "resourcecheck.(string)->resourcecheck", |args| host("labelSelector", args)),
    ("check", "pathcheck.(string)->decision resourcecheck.(string)->decision", |args| host("check", args)),
    ("errored", "decision.()->bool", |args| host("errored", args)),
    ("error", "decision.()->string", |args| host("error", args)),
    ("allowed", "decision.()->bool", |args| host("allowed", args)),
    ("reason", "decision.()->string", |args| host("reason", args)),
];

fn host<'a>(function: &str, args: &[Value<'a>]) -> Result<Value<'a>> {
    match args.split_first() {
        Some((Value::Host(host), args)) => host.call(function, args),
        _ => no_overload(),
    }
}

fn arithmetic<'a>(args: &[Value<'a>], meaning: fn(&Quantity, &Quantity) -> Quantity) -> Result<Value<'a>> {
    match args {
        [Value::Quantity(a), Value::Quantity(b)] => Ok(Value::Quantity(meaning(a, b))),
        [Value::Quantity(a), Value::Int(b)] => Ok(Value::Quantity(meaning(a, &Quantity::from_int(*b)))),
        _ => no_overload(),
    }
}

fn order<'a>(args: &[Value<'a>], meaning: fn(Ordering) -> Value<'a>) -> Result<Value<'a>> {
    match args {
        [a @ Value::Quantity(_), b @ Value::Quantity(_)] | [a @ Value::Semver(_), b @ Value::Semver(_)] => {
            Ok(meaning(a.compare(b).unwrap_or(Ordering::Equal)))
        }
        _ => no_overload(),
    }
}

fn version<'v>(args: &'v [Value<'_>]) -> Result<(&'v str, bool)> {
    match args {
        [Value::String(text)] => Ok((&**text, false)),
        [Value::String(text), Value::Bool(lenient)] => Ok((&**text, *lenient)),
        _ => Err(crate::interpreter::EvalError::NoSuchOverload),
    }
}

fn number<'a>(args: &[Value<'a>], part: fn(&semver::Version) -> u64) -> Result<Value<'a>> {
    match args {
        [Value::Semver(version)] => Ok(Value::Int(i64::try_from(part(version)).unwrap_or(i64::MAX))),
        _ => no_overload(),
    }
}
