//! Quantities, versions, named formats and the authorizer.
//!
//! Source: `k8s.io/apiserver/pkg/cel/library`: `quantity.go`, `semverlib.go`, `format.go`,
//! `authz.go`.

use std::cmp::Ordering;
use std::sync::Arc;

use coracle_quantity::Quantity;

use super::failure::{Result, error, no_overload};
use super::function::Line;
use crate::library::{NamedFormat, parse_semver};
use crate::meter::Meter;
use crate::value::Value;

pub const TABLE: &[Line] = &[
    ("quantity", "(string)->quantity", |args, _| match args {
        [Value::String(text)] => match text.parse::<Quantity>() {
            Ok(quantity) => Ok(Value::Quantity(quantity)),
            Err(wrong) => error(wrong.to_string()),
        },
        _ => no_overload(),
    }),
    ("isQuantity", "(string)->bool", |args, _| match args {
        [Value::String(text)] => Ok(Value::Bool(text.parse::<Quantity>().is_ok())),
        _ => no_overload(),
    }),
    ("sign", "(quantity)->int", |args, _| match args {
        [Value::Quantity(quantity)] => {
            Ok(Value::Int(i64::from(quantity.is_positive()) - i64::from(quantity.is_negative())))
        }
        _ => no_overload(),
    }),
    ("isInteger", "quantity.()->bool", |args, _| match args {
        [Value::Quantity(quantity)] => Ok(Value::Bool(quantity.is_whole())),
        _ => no_overload(),
    }),
    ("asInteger", "quantity.()->int", |args, _| match args {
        [Value::Quantity(quantity)] if quantity.is_whole() => Ok(Value::Int(quantity.value())),
        [Value::Quantity(_)] => error("cannot convert value to integer"),
        _ => no_overload(),
    }),
    ("asApproximateFloat", "quantity.()->double", |args, _| match args {
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
    ("add", "quantity.(quantity)->quantity quantity.(int)->quantity", |args, _| {
        arithmetic(args, |a, b| a.plus(b))
    }),
    ("sub", "quantity.(quantity)->quantity quantity.(int)->quantity", |args, _| {
        arithmetic(args, |a, b| a.minus(b))
    }),
    ("isGreaterThan", "quantity.(quantity)->bool semver.(semver)->bool", |args, _| {
        order(args, |order| Value::Bool(order == Ordering::Greater))
    }),
    ("isLessThan", "quantity.(quantity)->bool semver.(semver)->bool", |args, _| {
        order(args, |order| Value::Bool(order == Ordering::Less))
    }),
    ("compareTo", "quantity.(quantity)->int semver.(semver)->int", |args, _| {
        order(args, |order| Value::Int(order as i64))
    }),
    ("semver", "(string)->semver (string,bool)->semver", |args, meter| {
        let (text, lenient) = version(args)?;
        meter.make(text.len())?;
        match parse_semver(text, lenient) {
            Ok(version) => Ok(Value::Semver(Arc::new(version))),
            Err(wrong) => error(wrong),
        }
    }),
    ("isSemver", "(string)->bool (string,bool)->bool", |args, _| {
        let (text, lenient) = version(args)?;
        Ok(Value::Bool(parse_semver(text, lenient).is_ok()))
    }),
    ("major", "semver.()->int", |args, _| number(args, |version| version.major)),
    ("minor", "semver.()->int", |args, _| number(args, |version| version.minor)),
    ("patch", "semver.()->int", |args, _| number(args, |version| version.patch)),
    ("format.named", "(string)->optional<format>", |args, _| match args {
        [Value::String(name)] => {
            Ok(Value::Optional(NamedFormat::named(name).map(|format| Arc::new(Value::Format(format)))))
        }
        _ => no_overload(),
    }),
    ("format.dns1123Label", "()->format", |_, _| Ok(Value::Format(NamedFormat::Dns1123Label))),
    ("format.dns1123Subdomain", "()->format", |_, _| Ok(Value::Format(NamedFormat::Dns1123Subdomain))),
    ("format.dns1035Label", "()->format", |_, _| Ok(Value::Format(NamedFormat::Dns1035Label))),
    ("format.qualifiedName", "()->format", |_, _| Ok(Value::Format(NamedFormat::QualifiedName))),
    ("format.dns1123LabelPrefix", "()->format", |_, _| Ok(Value::Format(NamedFormat::Dns1123LabelPrefix))),
    ("format.dns1123SubdomainPrefix", "()->format", |_, _| {
        Ok(Value::Format(NamedFormat::Dns1123SubdomainPrefix))
    }),
    ("format.dns1035LabelPrefix", "()->format", |_, _| Ok(Value::Format(NamedFormat::Dns1035LabelPrefix))),
    ("format.labelValue", "()->format", |_, _| Ok(Value::Format(NamedFormat::LabelValue))),
    ("format.uri", "()->format", |_, _| Ok(Value::Format(NamedFormat::Uri))),
    ("format.uuid", "()->format", |_, _| Ok(Value::Format(NamedFormat::Uuid))),
    ("format.byte", "()->format", |_, _| Ok(Value::Format(NamedFormat::Byte))),
    ("format.date", "()->format", |_, _| Ok(Value::Format(NamedFormat::Date))),
    ("format.datetime", "()->format", |_, _| Ok(Value::Format(NamedFormat::DateTime))),
    ("validate", "format.(string)->optional<list<string>>", |args, _| match args {
        [Value::Format(format), Value::String(text)] => {
            let wrong = format
                .validate(text)
                .map(|errors| Arc::new(Value::list(errors.into_iter().map(Value::text).collect())));
            Ok(Value::Optional(wrong))
        }
        _ => no_overload(),
    }),
    ("path", "authorizer.(string)->pathcheck", |args, meter| host("path", args, meter)),
    ("group", "authorizer.(string)->groupcheck", |args, meter| host("group", args, meter)),
    ("serviceAccount", "authorizer.(string,string)->authorizer", |args, meter| {
        if let [_, Value::String(namespace), Value::String(name)] = args {
            let wrong = |format: NamedFormat, text: &str| format.validate(text).is_some();
            if wrong(NamedFormat::Dns1123Subdomain, name) {
                return error("Invalid service account name");
            }
            if wrong(NamedFormat::Dns1123Label, namespace) {
                return error("Invalid service account namespace");
            }
        }
        host("serviceAccount", args, meter)
    }),
    ("resource", "groupcheck.(string)->resourcecheck", |args, meter| host("resource", args, meter)),
    ("subresource", "resourcecheck.(string)->resourcecheck", |args, meter| host("subresource", args, meter)),
    ("namespace", "resourcecheck.(string)->resourcecheck", |args, meter| host("namespace", args, meter)),
    ("name", "resourcecheck.(string)->resourcecheck", |args, meter| host("name", args, meter)),
    ("fieldSelector", "resourcecheck.(string)->resourcecheck", |args, meter| {
        host("fieldSelector", args, meter)
    }),
    ("labelSelector", "resourcecheck.(string)->resourcecheck", |args, meter| {
        host("labelSelector", args, meter)
    }),
    ("check", "pathcheck.(string)->decision resourcecheck.(string)->decision", |args, meter| {
        host("check", args, meter)
    }),
    ("errored", "decision.()->bool", |args, meter| host("errored", args, meter)),
    ("error", "decision.()->string", |args, meter| host("error", args, meter)),
    ("allowed", "decision.()->bool", |args, meter| host("allowed", args, meter)),
    ("reason", "decision.()->string", |args, meter| host("reason", args, meter)),
];

fn host<'a>(function: &str, args: &[Value<'a>], meter: &Meter) -> Result<Value<'a>> {
    match args.split_first() {
        Some((Value::Host(host), args)) => {
            let texts = args.iter().map(|arg| if let Value::String(text) = arg { text.len() } else { 0 });
            meter.make(host.size() + texts.sum::<usize>())?;
            host.call(function, args)
        }
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
        _ => Err(crate::error::EvalError::NoSuchOverload),
    }
}

fn number<'a>(args: &[Value<'a>], part: fn(&semver::Version) -> u64) -> Result<Value<'a>> {
    match args {
        [Value::Semver(version)] => Ok(Value::Int(i64::try_from(part(version)).unwrap_or(i64::MAX))),
        _ => no_overload(),
    }
}
