//! The functions: their names, signatures and meanings.
//!
//! A signature is text: `string.(int)->string` is a member function, `(A,list<A>)->bool` a global one.

mod conversions;
mod format;
mod kubernetes;
mod lists;
mod network;
mod operators;
mod regex;
mod strings;
mod times;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

pub use conversions::{duration_text, is_second, is_timestamp, parse_duration, parse_time, shown};
pub use format::{Part, fits, misfit, parse as parse_format};
pub use regex::{check_pattern, is_pattern};

use crate::interpreter::EvalError;
use crate::meter::Meter;
use crate::types::Type;
use crate::value::Value;

/// The evaluation of a function. The receiver of a member function is the first argument. Texts among the arguments are counted as
/// read already; a function counts what else it visits, and what it makes.
pub type Call = for<'a> fn(&[Value<'a>], &Meter) -> Result<Value<'a>>;

type Result<T> = std::result::Result<T, EvalError>;

/// A line of a module's table: the name, the signatures, the meaning.
type Line = (&'static str, &'static str, Call);

/// A function with all its overloads.
#[derive(Debug)]
pub struct Function {
    /// The name.
    pub name: &'static str,
    /// The overloads, in the order of their declaration.
    pub overloads: Vec<Overload>,
    /// The meaning.
    pub call: Call,
}

/// One signature.
#[derive(Clone, Debug)]
pub struct Overload {
    /// Whether it is called in member style.
    pub member: bool,
    /// The types of the receiver and the arguments.
    pub params: Vec<Type>,
    /// The type of the result.
    pub result: Type,
}

/// The function of a name.
pub fn function(name: &str) -> Option<&'static Function> {
    static FUNCTIONS: OnceLock<HashMap<&str, Function>> = OnceLock::new();
    let read = || {
        let tables: [&[Line]; 7] = [
            operators::TABLE,
            conversions::TABLE,
            strings::TABLE,
            lists::TABLE,
            times::TABLE,
            kubernetes::TABLE,
            network::TABLE,
        ];
        let mut functions: HashMap<&str, Function> = HashMap::new();
        for (name, signatures, call) in tables.into_iter().flatten() {
            let overloads = signatures.split_whitespace().filter_map(overload);
            let function = functions.entry(name).or_insert_with(|| Function {
                name,
                overloads: Vec::new(),
                call: *call,
            });
            function.overloads.extend(overloads);
        }
        functions
    };
    FUNCTIONS.get_or_init(read).get(name)
}

/// Reads a signature.
pub fn overload(text: &str) -> Option<Overload> {
    let (head, result) = text.split_once(")->")?;
    let (target, params) = head.split_once('(')?;
    let member = target.strip_suffix('.');
    let mut types = Vec::new();
    if let Some(target) = member {
        types.push(type_of(target)?);
    }
    let mut rest = params;
    while !rest.is_empty() {
        let end = end_of_type(rest);
        types.push(type_of(rest.get(..end)?)?);
        rest = rest.get(end..)?.trim_start_matches(',');
    }
    Some(Overload { member: member.is_some(), params: types, result: type_of(result)? })
}

/// Where the first type of a list ends: at a comma outside of brackets.
fn end_of_type(text: &str) -> usize {
    let mut open = 0;
    for (at, c) in text.char_indices() {
        match c {
            '<' => open += 1,
            '>' => open -= 1,
            ',' if open == 0 => return at,
            _ => {}
        }
    }
    text.len()
}

fn type_of(text: &str) -> Option<Type> {
    if let Some((outer, inner)) = text.strip_suffix('>').and_then(|text| text.split_once('<')) {
        let end = end_of_type(inner);
        let first = type_of(inner.get(..end)?)?;
        return Some(match outer {
            "list" => Type::list(first),
            "optional" => Type::optional(first),
            "type" => Type::Type(Arc::new(first)),
            "map" => Type::map(first, type_of(inner.get(end + 1..)?)?),
            _ => return None,
        });
    }
    Some(match text {
        "A" => Type::Param(0),
        "B" => Type::Param(1),
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "null" => Type::Null,
        "ip" => Type::Opaque("net.IP".into()),
        "cidr" => Type::Opaque("net.CIDR".into()),
        "url" => Type::Opaque("kubernetes.URL".into()),
        "quantity" => Type::Opaque("kubernetes.Quantity".into()),
        "semver" => Type::Opaque("kubernetes.Semver".into()),
        "format" => Type::Opaque("kubernetes.NamedFormat".into()),
        "authorizer" => Type::Opaque("kubernetes.authorization.Authorizer".into()),
        "pathcheck" => Type::Opaque("kubernetes.authorization.PathCheck".into()),
        "groupcheck" => Type::Opaque("kubernetes.authorization.GroupCheck".into()),
        "resourcecheck" => Type::Opaque("kubernetes.authorization.ResourceCheck".into()),
        "decision" => Type::Opaque("kubernetes.authorization.Decision".into()),
        other => return Type::named(other),
    })
}

/// What a function gives for arguments that it has no overload for.
fn no_overload<'a>() -> Result<Value<'a>> {
    Err(EvalError::NoSuchOverload)
}

/// The error of a call whose arguments fit no overload. Where one implementation has all of them, it does not say which they
/// are; it says its name if the first argument is nothing that it works with at all.
pub fn no_such_overload(name: &str, args: &[Value<'_>]) -> EvalError {
    use Value::{Bool, Bytes, Double, Duration, Int, List, Map, String as Text, Timestamp, Uint};
    let first = args.first().unwrap_or(&Value::Null);
    // Some types are asked for a function of the name, which they do not have.
    let is_receiver = matches!(first, Text(_) | Duration(_) | Timestamp(_));
    let is_of_kind = match name {
        "_+_" => {
            matches!(
                first,
                Bytes(_) | Double(_) | Duration(_) | Int(_) | List(_) | Text(_) | Timestamp(_) | Uint(_)
            )
        }
        "_-_" => matches!(first, Double(_) | Duration(_) | Int(_) | Timestamp(_) | Uint(_)),
        "_*_" | "_/_" => first.is_number(),
        "_%_" => matches!(first, Int(_) | Uint(_)),
        "-_" => matches!(first, Bool(_) | Double(_) | Duration(_) | Int(_)),
        "!_" | "_==_" | "_!=_" | "@in" | "contains" | "startsWith" | "endsWith" | "matches"
        | "containsIP" | "containsCIDR" => true,
        "_<_" | "_<=_" | "_>_" | "_>=_" => {
            matches!(
                first,
                Bool(_) | Bytes(_) | Double(_) | Duration(_) | Int(_) | Text(_) | Timestamp(_) | Uint(_)
            )
        }
        "size" => matches!(first, Bytes(_) | List(_) | Map(_) | Text(_)),
        _ => {
            let types: Vec<String> = args.iter().map(|arg| arg.type_of().name().to_owned()).collect();
            return EvalError::NoSuchOverloadOf(format!("{name}({})", types.join(", ")).into());
        }
    };
    if is_of_kind || is_receiver {
        EvalError::NoSuchOverload
    } else {
        EvalError::NoSuchOverloadOf(name.into())
    }
}

/// An error in words.
fn error<T>(text: impl Into<String>) -> Result<T> {
    Err(EvalError::Other(text.into()))
}

/// A text as Go quotes it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
